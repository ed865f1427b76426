"""The two systems that are compared, each as one worker process and the runs that are started on its queue."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream
from temporalio.client import Client, WorkflowHandle

from benchmarks.job import Job

Name = Literal["floor", "ours"]
ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 600


@dataclass(frozen=True)
class Usage:
    """What a worker process has used since it started."""

    cpu_seconds: float
    children_cpu_seconds: float
    resident_bytes: int


class System:
    """One system: a worker process of its own on a queue of its own."""

    def __init__(self, name: Name, client: Client, process: anyio.abc.Process, queue: str) -> None:
        self.name: Name = name
        self.client = client
        self.process = process
        self.queue = queue
        assert process.stdout is not None
        self._lines = BufferedByteReceiveStream(process.stdout)

    async def ready(self) -> None:
        """Wait until the process works."""
        if (said := (await self.read_line()).strip()) != "ready":
            raise RuntimeError(f"The worker process of {self.name!r} said {said!r} instead of 'ready'.")

    async def read_line(self) -> str:
        """What the process says next."""
        with anyio.fail_after(PATIENCE_SECONDS):
            return (await self._lines.receive_until(b"\n", 100_000)).decode()

    async def usage(self, asked: Literal["usage", "memory"] = "usage") -> Usage:
        """What the process has used so far; for its memory it collects its garbage first."""
        assert self.process.stdin is not None
        await self.process.stdin.send(f"{asked}\n".encode())
        return Usage(**json.loads(await self.read_line()))

    async def start(self, job: Job) -> WorkflowHandle[Any, Any]:
        """Start a run, as any Temporal client would."""
        run_id = f"{self.name}-{uuid.uuid4().hex}"
        if self.name == "floor":
            return await self.client.start_workflow("Floor", job.to_dict(), id=run_id, task_queue=self.queue)
        run = {"agent": "bench", "prompt": json.dumps(job.to_dict()), "usage_limits": {"requests": job.steps}}
        return await self.client.start_workflow("AgentRun", run, id=run_id, task_queue=self.queue)

    async def run(self, job: Job) -> WorkflowHandle[Any, Any]:
        """Start a run, and wait for its end."""
        run = await self.start(job)
        await self.finish(run)
        return run

    async def finish(self, run: WorkflowHandle[Any, Any]) -> None:
        """Wait for a run's end, and look whether it did its job."""
        with anyio.fail_after(PATIENCE_SECONDS):
            result = await run.result()
        output = result if self.name == "floor" else result["output"]
        if output != "Done.":
            raise RuntimeError(f"{run.id} ended with {result!r}, which is not what it should do.")

    async def start_held(self) -> WorkflowHandle[Any, Any]:
        """Start a run whose call waits for a decision, and wait until it does."""
        run = await self.start(Job(steps=2, held=True))
        with anyio.fail_after(PATIENCE_SECONDS):
            while True:
                seen = (await run.describe()).raw_description
                busy = seen.HasField("pending_workflow_task") or seen.pending_activities
                # Ten events: the start, two workflow tasks and the model request between them.
                if seen.workflow_execution_info.history_length >= 10 and not busy:
                    return run
                await anyio.sleep(0.01)

    async def approve(self, run: WorkflowHandle[Any, Any]) -> None:
        """Let the call of a held run go."""
        await run.signal("approve", {"tool_call_id": "held"})


@asynccontextmanager
async def running(name: Name, client: Client, **environment: str) -> AsyncGenerator[System]:
    """A system, until the block ends; it starts, and is `ready` in its own time."""
    queue = f"{name}-{uuid.uuid4().hex[:8]}"
    async with joining(name, client, queue, **environment) as system:
        yield system


@asynccontextmanager
async def joining(name: Name, client: Client, queue: str, **environment: str) -> AsyncGenerator[System]:
    """One more worker process on a queue, until the block ends."""
    address = client.service_client.config.target_host
    command = [sys.executable, "-m", "benchmarks.worker_process", name, address, queue]
    process = await anyio.open_process(command, cwd=ROOT, stderr=None, env={**os.environ, **environment})
    system = System(name, client, process, queue)
    try:
        yield system
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()
