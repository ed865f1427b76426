"""What a tool, a toolset or an instruction sees of the run it works for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

from outlast.contracts import UsageLimits
from outlast.messages import JsonObject, ModelMessage, Usage, UserContent

__all__ = ("DepsT", "NamedModel", "RunContext")

DepsT = TypeVar("DepsT", default=Any)


class NamedModel(Protocol):
    """What a tool may know of the model."""

    @property
    def model_name(self) -> str:
        """As the provider calls it."""
        ...


@dataclass(kw_only=True)
class RunContext(Generic[DepsT]):
    """The state of a run at the moment of a call; the same in-process and on a worker.

    Attributes:
        deps: What the run was started with. Changes to it are carried back to the run.
        model: Has a `model_name`.
        usage: Cost of the run so far.
        usage_limits: Limits of the run.
        prompt: What the run was started with.
        messages: The conversation so far, with the response that asks for this call.
        run_step: Number of the step, from 1; 0 before the first.
        run_id: The run's ID: on Temporal its workflow ID.
        metadata: What the run was started with; never sent to the model.
        retry: How often the model tried this tool again since its last success.
        max_retries: How often it may.
        tool_call_id: ID of the call, unique within the run; None outside of a call.
        tool_name: Name as the model called it; None outside of a call.
        tool_call_approved: A person approved this call.
        tool_call_metadata: What `DeferredToolResults.metadata` says of this call; in-process only.
        attempt: Number of this attempt at the call, from 1.
        idempotency_key: The same on every attempt at a call, different for every call of every run.
        resources: Live things of this worker, made when it started.
    """

    deps: DepsT
    model: NamedModel
    usage: Usage = field(default_factory=Usage)
    usage_limits: UsageLimits = field(default_factory=UsageLimits)
    prompt: str | list[UserContent] | None = None
    messages: list[ModelMessage] = field(default_factory=list[ModelMessage])
    run_step: int = 0
    run_id: str = ""
    metadata: JsonObject = field(default_factory=dict[str, Any])
    retry: int = 0
    max_retries: int = 0
    tool_call_id: str | None = None
    tool_name: str | None = None
    tool_call_approved: bool = False
    tool_call_metadata: JsonObject = field(default_factory=dict[str, Any])
    attempt: int = 1
    idempotency_key: str | None = None
    resources: Any = None

    @property
    def last_attempt(self) -> bool:
        """The model may not try this tool again after this call."""
        return self.retry >= self.max_retries
