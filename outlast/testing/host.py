"""Workers of a test's own, and the runs that it starts there."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self

import anyio
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import TimeSkipper, TimeSkippingConfig
from temporalio.worker import Worker
from typing_extensions import Unpack

from outlast.agent import Agent
from outlast.client import Client
from outlast.errors import RunError, UserError
from outlast.messages import UserContent
from outlast.models.model import Model
from outlast.plugin import OutlastPlugin, Resources
from outlast.settings import Settings
from outlast.testing.histories import check_history
from outlast.testing.hosted_run import HostedRun
from outlast.testing.run_options import RunOptions

__all__ = ("PATIENCE", "SKIPS_TIME", "Host")

PATIENCE: Final = timedelta(seconds=30)

SKIPS_TIME: Final = ("--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true")
"""What lets a server skip time at all."""

_MOST_SKIPS: Final = 10_000
"""Per run; the server's own limit is 200."""


class Host:
    """A task queue of its own, with a worker on it for as long as the block lasts; `Durable` makes it.

    The worker keeps no workflow in its cache: each workflow task replays the whole history. When the block ends, every
    run is checked (see `check_history`), and ended if it was still under way, so that no later test finds it waiting.
    Where the block fails for another reason than a run's own failure, nothing is checked: the reason stays in sight.

    Args:
        temporal: Connected to a server that was started with `SKIPS_TIME`.
        agents: What to host. Each needs a name.
        model: Answers instead of the agents' own models.
        resources: Makes the worker's live things; see `OutlastPlugin`.
        settings: outlast's own. By default a lost worker is noticed after 5 seconds, and one that is told to stop gives
            calls a second; neither the environment nor `.env` is read.
        skip_time: Time in which a run only waits for timers or back-offs passes at once.
        patience: How long to wait for anything that a run does.
        worker_options: Further options of `temporalio.worker.Worker`.
    """

    def __init__(
        self,
        temporal: TemporalClient,
        agents: Sequence[Agent[Any, Any]] = (),
        *,
        model: Model | None = None,
        resources: Resources | None = None,
        settings: Settings | None = None,
        skip_time: bool = False,
        patience: timedelta = PATIENCE,
        **worker_options: Any,
    ) -> None:
        self.temporal = temporal
        self.task_queue = f"test-{uuid.uuid4().hex[:12]}"
        self.runs: list[WorkflowHandle[Any, Any]] = []
        self._agents = agents
        self._model = model
        self._resources = resources
        self._settings = settings
        self._patience = patience
        self._worker_options = worker_options
        self._skipper = TimeSkipper(temporal, config=TimeSkippingConfig(max_session_skip_count=_MOST_SKIPS))
        self._client = Client(self._skipper.client if skip_time else temporal, task_queue=self.task_queue)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        worker = self.worker(*self._agents, resources=self._resources, settings=self._settings, **self._worker_options)
        # A worker keeps the overrides that it was started with. They are not held open for longer: a fixture may leave
        # this block in another task, which could not undo them.
        with ExitStack() as overrides:
            if self._model is not None:
                for agent in self._agents:
                    overrides.enter_context(agent.override(model=self._model))
            await self._stack.enter_async_context(worker)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A test's own deadline may be over; what it started is taken down all the same.
        with anyio.CancelScope(shield=True):
            await self._stack.aclose()
            try:
                if error is None or isinstance(error, RunError):
                    await self.check()
            finally:
                for run in self.runs:
                    await _end(run)

    def worker(
        self,
        *agents: Agent[Any, Any],
        resources: Resources | None = None,
        settings: Settings | None = None,
        **options: Any,
    ) -> Worker:
        """One more worker on the same queue, to be entered with `async with`.

        Args:
            *agents: What it hosts.
            resources: Makes its live things.
            settings: As for the host.
            **options: Further options of `temporalio.worker.Worker`.
        """
        settings = settings or Settings.model_validate({"shutdown_grace": 1, "heartbeat_timeout": 5})
        plugin = OutlastPlugin(agents=agents, resources=resources, settings=settings)
        chosen: dict[str, Any] = {
            "client": self.temporal,
            "task_queue": self.task_queue,
            "max_cached_workflows": 0,
            "plugins": [plugin],
        }
        return Worker(**{**chosen, **options})

    async def start(
        self,
        agent: str | Agent[Any, Any],
        prompt: str | Sequence[UserContent] | None = None,
        **options: Unpack[RunOptions],
    ) -> HostedRun:
        """Start a run.

        Args:
            agent: One of those hosted, or its name.
            prompt: What the user says.
            **options: As for `outlast.Client.start`.

        Raises:
            InvalidInput: The input does not fit.
            UserError: The agent is not hosted here.
        """
        name = agent if isinstance(agent, str) else agent.name
        hosted = [one.name for one in self._agents]
        if name not in hosted:
            raise UserError(
                f"The agent {name!r} is not hosted here: give it to the block that hosts the others "
                f"({', '.join(map(repr, hosted)) or 'there are none'})."
            )
        run = await self._client.start(agent, prompt, **options)
        hosted_run = HostedRun(self.temporal, run.id, skipper=self._skipper, patience=self._patience)
        self.runs.append(hosted_run.handle)
        return hosted_run

    async def check(self, *, timeouts: bool = False) -> None:
        """Check the histories of all runs so far.

        Args:
            timeouts: As for `check_history`.

        Raises:
            NotDurable: A history is not as it must be.
        """
        for run in self.runs:
            await check_history(run, timeouts=timeouts)


async def _end(run: WorkflowHandle[Any, Any]) -> None:
    try:
        await run.terminate("The test that started this run is over.")
    except RPCError as error:
        # It has ended by itself.
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
