"""Toolsets that are made for one run or one step, entered for as long as they are used."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, cast

import anyio
from anyio.abc import TaskStatus

from outlast.toolsets.abstract import AbstractToolset
from outlast.toolsets.combined import CombinedToolset
from outlast.toolsets.wrapper import WrapperToolset

EXIT_SECONDS = 10
"""Longest wait for toolsets to close what they hold, when a run is over."""

Leave: TypeAlias = Callable[[], Awaitable[None]]
Enter: TypeAlias = Callable[[AbstractToolset[Any]], Awaitable[Leave]]


def holding(toolset: AbstractToolset[Any]) -> Iterator[AbstractToolset[Any]]:
    """Those of the toolsets inside of one that have something of their own to enter."""
    kind = type(toolset)
    if kind.__aenter__ is AbstractToolset.__aenter__ and kind.__aexit__ is AbstractToolset.__aexit__:
        return
    if isinstance(toolset, CombinedToolset) and kind.__aenter__ is CombinedToolset.__aenter__:
        for each in cast("CombinedToolset[Any]", toolset).toolsets:
            yield from holding(each)
    elif isinstance(toolset, WrapperToolset) and kind.__aenter__ is WrapperToolset.__aenter__:
        yield from holding(cast("WrapperToolset[Any]", toolset).wrapped)
    else:
        yield toolset


@asynccontextmanager
async def entering() -> AsyncGenerator[Enter]:
    """Gives a function that enters a toolset, and returns the one that leaves it; leaves what is left at the end.

    Each is entered and left in a task of its own: a connection with tasks inside must be closed by the task that
    opened it, and whoever needs a toolset first is not whoever uses it last.
    """
    entered: list[Leave] = []
    async with anyio.create_task_group() as group:

        async def enter(toolset: AbstractToolset[Any]) -> Leave:
            stop, stopped = anyio.Event(), anyio.Event()
            await group.start(_hold, toolset, stop, stopped)

            async def leave() -> None:
                stop.set()
                await stopped.wait()

            entered.append(leave)
            return leave

        try:
            yield enter
        finally:
            with anyio.move_on_after(EXIT_SECONDS, shield=True):
                for leave in reversed(entered):
                    await leave()


async def _hold(
    toolset: AbstractToolset[Any], stop: anyio.Event, stopped: anyio.Event, *, task_status: TaskStatus[None]
) -> None:
    try:
        async with toolset:
            task_status.started()
            await stop.wait()
    finally:
        stopped.set()
