"""Agent runs that outlast crashes, deploys and slow humans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlast.agent import Agent, AgentRunResult
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

if TYPE_CHECKING:
    from outlast.client import Client
    from outlast.plugin import OutlastPlugin

__version__ = "0.1.0"

# Imported when first used: an in-process run needs no Temporal.
_LATE = {"Client": "outlast.client", "OutlastPlugin": "outlast.plugin"}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        import importlib

        return getattr(importlib.import_module(_LATE[name]), name)
    raise AttributeError(f"module 'outlast' has no attribute {name!r}")


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
