"""One test's task queue, its worker processes and its runs."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import anyio
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHandle, WorkflowHistory

from outlast.client import Client, Run
from outlast.contracts import PendingCall
from outlast.errors import UserError
from tests.crash.outside import Effect, Outside
from tests.crash.processes import WorkerProcess, until
from tests.histories import assert_healthy

HEARTBEAT_SECONDS = 2

Script = list[Any]
Told = list[list[Any]]


class Stage:
    """Starts workers and runs on a task queue of its own, and looks at what they do from outside.

    Args:
        temporal: Connected to the server.
        folder: For the effects, the gates and the logs.
    """

    def __init__(self, temporal: TemporalClient, folder: Path) -> None:
        self.temporal = temporal
        self.outside = Outside(folder)
        self.task_queue = f"crash-{uuid.uuid4().hex[:12]}"
        self.runs = Client(temporal, task_queue=self.task_queue)
        self.workers: list[WorkerProcess] = []
        self._folder = folder

    async def start_worker(self, **settings: float) -> WorkerProcess:
        """A worker process that listens.

        Args:
            settings: outlast's own, such as `shutdown_grace=1`.
        """
        chosen = {"heartbeat_timeout": HEARTBEAT_SECONDS, **settings}
        worker = WorkerProcess(
            self._folder / f"worker-{len(self.workers) + 1}.log",
            {
                "TEMPORAL_ADDRESS": self.temporal.service_client.config.target_host,
                "OUTLAST_TASK_QUEUE": self.task_queue,
                "OUTSIDE": str(self._folder),
                **{f"OUTLAST_{name.upper()}": str(value) for name, value in chosen.items()},
            },
        )
        self.workers.append(worker)
        await worker.ready()
        return worker

    def close(self) -> None:
        """Leave no process behind, and show what they said where the test failed."""
        for number, worker in enumerate(self.workers, start=1):
            worker.kill()
            print(f"--- worker {number}, process {worker.pid}\n{worker.log}")

    async def start_run(self, *script: Any) -> Run:
        """A run that makes the calls of the script; see the app for what a script is."""
        return await self.runs.start("shop", json.dumps(script))

    def handle(self, run: Run) -> WorkflowHandle[Any, Any]:
        """The run's workflow."""
        return self.temporal.get_workflow_handle(run.id)

    async def effects(self, kind: str, count: int = 1, *, within_seconds: float = 30) -> list[Effect]:
        """Wait until an effect has happened so many times."""
        await until(
            lambda: len(self.outside.effects(kind)) >= count,
            f"{kind!r} has happened {count} times",
            within_seconds=within_seconds,
        )
        return self.outside.effects(kind)

    async def pending(self, run: Run, *, within_seconds: float = 30) -> PendingCall:
        """Wait until one call of the run waits for somebody."""
        with anyio.move_on_after(within_seconds):
            while True:
                try:
                    if calls := await run.pending():
                        [call] = calls
                        return call
                except UserError:
                    # No worker answers yet.
                    pass
                await anyio.sleep(0.05)
        raise AssertionError(f"Waited {within_seconds:g} s for a call of {run.id} to wait for somebody, in vain.")

    async def told(self, run: Run, *, within_seconds: float = 40) -> Told:
        """Wait for the run's end; what the model was told of its calls, each `[tool, outcome, content]`."""
        with anyio.fail_after(within_seconds):
            return json.loads(await run.result(output_type=str))

    async def assert_healthy(self, run: Run, *, crashed: bool = True) -> WorkflowHistory:
        """See `tests.histories.assert_healthy`."""
        return await assert_healthy(self.handle(run), crashed=crashed)
