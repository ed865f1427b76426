"""Models: what answers a conversation. Importing this package imports no provider's SDK."""

from outlast.models.function import AgentInfo, FunctionModel
from outlast.models.infer import infer_model
from outlast.models.model import Model, ModelRequestParameters, ModelSettings, load_settings, merge_settings
from outlast.models.offline import OfflineModel
from outlast.models.openai import OpenAIModel
from outlast.models.scripted import ScriptedModel
from outlast.models.test import TestModel

__all__ = (
    "AgentInfo",
    "FunctionModel",
    "Model",
    "ModelRequestParameters",
    "ModelSettings",
    "OfflineModel",
    "OpenAIModel",
    "ScriptedModel",
    "TestModel",
    "infer_model",
    "load_settings",
    "merge_settings",
)
