"""Nothing that comes while a question is open is lost, or told twice, or out of order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from outlast.cli.lookahead import Lookahead


async def source(queue: asyncio.Queue[int | None]) -> AsyncIterator[int]:
    while (item := await queue.get()) is not None:
        if item < 0:
            raise ConnectionError("gone")
        yield item


async def test_what_was_looked_at_comes_again_in_its_order() -> None:
    queue: asyncio.Queue[int | None] = asyncio.Queue()
    coming = Lookahead(source(queue))
    answered = asyncio.Event()
    question = asyncio.create_task(answered.wait())
    queue.put_nowait(1)
    assert await anext(coming) == 1
    for item in (2, 3):
        queue.put_nowait(item)
    seen: list[int] = []
    async for item in coming.until(question):
        seen.append(item)
        if item == 3:
            answered.set()
    assert seen == [2, 3]
    for item in (4, None):
        queue.put_nowait(item)
    assert [item async for item in coming] == [2, 3, 4]


async def test_the_end_while_a_question_is_open_comes_after_it() -> None:
    queue: asyncio.Queue[int | None] = asyncio.Queue()
    coming = Lookahead(source(queue))
    question = asyncio.create_task(asyncio.sleep(0.01))
    queue.put_nowait(None)
    assert [item async for item in coming.until(question)] == []
    assert question.done()
    assert [item async for item in coming] == []


async def test_an_error_while_a_question_is_open_comes_after_it() -> None:
    queue: asyncio.Queue[int | None] = asyncio.Queue()
    coming = Lookahead(source(queue))
    question = asyncio.create_task(asyncio.sleep(0.01))
    queue.put_nowait(-1)
    assert [item async for item in coming.until(question)] == []
    with pytest.raises(ConnectionError):
        await anext(coming)
