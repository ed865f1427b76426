"""Reads a run's history, event by event. The server tells it; no worker has to answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

from pydantic_core import from_json
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, PendingActivityState, TimeoutType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import PendingActivityInfo

from outlast.cli.timeline import DECISIONS, MESSAGES, Call, Execution, Message, Step, Timeline
from outlast.messages import JsonObject

__all__ = ("Change", "Decode", "HistoryReader")

Decode: TypeAlias = Callable[[Sequence[Payload]], Awaitable[Any]]
"""Reads the first of some payloads as JSON; None where there is none."""

Change: TypeAlias = Step | Call | Message | Timeline
"""What an event changed."""

LOCAL_ACTIVITY = "core_local_activity"


class HistoryReader:
    """Makes a timeline of a history.

    Is lenient to what it does not know: a history may be one of a later release, or hold anything that was sent.

    Args:
        run_id: The run.
        decode: Reads payloads, through the codec of the client where it has one.
    """

    def __init__(self, run_id: str, decode: Decode) -> None:
        self.timeline = Timeline(run_id=run_id)
        self._decode = decode
        self._activities: dict[int, tuple[Execution, Step | Call]] = {}
        self._updates: dict[int, Message] = {}

    def refresh(self, pending: Iterable[PendingActivityInfo]) -> None:
        """Take over what the server tells of activities that are under way, which no event tells yet."""
        for info in pending:
            execution = self.timeline.executions.get(info.activity_id)
            if execution is None:
                continue
            execution.attempt = max(1, info.attempt)
            execution.max_attempts = info.maximum_attempts
            execution.worker = info.last_worker_identity
            started = info.state != PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
            execution.started_at = _time(info.last_started_time) if info.HasField("last_started_time") else None
            execution.problem = _failure_words(info.last_failure) if info.HasField("last_failure") else ""
            backs_off = not started and info.HasField("next_attempt_schedule_time")
            execution.next_at = _time(info.next_attempt_schedule_time) if backs_off else None
            if not started:
                execution.started_at = None

    async def apply(self, event: HistoryEvent) -> Sequence[Change]:
        """Read the next event.

        Returns:
            What changed by it.
        """
        self.timeline.events += 1
        at = event.event_time.ToDatetime(UTC)
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                await self._started(event, at)
                return [self.timeline]
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                return await self._scheduled(event, at)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
                began = event.activity_task_started_event_attributes
                if known := self._activities.get(began.scheduled_event_id):
                    execution, _ = known
                    execution.started_at, execution.attempt, execution.worker = at, began.attempt, began.identity
                    execution.next_at = None
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                completed = event.activity_task_completed_event_attributes
                return await self._returned(completed.scheduled_event_id, completed.result.payloads, at)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
                failed = event.activity_task_failed_event_attributes
                return self._failed(failed.scheduled_event_id, failed.failure, at)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
                timed_out = event.activity_task_timed_out_event_attributes
                return self._failed(timed_out.scheduled_event_id, timed_out.failure, at)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
                cancelled = event.activity_task_canceled_event_attributes
                return self._failed(cancelled.scheduled_event_id, None, at)
            case EventType.EVENT_TYPE_MARKER_RECORDED:
                return await self._local(event, at)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                signal = event.workflow_execution_signaled_event_attributes
                content = await self._decode(signal.input.payloads)
                return self._said(signal.signal_name, content, at, "signal")
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
                update = event.workflow_execution_update_accepted_event_attributes
                request = update.accepted_request.input
                said = self._said(request.name, await self._decode(request.args.payloads), at, "update")
                if said:
                    self._updates[event.event_id] = said[0]
                return list(said)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED:
                done = event.workflow_execution_update_completed_event_attributes
                message = self._updates.get(done.accepted_event_id)
                if message is not None and done.outcome.HasField("failure"):
                    message.rejected = done.outcome.failure.message
            case EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED:
                fields = event.workflow_properties_modified_event_attributes.upserted_memo.fields
                if "outlast" in fields:
                    return self._memo(await self._decode([fields["outlast"]]), at)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
                message = Message(name="cancel", at=at, via="request")
                self.timeline.messages.append(message)
                return [message]
            case EventType.EVENT_TYPE_TIMER_STARTED:
                return await self._timer(event, at)
            case EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                failed_task = event.workflow_task_failed_event_attributes
                # A message that came in the very task that ends the run: the task is made again, and nothing is wrong.
                if failed_task.cause != WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND:
                    self.timeline.stuck = _failure_words(failed_task.failure) or "its workflow task fails"
                    return [self.timeline]
            case EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED if self.timeline.stuck:
                self.timeline.stuck = ""
                return [self.timeline]
            case _:
                return [self.timeline] if await self._ended(event, at) else []
        return []

    # --- the events ----------------------------------------------------------------------------------------------

    async def _started(self, event: HistoryEvent, at: datetime) -> None:
        started = event.workflow_execution_started_event_attributes
        # A run that continues as new numbers its events anew.
        self._activities, self._updates = {}, {}
        if self.timeline.started_at is not None:
            return
        self.timeline.started_at = at
        self.timeline.task_queue = started.task_queue.name
        given = _object(await self._decode(started.input.payloads))
        self.timeline.agent = str(given.get("agent", ""))
        self.timeline.prompt = _prompt(given.get("prompt"))
        self.timeline.metadata = _object(given.get("metadata"))

    async def _scheduled(self, event: HistoryEvent, at: datetime) -> Sequence[Change]:
        scheduled = event.activity_task_scheduled_event_attributes
        kind, _, name = scheduled.activity_type.name.partition(":")
        execution = Execution(scheduled_at=at, max_attempts=scheduled.retry_policy.maximum_attempts)
        identity = scheduled.activity_id.partition(":")[2]
        self.timeline.executions[scheduled.activity_id] = execution
        if kind == "model":
            step = self._step(identity)
            step.requests.append(execution)
            self._activities[event.event_id] = (execution, step)
            return [step]
        call = self.timeline.find(identity) or self._unplanned(identity, name)
        call.waits_for = call.again_at = None
        given = _object(await self._decode(scheduled.input.payloads))
        call.args = _object(given.get("args")) if "args" in given else call.args
        call.executions.append(execution)
        self._activities[event.event_id] = (execution, call)
        return [call]

    def _step(self, number: str) -> Step:
        wanted = int(number) if number.isdigit() else len(self.timeline.steps) + 1
        if not self.timeline.steps or self.timeline.steps[-1].number != wanted:
            self.timeline.steps.append(Step(number=wanted))
        return self.timeline.steps[-1]

    def _unplanned(self, tool_call_id: str, tool_name: str) -> Call:
        """A call that no plan named: after a continue-as-new, or of a later release."""
        if not self.timeline.steps:
            self.timeline.steps.append(Step(number=0))
        call = Call(tool_call_id=tool_call_id, tool_name=tool_name)
        self.timeline.steps[-1].calls.append(call)
        return call

    async def _returned(self, scheduled: int, payloads: Sequence[Payload], at: datetime) -> Sequence[Change]:
        if (known := self._activities.pop(scheduled, None)) is None:
            return []
        execution, owner = known
        execution.ended_at, execution.problem = at, ""
        result = _object(await self._decode(payloads))
        if isinstance(owner, Step):
            _read_plan(owner, result, at)
        else:
            owner.outcome = result
            if result.get("kind") == "deferred":
                owner.waits_for, owner.waits_since = str(result.get("wait_for", "approval")), at
        return [owner]

    def _failed(self, scheduled: int, failure: Failure | None, at: datetime) -> Sequence[Change]:
        if (known := self._activities.pop(scheduled, None)) is None:
            return []
        execution, owner = known
        execution.ended_at = at
        execution.problem = "cancelled" if failure is None else _failure_words(failure)
        execution.lost = failure is not None and _is_loss(failure)
        return [owner]

    async def _timer(self, event: HistoryEvent, at: datetime) -> Sequence[Change]:
        """The run waits before it makes a call again that must not be repeated, and of which nothing happened."""
        name = str(await self._decode([event.user_metadata.summary]))
        kind, _, identity = name.partition(":")
        call = self.timeline.find(identity)
        if kind != "backoff" or call is None:
            return []
        call.again_at = at + event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta()
        return [call]

    async def _local(self, event: HistoryEvent, at: datetime) -> Sequence[Change]:
        """One of Temporal's local activities, which ran inside the worker."""
        marker = event.marker_recorded_event_attributes
        if marker.marker_name != LOCAL_ACTIVITY:
            return []
        about = _object(await self._decode(marker.details["data"].payloads))
        identity = str(about.get("activity_id", "")).partition(":")[2]
        name = str(about.get("activity_type", "")).partition(":")[2]
        call = self.timeline.find(identity) or self._unplanned(identity, name)
        execution = Execution(scheduled_at=at, started_at=at, ended_at=at, attempt=int(about.get("attempt") or 1))
        call.executions.append(execution)
        if marker.HasField("failure"):
            execution.problem = _failure_words(marker.failure)
        else:
            call.outcome = _object(await self._decode(marker.details["result"].payloads))
        return [call]

    def _said(self, name: str, content: Any, at: datetime, via: str) -> list[Message]:
        if name not in MESSAGES:
            return []
        fields = _object(content)
        by, call_id = fields.get("by"), fields.get("tool_call_id")
        message = Message(
            name=name,
            at=at,
            via=via,
            by=by if isinstance(by, str) else None,
            tool_call_id=call_id if isinstance(call_id, str) else None,
            content=fields,
        )
        self.timeline.messages.append(message)
        return [message]

    def _memo(self, memo: Any, at: datetime) -> Sequence[Change]:
        summary = _object(memo)
        self.timeline.waiting = _objects(summary.get("calls"))
        self.timeline.count = int(summary.get("count") or len(self.timeline.waiting))
        changed: list[Change] = [self.timeline]
        listed = {entry.get("tool_call_id"): entry for entry in self.timeline.waiting}
        for call in self.timeline.calls:
            entry = listed.get(call.tool_call_id)
            if entry is not None:
                call.waits_for = str(entry.get("kind"))
                call.waits_since = _iso(entry.get("requested_at")) or call.waits_since or at
                changed.append(call)
            elif call.waits_for is not None and self.timeline.count <= len(self.timeline.waiting):
                call.waits_for = None
                call.decision = self._decision(call)
                changed.append(call)
        return changed

    def _decision(self, call: Call) -> Message | None:
        """The newest decision about a call: that which took it off the list."""
        return next(
            (
                message
                for message in reversed(self.timeline.messages)
                if message.tool_call_id == call.tool_call_id and message.name in DECISIONS and not message.rejected
            ),
            None,
        )

    async def _ended(self, event: HistoryEvent, at: datetime) -> bool:
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
                completed = event.workflow_execution_completed_event_attributes
                result = _object(await self._decode(completed.result.payloads))
                self.timeline.ending, self.timeline.output = "completed", result.get("output")
                self.timeline.usage = _object(result.get("usage"))
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
                failure = event.workflow_execution_failed_event_attributes.failure
                self.timeline.ending, self.timeline.error = "failed", failure.message
                self.timeline.error_type = failure.application_failure_info.type
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED:
                self.timeline.ending = "cancelled"
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
                terminated = event.workflow_execution_terminated_event_attributes
                self.timeline.ending, self.timeline.error = "terminated", terminated.reason
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
                self.timeline.ending = "timed out"
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
                attributes = event.workflow_execution_continued_as_new_event_attributes
                self.timeline.ending, self.timeline.next_run_id = "continued as new", attributes.new_execution_run_id
            case _:
                return False
        self.timeline.ended_at, self.timeline.stuck = at, ""
        for call in self.timeline.calls:
            call.again_at = None
        return True


