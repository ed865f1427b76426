"""A function as a tool: what the model is told, what it may give, and how it is called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any

import anyio
import anyio.to_thread
from pydantic.json_schema import GenerateJsonSchema

from outlast.messages import JsonObject
from outlast.toolsets.arguments import PYDANTIC_ERRORS, Arguments, cannot_fail, type_problems
from outlast.toolsets.docstring import DocstringFormat, Documentation, read_docstring
from outlast.toolsets.schema_generator import ToolJsonSchema
from outlast.toolsets.signature import read_signature

__all__ = ("FunctionSchema",)


class FunctionSchema:
    """Everything that is read from a function.

    What costs time is read when it is first needed, unless reading it could fail: then at once, so that a mistake
    shows where the tool is defined.

    Args:
        function: Any callable.
        takes_ctx: Whether its first parameter must be the run's context; None finds out.
        docstring_format: How its docstring is written.
        require_parameter_descriptions: Every parameter must be described.
        schema_generator: Makes the JSON schema.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        takes_ctx: bool | None = None,
        docstring_format: DocstringFormat = "auto",
        require_parameter_descriptions: bool = False,
        schema_generator: type[GenerateJsonSchema] = ToolJsonSchema,
    ) -> None:
        self.signature = read_signature(function, takes_ctx=takes_ctx)
        self.function = function
        self.name = self.signature.name
        self.takes_ctx = self.signature.takes_ctx
        self.is_async = self.signature.is_async
        self._docstring_format: DocstringFormat = docstring_format
        self._schema_generator = schema_generator
        self._positional = _positional(self.signature.parameters)
        self.problems = [*self.signature.problems, *self._type_problems()]
        if require_parameter_descriptions and not self.problems:
            self.problems += self._missing_descriptions()

    @functools.cached_property
    def documentation(self) -> Documentation:
        """The function's docstring."""
        return read_docstring(_docstring(self.function, self.signature.plain), self._docstring_format)

    @functools.cached_property
    def arguments(self) -> Arguments:
        """Validation of the arguments."""
        return Arguments(self.signature, self._schema_generator)

    @functools.cached_property
    def json_schema(self) -> JsonObject:
        """JSON schema of the arguments, with the descriptions of the docstring."""
        schema = self.arguments.json_schema
        if self.arguments.single is not None:
            # The description of the model that the fields come from is the tool's, see `description`.
            return {key: value for key, value in schema.items() if key != "description"}
        described = self.documentation.parameters
        properties: JsonObject = schema.get("properties", {})
        for name, key in self._keys().items():
            if name in described and key in properties:
                properties[key] = {"description": described[name], **properties[key]}
        return schema

    @property
    def description(self) -> str | None:
        """What the model should know of the tool, or None."""
        own = self.documentation.description
        if own is None and self.arguments.single is not None:
            return self.arguments.json_schema.get("description")
        return own

    async def call(self, args: dict[str, Any], ctx: Any) -> Any:
        """Calls the function: an async one here, a sync one in a thread.

        Args:
            args: Validated arguments.
            ctx: Given to the function if it takes it.
        """
        positional: tuple[Any, ...] = (ctx,) if self.takes_ctx else ()
        if self._positional:
            more, args = self._split(args)
            positional += more
        try:
            if self.is_async:
                return await self.function(*positional, **args)
            # A limiter of its own: the worker says how many calls run at once, and anyio's common 40 threads would
            # let calls wait for a free one while their timeouts run. Abandoned when cancelled, since no thread can be
            # stopped from outside.
            result = await anyio.to_thread.run_sync(
                functools.partial(self.function, *positional, **args),
                abandon_on_cancel=True,
                limiter=anyio.CapacityLimiter(1),
            )
            return await result if inspect.isawaitable(result) else result
        except SystemExit as error:
            # Let through, it would end the worker and every other call on it.
            raise RuntimeError(f"the tool called `sys.exit({error.code!r})`") from error

    def _split(self, args: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        keywords = dict(args)
        positional: list[Any] = []
        for name, kind in self._positional.items():
            value = keywords.pop(name)
            if kind is Parameter.VAR_POSITIONAL:
                positional.extend(value)
            else:
                positional.append(value)
        return tuple(positional), keywords

    def _type_problems(self) -> list[str]:
        if self.signature.problems or cannot_fail(self.signature):
            return []
        try:
            _ = self.arguments
        except PYDANTIC_ERRORS as error:
            return type_problems(self.signature, self._schema_generator) or [f"its arguments have no schema: {error}"]
        return []

    def _missing_descriptions(self) -> list[str]:
        if self.arguments.single is not None:
            properties: JsonObject = self.json_schema.get("properties", {})
            missing = [name for name, each in properties.items() if "description" not in each and "$ref" not in each]
            advice = "Give each field a `Field(description='…')`."
        else:
            properties = self.json_schema.get("properties", {})
            missing = [
                name
                for name, key in self._keys().items()
                if name not in self.documentation.parameters and "description" not in properties.get(key, {})
            ]
            lines = "\n".join(f"        {name}: …" for name in missing)
            advice = f'Say what they are in its docstring:\n    """…\n\n    Args:\n{lines}\n    """'
        return [f"these parameters have no description: {', '.join(missing)}. {advice}"] if missing else []

    def _keys(self) -> dict[str, str]:
        """Each parameter's name, and the key under which the model gives it."""
        properties: JsonObject = self.arguments.json_schema.get("properties", {})
        names = list(self.signature.parameters)
        unclaimed = [key for key in properties if key not in names]
        # An alias stands where its parameter does: pydantic keeps their order.
        return {name: name if name in properties or not unclaimed else unclaimed.pop(0) for name in names}


def _positional(parameters: dict[str, Parameter]) -> dict[str, Any]:
    """Parameters that cannot be given by name: positional-only ones, and with `*args` all that come before."""
    starred = any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters.values())
    kinds = [Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL]
    kinds += [Parameter.POSITIONAL_OR_KEYWORD] if starred else []
    return {name: parameter.kind for name, parameter in parameters.items() if parameter.kind in kinds}


def _docstring(function: Callable[..., Any], plain: Callable[..., Any]) -> str | None:
    if plain.__doc__ is not None or isinstance(function, functools.partial):
        return inspect.getdoc(plain)
    return inspect.getdoc(function) if callable(function) and not inspect.isroutine(function) else None
