"""Everything that crosses a process boundary: what callers send, and what workflow and activities tell each other.

Wire: a field is added, never renamed or removed, and a field at its default is not sent. What callers send is
checked strictly, so that a misspelt field is an error and not a silent default. What our own workers send is read
leniently, so that an older worker can read what a newer one wrote.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from outlast.messages import JsonObject, Usage, UserContent

MAX_PAYLOAD_BYTES = 2 * 1024 * 1024 - 64 * 1024
"""Most JSON bytes that outlast puts into one payload. Temporal refuses 2 MiB; the rest is room for the envelope."""

MAX_NAME_CHARS = 200
"""Longest name of an agent: it is part of an activity's type and a search attribute, both of which have limits."""

DEFAULT_HEARTBEAT_SECONDS = 10.0

ShortText: TypeAlias = Annotated[str, Field(max_length=1_000)]
Prompt: TypeAlias = str | Annotated[list[UserContent], Field(fail_fast=True)]
"""What a user says. One item that is wrong is enough: a report of a million would take a workflow task too long."""


class Strict(BaseModel):
    """Sent by callers: an unknown field is an error."""

    model_config = ConfigDict(extra="forbid")


class Wire(BaseModel):
    """Sent by our own workers: an unknown field comes from a newer release and is ignored."""

    # JSON has no NaN; pydantic would write null, which a model takes for "nothing".
    model_config = ConfigDict(extra="ignore", ser_json_inf_nan="strings")

    def to_json(self) -> bytes:
        """The fields that differ from their defaults, as compact JSON."""
        return self.__pydantic_serializer__.to_json(self, exclude_defaults=True)


# --- what callers send -------------------------------------------------------------------------------------------


class UsageLimits(Strict):
    """Limits of one run; passing one fails the run with `UsageLimitExceeded`.

    Attributes:
        requests: Most model requests. None means no limit.
        tool_calls: Most calls that may come to a result.
        input_tokens: Most tokens sent, over all requests.
        output_tokens: Most tokens received, over all requests.
        total_tokens: Most tokens sent and received, over all requests.
    """

    requests: int | None = Field(default=50, ge=0)
    tool_calls: int | None = Field(default=None, ge=0)
    input_tokens: int | None = Field(default=None, ge=0)
    output_tokens: int | None = Field(default=None, ge=0)
    total_tokens: int | None = Field(default=None, ge=0)


class RunInput(Strict):
    """The one argument of the workflow `AgentRun`.

    Attributes:
        agent: Name of a registered agent.
        prompt: Text, or a list of content parts; None only together with `message_history`.
        deps: JSON that fits the agent's `deps_type`.
        message_history: Earlier messages to continue from.
        model: Overrides the agent's model, by name.
        model_settings: Overrides single settings of the agent's model.
        usage_limits: Limits of this run.
        metadata: Never sent to the model; shown to approvers. `requester` says who asked.
    """

    agent: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]
    prompt: Prompt | None = None
    deps: JsonValue = None
    message_history: Annotated[list[JsonObject], Field(fail_fast=True)] = []
    model: str | None = None
    model_settings: JsonObject | None = None
    usage_limits: UsageLimits = UsageLimits()
    metadata: JsonObject = {}


class RunResult(BaseModel):
    """What a finished run returns.

    Attributes:
        output: JSON of the agent's output.
        usage: Cost of the whole run.
        steps: Number of steps taken.
        messages: Number of messages in the conversation.
    """

    output: JsonValue
    usage: Usage
    steps: int
    messages: int


class _Decision(Strict):
    tool_call_id: Annotated[str, Field(min_length=1, max_length=256)]
    by: Annotated[str | None, Field(max_length=256)] = None


class Approve(_Decision):
    """Run the call, with other arguments where `override_args` is given.

    Attributes:
        override_args: Replaces all arguments; must fit the tool's JSON schema.
        reason: Kept in the record.
        digest: Applies only where the waiting call has this digest.
    """

    kind: Literal["approve"] = Field(default="approve", exclude=True)
    override_args: JsonObject | None = None
    reason: str | None = None
    digest: ShortText | None = None


class Deny(_Decision):
    """Never run the call; the model sees the message."""

    kind: Literal["deny"] = Field(default="deny", exclude=True)
    message: str | None = None