def _read_plan(step: Step, plan: JsonObject, at: datetime) -> None:
    response = _object(plan.get("response"))
    usage = _object(response.get("usage"))
    step.input_tokens, step.output_tokens = _number(usage.get("input_tokens")), _number(usage.get("output_tokens"))
    said = _objects(response.get("parts"))
    step.text = "\n".join(str(part.get("content", "")) for part in said if part.get("part_kind") == "text").strip()
    asked = {part.get("tool_call_id"): part.get("args") for part in said if part.get("part_kind") == "tool-call"}
    for planned in _objects(plan.get("calls")):
        # Of a call that was refused at once the plan has no arguments: the model's own show what was wrong.
        args = None if planned.get("settled") else planned.get("args")
        call = Call(
            tool_call_id=str(planned.get("tool_call_id", "")),
            tool_name=str(planned.get("tool_name", "")),
            args=_arguments(asked.get(planned.get("tool_call_id")) if args is None else args),
            outcome=_object(planned.get("settled")) or None,
        )
        if wait_for := planned.get("wait_for"):
            call.waits_for, call.waits_since = str(wait_for), at
        step.calls.append(call)
    if retry := _object(plan.get("retry")):
        step.retry = str(retry.get("content", ""))


def _arguments(args: Any) -> JsonObject | None:
    """As the model wrote them: an object, or the JSON of one."""
    if isinstance(args, str):
        try:
            args = from_json(args)
        except ValueError:
            return None
    return cast("JsonObject", args) if isinstance(args, dict) else None


