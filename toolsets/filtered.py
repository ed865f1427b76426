"""Only some of a toolset's tools."""

from __future__ import annotations

from typing_extensions import override

from outlast.toolsets.abstract import AbstractToolset, Filter, ToolsetTool
from outlast.toolsets.awaiting import settled
from outlast.toolsets.context import DepsT, RunContext
from outlast.toolsets.wrapper import WrapperToolset

__all__ = ("FilteredToolset",)


class FilteredToolset(WrapperToolset[DepsT]):
    """Offers, in each step, the tools that a function chooses.

    Args:
        wrapped: The toolset to wrap.
        filter_func: Called as `(ctx, tool_def)` for each tool; sync or async.
    """

    def __init__(self, wrapped: AbstractToolset[DepsT], filter_func: Filter) -> None:
        super().__init__(wrapped)
        self.filter_func = filter_func

    @override
    async def get_tools(self, ctx: RunContext[DepsT]) -> dict[str, ToolsetTool[DepsT]]:
        tools = await self.wrapped.get_tools(ctx)
        return {name: tool for name, tool in tools.items() if await settled(self.filter_func(ctx, tool.tool_def))}