class Resolve(_Decision):
    """The call's result, from outside, instead of running it."""

    kind: Literal["resolve"] = Field(default="resolve", exclude=True)
    result: JsonValue


class Retry(_Decision):
    """Tell the model to try again."""

    kind: Literal["retry"] = Field(default="retry", exclude=True)
    message: Annotated[str, Field(min_length=1)]


Decision: TypeAlias = Approve | Deny | Resolve | Retry
DECISIONS: dict[str, type[Approve] | type[Deny] | type[Resolve] | type[Retry]] = {
    "approve": Approve,
    "deny": Deny,
    "resolve": Resolve,
    "retry": Retry,
}


class Steer(Strict):
    """Adds a user message before the next step."""

    content: Prompt


class Pause(Strict):
    """Starts no new step or call until resumed. Also the object of `resume`."""

    by: Annotated[str | None, Field(max_length=256)] = None


# --- what callers read -------------------------------------------------------------------------------------------

PendingKind: TypeAlias = Literal["approval", "external", "deferred", "unknown_outcome"]


class PendingCall(Wire):
    """A call that waits for a decision.

    Attributes:
        tool_call_id: Unique within the run.
        args: The validated arguments: these, to the byte, are what an approval runs.
        digest: SHA-256 over the tool's name and `args`.
        kind: Which decisions fit: all fit `approval` and `unknown_outcome`; all but `approve` fit the others.
        requested_at: When the call began to wait.
        expires_at: When waiting ends by itself, if it does.
        approvals: Votes so far.
        needed: Votes that are needed.
        metadata: What the tool or the run gave for the person who decides.
        prompt: A sentence for the person who decides.
        json_schema: Schema that edited arguments must fit.
    """

    tool_call_id: str
    tool_name: str
    args: JsonObject
    digest: str
    kind: PendingKind
    requested_at: datetime
    expires_at: datetime | None = None
    approvals: int = 0
    needed: int = 1
    metadata: JsonObject = {}
    prompt: str | None = None
    json_schema: JsonObject | None = None


class DecisionRecord(Wire):
    """A decision that applied: who decided what, when, from where and why. Kept for good."""

    tool_call_id: str
    tool_name: str
    decision: Literal["approve", "deny", "resolve", "retry"]
    at: datetime
    via: str
    by: str | None = None
    verified: bool = False
    reason: str | None = None
    digest: str | None = None
    fingerprint: str = ""
    edited: bool = False


class Rejection(Wire):
    """A message that could not apply: kept so that no signal vanishes without a trace."""

    name: str
    error: str
    message: str
    at: datetime
    content: str = ""


class CallState(Wire):
    """Answer to a decision: what became of the call.

    Attributes:
        state: `sent` where no worker answered in time: the decision is in the history, and applies once one is back.
    """

    tool_call_id: str
    state: Literal["waiting", "approved", "denied", "resolved", "retried", "sent"]
    decision: DecisionRecord | None = None


class Status(Wire):
    """Answer to the query `status`.

    Attributes:
        state: `running` (a step or a call is under way), `waiting` (for decisions alone), `paused`, or how it ended.
    """

    state: Literal["running", "waiting", "paused", "completed", "failed", "cancelled"]
    agent: str
    step: int
    usage: Usage
    messages: int
    running: list[str]
    pending: list[PendingCall]
    paused: bool = False
    paused_by: str | None = None
    decisions: list[DecisionRecord] = []
    rejected: list[Rejection] = []
    early: int = 0
    error: JsonObject | None = None


class MessagesPage(Wire):
    """Answer to the query `messages`: `next` is where the next page starts, or None at the end."""

    messages: list[JsonObject]
    start: int
    total: int
    next: int | None = None


class PendingSummary(Wire):
    """The run's memo `outlast`: enough for an inbox over many runs, within Temporal's 2 KiB for a memo."""

    agent: str
    count: int
    calls: list[JsonObject] = []
    updated_at: datetime | None = None


# --- what the workflow tells an activity, and back ---------------------------------------------------------------


