"""Calls that wait for something outside of the run, and what comes back for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from outlast.messages import JsonObject, ToolCallPart

__all__ = ("DeferredToolRequests", "DeferredToolResults", "ToolApproved", "ToolDenied")


@dataclass(repr=False)
class DeferredToolRequests:
    """Output of an in-process run that cannot go on by itself.

    Attributes:
        calls: Calls whose results come from outside.
        approvals: Calls that a person must approve.
        metadata: What the tools gave for whoever answers, by call ID.
    """

    calls: list[ToolCallPart] = field(default_factory=list[ToolCallPart])
    approvals: list[ToolCallPart] = field(default_factory=list[ToolCallPart])
    metadata: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])

    def __repr__(self) -> str:
        return _shown(self)


@dataclass(kw_only=True)
class ToolApproved:
    """The call may run.

    Attributes:
        override_args: Runs with these arguments instead.
    """

    override_args: JsonObject | None = None
    kind: Literal["tool-approved"] = field(default="tool-approved", repr=False)


@dataclass
class ToolDenied:
    """The call must not run.

    Attributes:
        message: What the model sees as the call's result.
    """

    message: str = "The tool call was denied."
    kind: Literal["tool-denied"] = field(default="tool-denied", repr=False, kw_only=True)


ApprovalResult: TypeAlias = bool | ToolApproved | ToolDenied


@dataclass(repr=False)
class DeferredToolResults:
    """Answers to `DeferredToolRequests`, by call ID.

    Attributes:
        calls: Results: any value, a `ToolReturn`, or a `ModelRetry` to let the model try again.
        approvals: True, False, `ToolApproved` or `ToolDenied`.
        metadata: Reaches the tool that runs after its approval.
    """

    calls: dict[str, Any] = field(default_factory=dict[str, Any])
    approvals: dict[str, ApprovalResult] = field(default_factory=dict[str, ApprovalResult])
    metadata: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])

    def __repr__(self) -> str:
        return _shown(self)


def _shown(value: DeferredToolRequests | DeferredToolResults) -> str:
    metadata = f", metadata={value.metadata!r}" if value.metadata else ""
    return f"{type(value).__name__}(calls={value.calls!r}, approvals={value.approvals!r}{metadata})"
