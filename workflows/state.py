"""The state of a run: all that must survive, and nothing else. It can be written as JSON between any two events."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from outlast.contracts import (
    MAX_PAYLOAD_BYTES,
    DecisionRecord,
    DepsVersion,
    Features,
    PendingKind,
    PlannedCall,
    PlannedOutput,
    Rejection,
    RunFacts,
    Wire,
)
from outlast.messages import JsonObject, Usage, UserContent

STEP_BYTES = MAX_PAYLOAD_BYTES - 64 * 1024
"""Most JSON bytes that the calls of one step may bring in: they go to the next model request in one payload."""

SMALL_BYTES = 1024
"""What is no larger than this always has room: whatever a step has brought in, each of its calls can be answered."""


class Held(Wire):
    """What a call waits for."""

    kind: PendingKind
    digest: str
    requested_at: datetime
    metadata: JsonObject = {}
    json_schema: JsonObject | None = None


class Call(Wire):
    """One call of the step that is under way.

    Attributes:
        plan: What the planning of the step said about it.
        args: What it runs with: as planned, or as a person edited them.
        execution: How often it was handed to a worker.
        gated: It was held for an approval at some time, so it is not repeatable unless its tool says so.
        approvals: How often somebody approved it: each approval is good for one execution.
        losses: How often its worker was lost.
        transient: How often it said that nothing happened and it should be tried again.
        misplaced: How often in a row a worker took it that does not host its agent.
        deps_version: Version of the deps that its execution started with.
        cancelled: Its execution was told to stop, because the run ends.
        counted: It used one of its tool's retries.
        parts: What the model will see of it; empty until it is done.
        user_content: Further content that the model will see as a user prompt.
    """

    plan: PlannedCall
    args: JsonObject
    status: Literal["ready", "running", "held", "backoff", "done"] = "ready"
    held: Held | None = None
    execution: int = 0
    gated: bool = False
    approved: bool = False
    approvals: int = 0
    approved_digest: str | None = None
    losses: int = 0
    transient: int = 0
    misplaced: int = 0
    deps_version: int = 0
    cancelled: bool = False
    counted: bool = False
    succeeded: bool = False
    parts: list[JsonObject] = []
    user_content: str | list[UserContent] | None = None

    @property
    def repeatable(self) -> bool:
        """The call may be made more than once."""
        explicit = self.plan.policy.repeatable
        return explicit if explicit is not None else not self.gated


class Early(Wire):
    """A decision that arrived before its call waited."""

    name: str
    decision: JsonObject
    via: str
    at: datetime


class Ending(Wire):
    """The run is to end without an output, as soon as nothing of it is running."""

    state: Literal["failed", "cancelled"]
    error_type: str
    message: str


class RunState(Wire):
    """The state of a run.

    Attributes:
        run_key: Different for every run, and the same for all of one run, over crashes and continue-as-new.
        messages: The conversation, as JSON; the machine never looks into content that it did not write.
        known: How many messages a worker is expected to know already.
        digest: Rolling digest of these.
        step: Number of the step that is under way or done, from 1.
        asking: The model request of the step is under way.
        calls: The calls of the step, by ID, in the order in which the model asked for them.
        output: The output that ends the run once every call of the step has a result.
        output_retry: The model must correct its output.
        retries: Retries used since a tool's last success, by tool name.
        step_bytes: Size of what the step's calls and steering messages brought in so far.
        steers: What the user says before the next step: parts of its request.
        deps_sent: Version of the deps that was last sent along.
        deps_changed: By field, the version in which it last changed.
    """

    run_key: str
    facts: RunFacts
    deps: DepsVersion = DepsVersion()
    deps_sent: int = -1
    facts_sent: bool = False
    deps_changed: dict[str, int] = {}
    messages: list[JsonObject] = []
    known: int = 0
    digest: str = ""
    step: int = 0
    asking: bool = False
    step_losses: int = 0
    calls: dict[str, Call] = {}
    output: PlannedOutput | None = None
    output_retry: JsonObject | None = None
    output_retries: int = 0
    retries: dict[str, int] = {}
    usage: Usage = Usage()
    step_bytes: int = 0
    paused: bool = False
    paused_by: str | None = None
    steers: list[JsonObject] = []
    early: list[Early] = []
    decisions: list[DecisionRecord] = []
    rejected: list[Rejection] = []
    features: Features = Features()
    ending: Ending | None = None
    ended: Literal["completed", "failed", "cancelled"] | None = None

    @property
    def room_bytes(self) -> int:
        """How large the next thing may be that the step brings in."""
        return max(SMALL_BYTES, STEP_BYTES - self.step_bytes)


def run_state(state: RunState) -> Literal["running", "waiting", "paused", "completed", "failed", "cancelled"]:
    """In one word, what the run is doing."""
    if state.ended is not None:
        return state.ended
    statuses = {call.status for call in state.calls.values()}
    if state.asking or "running" in statuses:
        return "running"
    if state.paused:
        return "paused"
    # A call that is tried again in a moment is under way, too: nobody has to do anything about it.
    return "waiting" if "held" in statuses and "backoff" not in statuses else "running"