def _prompt(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    parts: list[Any] = cast("list[Any]", prompt) if isinstance(prompt, list) else []
    return " ".join(part if isinstance(part, str) else f"[{_object(part).get('kind', 'content')}]" for part in parts)


def _object(value: Any) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _objects(value: Any) -> list[JsonObject]:
    return [_object(each) for each in cast("list[Any]", value)] if isinstance(value, list) else []


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


_TIMEOUTS: dict[int, str] = {
    TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE: "ran past its time",
    TimeoutType.TIMEOUT_TYPE_HEARTBEAT: "its worker gave no sign of life any more",
    TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START: "no worker took it",
    TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE: "all its attempts took too long",
}


def _failure_words(failure: Failure) -> str:
    if failure.HasField("timeout_failure_info"):
        return _TIMEOUTS.get(failure.timeout_failure_info.timeout_type, "timed out")
    if failure.HasField("canceled_failure_info"):
        return "cancelled"
    kind = failure.application_failure_info.type
    return f"{kind}: {failure.message}" if kind else failure.message


def _is_loss(failure: Failure) -> bool:
    if failure.HasField("timeout_failure_info"):
        return failure.timeout_failure_info.timeout_type == TimeoutType.TIMEOUT_TYPE_HEARTBEAT
    return failure.application_failure_info.type == "WorkerShutdown"


def _iso(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None


def _time(stamp: Any) -> datetime:
    return stamp.ToDatetime(UTC)
