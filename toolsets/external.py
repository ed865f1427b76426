"""Tools that somebody else runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, LiteralString, cast

import pydantic_core
from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError
from typing_extensions import override

from outlast.errors import UserError
from outlast.messages import JsonObject
from outlast.toolsets.abstract import AbstractToolset, ToolsetTool
from outlast.toolsets.context import DepsT, RunContext
from outlast.toolsets.definition import ToolDefinition
from outlast.toolsets.mistakes import DefinitionError
from outlast.toolsets.raw_schema import RawSchema, SchemaViolation
from outlast.toolsets.variant import variant

__all__ = ("ExternalToolset", "RawArgsValidator")


class RawArgsValidator:
    """Checks arguments against a JSON schema; their values stay as they are.

    Args:
        schema: JSON schema of the arguments.

    Raises:
        UserError: The schema is broken.
    """

    def __init__(self, schema: JsonObject) -> None:
        self._schema = RawSchema(schema)

    def validate_json(self, value: str, /) -> dict[str, Any]:
        """Arguments from JSON text.

        Raises:
            ValidationError: They do not fit.
        """
        try:
            return self.validate_python(pydantic_core.from_json(value, allow_inf_nan=False))
        except ValidationError:
            raise
        except ValueError as error:
            violation = SchemaViolation((), f"Invalid JSON: {error}", value)
            raise _validation_error([violation], "json_invalid") from None

    def validate_python(self, value: Any, /) -> dict[str, Any]:
        """Arguments from a dict.

        Raises:
            ValidationError: They do not fit.
        """
        if not isinstance(value, dict):
            raise _validation_error([SchemaViolation((), "Arguments should be one JSON object", value)], "dict_type")
        args = cast("dict[str, Any]", value)
        violations = self._schema.violations(args)
        if violations:
            raise _validation_error(violations, "json_schema")
        return args


class ExternalToolset(AbstractToolset[DepsT]):
    """Offers tools whose results come from outside of the run.

    Args:
        tool_defs: The tools; a call of one is held until its result is delivered.
        id: A name for the toolset.

    Raises:
        UserError: A schema is broken, or a name is there twice; lists everything that is wrong.
    """

    def __init__(
        self,
        tool_defs: Iterable[ToolDefinition],
        *,
        id: str | None = None,  # the same word as the property
    ) -> None:
        self._id = id
        self.tool_defs = [variant(tool_def, kind="external") for tool_def in tool_defs]
        self._tools: dict[str, ToolsetTool[DepsT]] = {}
        problems: list[str] = []
        for tool_def in self.tool_defs:
            try:
                validator = RawArgsValidator(tool_def.parameters_json_schema)
            except UserError as error:
                problems.append(f"tool {tool_def.name!r}: {error.message}")
                continue
            if tool_def.name in self._tools:
                problems.append(f"there are two tools {tool_def.name!r}; names are unique within a toolset.")
            self._tools[tool_def.name] = ToolsetTool(toolset=self, tool_def=tool_def, args_validator=validator)
        if problems:
            raise DefinitionError(self.label, problems)

    @property
    @override
    def id(self) -> str | None:
        return self._id

    @override
    async def get_tools(self, ctx: RunContext[DepsT]) -> dict[str, ToolsetTool[DepsT]]:
        return dict(self._tools)

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[DepsT], tool: ToolsetTool[DepsT]
    ) -> Any:
        """Never runs anything.

        Raises:
            UserError: Always.
        """
        raise UserError(
            f"tool {name!r} is external: nothing here can run it. Deliver its result from outside, with `resolve` or "
            "`DeferredToolResults(calls={tool_call_id: result})`."
        )

    @override
    def known_names(self) -> Iterable[str]:
        return list(self._tools)


def _validation_error(violations: list[SchemaViolation], kind: LiteralString) -> ValidationError:
    details = [
        # The message goes in by its context: as a template, its braces would be read as names.
        InitErrorDetails(type=PydanticCustomError(kind, "{message}", {"message": v.message}), loc=v.path, input=v.value)
        for v in violations
    ]
    return ValidationError.from_exception_data("arguments", details, input_type="json")
