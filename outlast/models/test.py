"""A model for tests: calls every tool once, then says what came back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, cast

import pydantic_core
from typing_extensions import override

from outlast.errors import UserError
from outlast.messages import (
    JsonObject,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    Usage,
)
from outlast.models.example_args import example_args
from outlast.models.model import Model, ModelRequestParameters, ModelSettings
from outlast.toolsets.definition import ToolDefinition

__all__ = ("TestModel",)


class TestModel(Model):
    """Needs no provider: calls the tools with arguments made from their JSON schemas, then gives an output.

    The first response of a conversation calls each tool once; a tool that answers with a retry is called again; then
    comes the output: the results of all calls as JSON, or a call of an output tool where text is not allowed.
    Decides by the conversation alone.

    Args:
        call_tools: `all`, or the names of the function tools to call.
        custom_output_text: The output, as text.
        custom_output_args: The output, as arguments of the output tool; or the value of its only parameter.
        seed: Varies the arguments, and which output tool is called.
        model_name: Name of the model.

    Attributes:
        last_model_request_parameters: What the last request through this object carried; for assertions.
    """

    __test__ = False  # not a class of tests, whatever pytest thinks of its name

    def __init__(
        self,
        *,
        call_tools: Sequence[str] | Literal["all"] = "all",
        custom_output_text: str | None = None,
        custom_output_args: Any = None,
        seed: int = 0,
        model_name: str = "test",
    ) -> None:
        if custom_output_text is not None and custom_output_args is not None:
            raise UserError("TestModel takes custom_output_text or custom_output_args, not both.")
        self.call_tools: Sequence[str] | Literal["all"] = call_tools
        self.custom_output_text = custom_output_text
        self.custom_output_args = custom_output_args
        self.seed = seed
        self.last_model_request_parameters: ModelRequestParameters | None = None
        self._model_name = model_name

    @property
    @override
    def model_name(self) -> str:
        return self._model_name

    @property
    @override
    def system(self) -> str:
        return "test"

    @override
    async def request(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        self.last_model_request_parameters = parameters
        parts = self._calls(messages, parameters) or self._output(messages, parameters)
        return ModelResponse(parts=parts, model_name=self._model_name, usage=Usage(requests=1))

    def _calls(self, messages: list[ModelMessage], parameters: ModelRequestParameters) -> list[ModelResponsePart]:
        if any(isinstance(message, ModelResponse) for message in messages):
            tools = self._retried(messages, parameters)
        else:
            tools = self._chosen(parameters)
        earlier = Counter(call.tool_name for m in messages if isinstance(m, ModelResponse) for call in m.tool_calls)
        return [self._call(tool, earlier[tool.name]) for tool in tools]

    def _chosen(self, parameters: ModelRequestParameters) -> list[ToolDefinition]:
        if self.call_tools == "all":
            return parameters.function_tools
        tools = {tool.name: tool for tool in parameters.function_tools}
        if unknown := [name for name in self.call_tools if name not in tools]:
            raise UserError(f"TestModel(call_tools=…) names {unknown!r}, but the tools are {list(tools)!r}.")
        return [tools[name] for name in self.call_tools]

    @staticmethod
    def _retried(messages: list[ModelMessage], parameters: ModelRequestParameters) -> list[ToolDefinition]:
        # An output tool is not among them: giving an output again is what comes next anyway.
        parts = messages[-1].parts if isinstance(messages[-1], ModelRequest) else []
        names = {part.tool_name for part in parts if isinstance(part, RetryPromptPart)}
        return [tool for tool in parameters.function_tools if tool.name in names]

    def _output(self, messages: list[ModelMessage], parameters: ModelRequestParameters) -> list[ModelResponsePart]:
        if self.custom_output_text is not None:
            if not parameters.allow_text_output:
                raise UserError("TestModel(custom_output_text=…): the agent's output_type does not allow text.")
            return [TextPart(content=self.custom_output_text)]
        if self.custom_output_args is None and parameters.allow_text_output:
            return [TextPart(content=_results(messages))]
        if not parameters.output_tools:
            raise UserError("TestModel has no output to give: the agent has no output tool, and allows no text.")
        tool = parameters.output_tools[self.seed % len(parameters.output_tools)]
        earlier = sum(
            call.tool_name == tool.name for m in messages if isinstance(m, ModelResponse) for call in m.tool_calls
        )
        return [self._call(tool, earlier, _as_args(tool, self.custom_output_args))]

    def _call(self, tool: ToolDefinition, earlier: int, args: Any = None) -> ToolCallPart:
        if args is None:
            args = example_args(tool.parameters_json_schema, seed=self.seed)
        call_id = f"pyd_ai_tool_call_id__{tool.name}"
        return ToolCallPart(
            tool_name=tool.name, args=args, tool_call_id=f"{call_id}__{earlier + 1}" if earlier else call_id
        )


def _as_args(tool: ToolDefinition, value: Any) -> Any:
    """The output as arguments: one that is no object is the value of the tool's only parameter."""
    args = pydantic_core.to_jsonable_python(value)
    properties = tool.parameters_json_schema.get("properties", {})
    if args is None or isinstance(args, dict) or len(properties) != 1:
        return cast(Any, args)
    return dict.fromkeys(properties, args)


def _results(messages: list[ModelMessage]) -> str:
    results: JsonObject = {
        part.tool_name: part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    }
    return pydantic_core.to_json(results, fallback=repr).decode() if results else "success (no tool calls)"
