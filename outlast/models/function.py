"""A model that is a Python function."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from typing_extensions import override

from outlast.messages import ModelMessage, ModelResponse
from outlast.models.answer import Answer, to_response
from outlast.models.model import Model, ModelRequestParameters, ModelSettings
from outlast.toolsets.definition import ToolDefinition

__all__ = ("AgentInfo", "FunctionDef", "FunctionModel")


@dataclass(frozen=True, kw_only=True)
class AgentInfo:
    """What a function that stands in for a model sees besides the conversation.

    Attributes:
        function_tools: Tools that may be called.
        output_tools: Tools by which the output may be given.
        allow_text_output: Whether plain text is an output.
        model_settings: Settings of this request.
        instructions: The agent's instructions for this step.
        model_request_parameters: All of the above but the settings, as the model got them.
    """

    function_tools: list[ToolDefinition]
    output_tools: list[ToolDefinition]
    allow_text_output: bool
    model_settings: ModelSettings | None
    instructions: str | None
    model_request_parameters: ModelRequestParameters

    @classmethod
    def of(cls, settings: ModelSettings | None, parameters: ModelRequestParameters) -> AgentInfo:
        """The view of one request."""
        return cls(
            function_tools=parameters.function_tools,
            output_tools=parameters.output_tools,
            allow_text_output=parameters.allow_text_output,
            model_settings=settings,
            instructions=parameters.instructions,
            model_request_parameters=parameters,
        )


FunctionDef: TypeAlias = Callable[[list[ModelMessage], AgentInfo], Answer | Awaitable[Answer]]


class FunctionModel(Model):
    """Answers with what a function returns.

    Args:
        function: Called with the conversation and an `AgentInfo`; may be `async`. Returns a `ModelResponse`, or
            what stands for one: text, a part, a list of parts. On Temporal it runs in an activity, on any worker:
            it should decide by the conversation alone.
        model_name: By default `function:` and the function's name.
    """

    def __init__(self, function: FunctionDef, *, model_name: str | None = None) -> None:
        self.function = function
        self._model_name = model_name or f"function:{getattr(function, '__name__', type(function).__name__)}"

    @property
    @override
    def model_name(self) -> str:
        return self._model_name

    @property
    @override
    def system(self) -> str:
        return "function"

    @override
    async def request(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        answer = self.function(messages, AgentInfo.of(settings, parameters))
        if inspect.isawaitable(answer):
            answer = await answer
        return to_response(answer, model_name=self._model_name, where=f"the function of {self!r}")
