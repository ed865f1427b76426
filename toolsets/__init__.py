"""What tools are: their schemas, how toolsets are put together, and how arguments are checked. Knows no Temporal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outlast.late import late_names

if TYPE_CHECKING:
    from outlast.toolsets.abstract import AbstractToolset, ArgsValidator, ToolsetTool
    from outlast.toolsets.approval import Approval
    from outlast.toolsets.approval_required import ApprovalRequiredToolset
    from outlast.toolsets.combined import CombinedToolset
    from outlast.toolsets.context import RunContext
    from outlast.toolsets.deferred import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
    from outlast.toolsets.definition import ToolDefinition
    from outlast.toolsets.dynamic import DynamicToolset
    from outlast.toolsets.external import ExternalToolset
    from outlast.toolsets.filtered import FilteredToolset
    from outlast.toolsets.function import FunctionToolset
    from outlast.toolsets.metadata import MetadataToolset
    from outlast.toolsets.prefixed import PrefixedToolset
    from outlast.toolsets.prepared import PreparedToolset
    from outlast.toolsets.renamed import RenamedToolset
    from outlast.toolsets.returns import ToolReturn
    from outlast.toolsets.settings import ToolOptions, ToolSettings
    from outlast.toolsets.tool import Tool
    from outlast.toolsets.validation import Invalid, Valid, validate_args
    from outlast.toolsets.wrapper import RewritingToolset, WrapperToolset

_HOMES = {
    "outlast.toolsets.abstract": (
        "AbstractToolset",
        "ArgsValidator",
        "ToolsetTool",
    ),
    "outlast.toolsets.approval": ("Approval",),
    "outlast.toolsets.approval_required": ("ApprovalRequiredToolset",),
    "outlast.toolsets.combined": ("CombinedToolset",),
    "outlast.toolsets.context": ("RunContext",),
    "outlast.toolsets.deferred": (
        "DeferredToolRequests",
        "DeferredToolResults",
        "ToolApproved",
        "ToolDenied",
    ),
    "outlast.toolsets.definition": ("ToolDefinition",),
    "outlast.toolsets.dynamic": ("DynamicToolset",),
    "outlast.toolsets.external": ("ExternalToolset",),
    "outlast.toolsets.filtered": ("FilteredToolset",),
    "outlast.toolsets.function": ("FunctionToolset",),
    "outlast.toolsets.metadata": ("MetadataToolset",),
    "outlast.toolsets.prefixed": ("PrefixedToolset",),
    "outlast.toolsets.prepared": ("PreparedToolset",),
    "outlast.toolsets.renamed": ("RenamedToolset",),
    "outlast.toolsets.returns": ("ToolReturn",),
    "outlast.toolsets.settings": (
        "ToolOptions",
        "ToolSettings",
    ),
    "outlast.toolsets.tool": ("Tool",),
    "outlast.toolsets.validation": (
        "Invalid",
        "Valid",
        "validate_args",
    ),
    "outlast.toolsets.wrapper": (
        "RewritingToolset",
        "WrapperToolset",
    ),
}
__getattr__, __dir__ = late_names(__name__, _HOMES)

__all__ = (
    "AbstractToolset",
    "Approval",
    "ApprovalRequiredToolset",
    "ArgsValidator",
    "CombinedToolset",
    "DeferredToolRequests",
    "DeferredToolResults",
    "DynamicToolset",
    "ExternalToolset",
    "FilteredToolset",
    "FunctionToolset",
    "Invalid",
    "MetadataToolset",
    "PrefixedToolset",
    "PreparedToolset",
    "RenamedToolset",
    "RewritingToolset",
    "RunContext",
    "Tool",
    "ToolApproved",
    "ToolDefinition",
    "ToolDenied",
    "ToolOptions",
    "ToolReturn",
    "ToolSettings",
    "ToolsetTool",
    "Valid",
    "WrapperToolset",
    "validate_args",
)
