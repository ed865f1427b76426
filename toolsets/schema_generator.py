"""JSON schemas as a model should read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import override

from outlast.messages import JsonObject

__all__ = ("ToolJsonSchema", "object_at_top", "without_titles")

# Where a JSON schema holds further schemas; anywhere else, "title" may be somebody's data.
_NAMED = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")


class ToolJsonSchema(GenerateJsonSchema):
    """pydantic's generator, silent about defaults that JSON cannot say: the model can do without them."""

    ignored_warning_kinds: ClassVar[Any] = {"skipped-choice", "non-serializable-default"}

    @override
    def encode_default(self, dft: Any) -> Any:
        """The default as JSON."""
        # Most are JSON already; pydantic builds a validator and a serializer for each, a tenth of the whole schema.
        return dft if dft is None or type(dft) in (str, bool, int) else super().encode_default(dft)


def without_titles(schema: JsonObject) -> JsonObject:
    """The schema without `title`: pydantic makes them from names, and a model pays for each token it reads."""
    stripped: JsonObject = {}
    for key, value in schema.items():
        if key == "title":
            continue
        if key in _NAMED and isinstance(value, dict):
            stripped[key] = {name: _stripped(each) for name, each in cast("JsonObject", value).items()}
        elif key in _LISTED and isinstance(value, list):
            stripped[key] = [_stripped(each) for each in cast("list[Any]", value)]
        else:
            stripped[key] = _stripped(value) if key in _SINGLE else value
    return stripped


def object_at_top(schema: JsonObject) -> JsonObject:
    """The same schema with `type: object` at its top, where it is a reference to one of its own definitions.

    Providers refuse a tool whose parameters are only a `$ref`, which is how pydantic writes a recursive model.
    """
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    target: Any = schema
    for step in reference.removeprefix("#/").split("/"):
        target = cast("Mapping[str, Any]", target)[step.replace("~1", "/").replace("~0", "~")]
    return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}


def _stripped(value: Any) -> Any:
    return without_titles(cast("JsonObject", value)) if isinstance(value, dict) else value
