"""What a run may end with: text, or JSON that fits a type, given through an output tool."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin

import pydantic_core
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import (
    PydanticInvalidForJsonSchema,
    PydanticSchemaGenerationError,
    PydanticUndefinedAnnotation,
    PydanticUserError,
)

from outlast.contracts import PlannedOutput
from outlast.errors import ModelRetry, UserError
from outlast.messages import JsonObject, ModelResponse, ToolCallPart
from outlast.toolsets.context import RunContext
from outlast.toolsets.deferred import DeferredToolRequests
from outlast.toolsets.definition import ToolDefinition
from outlast.toolsets.schema_generator import object_at_top, without_titles

OUTPUT_TOOL = "final_result"
PROCESSED = "Final result processed."
NOT_USED = "Output tool not used - a final result was already processed."
NOT_EXECUTED = "Tool not executed - a final result was already processed."

OutputValidator = Callable[..., Any | Awaitable[Any]]


class InvalidOutput(Exception):
    """The model's output does not do; `content` is what the model is told."""

    def __init__(self, content: str | list[JsonObject]) -> None:
        super().__init__(str(content))
        self.content = content


class _OutputTool:
    def __init__(self, name: str, output_type: Any) -> None:
        self.adapter: TypeAdapter[Any] = TypeAdapter(output_type)
        schema = object_at_top(without_titles(self.adapter.json_schema()))
        # A model calls tools with an object; any other type travels in one field of one.
        self.wrapped = schema.get("type") != "object"
        description = schema.pop("description", None) or "The final response which ends this conversation."
        if self.wrapped:
            definitions = schema.pop("$defs", None)
            schema = {"type": "object", "properties": {"response": schema}, "required": ["response"]}
            if definitions:
                schema["$defs"] = definitions
        self.definition = ToolDefinition(
            name=name, parameters_json_schema=schema, description=description, kind="output"
        )

    def validate(self, part: ToolCallPart) -> Any:
        """The output object of a call.

        Raises:
            InvalidOutput: The arguments do not fit the type.
        """
        try:
            args: Any = part.args_as_dict()
            if self.wrapped:
                if "response" not in args:
                    raise InvalidOutput([{"type": "missing", "loc": ["response"], "msg": "Field required"}])
                args = args["response"]
            return self.adapter.validate_json(pydantic_core.to_json(args))
        except ValidationError as error:
            raise InvalidOutput(_errors(error)) from None
        except ValueError as error:
            raise InvalidOutput(f"The arguments are not one JSON object: {error}") from None

    def dump(self, value: Any) -> Any:
        """The output as JSON, under the names by which the type reads it again."""
        try:
            return self.adapter.dump_python(value, mode="json", by_alias=True, warnings="error")
        except pydantic_core.PydanticSerializationError:
            # An output validator has made something else of it.
            return pydantic_core.to_jsonable_python(value, by_alias=True)


class Output:
    """The output of an agent.

    Args:
        output_type: `str`, a type, a union, or a sequence of them; `DeferredToolRequests` among them lets an
            in-process run end with calls that wait.

    Raises:
        UserError: A type has no JSON schema, or two have the same name; the message lists all that is wrong.
    """

    def __init__(self, output_type: Any = str) -> None:
        types = list(_flat(output_type))
        self.allows_deferred = DeferredToolRequests in types
        types = [one for one in types if one is not DeferredToolRequests] or [str]
        self.allows_text = str in types
        self.types = types
        structured = [one for one in types if one is not str]
        names = [OUTPUT_TOOL] if len(structured) == 1 else [f"{OUTPUT_TOOL}_{_type_name(one)}" for one in structured]
        problems = [
            f"Two output types have the same name {name!r}: rename one of the classes."
            for name in dict.fromkeys(names)
            if names.count(name) > 1
        ]
        self._tools: dict[str, _OutputTool] = {}
        for name, one in zip(names, structured, strict=True):
            try:
                self._tools[name] = _OutputTool(name, one)
            except PydanticUndefinedAnnotation as error:
                problems.append(f"The output type cannot be built yet: {error}. Define it before the agent.")
            except (PydanticUserError, PydanticSchemaGenerationError, PydanticInvalidForJsonSchema) as error:
                problems.append(
                    f"The output type {_type_name(one)} has no JSON schema ({str(error).splitlines()[0]}): use JSON's "
                    f"own types, a pydantic model, a dataclass or a TypedDict."
                )
        if problems:
            raise UserError("\n".join(problems))
        self.validators: list[OutputValidator] = []

    @property
    def definitions(self) -> list[ToolDefinition]:
        """The output tools, as the model sees them."""
        return [tool.definition for tool in self._tools.values()]

    def is_output_tool(self, name: str) -> bool:
        """The name is one of the output tools."""
        return name in self._tools

    async def from_call(self, ctx: RunContext[Any], part: ToolCallPart) -> PlannedOutput:
        """The output that a call of an output tool gives.

        Raises:
            InvalidOutput: What the model must do better.
        """
        tool = self._tools[part.tool_name]
        value = await self._validated(ctx, tool.validate(part))
        return PlannedOutput(value=tool.dump(value), tool_call_id=part.tool_call_id, live=value)

    async def from_text(self, ctx: RunContext[Any], response: ModelResponse) -> PlannedOutput:
        """The output of a response without calls.

        Raises:
            InvalidOutput: What the model must do better.
        """
        text = response.text
        if not text:
            wanted = "text or a tool call" if self.allows_text else "a tool call"
            raise InvalidOutput(f"The response was empty. Answer with {wanted}.")
        if not self.allows_text:
            names = ", ".join(map(repr, self._tools))
            raise InvalidOutput(f"Plain text responses are not permitted: answer by calling {names}.")
        value = await self._validated(ctx, text)
        if value == text:
            return PlannedOutput(text=True, live=value)
        json = value if type(value) is str else pydantic_core.to_jsonable_python(value, by_alias=True)
        return PlannedOutput(value=json, live=value)

    async def _validated(self, ctx: RunContext[Any], value: Any) -> Any:
        for validator in self.validators:
            try:
                takes_ctx = len(inspect.signature(validator).parameters) > 1
                value = validator(ctx, value) if takes_ctx else validator(value)
                if inspect.isawaitable(value):
                    value = await value
            except ModelRetry as retry:
                raise InvalidOutput(retry.message) from None
        return value


def _flat(output_type: Any) -> Iterator[Any]:
    """The single types of a list or a union of types; a model chooses between their output tools."""
    if isinstance(output_type, Sequence) and not isinstance(output_type, str):
        for one in cast("Sequence[Any]", output_type):
            yield from _flat(one)
    elif get_origin(output_type) in (Union, UnionType) and NoneType not in get_args(output_type):
        for one in get_args(output_type):
            yield from _flat(one)
    else:
        yield output_type


def _type_name(output_type: Any) -> str:
    return getattr(output_type, "__name__", None) or "".join(c if c.isalnum() else "_" for c in str(output_type))


def _errors(error: ValidationError) -> list[JsonObject]:
    return [
        {"type": one["type"], "loc": list(one["loc"]), "msg": one["msg"]}
        for one in error.errors(include_url=False, include_context=False, include_input=False)
    ]
