"""Runs agents on the real server, and looks at every history when a test is over."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from outlast.agent import Agent
from outlast.settings import Settings
from outlast.testing import Host as KitHost
from tests.asking import PATIENCE, query_until
from tests.histories import assert_healthy
from tests.strict import assert_replays_in_sandbox


class Host:
    """Workers that host agents on a queue of the test's own, and the runs that the test starts there.

    The workers keep no workflow in their cache, so that each workflow task replays the whole history.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.runs: list[WorkflowHandle[Any, Any]] = []
        self._host = KitHost(client)
        self.task_queue = self._host.task_queue
        self._stack = AsyncExitStack()

    async def serve(self, *agents: Agent[Any, Any], settings: dict[str, Any] | None = None, **options: Any) -> Worker:
        """Start a worker; it stops with the test."""
        values = {"shutdown_grace": 1, "heartbeat_timeout": 5, **(settings or {})}
        chosen: dict[str, Any] = {"task_queue": self.task_queue, **options}
        worker = self._host.worker(*agents, settings=Settings.model_validate(values), **chosen)
        await self._stack.enter_async_context(worker)
        return worker

    @asynccontextmanager
    async def serving(self, *agents: Agent[Any, Any]) -> AsyncGenerator[Worker]:
        """A worker for a part of the test."""
        outer, self._stack = self._stack, AsyncExitStack()
        try:
            async with self._stack:
                yield await self.serve(*agents)
        finally:
            self._stack = outer

    async def start(self, agent: str, prompt: Any = "Go.", **fields: Any) -> WorkflowHandle[Any, Any]:
        """Start a run as any program would: by the workflow's name, with a dict."""
        return await self.start_with({"agent": agent, "prompt": prompt, **fields})

    async def start_with(self, *arguments: Any) -> WorkflowHandle[Any, Any]:
        """Start a run with whatever arguments."""
        run = await self.client.start_workflow(
            "AgentRun", args=list(arguments), id=f"run-{uuid.uuid4().hex[:8]}", task_queue=self.task_queue
        )
        self.runs.append(run)
        return run

    async def run(self, agent: str, prompt: Any = "Go.", **fields: Any) -> Any:
        """Start a run and wait for its result."""
        return await self.result(await self.start(agent, prompt, **fields))

    async def result(self, run: WorkflowHandle[Any, Any]) -> Any:
        """The result of a run."""
        with anyio.fail_after(PATIENCE):
            return await run.result()

    async def failure(self, run: WorkflowHandle[Any, Any]) -> ApplicationError:
        """The error that a run ends with."""
        with pytest.raises(WorkflowFailureError) as caught, anyio.fail_after(PATIENCE):
            await run.result()
        assert isinstance(caught.value.cause, ApplicationError)
        return caught.value.cause

    async def pending(self, run: WorkflowHandle[Any, Any], count: int = 1) -> list[dict[str, Any]]:
        """The calls that wait, once there are so many of them."""
        return await query_until(run, "pending", lambda calls: len(calls) == count)

    async def until(self, run: WorkflowHandle[Any, Any], condition: Callable[[Any], Any]) -> dict[str, Any]:
        """The status of a run, once it fulfils a condition."""
        return await query_until(run, "status", condition)

    async def messages(self, run: WorkflowHandle[Any, Any]) -> list[dict[str, Any]]:
        """The conversation of a run."""
        messages: list[dict[str, Any]] = []
        start: int | None = 0
        while start is not None:
            page = await run.query("messages", {"start": start})
            messages += page["messages"]
            start = page.get("next")
        return messages

    async def close(self) -> None:
        """Stop the workers, and check every history: no failed task, and it replays, also in the strict sandbox."""
        await self._stack.aclose()
        for run in self.runs:
            await assert_replays_in_sandbox(await assert_healthy(run))


@pytest.fixture
async def host(client: Client) -> AsyncIterator[Host]:
    """A host for one test."""
    host = Host(client)
    try:
        yield host
    finally:
        await host.close()


def parts(messages: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The parts of one kind, over the whole conversation."""
    return [part for message in messages for part in message["parts"] if part["part_kind"] == kind]
