"""The worker process: hosts agents on a task queue until it is told to stop, then drains."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from outlast.agent import Agent
from outlast.plugin import OutlastPlugin, Resources
from outlast.settings import Settings

THREADS_SECONDS = 1
"""How long an ending process waits for threads: idle ones end at once, and no other can be stopped."""

logger = logging.getLogger("outlast.worker")


def build_worker(
    client: Client,
    agents: Sequence[Agent[Any, Any]],
    *,
    resources: Resources | None = None,
    settings: Settings | None = None,
    task_queue: str | None = None,
    **options: Any,
) -> Worker:
    """A Temporal worker that hosts agents and nothing else.

    Args:
        client: Connected to the namespace where the runs are.
        agents: What to host.
        resources: Makes the worker's live things; see `OutlastPlugin`.
        settings: By default read from the environment and `.env`.
        task_queue: By default that of the settings.
        **options: Further options of `temporalio.worker.Worker`.
    """
    settings = settings or Settings.load()
    plugin = OutlastPlugin(agents=agents, resources=resources, settings=settings)
    return Worker(client, task_queue=task_queue or settings.task_queue, plugins=[plugin], **options)


async def run_worker(
    client: Client,
    agents: Sequence[Agent[Any, Any]],
    *,
    resources: Resources | None = None,
    settings: Settings | None = None,
    on_ready: Callable[[], None] | None = None,
) -> None:
    """Host agents until SIGTERM or SIGINT, then drain.

    Draining takes no new work and lets running calls finish within the grace period; what is left is handed back, and
    another worker takes it up. A second signal does not shorten that: only SIGKILL does, which loses nothing either.

    For a process that does nothing else. Once this has returned, the process ends when its main thread does, with the
    exit code 0: threads of sync tools that are still busy, which Python would wait for without end, do not hold it.

    Args:
        client: Connected to the namespace where the runs are.
        agents: What to host.
        resources: Makes the worker's live things; see `OutlastPlugin`.
        settings: By default read from the environment and `.env`.
        on_ready: Called when the worker listens; by default the log says so.
    """
    settings = settings or Settings.load()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with build_worker(client, agents, resources=resources, settings=settings):
            if on_ready is not None:
                on_ready()
            else:
                names = ", ".join(repr(agent.name) for agent in agents)
                logger.info("Listening on task queue %r with the agents %s.", settings.task_queue, names)
            await stop.wait()
            grace = settings.shutdown_grace.total_seconds()
            logger.info("Draining: running calls have %g s to finish.", grace)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        _let_no_thread_hold_the_process(loop)


def _let_no_thread_hold_the_process(loop: asyncio.AbstractEventLoop) -> None:
    """No thread can be stopped from outside, and Python waits for them all, twice: in the loop's end and in its own."""
    # The loop waits only for the executor that it has in the end.
    loop.set_default_executor(ThreadPoolExecutor(1))
    threading.Thread(target=_end_after_the_main_thread, name="outlast exit", daemon=True).start()


def _end_after_the_main_thread() -> None:
    while not _main_thread_ended():
        time.sleep(0.1)
    time.sleep(THREADS_SECONDS)
    main = threading.main_thread()
    busy = [thread for thread in threading.enumerate() if thread is not main and not thread.daemon]
    if not busy:
        # Python does what is left, such as sending the last of the telemetry.
        return
    logger.warning("The process ends in spite of threads that are still busy: %s.", ", ".join(map(_where, busy)))
    with suppress(BaseException):
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    with suppress(BaseException):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(1 if hasattr(sys, "last_value") else 0)


def _main_thread_ended() -> bool:
    main = threading.main_thread()
    frame = sys._current_frames().get(main.ident or 0)  # pyright: ignore[reportPrivateUsage]
    if frame is None or not main.is_alive():
        return True
    while frame.f_back is not None:
        frame = frame.f_back
    # It counts as alive while it waits for the threads of executors, called by the interpreter and no code of anyone's.
    return frame.f_globals.get("__name__") == "threading"


def _where(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)  # pyright: ignore[reportPrivateUsage]
    if frame is None:
        return repr(thread.name)
    return f"{thread.name!r} in {frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})"
