"""The settings of a tool, which a toolset and an agent can give defaults for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from typing_extensions import TypedDict

from outlast.contracts import CallPolicy
from outlast.messages import JsonObject
from outlast.toolsets.approval import Approval
from outlast.toolsets.context import RunContext
from outlast.toolsets.definition import ToolDefinition
from outlast.toolsets.duration import Duration, seconds
from outlast.toolsets.mistakes import DefinitionError
from outlast.toolsets.settings_mistakes import settings_problems, unknown_option

__all__ = ("NOTHING_SET", "ToolOptions", "ToolSettings")

OnError: TypeAlias = Literal["tell_model", "fail_run", "ask"]
OnUnknown: TypeAlias = Literal["ask", "tell_model"]
ArgsValidatorFunction: TypeAlias = Callable[..., Awaitable[None] | None]
PrepareFunction: TypeAlias = Callable[
    [RunContext[Any], ToolDefinition], ToolDefinition | Awaitable[ToolDefinition | None] | None
]
RepairFunction: TypeAlias = Callable[[JsonObject], JsonObject]


class ToolOptions(TypedDict, total=False):
    """The fields of `ToolSettings`, as keyword options of a tool, a toolset or an agent."""

    max_retries: int | None
    timeout: Duration | None
    repeatable: bool | None
    attempts: int | None
    backoff: Duration | None
    on_error: OnError | None
    on_unknown: OnUnknown | None
    requires_approval: bool | None
    approval: Approval | None
    sequential: bool | None
    task_queue: str | None
    local: bool | None
    metadata: dict[str, Any] | None
    strict: bool | None
    args_validator: ArgsValidatorFunction | None
    prepare: PrepareFunction | None
    repair: RepairFunction | None


@dataclass(frozen=True, kw_only=True)
class ToolSettings:
    """How calls of a tool are made. None means: not set here, so the toolset, the agent or the default decides.

    Attributes:
        max_retries: How often the model may try again; starts anew after a success. Default 1.
        timeout: Longest time of one attempt. Default one hour.
        repeatable: Making the call twice does no harm. Default true, and false for a tool that needs approval.
        attempts: Most attempts at a repeatable call. Default 3.
        backoff: Wait before the second attempt, doubled for each further one, at most 60 s. Default 1 s.
        on_error: After the last attempt: `tell_model` (default), `fail_run`, or `ask` a person.
        on_unknown: When a call that is not repeatable may or may not have taken effect: `ask` (default) a person,
            or `tell_model`.
        requires_approval: A person approves every call.
        approval: What that person is shown; implies `requires_approval`.
        sequential: Runs alone, not beside other calls of its step.
        task_queue: Where workers listen that can run this tool.
        local: Runs inside the workflow's own worker, for short calls that are harmless to repeat without limit.
        metadata: For the application; never sent to the model. Merged with that of the toolset and the agent.
        strict: Asks the provider to keep to the schema exactly, where it can.
        args_validator: Called as `(ctx, **args)` with the validated arguments; raises `ModelRetry` to refuse them.
        prepare: Called before each step as `(ctx, tool_def)`; returns the definition to show, or None to hide it.
        repair: Called with raw arguments that do not validate; returns better ones, which are validated again.

    Raises:
        UserError: A value makes no sense; the message lists all that do not.
    """

    max_retries: int | None = None
    timeout: Duration | None = None
    repeatable: bool | None = None
    attempts: int | None = None
    backoff: Duration | None = None
    on_error: OnError | None = None
    on_unknown: OnUnknown | None = None
    requires_approval: bool | None = None
    approval: Approval | None = None
    sequential: bool | None = None
    task_queue: str | None = None
    local: bool | None = None
    metadata: dict[str, Any] | None = None
    strict: bool | None = None
    args_validator: ArgsValidatorFunction | None = None
    prepare: PrepareFunction | None = None
    repair: RepairFunction | None = None

    def __post_init__(self) -> None:
        problems = settings_problems(self)
        if problems:
            raise DefinitionError("Settings of tools", problems)
        if self.approval is not None and self.requires_approval is None:
            # Said here and not read later: else a toolset's `requires_approval=False` would take it back.
            object.__setattr__(self, "requires_approval", True)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ToolSettings:
        """Settings from keyword options.

        Raises:
            UserError: An option is unknown, or its value makes no sense.
        """
        if not options:
            return NOTHING_SET
        unknown = [name for name in options if name not in _NAMES]
        if unknown:
            raise DefinitionError("Settings of tools", [unknown_option(name, _NAMES) for name in unknown])
        return cls(**options)

    def under(self, outer: ToolSettings) -> ToolSettings:
        """These settings, with what is not set here filled from the outer ones.

        Raises:
            UserError: The two contradict each other.
        """
        if outer is NOTHING_SET:
            return self
        if self is NOTHING_SET:
            return outer
        merged: dict[str, Any] = {}
        for name in _NAMES:
            value = getattr(self, name)
            merged[name] = getattr(outer, name) if value is None else value
        if self.metadata is not None and outer.metadata is not None:
            merged["metadata"] = {**outer.metadata, **self.metadata}
        if merged["requires_approval"] is False:
            merged["approval"] = None
        return ToolSettings(**merged)

    def policy(self) -> CallPolicy:
        """What these settings mean for one call; what is not set gets its default."""
        given: dict[str, Any] = {name: value for name in _POLICY if (value := getattr(self, name)) is not None}
        if self.timeout is not None:
            given["timeout"] = seconds(self.timeout)
        if self.backoff is not None:
            given["backoff"] = float(seconds(self.backoff))
        return CallPolicy(**given)


_NAMES = tuple(each.name for each in fields(ToolSettings))
_POLICY = tuple(name for name in _NAMES if name in CallPolicy.model_fields and name not in ("timeout", "backoff"))
NOTHING_SET = ToolSettings()
