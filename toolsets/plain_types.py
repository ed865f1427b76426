"""Types that every schema can be made of."""

from __future__ import annotations

import types
import typing
from dataclasses import is_dataclass
from typing import Any, cast, get_args, get_origin

from pydantic import BaseModel, RootModel
from typing_extensions import is_typeddict

__all__ = ("is_object", "is_plain")

_SCALARS = frozenset({str, int, float, bool, type(None), None, Any})
_CONTAINERS = frozenset({list, dict, tuple, set, frozenset})
_UNIONS = frozenset({typing.Union, types.UnionType})


def is_plain(annotation: Any) -> bool:
    """Whether a type is made of JSON's own types alone, so that building its schema cannot fail."""
    origin = get_origin(annotation)
    if origin is None:
        return (isinstance(annotation, type | None) and annotation in _SCALARS | _CONTAINERS) or annotation is Any
    if origin is typing.Literal:
        return all(isinstance(value, str | int | bool) for value in get_args(annotation))
    if origin in _UNIONS or origin in _CONTAINERS:
        return all(argument is Ellipsis or is_plain(argument) for argument in get_args(annotation))
    return False


def is_object(annotation: Any) -> bool:
    """Whether a type is a model, a dataclass or a TypedDict: its JSON is one object with fields of its own."""
    if get_origin(annotation) is typing.Annotated:
        annotation = get_args(annotation)[0]
    annotation = get_origin(annotation) or annotation
    if not isinstance(annotation, type):
        return False
    kind = cast("type[Any]", annotation)
    if issubclass(kind, BaseModel):
        return not issubclass(kind, RootModel)
    return is_dataclass(kind) or is_typeddict(kind)
