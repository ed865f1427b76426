"""What the machine asks its engine to do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from outlast.contracts import CallInput, RunResult, StepInput


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStep:
    """Ask the model, and report `StepPlanned`, `StepLost`, `StepFailed` or `StepCancelled`."""

    input: StepInput
    heartbeat: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCall:
    """Run a call, and report exactly one event of its `execution`."""

    input: CallInput
    heartbeat: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelStep:
    """Cancel the model request that is under way; its end is still reported."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelCall:
    """Cancel a call that is under way; its end is still reported."""

    tool_call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimer:
    """Report `TimerFired` after this long."""

    name: str
    delay: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTimer:
    """The timer is no longer needed."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """What the run waits for has changed: show it to the world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The run ends with an output."""

    result: RunResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """The run ends without an output; `error_type` is the name of a `RunError`."""

    error_type: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndCancelled:
    """The run was cancelled, and nothing of it is running any more."""


Command: TypeAlias = (
    RequestStep
    | StartCall
    | CancelStep
    | CancelCall
    | StartTimer
    | CancelTimer
    | Publish
    | Finish
    | Fail
    | EndCancelled
)
