"""Heartbeats of the activities that run on this worker.

Calls that end within the first beat cost nothing. The worker's own loop beats for the others, which is also how a
cancellation reaches them. A thread watches that loop: while user code blocks it, the thread beats instead, so that one
blocking tool does not make every other call on this worker look lost.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import threading
import time
import traceback
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, Client

BEAT = timedelta(seconds=1)
"""The longest time between two beats; with short heartbeat timeouts it is a quarter of the shortest."""

BLOCKED_AFTER = timedelta(seconds=2)
"""How long the loop may be blocked before that is said."""

logger = logging.getLogger("outlast.worker")


@dataclass(frozen=True)
class _Running:
    """An activity that is under way, with the context in which it may be spoken for."""

    context: contextvars.Context
    task: asyncio.Task[Any] | None
    task_token: bytes
    name: str
    timeout: timedelta


class Heartbeats:
    """Beats for all activities of one worker."""

    def __init__(self) -> None:
        self._running: dict[int, _Running] = {}
        self._next = 0
        self._beat_seconds = BEAT.total_seconds()
        self._beating: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._ticked = time.monotonic()
        self._watcher: threading.Thread | None = None
        self._stopped = threading.Event()

    @contextmanager
    def beating(self) -> Generator[None]:
        """Beat for the activity that this is called in, until the block ends."""
        info = activity.info()
        if info.heartbeat_timeout is None:
            yield
            return
        running = _Running(
            context=contextvars.copy_context(),
            task=asyncio.current_task(),
            task_token=info.task_token,
            name=info.activity_type,
            timeout=info.heartbeat_timeout,
        )
        self._start(running.timeout, activity.client())
        key = self._next = self._next + 1
        self._running[key] = running
        try:
            yield
        finally:
            del self._running[key]

    def _start(self, timeout: timedelta, client: Client) -> None:
        wanted = min(self._beat_seconds, timeout.total_seconds() / 4)
        if self._beating is None or self._beating.done() or wanted < self._beat_seconds:
            if self._beating is not None:
                self._beating.cancel()
            self._beat_seconds = wanted
            self._loop = asyncio.get_running_loop()
            self._loop_thread = threading.get_ident()
            self._ticked = time.monotonic()
            # A context of its own: a task started here must not pass for the activity that happens to start it.
            self._beating = asyncio.create_task(self._beat(), name="outlast heartbeats", context=contextvars.Context())
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, args=(client,), name="outlast heartbeats", daemon=True)
            self._watcher.start()

    def stop(self) -> None:
        """The worker ends."""
        self._stopped.set()
        if self._beating is not None:
            self._beating.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._beat_seconds)
            self._ticked = time.monotonic()
            for running in list(self._running.values()):
                running.context.run(activity.heartbeat)

    # --- the thread ----------------------------------------------------------------------------------------------

    def _watch(self, client: Client) -> None:
        said = False
        while not self._stopped.wait(self._beat_seconds / 4):
            late = time.monotonic() - self._ticked
            if late < self._beat_seconds * 1.5 or not self._running:
                said = False
                continue
            if late >= BLOCKED_AFTER.total_seconds() and not said:
                said = True
                self._report(late)
            try:
                asyncio.run(self._beat_for_the_loop(client))
            except Exception:  # the next round tries again
                logger.warning("No heartbeat could be sent for the blocked event loop.", exc_info=True)
            self._stopped.wait(self._beat_seconds / 2)

    def _report(self, late: float) -> None:
        who = f"The activity {name}" if (name := self._at_fault()) else f"Something ({self._all_names()})"
        frame = sys._current_frames().get(self._loop_thread)  # pyright: ignore[reportPrivateUsage]
        where = "".join(traceback.format_stack(frame)[-3:]) if frame is not None else "unknown\n"
        logger.warning(
            "%s blocks the worker's event loop for %.0f s by now, and with it every other run on this worker. "
            "Make the tool a plain `def` (it then runs in a thread), or await what it waits for. It is at:\n%s",
            who,
            late,
            where,
        )

    def _at_fault(self) -> str | None:
        """The activity whose own task the loop is in; None where that is a task which an activity started."""
        task = asyncio.current_task(self._loop)
        return next((running.name for running in list(self._running.values()) if running.task is task), None)

    def _all_names(self) -> str:
        names = sorted({running.name for running in list(self._running.values())})
        return f"one of {', '.join(names)}" if len(names) > 1 else names[0] if names else "outside of any activity"

    async def _beat_for_the_loop(self, client: Client) -> None:
        beats = [self._beat_for(running, client) for running in list(self._running.values())]
        await asyncio.gather(*beats)

    async def _beat_for(self, running: _Running, client: Client) -> None:
        handle = client.get_async_activity_handle(task_token=running.task_token)
        # A cancellation reaches the call as soon as the loop runs again; an activity that is gone needs no beat.
        with suppress(AsyncActivityCancelledError, Exception):
            await handle.heartbeat(rpc_timeout=running.timeout / 2)
