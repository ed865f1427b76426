"""The arguments of a function, as pydantic sees them."""

from __future__ import annotations

import typing
from inspect import Parameter
from typing import Annotated, Any, NotRequired, cast, get_args, get_origin

import typing_extensions
from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict, Unpack, is_typeddict

from outlast.messages import JsonObject
from outlast.toolsets.plain_types import is_object, is_plain
from outlast.toolsets.schema_generator import object_at_top, without_titles
from outlast.toolsets.signature import ToolSignature

__all__ = ("Arguments", "cannot_fail", "type_problems")

_CONFIG = ConfigDict(extra="forbid")
_QUALIFIERS = (typing.Required, typing.NotRequired, typing_extensions.Required, typing_extensions.NotRequired)


class Arguments:
    """Validates, dumps and describes a function's arguments.

    Args:
        signature: The function. A single parameter that is a model, a dataclass or a TypedDict gives its fields as
            the arguments.
        schema_generator: Makes the JSON schema.

    Raises:
        pydantic.errors.PydanticUserError: A type has no schema.
    """

    def __init__(self, signature: ToolSignature, schema_generator: type[GenerateJsonSchema]) -> None:
        self.single = _single(signature)
        if self.single is not None and not self._build(signature.hints[self.single], schema_generator):
            self.single = None
        if self.single is None:
            self._build(_typed_dict(signature), schema_generator)
            # Bound here once: a call is validated in less time than two more Python frames take.
            self.validate_json = self._adapter.validator.validate_json
            self.validate_python = self._adapter.validator.validate_python

    def validate_json(self, value: str, /) -> dict[str, Any]:
        """Arguments for the function from JSON text.

        Raises:
            pydantic.ValidationError: They do not fit.
        """
        return {cast("str", self.single): self._adapter.validator.validate_json(value)}

    def validate_python(self, value: Any, /) -> dict[str, Any]:
        """Arguments for the function from a dict.

        Raises:
            pydantic.ValidationError: They do not fit.
        """
        return {cast("str", self.single): self._adapter.validator.validate_python(value)}

    def dump(self, args: dict[str, Any]) -> JsonObject:
        """Validated arguments as JSON, with defaults.

        Raises:
            pydantic_core.PydanticSerializationError: A value has no JSON.
        """
        value = args if self.single is None else args[self.single]
        return self._adapter.serializer.to_python(value, mode="json", by_alias=True, round_trip=True, warnings=False)

    def _build(self, annotation: Any, schema_generator: type[GenerateJsonSchema]) -> bool:
        self._adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        schema = self._adapter.json_schema(schema_generator=schema_generator)
        self.json_schema: JsonObject = object_at_top(without_titles(schema))
        return self.json_schema.get("type") == "object"


def cannot_fail(signature: ToolSignature) -> bool:
    """Whether the arguments are so plain that `Arguments` can be made later without a surprise."""
    return all(is_plain(hint) for hint in signature.hints.values()) and not any(
        isinstance(parameter.default, FieldInfo) for parameter in signature.parameters.values()
    )


def type_problems(signature: ToolSignature, schema_generator: type[GenerateJsonSchema]) -> list[str]:
    """What is wrong with each parameter's type, for a signature that `Arguments` did not take."""
    found: list[str] = []
    for name, parameter in signature.parameters.items():
        try:
            TypeAdapter(_annotation(signature, parameter)).json_schema(schema_generator=schema_generator)
        except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema):
            found.append(
                f"parameter `{name}: {_shown(signature.hints[name])}` has no JSON schema, so no model can give it. Use "
                "JSON's own types, a pydantic model, a dataclass or a TypedDict; take live objects from `ctx.deps` or "
                "`ctx.resources`."
            )
        except Exception as error:
            found.append(f"parameter `{name}: {_shown(signature.hints[name])}` has a type that fails: {error}")
    return found


def _single(signature: ToolSignature) -> str | None:
    if len(signature.parameters) != 1:
        return None
    name, parameter = next(iter(signature.parameters.items()))
    fits = parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return name if fits and parameter.default is Parameter.empty and is_object(signature.hints[name]) else None


def _typed_dict(signature: ToolSignature) -> Any:
    # A TypedDict and not a model: any name is allowed for its keys, and validation gives the dict that a call takes.
    fields: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            unpacked = _unpacked(signature.hints[name])
            if unpacked is None:
                extra = {"extra_items": signature.hints[name]}
            else:
                fields.update(unpacked)
        else:
            fields[name] = _annotation(signature, parameter)
    arguments: Any = TypedDict("arguments", fields, **extra)  # pyright: ignore
    if not extra:
        arguments.__pydantic_config__ = _CONFIG
    return arguments


def _annotation(signature: ToolSignature, parameter: Parameter) -> Any:
    hint = signature.hints[parameter.name]
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return Annotated[list[hint], Field(default_factory=list)]
    if parameter.kind is Parameter.VAR_KEYWORD:
        return hint if _unpacked(hint) is None else get_args(hint)[0]
    if isinstance(parameter.default, FieldInfo):
        return Annotated[hint, parameter.default]
    return hint if parameter.default is Parameter.empty else Annotated[hint, Field(default=parameter.default)]


def _unpacked(hint: Any) -> dict[str, Any] | None:
    """Fields of `**kwargs: Unpack[SomeTypedDict]`."""
    if get_origin(hint) not in (Unpack, typing.Unpack) or not is_typeddict(get_args(hint)[0]):
        return None
    typed = get_args(hint)[0]
    hints = typing.get_type_hints(typed, include_extras=True)
    # The qualifiers come first: with postponed annotations the class itself has not understood its `Required[...]`.
    return {
        name: NotRequired[each] if name in typed.__optional_keys__ and get_origin(each) not in _QUALIFIERS else each
        for name, each in hints.items()
    }


def _shown(hint: Any) -> str:
    return (
        hint.__name__
        if isinstance(hint, type) and not get_args(hint)
        else str(hint).replace("collections.abc.", "").replace("typing.", "")
    )


PYDANTIC_ERRORS = (PydanticUserError, TypeError, ValueError, NameError, RecursionError)
"""What building a schema raises for types that it cannot take."""
