"""What a test holds: hosts agents on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHistory
from typing_extensions import Unpack

from outlast.agent import Agent
from outlast.contracts import DecisionRecord
from outlast.errors import UserError
from outlast.messages import ModelMessage, Usage, UserContent
from outlast.models.model import Model
from outlast.plugin import Resources
from outlast.server import EmbeddedServer
from outlast.settings import Settings
from outlast.testing.deciding import Decide, decide_all
from outlast.testing.histories import scheduled
from outlast.testing.host import PATIENCE, SKIPS_TIME, Host
from outlast.testing.run_options import RunOptions

__all__ = ("Durable", "Finished")


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A run that came to its output, as `Durable.run` returns it.

    Attributes:
        id: The run's workflow ID.
        output: JSON of the agent's output.
        usage: Cost of the run.
        steps: Number of steps taken.
        messages: The conversation.
        decisions: Who decided what.
        history: All events of the run, as checked.
    """

    id: str
    output: Any
    usage: Usage
    steps: int
    messages: list[ModelMessage]
    decisions: list[DecisionRecord]
    history: WorkflowHistory

    def scheduled(self, activity_type: str | None = None) -> list[str]:
        """The IDs of the activities that the run has scheduled, in their order.

        Args:
            activity_type: Only those of one type, such as `tool:refund`. What is not here was never executed.
        """
        return scheduled(self.history, activity_type)


class Durable:
    """Runs agents durably, each on a task queue of its own.

    Call it to host agents for a block, or use `run` for one run from its prompt to its end.

    Args:
        server: Started with `outlast.testing.host.SKIPS_TIME`; None starts one for each block, which takes half a
            second. The fixture `durable` has one for the whole session.
    """

    def __init__(self, server: EmbeddedServer | None = None) -> None:
        self._server = server

    @asynccontextmanager
    async def __call__(
        self,
        *agents: Agent[Any, Any],
        model: Model | None = None,
        resources: Resources | None = None,
        settings: Settings | None = None,
        skip_time: bool = False,
        patience: timedelta | float = PATIENCE,
        **worker_options: Any,
    ) -> AsyncGenerator[Host]:
        """Host agents for a block: `async with durable(support) as host`. See `Host` for what that means.

        Args:
            *agents: What to host. Each needs a name.
            model: Answers instead of the agents' own models.
            resources: Makes the worker's live things, which reach tools as `ctx.resources`.
            settings: outlast's own.
            skip_time: Time passes at once where a run only waits for it: the back-off before another attempt, and the
                run's own timers. While an activity runs, its time is real, as is a tool's own `sleep`, and no tool sees
                another clock. A call that waits for a decision waits on; to let days pass before you decide, use
                `HostedRun.fast_forward`, which needs no `skip_time`.
            patience: How long to wait for anything that a run does.
            **worker_options: Further options of `temporalio.worker.Worker`.

        Raises:
            UserError: An agent cannot be hosted, or the extra `server` is missing.
            NotDurable: When the block ends: the history of a run is not as it must be.
        """
        _check_event_loop()
        async with self._running() as server:
            temporal = await TemporalClient.connect(server.address, namespace=server.namespace)
            async with Host(
                temporal,
                agents,
                model=model,
                resources=resources,
                settings=settings,
                skip_time=skip_time,
                patience=patience if isinstance(patience, timedelta) else timedelta(seconds=patience),
                **worker_options,
            ) as host:
                yield host

    async def run(
        self,
        agent: Agent[Any, Any],
        prompt: str | Sequence[UserContent] | None = None,
        *,
        decide: Decide | None = None,
        model: Model | None = None,
        resources: Resources | None = None,
        skip_time: bool = False,
        patience: timedelta | float = PATIENCE,
        **options: Unpack[RunOptions],
    ) -> Finished:
        """Host an agent for one run, and follow that to its end.

        Args:
            agent: What to host. It needs a name.
            prompt: What the user says.
            decide: Decides about each call that waits; `approve_all` and `deny_all` are such functions.
            model: As for a block.
            resources: As for a block.
            skip_time: As for a block.
            patience: As for a block.
            **options: The run's own, as for `outlast.Client.start`: `deps`, `metadata`, `usage_limits`, ….

        Raises:
            RunError: The run ended without an output; the subclass says how. Its history is checked all the same.
            NothingCame: It did not end in time; the message says what it waits for.
            NotDurable: The history of the run is not as it must be.
            UserError: The agent cannot be hosted, or the extra `server` is missing.
        """
        async with self(agent, model=model, resources=resources, skip_time=skip_time, patience=patience) as host:
            run = await host.start(agent, prompt, **options)
            await decide_all(run, decide)
            result = await run.result()
            return Finished(
                id=run.id,
                output=result.output,
                usage=result.usage,
                steps=result.steps,
                messages=await run.messages(),
                decisions=(await run.status()).decisions,
                history=await run.history(),
            )

    @asynccontextmanager
    async def _running(self) -> AsyncGenerator[EmbeddedServer]:
        if self._server is not None:
            yield self._server
            return
        async with EmbeddedServer(ui=False, extra_args=SKIPS_TIME) as server:
            yield server


def _check_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise UserError(
            "This test does not run on asyncio, and Temporal's SDK knows no other event loop. With anyio's pytest "
            "plugin, write a fixture `anyio_backend` that returns 'asyncio'."
        ) from None
