"""`outlast worker`: a process that hosts an app's agents."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any, TextIO

from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from outlast.agent import Agent
from outlast.cli.inventory import take_inventory
from outlast.cli.loading import load_agents
from outlast.cli.options import Options
from outlast.logs import configure_logs
from outlast.settings import Settings, load_env_file
from outlast.worker import run_worker

__all__ = ("worker",)

HEALTH_SECONDS = 5

logger = logging.getLogger("outlast.worker")


def worker(app: str, /, *, options: Options | None = None) -> None:
    """Host the agents of APP until SIGTERM or Ctrl-C, then let running calls finish.

    Hosts every agent that has a name, at module level of APP. What `.env` sets is there before APP is loaded. Its log
    goes to standard error: readable on a terminal, JSON Lines elsewhere and with --json, which also prints one line on
    standard output once the worker listens.

    Args:
        app: A file (app.py) or a module (shop.agents).
    """
    options = options or Options()
    load_env_file()
    settings = Settings.load()
    configure_logs(settings.log_level, as_json=_log_as_json(settings, options))
    # Before there is an event loop: an app may start and end one of its own while it is imported.
    agents = load_agents(app)
    with _kept_for_the_answer() if options.json else nullcontext() as answer:
        asyncio.run(_serve(agents, options, settings, answer))


def _log_as_json(settings: Settings, options: Options) -> bool | None:
    """None leaves it to what standard error is."""
    match settings.log_format:
        case "auto":
            return True if options.json else None
        case chosen:
            return chosen == "json"


@contextmanager
def _kept_for_the_answer() -> Generator[TextIO]:
    """Standard output, which nothing else writes to: what tools and their child processes print goes to its neighbour.

    Whoever started this process reads one line. A tool whose words nobody reads would hang once the pipe is full.
    """
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)
        try:
            yield answer
        finally:
            sys.stdout.flush()
            os.dup2(answer.fileno(), 1)


async def _serve(agents: list[Agent[Any, Any]], options: Options, settings: Settings, answer: TextIO | None) -> None:
    temporal = await options.connect()
    inventory = await take_inventory(agents)
    ready = {
        "agents": [agent.name for agent in agents],
        "inventory": [entry.to_json() for entry in inventory],
        "task_queue": settings.task_queue,
        "address": temporal.service_client.config.target_host,
        "namespace": temporal.namespace,
        "pid": os.getpid(),
    }
    if not options.json:  # else the answer tells it
        for entry in inventory:
            if entry.problem:
                logger.warning("The agent %r cannot ask its model yet. %s", entry.name, entry.problem)
    watching = asyncio.create_task(_watch(temporal))
    try:
        # Without one the log says that it listens.
        on_ready = (lambda: print(json.dumps(ready), file=answer, flush=True)) if answer else None
        await run_worker(temporal, agents, settings=settings, on_ready=on_ready)
    finally:
        watching.cancel()


async def _watch(temporal: TemporalClient) -> None:
    """Say once when the server is gone, and once when it is back. The SDK reconnects by itself, without a word."""
    answers = True
    while True:
        await asyncio.sleep(HEALTH_SECONDS)
        try:
            await temporal.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=timedelta(seconds=5))
        except RPCError as error:
            gone = error.status in (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED)
        else:
            gone = False
        if gone and answers:
            where = temporal.service_client.config.target_host
            logger.warning("The Temporal server at %s does not answer. Runs go on once it is back.", where)
        elif not gone and not answers:
            logger.info("The Temporal server answers again.")
        answers = not gone
