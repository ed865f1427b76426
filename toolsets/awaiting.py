"""User functions may be sync or async; what they give is awaited where it must be."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import TypeVar, cast

__all__ = ("settled",)

T = TypeVar("T")


async def settled(value: T | Awaitable[T]) -> T:
    """The value itself, or what it comes to when awaited."""
    if inspect.isawaitable(value):
        return await cast("Awaitable[T]", value)
    return cast("T", value)
