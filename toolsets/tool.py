"""One function as a tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import Unpack

from outlast.errors import UserError
from outlast.toolsets.context import DepsT
from outlast.toolsets.definition import ToolDefinition, name_problem
from outlast.toolsets.docstring import DocstringFormat
from outlast.toolsets.function_schema import FunctionSchema
from outlast.toolsets.mistakes import DefinitionError
from outlast.toolsets.schema_generator import ToolJsonSchema
from outlast.toolsets.settings import NOTHING_SET, ToolOptions, ToolSettings
from outlast.toolsets.signature import where

__all__ = ("DefinitionOptions", "Tool")


class DefinitionOptions(ToolOptions, total=False):
    """Keyword options of everything that makes a `Tool` from a function."""

    takes_ctx: bool | None
    name: str | None
    description: str | None
    docstring_format: DocstringFormat
    require_parameter_descriptions: bool
    schema_generator: type[GenerateJsonSchema]


class Tool(Generic[DepsT]):
    """A function that a model can call.

    Args:
        function: Sync or async. Its annotations become the schema, its docstring the description.
        takes_ctx: Whether its first parameter is a `RunContext`; None finds out by its annotation.
        name: What the model calls; the function's name by default.
        description: What the tool does; the docstring by default.
        docstring_format: `google`, `numpy`, `sphinx`, or `auto`.
        require_parameter_descriptions: Refuse a function whose parameters are not all described.
        schema_generator: Makes the JSON schema.
        options: The fields of `ToolSettings`.

    Raises:
        UserError: The definition has mistakes; lists all of them, each with what to write instead.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        takes_ctx: bool | None = None,
        name: str | None = None,
        description: str | None = None,
        docstring_format: DocstringFormat = "auto",
        require_parameter_descriptions: bool = False,
        schema_generator: type[GenerateJsonSchema] = ToolJsonSchema,
        **options: Unpack[ToolOptions],
    ) -> None:
        if not callable(function):
            raise UserError(f"a tool is made from a function, got {function!r}: write Tool(function, name='…').")
        self.function = function
        self.function_schema = FunctionSchema(
            function,
            takes_ctx=takes_ctx,
            docstring_format=docstring_format,
            require_parameter_descriptions=require_parameter_descriptions,
            schema_generator=schema_generator,
        )
        problems = list(self.function_schema.problems)
        self.settings = _settings(options, problems)
        self.name = name or self.function_schema.name or ""
        problems += _naming_problems(function, self.name, name)
        if problems:
            raise DefinitionError(self._where(), problems)
        self._description = description
        self.check_prompt(self.settings)

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    @property
    def takes_ctx(self) -> bool:
        """Whether the function is given the run's context."""
        return self.function_schema.takes_ctx

    @property
    def description(self) -> str | None:
        """What the model is told that the tool does."""
        return self.function_schema.description if self._description is None else self._description

    @property
    def tool_def(self) -> ToolDefinition:
        """What the model sees, by the tool's own settings."""
        return self.define(self.settings)

    def define(self, settings: ToolSettings) -> ToolDefinition:
        """What the model sees.

        Args:
            settings: The tool's settings, filled from its toolset.
        """
        return ToolDefinition(
            name=self.name,
            parameters_json_schema=self.function_schema.json_schema,
            description=self.description,
            strict=settings.strict,
            sequential=bool(settings.sequential),
            kind="unapproved" if settings.requires_approval else "function",
            metadata=settings.metadata,
        )

    def check_prompt(self, settings: ToolSettings) -> None:
        """Checks that the approval prompt names arguments of this tool.

        Raises:
            UserError: It names others.
        """
        if settings.approval is None:
            return
        schema = self.function_schema.json_schema
        names = None if schema.get("additionalProperties") else list(schema.get("properties", {}))
        problems = settings.approval.problems(names)
        if problems:
            raise DefinitionError(self._where(), problems)

    def _where(self) -> str:
        return f"Tool {self.name!r}{where(self.function)}"


def _settings(options: ToolOptions, problems: list[str]) -> ToolSettings:
    try:
        return ToolSettings.of(options)
    except DefinitionError as error:
        problems.extend(error.problems)
        return NOTHING_SET


def _naming_problems(function: Callable[..., Any], name: str, given: str | None) -> list[str]:
    if not name and given is None:
        return ["a lambda has no name: give one with `name='…'`."]
    problem = name_problem(name)
    return [problem] if problem else []
