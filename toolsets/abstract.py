"""A source of tools."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeAlias

from outlast.contracts import CallPolicy
from outlast.messages import JsonObject
from outlast.toolsets.awaiting import settled
from outlast.toolsets.context import DepsT, RunContext
from outlast.toolsets.definition import ToolDefinition
from outlast.toolsets.settings import NOTHING_SET, ToolSettings
from outlast.toolsets.variant import variant

if TYPE_CHECKING:
    from outlast.toolsets.approval_required import ApprovalRequiredToolset
    from outlast.toolsets.filtered import FilteredToolset
    from outlast.toolsets.metadata import MetadataToolset
    from outlast.toolsets.prefixed import PrefixedToolset
    from outlast.toolsets.prepared import PreparedToolset
    from outlast.toolsets.renamed import RenamedToolset

__all__ = ("AbstractToolset", "ApprovalTest", "ArgsValidator", "ToolsetTool")

logger = logging.getLogger("outlast.toolsets")

Filter: TypeAlias = Callable[[RunContext[Any], ToolDefinition], bool | Awaitable[bool]]
Preparation: TypeAlias = Callable[
    [RunContext[Any], list[ToolDefinition]], list[ToolDefinition] | Awaitable[list[ToolDefinition] | None] | None
]
ApprovalFunction: TypeAlias = Callable[[RunContext[Any], ToolDefinition, dict[str, Any]], bool | Awaitable[bool]]
ApprovalTest: TypeAlias = Callable[[RunContext[Any], dict[str, Any]], bool | Awaitable[bool]]


class ArgsValidator(Protocol):
    """Turns a call's arguments into Python values; a pydantic `SchemaValidator` is one."""

    def validate_python(self, value: Any, /) -> dict[str, Any]:
        """Validates a dict."""
        ...

    def validate_json(self, value: str, /) -> dict[str, Any]:
        """Validates JSON text."""
        ...


@dataclass(kw_only=True)
class ToolsetTool(Generic[DepsT]):
    """A tool that a toolset offers in one step.

    Attributes:
        toolset: The toolset that made this object.
        tool_def: What the model sees; its name is the key under which the tool is offered.
        max_retries: Overrides that of the settings; None leaves it to them.
        args_validator: Raises `pydantic.ValidationError` for arguments that do not fit.
        settings: The tool's settings, filled from its toolset.
        dump_args: Validated arguments as JSON, with defaults; None where the JSON of the model is all there is.
        needs_approval: Says, from validated arguments, whether a person must approve this call.
        origin: The toolset and the tool that a wrapper got this tool from.
    """

    toolset: AbstractToolset[DepsT]
    tool_def: ToolDefinition
    max_retries: int | None = None
    args_validator: ArgsValidator
    settings: ToolSettings = NOTHING_SET
    dump_args: Callable[[dict[str, Any]], JsonObject] | None = None
    needs_approval: ApprovalTest | None = None
    origin: tuple[AbstractToolset[DepsT], ToolsetTool[DepsT]] | None = field(default=None, repr=False)

    def under(self, outer: ToolSettings) -> ToolsetTool[DepsT]:
        """The same tool, with settings that are not set filled from the agent's.

        Raises:
            UserError: The two contradict each other.
        """
        settings = self.settings.under(outer)
        return self if settings is self.settings else variant(self, settings=settings)

    @property
    def may_need_approval(self) -> bool:
        """Whether there are calls of this tool that a person must approve."""
        return (
            self.needs_approval is not None
            or self.settings.requires_approval is True
            or self.tool_def.kind == "unapproved"
        )

    async def approval_needed(self, ctx: RunContext[DepsT], args: dict[str, Any]) -> bool:
        """Whether a person must approve this call before it starts.

        Args:
            ctx: The run, with the call's ID.
            args: The validated arguments.

        Returns:
            True also where the function that should say so fails: then a person looks at the call.
        """
        if self.settings.requires_approval is True or self.tool_def.kind == "unapproved":
            return True
        if self.needs_approval is None:
            return False
        try:
            return await settled(self.needs_approval(ctx, args))
        except Exception:
            logger.exception("asking whether a call of %r needs approval failed, so it does", self.tool_def.name)
            return True

    def policy(self) -> CallPolicy:
        """What applies to a call of this tool."""
        policy = self.settings.policy()
        changes: dict[str, Any] = {}
        if self.max_retries is not None:
            changes["max_retries"] = self.max_retries
        if self.tool_def.sequential:
            changes["sequential"] = True
        if policy.local and self.may_need_approval:
            # A local call starts inside a workflow task and is repeated without limit: no place for a gate.
            changes["local"] = False
        return policy.model_copy(update=changes) if changes else policy


