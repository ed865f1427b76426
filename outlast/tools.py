"""Tools and what they work with, under one name to import from."""

from outlast.toolsets.context import RunContext
from outlast.toolsets.deferred import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from outlast.toolsets.definition import ToolDefinition
from outlast.toolsets.returns import ToolReturn
from outlast.toolsets.tool import Tool

__all__ = (
    "DeferredToolRequests",
    "DeferredToolResults",
    "RunContext",
    "Tool",
    "ToolApproved",
    "ToolDefinition",
    "ToolDenied",
    "ToolReturn",
)
