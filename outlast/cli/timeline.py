"""A run as its history tells it: steps, calls, what waits, who said what, and how it ended. No worker has to answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from outlast.messages import JsonObject

__all__ = ("Call", "Execution", "Message", "RunState", "Step", "Timeline")


RunState: TypeAlias = Literal[
    "running", "waiting", "paused", "completed", "failed", "cancelled", "terminated", "timed out", "continued as new"
]
DECISIONS = ("approve", "deny", "resolve", "retry")
MESSAGES = (*DECISIONS, "steer", "pause", "resume")


@dataclass(kw_only=True)
class Execution:
    """One activity: a model request, or one execution of a call. Temporal's attempts at it are in `attempt`.

    Attributes:
        started_at: When the last attempt started; while it runs, as far as the server tells.
        worker: Who made the last attempt.
        problem: Why it ended without a result, or why the last attempt failed.
        next_at: When the next attempt is made, while it is backing off.
        max_attempts: Most attempts; 0 where that is not known.
        lost: Ended because its worker was lost or shut down.
    """

    scheduled_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attempt: int = 1
    max_attempts: int = 0
    worker: str = ""
    problem: str = ""
    next_at: datetime | None = None
    lost: bool = False

    @property
    def seconds(self) -> float | None:
        """How long the last attempt took."""
        if self.started_at is None or self.ended_at is None:
            return None
        return max(0.0, (self.ended_at - self.started_at).total_seconds())


@dataclass(kw_only=True)
class Message:
    """Something that was said to the run from outside: a decision, `steer`, `pause`, `resume` or `cancel`.

    Attributes:
        via: `signal` or `update`.
        rejected: Why it did not apply, where the history tells; a signal's rejection only a worker knows.
    """

    name: str
    at: datetime
    via: str
    by: str | None = None
    tool_call_id: str | None = None
    content: JsonObject = field(default_factory=dict[str, Any])
    rejected: str | None = None


@dataclass(kw_only=True)
class Call:
    """One tool call.

    Attributes:
        args: None where the history does not tell.
        waits_since: Since when it waits for somebody.
        waits_for: `approval`, `external`, `deferred` or `unknown_outcome`.
        again_at: When the run makes it again, of which it said that nothing happened.
        outcome: What came of it, as on the wire.
        decision: What was decided last.
    """

    tool_call_id: str
    tool_name: str
    args: JsonObject | None = None
    executions: list[Execution] = field(default_factory=list[Execution])
    waits_for: str | None = None
    waits_since: datetime | None = None
    again_at: datetime | None = None
    outcome: JsonObject | None = None
    decision: Message | None = None

    @property
    def state(self) -> str:
        """Where it is: planned, running, waiting, backing off, approved, denied, resolved, retried, or its outcome."""
        if self.waits_for is not None:
            return "waiting"
        if self.again_at is not None:
            return "backing off"
        last = self.executions[-1] if self.executions else None
        if last is not None and last.ended_at is None:
            return "running"
        if self.outcome is not None and self.outcome.get("kind") != "deferred":
            return str(self.outcome.get("kind"))
        if self.decision is not None:
            return {"approve": "approved", "deny": "denied", "resolve": "resolved"}.get(self.decision.name, "retried")
        if last is not None:
            return "lost" if last.lost else "failed"
        return "planned"


@dataclass(kw_only=True)
class Step:
    """One model request and the calls that it asked for.

    Attributes:
        text: What the model said beside its calls.
        retry: What the model was told where its output was not valid.
    """

    number: int
    requests: list[Execution] = field(default_factory=list[Execution])
    text: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    calls: list[Call] = field(default_factory=list[Call])
    retry: str | None = None


@dataclass(kw_only=True)
class Timeline:
    """A run, as far as its history was read.

    Attributes:
        count: How many calls wait; `waiting` names the first few.
        waiting: What waits, as the memo tells it.
        next_run_id: Where the run goes on, where it continued as new.
        stuck: Why its worker cannot go on with it, where it cannot: its code, or a history that does not fit it.
        events: How many events were read.
        executions: The newest activity of each ID.
    """

    run_id: str
    agent: str = ""
    prompt: str = ""
    metadata: JsonObject = field(default_factory=dict[str, Any])
    task_queue: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    ending: RunState | None = None
    steps: list[Step] = field(default_factory=list[Step])
    messages: list[Message] = field(default_factory=list[Message])
    waiting: list[JsonObject] = field(default_factory=list[JsonObject])
    count: int = 0
    output: Any = None
    usage: JsonObject = field(default_factory=dict[str, Any])
    error_type: str = ""
    error: str = ""
    next_run_id: str = ""
    stuck: str = ""
    events: int = 0
    executions: dict[str, Execution] = field(default_factory=dict[str, Execution])

    @property
    def state(self) -> RunState:
        """`waiting` where nothing but a decision can move it, `paused` where nothing but `resume` can."""
        if self.ending is not None:
            return self.ending
        if any(self.under_way()):
            return "running"
        if self.paused:
            return "paused"
        backs_off = any(call.again_at is not None for call in self.calls)
        return "waiting" if self.count and not backs_off else "running"

    @property
    def paused(self) -> bool:
        """Nothing new starts."""
        said = [message.name for message in self.messages if message.name in ("pause", "resume")]
        return bool(said) and said[-1] == "pause"

    @property
    def calls(self) -> list[Call]:
        """All calls, in the order in which the model asked for them."""
        return [call for step in self.steps for call in step.calls]

    def find(self, tool_call_id: str) -> Call | None:
        """A call by its ID, the newest of that ID."""
        return next((call for call in reversed(self.calls) if call.tool_call_id == tool_call_id), None)

    def under_way(self) -> Iterable[Execution]:
        """Activities that have not ended."""
        return (execution for execution in self.executions.values() if execution.ended_at is None)
