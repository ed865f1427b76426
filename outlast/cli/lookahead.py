"""Takes things as they come, and those that come while something else is done are not lost."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Generic, TypeVar, cast

__all__ = ("Lookahead",)

T = TypeVar("T")


class Lookahead(Generic[T]):
    """What a source gives, once and in its order, though some of it was looked at before.

    Args:
        source: Is read as far as it is asked for, and no further than one ahead.
    """

    def __init__(self, source: AsyncIterator[T]) -> None:
        self._source = source
        self._next: asyncio.Task[T] | None = None
        self._seen: deque[T] = deque()

    def __aiter__(self) -> Lookahead[T]:
        return self

    async def __anext__(self) -> T:
        if self._seen:
            return self._seen.popleft()
        coming = self._begin()
        try:
            return await coming
        finally:
            self._next = None

    async def until(self, other: asyncio.Task[Any]) -> AsyncIterator[T]:
        """What comes until another task is done. All of it comes again where it is awaited."""
        while not other.done():
            coming = self._begin()
            await asyncio.wait({coming, other}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                return
            if coming.exception() is not None:
                # The end, or an error: whoever awaits the next thing is told.
                await asyncio.wait({other})
                return
            self._next = None
            self._seen.append(coming.result())
            yield self._seen[-1]

    def _begin(self) -> asyncio.Task[T]:
        if self._next is None:
            self._next = asyncio.create_task(cast(Any, anext(self._source)))
        return self._next
