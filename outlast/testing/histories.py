"""What holds for the history of every run, however it was started and whatever happened to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from temporalio.api.enums.v1 import EventType, TimeoutType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle, WorkflowHistory
from temporalio.worker import Replayer

from outlast.plugin import OutlastPlugin
from outlast.settings import Settings
from outlast.workflows.run import AgentRun

__all__ = ("NotDurable", "check_history", "scheduled")

# Not a failure: a signal arrived in the very task that ends the run, and the task is made once more.
_HARMLESS = {
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_UPDATE,
}


class NotDurable(AssertionError):
    """A workflow task of a run failed, or its history does not replay."""


async def check_history(
    run: WorkflowHandle[Any, Any] | WorkflowHistory,
    *,
    timeouts: bool = False,
    workflows: Iterable[type] = (AgentRun,),
) -> WorkflowHistory:
    """Check that no workflow task of a run failed, and that its history replays from the beginning.

    Args:
        run: Handle of the workflow, or its history.
        timeouts: Lets workflow tasks pass that timed out, as they do when a worker or the server is killed, and on a
            machine that is too busy.
        workflows: Which workflows the history is replayed with.

    Returns:
        The history, for further questions.

    Raises:
        NotDurable: It is not so; the message says where.
    """
    history = run if isinstance(run, WorkflowHistory) else await run.fetch_history()
    troubles = [trouble for event in history.events if (trouble := _trouble(event, timeouts=timeouts))]
    if troubles:
        raise NotDurable("\n  ".join([f"Workflow tasks of the run {history.workflow_id!r} failed.", *troubles, _WHOSE]))
    replayer = Replayer(workflows=list(workflows), plugins=[OutlastPlugin(settings=Settings.model_validate({}))])
    result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    if result.replay_failure is not None:
        raise NotDurable(
            f"The history of the run {history.workflow_id!r} does not replay.\n  {result.replay_failure}\n  {_WHOSE}"
        ) from result.replay_failure
    return history


_WHOSE = (
    "No agent's code runs in a workflow: the mistake is outlast's own, or that of an interceptor or a codec of yours."
)


def _trouble(event: HistoryEvent, *, timeouts: bool) -> str | None:
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            failed = event.workflow_task_failed_event_attributes
            if failed.cause in _HARMLESS:
                return None
            cause = WorkflowTaskFailedCause.Name(failed.cause)
            return f"event {event.event_id}: a workflow task failed, {cause}: {failed.failure.message}"
        case EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT if not timeouts:
            kind = TimeoutType.Name(event.workflow_task_timed_out_event_attributes.timeout_type)
            return f"event {event.event_id}: a workflow task timed out, {kind}"
        case _:
            return None


def scheduled(history: WorkflowHistory, activity_type: str | None = None) -> list[str]:
    """The IDs of the activities that were scheduled, in their order.

    Args:
        history: Of a run.
        activity_type: Only those of one type, such as `tool:refund`.
    """
    attributes = [
        event.activity_task_scheduled_event_attributes
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]
    return [one.activity_id for one in attributes if activity_type in (None, one.activity_type.name)]
