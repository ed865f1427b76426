"""Waits for a run to come as far as a test wants it, and says where it stands when it does not."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import anyio
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.enums.v1 import EventType, WorkflowExecutionStatus
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import WorkflowExecutionDescription, WorkflowHandle

from outlast.contracts import PendingSummary

__all__ = ("NothingCame", "between_tasks", "has_ended", "what_waits", "where_it_stands")

PAUSE_SECONDS = 0.02

_RUNNING = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING
_TIMER_ENDS = {
    EventType.EVENT_TYPE_TIMER_FIRED: "timer_fired_event_attributes",
    EventType.EVENT_TYPE_TIMER_CANCELED: "timer_canceled_event_attributes",
}


class NothingCame(AssertionError):
    """What a test waits for did not come; the message says what the run waits for, or how it ended."""


async def between_tasks(run: WorkflowHandle[Any, Any], *, after: int = -1) -> WorkflowExecutionDescription:
    """Wait until a run is not just being worked on, so that it can be asked.

    A worker without a cache throws the run out after each task, and where two more have come by then, queries among
    them, the SDK drops one of them, and the server waits until that has timed out.

    Args:
        run: Handle of the workflow.
        after: Waits, too, until its history has another length than this.

    Returns:
        What the server then says of it.
    """
    while True:
        described = await run.describe()
        if described.history_length != after and not described.raw_description.HasField("pending_workflow_task"):
            return described
        await anyio.sleep(PAUSE_SECONDS)


def has_ended(described: WorkflowExecutionDescription) -> bool:
    """Whether a run has come to its end, good or bad."""
    return described.raw_description.workflow_execution_info.status != _RUNNING


async def what_waits(described: WorkflowExecutionDescription) -> PendingSummary | None:
    """What the memo of a run says: needs no worker, where a query has one replay the whole history."""
    memo: Any = await described.memo()
    return PendingSummary.model_validate(memo["outlast"]) if "outlast" in memo else None


async def where_it_stands(run: WorkflowHandle[Any, Any]) -> str:
    """What a run waits for, or how it ended, in lines for a person. Asks the server alone, not a worker."""
    described = await run.describe()
    seen = described.raw_description
    status = seen.workflow_execution_info.status
    if status != _RUNNING:
        name = WorkflowExecutionStatus.Name(status).rpartition("_")[2].lower()
        return f"The run has ended: {name}."
    history = [event async for event in run.fetch_history_events()]
    lines = [*await _decisions(described), *map(_activity, seen.pending_activities)]
    lines += [*_workflow_task(seen, history), *_timers(history)]
    return "\n  ".join(["It waits for", *(lines or ["nothing that the server knows of."])])


async def _decisions(described: WorkflowExecutionDescription) -> list[str]:
    memo = await what_waits(described)
    return [
        f"a decision about {call['tool_call_id']}, {call['tool_name']}: {call['summary']} (kind {call['kind']})"
        for call in (memo.calls if memo is not None else [])
    ]


def _activity(pending: PendingActivityInfo) -> str:
    line = f"{pending.activity_type.name}, attempt {pending.attempt}"
    if pending.HasField("next_attempt_schedule_time") and (wait := _seconds_until(pending.next_attempt_schedule_time)):
        line += f", which begins in {wait:.0f} s (`skip_time=True` lets that pass at once)"
    if pending.HasField("last_failure"):
        failure = pending.last_failure
        kind = failure.application_failure_info.type or "failure"
        line += f"; the last one ended with {kind}: {failure.message}"
    return line


def _workflow_task(seen: DescribeWorkflowExecutionResponse, history: Iterable[HistoryEvent]) -> list[str]:
    if not seen.HasField("pending_workflow_task"):
        return []
    failures = [
        event.workflow_task_failed_event_attributes.failure.message
        for event in history
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    ]
    line = f"a workflow task, attempt {seen.pending_workflow_task.attempt}"
    return [f"{line}; the last that failed said: {failures[-1]}" if failures else line]


def _timers(history: Iterable[HistoryEvent]) -> list[str]:
    running: dict[str, float] = {}
    for event in history:
        if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED:
            started = event.timer_started_event_attributes
            running[started.timer_id] = started.start_to_fire_timeout.ToTimedelta().total_seconds()
        elif attributes := _TIMER_ENDS.get(event.event_type):
            running.pop(getattr(event, attributes).timer_id, None)
    return [f"a timer of {seconds:g} s (`skip_time=True` lets it pass at once)" for seconds in running.values()]


def _seconds_until(time: Timestamp) -> float:
    return max(0.0, (time.ToDatetime(tzinfo=UTC) - datetime.now(UTC)).total_seconds())
