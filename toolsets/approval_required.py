"""Tools whose calls a person must approve."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from outlast.errors import ApprovalRequired
from outlast.toolsets.abstract import AbstractToolset, ApprovalFunction, ApprovalTest, ToolsetTool
from outlast.toolsets.awaiting import settled
from outlast.toolsets.context import DepsT, RunContext
from outlast.toolsets.variant import variant
from outlast.toolsets.wrapper import RewritingToolset

__all__ = ("ApprovalRequiredToolset",)


class ApprovalRequiredToolset(RewritingToolset[DepsT]):
    """Asks for approval of calls, on top of those that need it already.

    Args:
        wrapped: The toolset to wrap.
        approval_required_func: Called as `(ctx, tool_def, tool_args)` with the validated arguments; sync or async.
            By default every call needs approval.
    """

    def __init__(self, wrapped: AbstractToolset[DepsT], approval_required_func: ApprovalFunction | None = None) -> None:
        super().__init__(wrapped)
        self.approval_required_func = approval_required_func

    @override
    async def rewrite(
        self, ctx: RunContext[DepsT], tools: dict[str, ToolsetTool[DepsT]]
    ) -> dict[str, ToolsetTool[DepsT]]:
        return {
            name: variant(tool, toolset=self, needs_approval=self._test(tool), origin=(self.wrapped, tool))
            for name, tool in tools.items()
        }

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[DepsT], tool: ToolsetTool[DepsT]
    ) -> Any:
        # Whoever plans the call has asked already. This is for code that calls the toolset without a plan.
        if not ctx.tool_call_approved and await tool.approval_needed(ctx, tool_args):
            raise ApprovalRequired
        return await super().call_tool(name, tool_args, ctx, tool)

    def _test(self, tool: ToolsetTool[DepsT]) -> ApprovalTest:
        function = self.approval_required_func

        async def needs_approval(ctx: RunContext[DepsT], args: dict[str, Any]) -> bool:
            # The wrapped definition: wrappers further out may rename the tool, and this function knows nothing of it.
            if function is None or await settled(function(ctx, tool.tool_def, args)):
                return True
            return tool.needs_approval is not None and await settled(tool.needs_approval(ctx, args))

        return needs_approval
