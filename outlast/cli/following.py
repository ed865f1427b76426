"""What happens in a run, read from its history: the server tells it, no worker has to answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic_core import from_json
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, TimeoutType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from outlast.client import explain_rpc
from outlast.messages import JsonObject

__all__ = ("CallEnded", "CallStarted", "Ended", "Happening", "Waiting", "follow")


@dataclass(frozen=True, kw_only=True)
class CallStarted:
    """A call was handed to the workers; `summary` is its arguments in one line."""

    tool_call_id: str
    tool_name: str
    summary: str


@dataclass(frozen=True, kw_only=True)
class CallEnded:
    """An execution of a call is over: with an `outcome`, as on the wire, or with a `problem`, in words."""

    tool_call_id: str
    tool_name: str
    outcome: JsonObject | None = None
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """These calls wait for a decision now, as the memo tells it; none where all are decided."""

    calls: list[JsonObject]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The run is over, well or not."""


Happening: TypeAlias = CallStarted | CallEnded | Waiting | Ended

_OVER = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
}

_TIMEOUTS: dict[int, str] = {
    TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE: "ran too long",
    TimeoutType.TIMEOUT_TYPE_HEARTBEAT: "its worker gave no sign of life any more",
    TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START: "no worker took it",
}


async def follow(temporal: TemporalClient, run_id: str) -> AsyncIterator[Happening]:
    """Everything that happens in a run, from its start to its end, as it happens.

    Raises:
        UnknownRun: There is no such run.
    """
    history = temporal.get_workflow_handle(run_id).fetch_history_events(wait_new_event=True, skip_archival=True)
    calls: dict[int, CallStarted] = {}
    try:
        async for event in history:
            happening = await _read(event, calls, temporal)
            if happening is not None:
                yield happening
    except RPCError as error:
        raise explain_rpc(error, run_id) from None


async def _read(event: HistoryEvent, calls: dict[int, CallStarted], temporal: TemporalClient) -> Happening | None:
    match event.event_type:
        case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled = event.activity_task_scheduled_event_attributes
            kind, _, name = scheduled.activity_type.name.partition(":")
            if kind != "tool":
                return None
            summary = await _json([event.user_metadata.summary], temporal)
            call_id = scheduled.activity_id.partition(":")[2]
            started = CallStarted(tool_call_id=call_id, tool_name=name, summary=summary or "")
            calls[event.event_id] = started
            return started
        case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            completed = event.activity_task_completed_event_attributes
            outcome = await _json(completed.result.payloads, temporal)
            return _ended(calls, completed.scheduled_event_id, outcome=outcome)
        case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
            failed = event.activity_task_failed_event_attributes
            problem = f"{failed.failure.application_failure_info.type}: {failed.failure.message}"
            return _ended(calls, failed.scheduled_event_id, problem=problem)
        case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
            timed_out = event.activity_task_timed_out_event_attributes
            problem = _TIMEOUTS.get(timed_out.failure.timeout_failure_info.timeout_type, "timed out")
            return _ended(calls, timed_out.scheduled_event_id, problem=problem)
        case EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
            cancelled = event.activity_task_canceled_event_attributes
            return _ended(calls, cancelled.scheduled_event_id, problem="cancelled")
        case EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED:
            fields = event.workflow_properties_modified_event_attributes.upserted_memo.fields
            memo = await _json([fields["outlast"]], temporal) if "outlast" in fields else None
            return Waiting(calls=memo.get("calls", [])) if memo is not None else None
        case kind if kind in _OVER:
            return Ended()
        case _:
            return None


def _ended(
    calls: dict[int, CallStarted], scheduled_event_id: int, *, outcome: JsonObject | None = None, problem: str = ""
) -> CallEnded | None:
    call = calls.pop(scheduled_event_id, None)
    if call is None:
        return None
    return CallEnded(tool_call_id=call.tool_call_id, tool_name=call.tool_name, outcome=outcome, problem=problem)


async def _json(payloads: Any, temporal: TemporalClient) -> Any:
    """The first of the payloads, as the codec of the client leaves it; None where it is no JSON."""
    found: list[Payload] = list(payloads)[:1]
    if temporal.data_converter.payload_codec is not None:
        found = await temporal.data_converter.payload_codec.decode(found)
    try:
        return from_json(found[0].data) if found and found[0].data else None
    except ValueError:
        return None
