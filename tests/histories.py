"""What holds for the history of every run, however it was started and whatever happened to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from temporalio.api.enums.v1 import EventType, TimeoutType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.worker import Replayer

from outlast.plugin import OutlastPlugin
from outlast.workflows.run import AgentRun

# Not a failure: a signal arrived in the very task that ends the run, and the task is made once more.
_HARMLESS = {
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_UPDATE,
}


async def assert_healthy(
    run: WorkflowHandle[Any, Any] | WorkflowHistory,
    *,
    crashed: bool = False,
    workflows: Iterable[type] = (AgentRun,),
) -> WorkflowHistory:
    """Check that no workflow task of a run failed, and that its history replays from the beginning.

    Args:
        run: Handle of the workflow, or its history.
        crashed: A worker or the server was killed: a workflow task that was with it, or that waited for it on the
            worker's own queue, may have timed out.
        workflows: Which workflows the history is replayed with.

    Returns:
        The history, for further questions.
    """
    history = run if isinstance(run, WorkflowHistory) else await run.fetch_history()
    troubles = [trouble for event in history.events if (trouble := _trouble(event, crashed=crashed))]
    assert not troubles, f"{history.workflow_id}: {'; '.join(troubles)}"
    await Replayer(workflows=list(workflows), plugins=[OutlastPlugin()]).replay_workflow(history)
    return history


async def assert_all_healthy(client: Client, query: str, *, crashed: bool = False) -> None:
    """The same for each run that the server lists for a query."""
    async for execution in client.list_workflows(query):
        await assert_healthy(client.get_workflow_handle(execution.id, run_id=execution.run_id), crashed=crashed)


def _trouble(event: HistoryEvent, *, crashed: bool) -> str | None:
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            failed = event.workflow_task_failed_event_attributes
            if failed.cause in _HARMLESS:
                return None
            cause = WorkflowTaskFailedCause.Name(failed.cause)
            return f"event {event.event_id}: a workflow task failed, {cause}: {failed.failure.message}"
        case EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT if not crashed:
            kind = TimeoutType.Name(event.workflow_task_timed_out_event_attributes.timeout_type)
            return f"event {event.event_id}: a workflow task timed out, {kind}"
        case _:
            return None


def activities_scheduled(history: WorkflowHistory, activity_type: str | None = None) -> list[str]:
    """The IDs of the activities that were scheduled, of one type or of all, in their order."""
    scheduled = [
        event.activity_task_scheduled_event_attributes
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]
    return [one.activity_id for one in scheduled if activity_type in (None, one.activity_type.name)]
