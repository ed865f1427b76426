"""What holds for the history of every run, however it was started and whatever happened to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from temporalio.client import Client, WorkflowHandle, WorkflowHistory

from outlast.testing.histories import check_history
from outlast.testing.histories import scheduled as activities_scheduled
from outlast.workflows.run import AgentRun

__all__ = ("activities_scheduled", "assert_all_healthy", "assert_healthy")


async def assert_healthy(
    run: WorkflowHandle[Any, Any] | WorkflowHistory,
    *,
    crashed: bool = False,
    workflows: Iterable[type] = (AgentRun,),
) -> WorkflowHistory:
    """See `check_history`; `crashed` says that a worker or the server was killed."""
    return await check_history(run, timeouts=crashed, workflows=workflows)


async def assert_all_healthy(client: Client, query: str, *, crashed: bool = False) -> None:
    """The same for each run that the server lists for a query."""
    async for execution in client.list_workflows(query):
        await assert_healthy(client.get_workflow_handle(execution.id, run_id=execution.run_id), crashed=crashed)
