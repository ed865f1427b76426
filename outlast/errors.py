"""Everything that outlast raises, and the signals that a tool gives by raising.

Three families. `UserError` is a mistake in code or configuration. `RunError` ends a run: its class name is the
type of the application error that fails the workflow. `DecisionRejected` answers a decision that cannot apply.
What a tool raises to steer its call is not an error: `ModelRetry`, `CallDeferred`, `ApprovalRequired`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar, cast

__all__ = (
    "AlreadyDecided",
    "ApprovalRequired",
    "CallDeferred",
    "DecisionRejected",
    "DepsConflict",
    "DigestMismatch",
    "Expired",
    "FatalToolError",
    "InvalidArguments",
    "InvalidDecision",
    "InvalidDeps",
    "InvalidInput",
    "ModelRequestFailed",
    "ModelRetry",
    "NotAllowed",
    "OutlastError",
    "OutputValidationFailed",
    "ProviderError",
    "RunCancelled",
    "RunError",
    "ServerUnreachable",
    "ToolError",
    "ToolFailed",
    "ToolRetriesExceeded",
    "TransientToolError",
    "UnexpectedModelBehavior",
    "UnknownAgent",
    "UnknownCall",
    "UnknownRun",
    "UsageLimitExceeded",
    "UserError",
    "single_cause",
)


class OutlastError(Exception):
    """Base of every error that outlast raises."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class UserError(OutlastError):
    """A mistake in code or configuration: says what was expected and how to fix it."""


class ServerUnreachable(OutlastError):
    """No Temporal server answers at the configured address."""


class ProviderError(OutlastError):
    """A request to a model provider failed.

    Args:
        message: What happened, without secrets.
        retryable: True for 429, 5xx, broken connections and timeouts: the same request may pass later.
        retry_after: Seconds to wait, as the provider says.
        status_code: HTTP status, where there was an answer.
    """

    def __init__(
        self,
        message: str,
        *,
        retryable: bool,
        retry_after: float | None = None,
        status_code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after
        self.status_code = status_code


class UnknownRun(OutlastError):
    """The server knows no run with this ID in this namespace."""


class RunError(OutlastError):
    """A run ended without an output."""

    by_name: ClassVar[dict[str, type[RunError]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        RunError.by_name[cls.__name__] = cls


class ToolRetriesExceeded(RunError):
    """The model tried a tool again more often than its `max_retries` allows."""


class ToolFailed(RunError):
    """A tool failed for good, and its `on_error` is `fail_run`."""


class UsageLimitExceeded(RunError):
    """The next request, call or token would pass one of the run's `UsageLimits`."""


class UnexpectedModelBehavior(RunError):
    """The model answered in a way that no rule covers."""


class ModelRequestFailed(RunError):
    """The provider refused a request, or failed on every attempt."""


class OutputValidationFailed(RunError):
    """The model's output stayed invalid past the agent's `output_retries`."""


class InvalidInput(RunError):
    """The input of a run does not fit the contract."""


class InvalidDeps(RunError):
    """The `deps` of a run do not validate against the agent's `deps_type`."""


class DepsConflict(RunError):
    """Two calls that overlapped changed the same field of `deps`."""


class UnknownAgent(RunError):
    """No worker on the task queue hosts an agent of this name."""


class RunCancelled(RunError):
    """The run was cancelled from outside."""


class DecisionRejected(OutlastError):
    """A decision cannot apply, and changes nothing."""

    by_name: ClassVar[dict[str, type[DecisionRejected]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        DecisionRejected.by_name[cls.__name__] = cls


class InvalidDecision(DecisionRejected):
    """The decision is not one JSON object with the fields of its kind, or its kind does not fit the call."""


class UnknownCall(DecisionRejected):
    """No call with this ID waits in this run."""


class AlreadyDecided(DecisionRejected):
    """An earlier, different decision stands."""


class InvalidArguments(DecisionRejected):
    """The edited arguments do not fit the tool's JSON schema."""


class DigestMismatch(DecisionRejected):
    """The decision names the digest of other arguments than those that wait."""


class NotAllowed(DecisionRejected):
    """The person who decides is not among the call's approvers."""


class Expired(DecisionRejected):
    """The call's deadline has passed."""


class ModelRetry(Exception):
    """Raised by a tool or an output validator: tell the model, and let it try again.

    Args:
        message: What the model should know to do better.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModelRetry) and other.message == self.message

    __hash__ = Exception.__hash__


# Derived from BaseException: a tool's own `except Exception:` must not swallow them.
class _Deferral(BaseException):
    def __init__(self, metadata: dict[str, Any] | None = None) -> None:
        super().__init__(metadata or {})
        self.metadata = metadata or {}


class CallDeferred(_Deferral):
    """Raised by a tool: another system will deliver this call's result.

    Args:
        metadata: JSON shown beside the waiting call.
    """


class ApprovalRequired(_Deferral):
    """Raised by a tool: a person must approve this call before it goes on.

    The tool runs again from its start once approved, with `ctx.tool_call_approved` true.

    Args:
        metadata: JSON shown beside the waiting call.
    """


class ToolError(Exception):
    """Base of what a tool raises to say what its failure means."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class TransientToolError(ToolError):
    """Nothing happened; try the call again.

    Args:
        message: What went wrong.
        retry_after: Wait this long before the next attempt, as a `timedelta` or in seconds; by default the
            tool's `backoff` decides.
    """

    def __init__(self, message: str, *, retry_after: timedelta | float | None = None) -> None:
        super().__init__(message)
        if isinstance(retry_after, int | float):
            retry_after = timedelta(seconds=retry_after)
        self.retry_after = retry_after


class FatalToolError(ToolError):
    """The call failed, its outcome is known, and trying again is pointless: the model is told."""


def single_cause(error: BaseException) -> BaseException:
    """What was raised inside a task group, where it was one thing alone; else the group itself."""
    causes: list[BaseException] = [error]
    while isinstance(causes[0], BaseExceptionGroup) and len(cast(Any, causes[0]).exceptions) == 1:
        causes = list(cast(Any, causes[0]).exceptions)
    return cast("BaseException", causes[0])
