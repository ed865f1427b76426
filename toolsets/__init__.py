"""What tools are: their schemas, how toolsets are put together, and how arguments are checked. Knows no Temporal."""

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
