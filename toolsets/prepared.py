"""Tools whose definitions change from step to step."""

from __future__ import annotations

import copy

from typing_extensions import override

from outlast.errors import UserError
from outlast.toolsets.abstract import AbstractToolset, Preparation, ToolsetTool
from outlast.toolsets.awaiting import settled
from outlast.toolsets.context import DepsT, RunContext
from outlast.toolsets.variant import variant
from outlast.toolsets.wrapper import RewritingToolset

__all__ = ("PreparedToolset",)


class PreparedToolset(RewritingToolset[DepsT]):
    """Offers, in each step, the definitions that a function makes of those of the wrapped toolset.

    Args:
        wrapped: The toolset to wrap.
        prepare_func: Called as `(ctx, tool_defs)`; sync or async. It gets copies, which it may change. What it leaves
            out is not offered; None leaves out everything. It can neither add nor rename tools.
    """

    def __init__(self, wrapped: AbstractToolset[DepsT], prepare_func: Preparation) -> None:
        super().__init__(wrapped)
        self.prepare_func = prepare_func

    @override
    async def rewrite(
        self, ctx: RunContext[DepsT], tools: dict[str, ToolsetTool[DepsT]]
    ) -> dict[str, ToolsetTool[DepsT]]:
        # Copies, all the way down: a schema that one run edits in place must not be seen by another.
        copies = [copy.deepcopy(tool.tool_def) for tool in tools.values()]
        chosen = await settled(self.prepare_func(ctx, copies)) or []
        prepared: dict[str, ToolsetTool[DepsT]] = {}
        for tool_def in chosen:
            if tool_def.name not in tools or tool_def.name in prepared:
                raise UserError(
                    f"the prepare function of {self.label} returned {tool_def.name!r}, which is none of the tools it "
                    f"was given, or is there twice: {', '.join(tools) or 'none'}. It can change definitions and leave "
                    "them out. To add a tool use `FunctionToolset.add_function()`, to rename one "
                    "`toolset.renamed({'new': 'old'})`."
                )
            tool = tools[tool_def.name]
            prepared[tool_def.name] = variant(tool, toolset=self, tool_def=tool_def, origin=(self.wrapped, tool))
        return prepared
