"""Heartbeats of the activities that run on this worker.

Calls that end within the first beat cost nothing. The worker's own loop beats for the others, which is also how a
cancellation reaches them. A thread with an event loop of its own watches that loop: while user code blocks it, the
thread beats instead, so that one blocking tool does not make every other call on this worker look lost.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, Client

BEAT = timedelta(seconds=1)
BLOCKED_AFTER = timedelta(seconds=2)

logger = logging.getLogger("outlast.worker")


@dataclass(frozen=True)
class _Running:
    """An activity that is under way, with the context in which it may be spoken for."""

    context: contextvars.Context
    task_token: bytes
    name: str
    began: float


class Heartbeats:
    """Beats for all activities of one worker."""

    def __init__(self) -> None:
        self._running: dict[int, _Running] = {}
        self._next = 0
        self._beating: asyncio.Task[None] | None = None
        self._ticked = time.monotonic()
        self._loop_thread = 0
        self._watcher: threading.Thread | None = None
        self._stopped = threading.Event()
        self._client: Client | None = None

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Beat for the activity that this is called in, until the block ends."""
        info = activity.info()
        if info.heartbeat_timeout is None:
            yield
            return
        self._start(activity.client())
        key = self._next = self._next + 1
        self._running[key] = _Running(contextvars.copy_context(), info.task_token, info.activity_type, time.monotonic())
        try:
            yield
        finally:
            del self._running[key]

    def _start(self, client: Client) -> None:
        if self._beating is None or self._beating.done():
            self._loop_thread = threading.get_ident()
            self._ticked = time.monotonic()
            # A context of its own: a task started here must not pass for the activity that happens to start it.
            self._beating = asyncio.create_task(self._beat(), name="outlast heartbeats", context=contextvars.Context())
        if self._watcher is None:
            self._client = client
            self._watcher = threading.Thread(target=self._watch, name="outlast heartbeats", daemon=True)
            self._watcher.start()

    def stop(self) -> None:
        """The worker ends."""
        self._stopped.set()
        if self._beating is not None:
            self._beating.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT.total_seconds())
            self._ticked = time.monotonic()
            for running in list(self._running.values()):
                running.context.run(activity.heartbeat)

    # --- the thread ----------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        with suppress(Exception):
            asyncio.run(self._watch_loop())

    async def _watch_loop(self) -> None:
        blocked = False
        while not await asyncio.to_thread(self._stopped.wait, BEAT.total_seconds()):
            late = time.monotonic() - self._ticked
            if late < BLOCKED_AFTER.total_seconds() or not self._running:
                blocked = False
                continue
            if not blocked:
                self._report(late)
                blocked = True
            await self._beat_for_the_loop()

    def _report(self, late: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        where = "".join(traceback.format_stack(frame)[-3:]) if frame is not None else "unknown\n"
        names = ", ".join(sorted({running.name for running in list(self._running.values())}))
        logger.warning(
            "Something blocks the worker's event loop for %.0f s; one of: %s. It blocks every other run on this worker. "
            "Make the tool a plain `def` (it then runs in a thread), or await what it waits for. It is at:\n%s",
            late,
            names,
            where,
        )

    async def _beat_for_the_loop(self) -> None:
        assert self._client is not None
        for running in list(self._running.values()):
            handle = self._client.get_async_activity_handle(task_token=running.task_token)
            # A cancellation reaches the call as soon as the loop runs again; an activity that is gone needs no beat.
            with suppress(AsyncActivityCancelledError, Exception):
                await handle.heartbeat()
