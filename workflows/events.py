"""What happens to a run. Each event carries the time at which it happened: the machine has no clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from outlast.contracts import CallOutcome, Decision, StepPlan
from outlast.messages import UserContent


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The run begins."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlanned:
    """The model answered; the plan says what to do about it."""

    step: int
    plan: StepPlan
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLost:
    """The worker that asked the model was lost before it said what came of it."""

    step: int
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFailed:
    """The model request failed for good; `error_type` is the name of a `RunError` where it has one."""

    step: int
    error_type: str
    message: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCancelled:
    """The model request ended because it was cancelled."""

    step: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded:
    """A call's execution reported its outcome; `size_bytes` is the size of its JSON."""

    tool_call_id: str
    execution: int
    outcome: CallOutcome
    size_bytes: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CallErrored:
    """A repeatable call raised on its last attempt."""

    tool_call_id: str
    execution: int
    error_type: str
    message: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTimedOut:
    """A call ran past its timeout without noticing."""

    tool_call_id: str
    execution: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLost:
    """The worker that ran a call was lost, or shut down past its grace period."""

    tool_call_id: str
    execution: int
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CallUnclaimed:
    """No worker took the call: it never began."""

    tool_call_id: str
    execution: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCancelled:
    """A call ended because it was cancelled."""

    tool_call_id: str
    execution: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision arrived; `keep` says that it may wait for a call that does not wait yet, as a signal may."""

    decision: Decision
    via: str
    keep: bool
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Steered:
    """A message for the next step arrived."""

    content: str | list[UserContent]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """Nothing new may start."""

    by: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """Things may start again."""

    by: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A message arrived that nobody can apply; it is listed so that it does not vanish."""

    name: str
    error_type: str
    message: str
    content: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """A timer that the machine asked for is due."""

    name: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """Somebody cancels the run."""

    at: datetime


Event: TypeAlias = (
    Started
    | StepPlanned
    | StepLost
    | StepFailed
    | StepCancelled
    | CallEnded
    | CallErrored
    | CallTimedOut
    | CallLost
    | CallUnclaimed
    | CallCancelled
    | Decided
    | Steered
    | Paused
    | Resumed
    | Refused
    | TimerFired
    | CancelRequested
)
