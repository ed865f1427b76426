"""What a model is told about a tool."""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, TypeAlias

from outlast.messages import JsonObject

__all__ = ("ToolDefinition", "ToolKind", "name_problem")

ToolKind: TypeAlias = Literal["function", "output", "external", "unapproved"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@dataclass(repr=False)
class ToolDefinition:
    """A tool as the model sees it.

    Attributes:
        name: What the model calls.
        parameters_json_schema: JSON schema of the arguments, an object.
        description: What the tool does.
        strict: Asks the provider to keep to the schema exactly, where it can.
        sequential: Runs alone, not beside other calls of its step.
        kind: `function` runs here; `unapproved` runs here once a person approved; `external` is answered from
            outside; `output` ends the run.
        metadata: For the application; never sent to the model.
        return_schema: JSON schema of the result, where it is known.
    """

    name: str
    parameters_json_schema: JsonObject = field(default_factory=lambda: {"type": "object", "properties": {}})
    description: str | None = None
    strict: bool | None = None
    sequential: bool = False
    kind: ToolKind = "function"
    metadata: dict[str, Any] | None = None
    return_schema: JsonObject | None = None

    def __repr__(self) -> str:
        shown: list[str] = []
        for each in fields(self):
            value = getattr(self, each.name)
            default = each.default if each.default_factory is MISSING else each.default_factory()
            if value != default:
                shown.append(f"{each.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


def name_problem(name: object) -> str | None:
    """What is wrong with a tool's name, or None. Providers refuse other names only when the run is under way."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return None
    return f"a tool's name is 1 to 128 letters, digits, `_`, `-` or `.`, got {name!r}: give one with `name='…'`."