class CallPolicy(Wire):
    """What the settings of a tool mean for one call of it; durations in seconds.

    Attributes:
        timeout: Longest time of one attempt, as the tool's author wrote it.
        repeatable: None stands for the default: repeatable, unless the call needs an approval.
        attempts: Most attempts at a repeatable call.
        backoff: Wait before the second attempt; doubled for each further one, at most 60.
        on_error: After the last attempt.
        on_unknown: When a call that is not repeatable may or may not have taken effect.
    """

    timeout: int | float = 3600
    repeatable: bool | None = None
    attempts: int = 3
    backoff: float = 1.0
    max_retries: int = 1
    sequential: bool = False
    task_queue: str | None = None
    local: bool = False
    on_error: Literal["tell_model", "fail_run", "ask"] = "tell_model"
    on_unknown: Literal["ask", "tell_model"] = "ask"


class _Outcome(Wire):
    # What tells the members of a union apart is sent even though it is a default.
    @model_serializer(mode="wrap")
    def _with_kind(self, write: SerializerFunctionWrapHandler) -> JsonObject:
        return {"kind": type(self).model_fields["kind"].default, **write(self)}


class Returned(_Outcome):
    """The call has a result.

    Attributes:
        content: What the model sees, as JSON.
        user_content: Further content, which the model sees as a user prompt.
        metadata: For the application; the model never sees it.
        deps: Fields of `deps` that the tool changed.
    """

    kind: Literal["returned"] = "returned"
    content: JsonValue = None
    user_content: str | list[UserContent] | None = None
    metadata: JsonValue = None
    deps: JsonObject = {}


class Retried(_Outcome):
    """The model should try again: `ModelRetry`, arguments that do not validate, an unknown tool, a timeout.

    Attributes:
        content: A message, or the errors that pydantic found.
        reason: `arguments` where the call never started because its arguments do not validate.
    """

    kind: Literal["retried"] = "retried"
    content: str | list[JsonObject]
    reason: Literal["tool", "arguments", "unknown_tool", "timeout"] = "tool"
    deps: JsonObject = {}


class Failed(_Outcome):
    """The call failed, its outcome is known, and the model is told; no retry is used.

    Attributes:
        error_type: Class of the exception.
        known: False where the tool may or may not have taken effect.
    """

    kind: Literal["failed"] = "failed"
    error_type: str
    message: str
    known: bool = True
    deps: JsonObject = {}


class Transient(_Outcome):
    """Nothing happened, and the call should be made again after `retry_after` seconds.

    Only a call that is not repeatable says so by a value: Temporal gives it one attempt, so the workflow waits.

    Attributes:
        misplaced: The worker does not host the call's agent: not the tool's fault, and none of its attempts.
    """

    kind: Literal["transient"] = "transient"
    error_type: str
    message: str
    retry_after: float | None = None
    misplaced: bool = False


class Deferred(_Outcome):
    """The call waits: `approval` for a person, `deferred` for another system."""

    kind: Literal["deferred"] = "deferred"
    wait_for: Literal["approval", "deferred"]
    metadata: JsonObject = {}
    json_schema: JsonObject | None = None
    deps: JsonObject = {}


class Skipped(_Outcome):
    """The call is not made, because the run has its output already; the model never minds."""

    kind: Literal["skipped"] = "skipped"
    content: str


CallOutcome: TypeAlias = Annotated[
    Returned | Retried | Failed | Transient | Deferred | Skipped, Field(discriminator="kind")
]


class PlannedCall(Wire):
    """One call of a step, with what applies to it.

    Attributes:
        tool_call_id: Unique within the run.
        args: The validated arguments; None where they are those of the response, to the byte.
        settled: The outcome where it is known without running anything.
        wait_for: What must come from outside before the call can end.
        approval: What the person who decides is shown.
        json_schema: Given where the call waits for an approval, so that edited arguments can be checked.
        summary: The arguments for people, cut to 400 bytes.
    """

    tool_call_id: str
    tool_name: str
    args: JsonObject | None = None
    policy: CallPolicy = CallPolicy()
    settled: CallOutcome | None = None
    wait_for: Literal["approval", "external"] | None = None
    metadata: JsonObject = {}
    prompt: str | None = None
    json_schema: JsonObject | None = None
    output: bool = False


