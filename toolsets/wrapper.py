"""The base of everything that changes a toolset."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from outlast.toolsets.abstract import AbstractToolset, ToolsetTool
from outlast.toolsets.context import DepsT, RunContext

__all__ = ("RewritingToolset", "WrapperToolset")


@dataclass(eq=False)
class WrapperToolset(AbstractToolset[DepsT]):
    """Hands everything on to the toolset it wraps; a subclass overrides what it changes.

    A dataclass, so that a subclass can be one with further fields.

    Args:
        wrapped: The toolset to wrap.
    """

    wrapped: AbstractToolset[DepsT]

    @property
    @override
    def id(self) -> str | None:
        return self.wrapped.id

    @property
    @override
    def label(self) -> str:
        return f"{type(self).__name__}({self.wrapped.label})"

    @property
    @override
    def tool_name_conflict_hint(self) -> str:
        return self.wrapped.tool_name_conflict_hint

    @override
    async def __aenter__(self) -> Self:
        await self.wrapped.__aenter__()
        return self

    @override
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self.wrapped.__aexit__(kind, error, traceback)

    @override
    async def for_run(self, ctx: RunContext[DepsT]) -> AbstractToolset[DepsT]:
        return self._around(await self.wrapped.for_run(ctx))

    @override
    async def for_run_step(self, ctx: RunContext[DepsT]) -> AbstractToolset[DepsT]:
        return self._around(await self.wrapped.for_run_step(ctx))

    @override
    async def get_tools(self, ctx: RunContext[DepsT]) -> dict[str, ToolsetTool[DepsT]]:
        return await self.wrapped.get_tools(ctx)

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[DepsT], tool: ToolsetTool[DepsT]
    ) -> Any:
        return await self.wrapped.call_tool(name, tool_args, ctx, tool)

    @override
    def known_names(self) -> Iterable[str]:
        return self.wrapped.known_names()

    def _around(self, wrapped: AbstractToolset[DepsT]) -> Self:
        if wrapped is self.wrapped:
            return self
        # A copy and not a new object: a subclass may have any signature.
        copied = copy.copy(self)
        copied.wrapped = wrapped
        return copied


class RewritingToolset(WrapperToolset[DepsT]):
    """Offers the wrapped tools in another form, and calls them in their own.

    A subclass makes its tools as variants of the wrapped ones whose `origin` is `(self.wrapped, tool)`.
    """

    @override
    async def get_tools(self, ctx: RunContext[DepsT]) -> dict[str, ToolsetTool[DepsT]]:
        return await self.rewrite(ctx, await self.wrapped.get_tools(ctx))

    @abstractmethod
    async def rewrite(
        self, ctx: RunContext[DepsT], tools: dict[str, ToolsetTool[DepsT]]
    ) -> dict[str, ToolsetTool[DepsT]]:
        """The tools to offer, by name, made from the wrapped ones."""

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[DepsT], tool: ToolsetTool[DepsT]
    ) -> Any:
        if tool.origin is None:
            # A subclass offers a tool of its own making under its wrapped name.
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)
        toolset, original = tool.origin
        return await toolset.call_tool(original.tool_def.name, tool_args, ctx, original)
