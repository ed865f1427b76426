"""Agent runs that outlast crashes, deploys and slow humans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outlast.late import late_names

if TYPE_CHECKING:
    from outlast.agent import Agent, AgentRunResult
    from outlast.client import Client
    from outlast.contracts import UsageLimits
    from outlast.errors import (
        ApprovalRequired,
        CallDeferred,
        DecisionRejected,
        FatalToolError,
        ModelRetry,
        OutlastError,
        RunError,
        TransientToolError,
        UserError,
    )
    from outlast.messages import (
        BinaryContent,
        ImageUrl,
        ModelMessage,
        ModelRequest,
        ModelResponse,
        RetryPromptPart,
        SystemPromptPart,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        Usage,
        UserPromptPart,
    )
    from outlast.models import FunctionModel, OfflineModel, OpenAIModel, ScriptedModel, TestModel
    from outlast.plugin import OutlastPlugin
    from outlast.toolsets.abstract import AbstractToolset, ToolsetTool
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
    from outlast.toolsets.prefixed import PrefixedToolset
    from outlast.toolsets.prepared import PreparedToolset
    from outlast.toolsets.renamed import RenamedToolset
    from outlast.toolsets.returns import ToolReturn
    from outlast.toolsets.settings import ToolSettings
    from outlast.toolsets.tool import Tool
    from outlast.toolsets.wrapper import WrapperToolset

__version__ = "0.1.0"

_HOMES = {
    "outlast.agent": ("Agent", "AgentRunResult"),
    "outlast.client": ("Client",),
    "outlast.contracts": ("UsageLimits",),
    "outlast.errors": (
        "ApprovalRequired",
        "CallDeferred",
        "DecisionRejected",
        "FatalToolError",
        "ModelRetry",
        "OutlastError",
        "RunError",
        "TransientToolError",
        "UserError",
    ),
    "outlast.messages": (
        "BinaryContent",
        "ImageUrl",
        "ModelMessage",
        "ModelRequest",
        "ModelResponse",
        "RetryPromptPart",
        "SystemPromptPart",
        "TextPart",
        "ThinkingPart",
        "ToolCallPart",
        "ToolReturnPart",
        "Usage",
        "UserPromptPart",
    ),
    "outlast.models": ("FunctionModel", "OfflineModel", "OpenAIModel", "ScriptedModel", "TestModel"),
    "outlast.plugin": ("OutlastPlugin",),
    "outlast.toolsets.abstract": ("AbstractToolset", "ToolsetTool"),
    "outlast.toolsets.approval": ("Approval",),
    "outlast.toolsets.approval_required": ("ApprovalRequiredToolset",),
    "outlast.toolsets.combined": ("CombinedToolset",),
    "outlast.toolsets.context": ("RunContext",),
    "outlast.toolsets.deferred": ("DeferredToolRequests", "DeferredToolResults", "ToolApproved", "ToolDenied"),
    "outlast.toolsets.definition": ("ToolDefinition",),
    "outlast.toolsets.dynamic": ("DynamicToolset",),
    "outlast.toolsets.external": ("ExternalToolset",),
    "outlast.toolsets.filtered": ("FilteredToolset",),
    "outlast.toolsets.function": ("FunctionToolset",),
    "outlast.toolsets.prefixed": ("PrefixedToolset",),
    "outlast.toolsets.prepared": ("PreparedToolset",),
    "outlast.toolsets.renamed": ("RenamedToolset",),
    "outlast.toolsets.returns": ("ToolReturn",),
    "outlast.toolsets.settings": ("ToolSettings",),
    "outlast.toolsets.tool": ("Tool",),
    "outlast.toolsets.wrapper": ("WrapperToolset",),
}
__getattr__, __dir__ = late_names(__name__, _HOMES)

__all__ = (
    "AbstractToolset",
    "Agent",
    "AgentRunResult",
    "Approval",
    "ApprovalRequired",
    "ApprovalRequiredToolset",
    "BinaryContent",
    "CallDeferred",
    "Client",
    "CombinedToolset",
    "DecisionRejected",
    "DeferredToolRequests",
    "DeferredToolResults",
    "DynamicToolset",
    "ExternalToolset",
    "FatalToolError",
    "FilteredToolset",
    "FunctionModel",
    "FunctionToolset",
    "ImageUrl",
    "ModelMessage",
    "ModelRequest",
    "ModelResponse",
    "ModelRetry",
    "OfflineModel",
    "OpenAIModel",
    "OutlastError",
    "OutlastPlugin",
    "PrefixedToolset",
    "PreparedToolset",
    "RenamedToolset",
    "RetryPromptPart",
    "RunContext",
    "RunError",
    "ScriptedModel",
    "SystemPromptPart",
    "TestModel",
    "TextPart",
    "ThinkingPart",
    "Tool",
    "ToolApproved",
    "ToolCallPart",
    "ToolDefinition",
    "ToolDenied",
    "ToolReturn",
    "ToolReturnPart",
    "ToolSettings",
    "ToolsetTool",
    "TransientToolError",
    "Usage",
    "UsageLimits",
    "UserError",
    "UserPromptPart",
    "WrapperToolset",
)
