"""The worker process: hosts agents on a task queue until it is told to stop, then drains."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

from outlast.agent import Agent
from outlast.plugin import OutlastPlugin, Resources
from outlast.settings import Settings

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
    settings = settings or Settings()
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

    Args:
        client: Connected to the namespace where the runs are.
        agents: What to host.
        resources: Makes the worker's live things; see `OutlastPlugin`.
        settings: By default read from the environment and `.env`.
        on_ready: Called when the worker listens.
    """
    settings = settings or Settings()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with build_worker(client, agents, resources=resources, settings=settings):
            names = ", ".join(repr(agent.name) for agent in agents)
            logger.info("Listening on task queue %r with the agents %s.", settings.task_queue, names)
            if on_ready is not None:
                on_ready()
            await stop.wait()
            grace = settings.shutdown_grace.total_seconds()
            logger.info("Draining: running calls have %g s to finish.", grace)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