class PlannedOutput(Wire):
    """A valid output that the model gave; the run ends with it once every call of its step has a result.

    Attributes:
        text: The output is the response's own text, to the letter, which is not sent twice.
        value: The output otherwise.
        tool_call_id: The call of the output tool that gave it.
        live: The Python object, for an engine in the process that made it; never sent.
    """

    text: bool = False
    value: JsonValue = None
    tool_call_id: str | None = None
    live: Any = Field(default=None, exclude=True)


class OutputRetry(Wire):
    """No valid output and nothing to call: the model is told, and uses one of `output_retries`."""

    content: str | list[JsonObject]
    tool_name: str | None = None
    tool_call_id: str | None = None


class Features(Wire):
    """What a worker tells the run about its surroundings: the workflow itself reads no setting.

    Attributes:
        search_attributes: The search attributes of outlast are registered in this namespace.
        heartbeat_seconds: Silence after which a worker counts as lost.
        output_retries: How often the model may give an invalid output.
    """

    search_attributes: bool = False
    heartbeat_seconds: float = DEFAULT_HEARTBEAT_SECONDS
    output_retries: int = 1


class StepPlan(Wire):
    """Result of the activity `model:<agent>`: what the model answered, and what to do about it.

    Attributes:
        response: The model's response, as JSON, with call IDs that are unique within the run.
        deps: The validated deps, given in the plan of the first step only, where they differ from the input.
    """

    response: JsonObject
    calls: list[PlannedCall] = []
    output: PlannedOutput | None = None
    retry: OutputRetry | None = None
    features: Features = Features()


class RunFacts(Wire):
    """What stays the same for a whole run, sent to a worker once and found again by the query `context`.

    Attributes:
        prompt_at: Which message ends in the prompt that the run was started with; None for a run without one.
    """

    agent: str
    model: str | None = None
    model_settings: JsonObject | None = None
    usage_limits: UsageLimits = UsageLimits()
    metadata: JsonObject = {}
    prompt_at: int | None = None


class DepsVersion(Wire):
    """The deps of a run, and how often they were changed."""

    version: int = 0
    value: JsonValue = None


class Position(Wire):
    """How much of the conversation an activity must know.

    Attributes:
        base: Number of messages that the worker should know already.
        digest: Rolling digest of these messages.
        deps_version: Version of the deps that apply.
        delta: The messages that come after them.
        facts: Given once, at the first step.
        deps: Given where they changed since they were last sent.
    """

    base: int = 0
    digest: str = ""
    deps_version: int = 0
    delta: list[JsonObject] = []
    facts: RunFacts | None = None
    deps: DepsVersion | None = None


class StepInput(Wire):
    """Argument of the activity `model:<agent>`.

    Attributes:
        retries: Retries used, by tool name; only those above 0.
    """

    agent: str
    run_key: str
    step: int
    position: Position
    usage: Usage = Usage()
    retries: dict[str, int] = {}


class CallInput(Wire):
    """Argument of the activity `tool:<tool_name>`.

    Attributes:
        losses: How often a worker was lost with this call.
        approved_digest: The digest that was approved; checked once more before the tool runs.
    """

    agent: str
    run_key: str
    step: int
    position: Position
    tool_call_id: str
    tool_name: str
    args: JsonObject
    policy: CallPolicy = CallPolicy()
    repeatable: bool = True
    execution: int = 1
    losses: int = 0
    retry: int = 0
    approved: bool = False
    approved_digest: str | None = None
    usage: Usage = Usage()


class RunContextPage(Wire):
    """Answer to the query `context`, by which a worker fills its cache."""

    facts: RunFacts
    deps: DepsVersion


# --- digests -----------------------------------------------------------------------------------------------------


def canonical_json(value: Any) -> str:
    """The one way to write a JSON value: sorted keys, no spaces, no escapes that JSON does not need."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def call_digest(tool_name: str, args: JsonObject) -> str:
    """SHA-256, in hex, over a tool's name and its canonical arguments: what a decision is bound to."""
    return hashlib.sha256(f"{tool_name}\0{canonical_json(args)}".encode()).hexdigest()


def extend_digest(digest: str, messages: Sequence[JsonObject]) -> str:
    """The rolling digest of a conversation after some more messages; the empty conversation has the digest ''."""
    for message in messages:
        text = json.dumps(message, separators=(",", ":"))
        digest = hashlib.sha256(f"{digest}{text}".encode()).hexdigest()[:32]
    return digest