class AbstractToolset(ABC, Generic[DepsT]):
    """Lists tools, and calls them.

    A subclass implements `get_tools` and `call_tool`. One that holds a connection opens it in `__aenter__` and
    closes it in `__aexit__`; the two may be nested, and a toolset is entered once per worker.
    """

    @property
    def id(self) -> str | None:
        """A name for the toolset, unique within its agent; None for one that needs none."""
        return None

    @property
    def label(self) -> str:
        """The toolset as messages name it."""
        kind = type(self).__name__
        return f"{kind} {self.id!r}" if self.id else kind

    @property
    def tool_name_conflict_hint(self) -> str:
        """What to do when another toolset has a tool of the same name."""
        return "Rename one of the tools, or give its toolset a prefix: `toolset.prefixed('…')`."

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return None

    async def for_run(self, ctx: RunContext[DepsT]) -> AbstractToolset[DepsT]:
        """The toolset to use for one run.

        Returns:
            Itself, or another toolset, which the caller enters before it uses it and exits after the run.
        """
        return self

    async def for_run_step(self, ctx: RunContext[DepsT]) -> AbstractToolset[DepsT]:
        """The toolset to use for one step of a run; called on what `for_run` gave.

        Returns:
            Itself, or another toolset, which the caller enters before it uses it and exits after the step.
        """
        return self

    @abstractmethod
    async def get_tools(self, ctx: RunContext[DepsT]) -> dict[str, ToolsetTool[DepsT]]:
        """The tools of this step, by name."""

    @abstractmethod
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[DepsT], tool: ToolsetTool[DepsT]
    ) -> Any:
        """Calls a tool.

        Args:
            name: Its name in this toolset.
            tool_args: The validated arguments.
            ctx: The run; its `tool_name` is what the model called.
            tool: What `get_tools` of this toolset gave for the name.

        Returns:
            Whatever the tool returns.
        """

    def known_names(self) -> Iterable[str]:
        """Names that can be told without a run; a run may offer fewer, or others."""
        return ()

    def prefixed(self, prefix: str) -> PrefixedToolset[DepsT]:
        """These tools with names that start with `<prefix>_`."""
        from outlast.toolsets.prefixed import PrefixedToolset

        return PrefixedToolset(self, prefix)

    def renamed(self, name_map: dict[str, str]) -> RenamedToolset[DepsT]:
        """These tools, some of them with other names.

        Args:
            name_map: New names to original ones.
        """
        from outlast.toolsets.renamed import RenamedToolset

        return RenamedToolset(self, name_map)

    def filtered(self, filter_func: Filter) -> FilteredToolset[DepsT]:
        """Those of these tools for which the function, called as `(ctx, tool_def)`, says yes."""
        from outlast.toolsets.filtered import FilteredToolset

        return FilteredToolset(self, filter_func)

    def prepared(self, prepare_func: Preparation) -> PreparedToolset[DepsT]:
        """These tools with definitions that the function, called as `(ctx, tool_defs)`, changes or leaves out."""
        from outlast.toolsets.prepared import PreparedToolset

        return PreparedToolset(self, prepare_func)

    def approval_required(
        self, approval_required_func: ApprovalFunction | None = None
    ) -> ApprovalRequiredToolset[DepsT]:
        """These tools, whose calls a person must approve.

        Args:
            approval_required_func: Called as `(ctx, tool_def, tool_args)`; by default every call needs approval.
        """
        from outlast.toolsets.approval_required import ApprovalRequiredToolset

        return ApprovalRequiredToolset(self, approval_required_func)

    def with_metadata(self, **metadata: Any) -> MetadataToolset[DepsT]:
        """These tools with further metadata in their definitions."""
        from outlast.toolsets.metadata import MetadataToolset

        return MetadataToolset(self, metadata)
