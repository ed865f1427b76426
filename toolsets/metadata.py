"""Tools with further metadata."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from outlast.toolsets.abstract import AbstractToolset, ToolsetTool
from outlast.toolsets.context import DepsT, RunContext
from outlast.toolsets.settings import ToolSettings
from outlast.toolsets.variant import variant
from outlast.toolsets.wrapper import RewritingToolset

__all__ = ("MetadataToolset",)


class MetadataToolset(RewritingToolset[DepsT]):
    """Adds metadata to each tool's definition; the application reads it, the model never does.

    Args:
        wrapped: The toolset to wrap.
        metadata: JSON values by name; wins over what the tools have.

    Raises:
        UserError: The metadata is not JSON.
    """

    def __init__(self, wrapped: AbstractToolset[DepsT], metadata: dict[str, Any]) -> None:
        super().__init__(wrapped)
        self.metadata = ToolSettings(metadata=metadata).metadata or {}

    @override
    async def rewrite(
        self, ctx: RunContext[DepsT], tools: dict[str, ToolsetTool[DepsT]]
    ) -> dict[str, ToolsetTool[DepsT]]:
        return {
            name: variant(
                tool,
                toolset=self,
                tool_def=variant(tool.tool_def, metadata={**(tool.tool_def.metadata or {}), **self.metadata}),
                origin=(self.wrapped, tool),
            )
            for name, tool in tools.items()
        }
