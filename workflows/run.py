"""`AgentRun`: the workflow that drives a run's state machine on Temporal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json
from temporalio import workflow
from temporalio.common import RawValue, SearchAttributeKey
from temporalio.exceptions import ApplicationError, FailureError

from outlast.contracts import (
    DECISIONS,
    CallInput,
    CallOutcome,
    DepsVersion,
    Failed,
    Pause,
    RunFacts,
    RunInput,
    Steer,
    StepPlan,
)
from outlast.errors import DecisionRejected, InvalidDecision
from outlast.markdown import cut, one_line
from outlast.messages import load_messages
from outlast.payloads import NotJson, PayloadTooLarge, json_bytes, read_arguments, takes_json, to_raw
from outlast.workflows import decisions, parts, policy, views
from outlast.workflows.commands import (
    CancelCall,
    CancelStep,
    CancelTimer,
    Command,
    EndCancelled,
    Fail,
    Finish,
    Publish,
    RequestStep,
    StartCall,
    StartTimer,
)
from outlast.workflows.events import (
    CallEnded,
    CancelRequested,
    Decided,
    Event,
    Paused,
    Refused,
    Resumed,
    Started,
    Steered,
    StepFailed,
    StepPlanned,
    TimerFired,
)
from outlast.workflows.machine import Machine
from outlast.workflows.page import Page, summary_of_step
from outlast.workflows.state import RunState

OUTCOME: TypeAdapter[CallOutcome] = TypeAdapter(CallOutcome)
WORKFLOW_TYPE = "AgentRun"
SUMMARY_BYTES = 400
"""Temporal's limit for the summary of an activity."""

MAX_PROBLEMS = 10
"""Most mistakes of an input that are listed."""

MAX_REPORTED = 10_000
"""Most mistakes that are looked at: of a million, a report alone would take a workflow task too long."""

# Not every exception: one that says that this workflow is being evicted must pass.
_ENDED_BADLY = (FailureError, asyncio.CancelledError, ValidationError, NotJson)

AGENT = SearchAttributeKey.for_keyword("OutlastAgent")
STATE = SearchAttributeKey.for_keyword("OutlastState")
PENDING = SearchAttributeKey.for_int("OutlastPending")
TOOLS = SearchAttributeKey.for_keyword_list("OutlastTools")


def _signal(name: str, description: str) -> Callable[..., None]:
    """A signal handler that receives whatever was sent."""

    def handler(self: AgentRun, *arguments: Any) -> None:
        self.receive_signal(name, arguments)

    return workflow.signal(name=name, description=description)(takes_json(handler))


def _update(name: str) -> Any:
    """An update handler of the same name and argument as the signal; it never awaits."""

    def handler(self: AgentRun, *arguments: Any) -> RawValue:
        return self.receive_update(name, arguments)

    def validator(self: AgentRun, *arguments: Any) -> None:
        self.check_update(name, arguments)

    update = workflow.update(name=name, description=f"Like the signal `{name}`, and answers what came of it")
    decorated = update(takes_json(handler))
    decorated.validator(takes_json(validator))
    return decorated


@workflow.defn(name=WORKFLOW_TYPE, sandboxed=False)
class AgentRun:
    """One agent run.

    Takes one JSON object (`RunInput`) and returns one (`RunResult`). Whatever callers send is read by hand, so that
    nothing which they can send fails a workflow task.
    """

    @workflow.init
    @takes_json
    def __init__(self, *arguments: Any) -> None:
        self._activities: dict[str, asyncio.Future[Any]] = {}
        self._page = Page(workflow.info().workflow_id)
        self._since: dict[str, datetime] = {}
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._end: Finish | Fail | EndCancelled | None = None
        self._bug: BaseException | None = None
        # Nothing waits at first, and no memo says so as well.
        self._shown_waiting: list[tuple[str, str]] = []
        self._shown: tuple[str, list[tuple[str, str]]] | None = None
        self._machine: Machine | None = None
        # Signals may come before the run begins, even before its input is known to be good.
        self._invalid: str | None = None
        try:
            self._machine = Machine(_open(arguments))
        except (NotJson, ValidationError) as error:
            self._invalid = _explain_input(error)

    @workflow.run
    @takes_json
    async def run(self, *arguments: Any) -> RawValue:
        """Drive the run to its end; its input was read before the first signal, in `__init__`."""
        if self._machine is None:
            raise ApplicationError(self._invalid or "", type="InvalidInput", non_retryable=True)
        self._apply(Started(at=workflow.now()))
        try:
            await workflow.wait_condition(self._ended)
        except asyncio.CancelledError:
            self._apply(CancelRequested(at=workflow.now()))
            await workflow.wait_condition(self._ended)
        match self._end:
            case Finish(result=result):
                try:
                    return to_raw(result.__pydantic_serializer__.to_json(result))
                except PayloadTooLarge as error:
                    raise ApplicationError(
                        f"The output has {error}.", type="OutputValidationFailed", non_retryable=True
                    ) from None
            case Fail(error_type=error_type, message=message):
                raise ApplicationError(message, type=error_type, non_retryable=True)
            case _:
                raise asyncio.CancelledError

    def _ended(self) -> bool:
        if self._bug is not None:
            # In a background task it would pass unseen, and the run wait for ever. Here it is seen, and a worker with
            # the mistake mended goes on with the run.
            raise self._bug
        return self._end is not None and workflow.all_handlers_finished()

    # --- the engine ----------------------------------------------------------------------------------------------

    def _apply(self, event: Event) -> None:
        assert self._machine is not None
        for command in self._machine.apply(event):
            self._execute(command)
        workflow.set_current_details(self._page.render(self._machine.state, self._since, self._end))

    def _execute(self, command: Command) -> None:
        match command:
            case RequestStep():
                self._start_activity(f"model:{command.input.step}", self._request_step(command))
            case StartCall():
                self._start_activity(f"call:{command.input.tool_call_id}", self._call(command))
            case CancelStep(step=step):
                self._cancel_activity(f"model:{step}")
            case CancelCall(tool_call_id=call_id):
                self._cancel_activity(f"call:{call_id}")
            case StartTimer(name=name, delay=delay):
                self._timers[name] = asyncio.create_task(self._watched(self._timer(name, delay)))
            case CancelTimer(name=name):
                if timer := self._timers.pop(name, None):
                    timer.cancel()
            case Publish():
                self._publish()
            case Finish() | Fail() | EndCancelled():
                self._end = command

    def _start_activity(self, activity_id: str, work: Any) -> None:
        self._since[activity_id] = workflow.now()
        self._activities[activity_id] = asyncio.create_task(self._watched(work))

    async def _watched(self, work: Any) -> None:
        try:
            await work
        except Exception as error:
            self._bug = error

    def _activity_ended(self, activity_id: str) -> None:
        self._activities.pop(activity_id, None)
        self._since.pop(activity_id, None)

    def _cancel_activity(self, activity_id: str) -> None:
        if activity := self._activities.get(activity_id):
            activity.cancel()

    async def _request_step(self, command: RequestStep) -> None:
        data = command.input
        activity_id = f"model:{data.step}"
        try:
            result: RawValue = await workflow.execute_activity(
                f"model:{data.agent}",
                to_raw(data.to_json()),
                result_type=RawValue,
                activity_id=activity_id,
                summary=summary_of_step(data.step, data.position.delta),
                **cast(Any, policy.model_options(command)),
            )
            plan = StepPlan.model_validate_json(json_bytes(result))
            event: Event = StepPlanned(step=data.step, plan=plan, at=workflow.now())
        except PayloadTooLarge as error:
            message = f"The next model request would carry {error}. Configure external storage, or send less at once."
            event = StepFailed(step=data.step, error_type="InvalidInput", message=message, at=workflow.now())
        except _ENDED_BADLY as error:
            event = policy.step_event(command, error, workflow.now())
        self._activity_ended(activity_id)
        self._apply(event)

    async def _call(self, command: StartCall) -> None:
        data = command.input
        activity_id = f"call:{data.tool_call_id}"
        try:
            argument = to_raw(data.to_json())
            summary = self._summary_of(data)
            result: RawValue
            # One that a person approved must not be repeated, as a local activity is when its worker dies.
            if data.policy.local and data.repeatable:
                result = await workflow.execute_local_activity(
                    f"tool:{data.tool_name}",
                    argument,
                    result_type=RawValue,
                    activity_id=activity_id,
                    summary=summary,
                    **policy.local_options(command),
                )
            else:
                result = await workflow.execute_activity(
                    f"tool:{data.tool_name}",
                    argument,
                    result_type=RawValue,
                    activity_id=activity_id,
                    summary=summary,
                    **cast(Any, policy.call_options(command)),
                )
            json = json_bytes(result)
            event: Event = CallEnded(
                tool_call_id=data.tool_call_id,
                execution=data.execution,
                outcome=OUTCOME.validate_json(json),
                size_bytes=len(json),
                at=workflow.now(),
            )
        except PayloadTooLarge as error:
            message = f"The call was not made: its arguments and what goes with them, such as deps, have {error}."
            event = CallEnded(
                tool_call_id=data.tool_call_id,
                execution=data.execution,
                outcome=Failed(error_type="ArgumentsTooLarge", message=message),
                size_bytes=len(message),
                at=workflow.now(),
            )
        except _ENDED_BADLY as error:
            event = policy.call_event(command, error, workflow.now())
        self._activity_ended(activity_id)
        self._apply(event)

    async def _timer(self, name: str, delay: timedelta) -> None:
        await workflow.sleep(delay, summary=self._summary_of_timer(name))
        self._timers.pop(name, None)
        self._apply(TimerFired(name=name, at=workflow.now()))

    def _summary_of(self, data: CallInput) -> str:
        """A call in one line: who approved it, if anybody had to, and its arguments."""
        args = views.summary(data.args) or "no arguments"
        if data.approved:
            record = next((one for one in self._state().decisions[::-1] if one.tool_call_id == data.tool_call_id), None)
            args = f"approved{f' by {one_line(record.by, 100)}' if record and record.by else ''}: {args}"
        return one_line(args, SUMMARY_BYTES)

    def _summary_of_timer(self, name: str) -> str:
        kind, _, call_id = name.partition(":")
        call = self._state().calls.get(call_id)
        if kind != "backoff" or call is None:
            return one_line(name, SUMMARY_BYTES)
        return one_line(f"{call.plan.tool_name} is made again: {views.summary(call.args)}", SUMMARY_BYTES)

    def _publish(self) -> None:
        """Show what waits: in the memo, and in the search attributes where there are any."""
        assert self._machine is not None
        state = self._machine.state
        waiting = [(call_id, call.held.digest) for call_id, call in state.calls.items() if call.held is not None]
        if waiting != self._shown_waiting:
            workflow.upsert_memo({"outlast": to_raw(views.pending_summary(state, workflow.now()).to_json())})
        shown = (views.run_state(state), waiting)
        if state.features.search_attributes and shown != self._shown:
            self._shown = shown
            cast(Any, workflow).upsert_search_attributes(
                [
                    AGENT.value_set(state.facts.agent),
                    STATE.value_set(views.run_state(state)),
                    PENDING.value_set(len(waiting)),
                    TOOLS.value_set(views.waiting_tools(state)),
                ]
            )
        self._shown_waiting = waiting

    # --- messages from outside -----------------------------------------------------------------------------------

    approve = _signal("approve", "Run a waiting call: {tool_call_id, override_args?, by?, reason?, digest?}")
    deny = _signal("deny", "Never run a waiting call; the model sees the message: {tool_call_id, message?, by?}")
    resolve = _signal("resolve", "Give a waiting call its result: {tool_call_id, result, by?}")
    retry = _signal("retry", "Tell the model to try a waiting call again: {tool_call_id, message, by?}")
    steer = _signal("steer", "Add a user message before the next step: {content}")
    pause = _signal("pause", "Start no new step or call: {by?}")
    resume = _signal("resume", "Start steps and calls again: {by?}")

    update_approve = _update("approve")
    update_deny = _update("deny")
    update_resolve = _update("resolve")
    update_retry = _update("retry")
    update_steer = _update("steer")
    update_pause = _update("pause")
    update_resume = _update("resume")

    @workflow.query(description="What the run does, costs and waits for")
    @takes_json
    def status(self, *arguments: Any) -> RawValue:
        """What the run does, costs and waits for."""
        _read_query("status", arguments, set())
        return _answer(views.status(self._state()))

    @workflow.query(description="The calls that wait for a decision")
    @takes_json
    def pending(self, *arguments: Any) -> RawValue:
        """The calls that wait for a decision."""
        _read_query("pending", arguments, set())
        calls = [call.model_dump(mode="json", exclude_none=True) for call in views.pending(self._state())]
        return to_raw(to_json(calls))

    @workflow.query(description="The conversation, in pages: {start?, end?}")
    @takes_json
    def messages(self, *arguments: Any) -> RawValue:
        """The conversation, in pages."""
        asked = _read_query("messages", arguments, {"start", "end"})
        return _answer(views.messages_page(self._state(), asked.get("start", 0), asked.get("end")))

    @workflow.query(description="What a worker must know of the run besides its conversation")
    @takes_json
    def context(self, *arguments: Any) -> RawValue:
        """What a worker must know of the run besides its conversation."""
        _read_query("context", arguments, set())
        return to_raw(views.context_page(self._state()).to_json())

    def receive_signal(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Apply a signal, or list it as rejected: it never fails and is never dropped."""
        if self._machine is None:
            return
        now = workflow.now()
        try:
            event = _read_message(name, arguments, via="signal", at=now)
        except InvalidDecision as error:
            event = Refused(
                name=name, error_type="InvalidDecision", message=error.message, content=_show(arguments), at=now
            )
        self._apply(event)

    def check_update(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Refuse an update that cannot apply; nothing of it is kept."""
        state = self._state()
        try:
            event = _read_message(name, arguments, via="update", at=workflow.now())
            if isinstance(event, Decided):
                decisions.check(state, event.decision)
            elif isinstance(event, Steered):
                decisions.check_steer(state, parts.user_prompt(event.content))
        except DecisionRejected as error:
            raise ApplicationError(error.message, type=type(error).__name__, non_retryable=True) from None

    def receive_update(self, name: str, arguments: tuple[Any, ...]) -> RawValue:
        """Apply an update that passed `check_update`."""
        state = self._state()
        event = _read_message(name, arguments, via="update", at=workflow.now())
        self._apply(event)
        if not isinstance(event, Decided):
            return _answer(views.brief_status(state), leave_out={"pending", "decisions", "rejected"})
        return _answer(views.call_state(state, event.decision.tool_call_id))

    def _state(self) -> RunState:
        if self._machine is None:
            raise ApplicationError(self._invalid or "", type="InvalidInput", non_retryable=True)
        return self._machine.state


def _open(arguments: tuple[Any, ...]) -> RunState:
    """The state of a fresh run.

    Raises:
        NotJson: The input is not one JSON value.
        ValidationError: It does not fit `RunInput`, or its message history is none.
        ValueError: There is nothing to do.
    """
    data = read_arguments(arguments)
    if not isinstance(data, dict):
        raise NotJson(f"Got {'nothing' if data is None else cut(repr(data), 100)}.")
    given = RunInput.model_validate(data)
    load_messages(given.message_history)
    messages = list(given.message_history)
    if given.prompt is not None:
        messages.append(parts.request([parts.user_prompt(given.prompt)]))
    if not messages or messages[-1]["kind"] != "request":
        raise NotJson(
            "There is nothing to ask the model: give a `prompt`, or a `message_history` that ends in a request."
        )
    facts = RunFacts(
        agent=given.agent,
        model=given.model,
        model_settings=given.model_settings,
        usage_limits=given.usage_limits,
        metadata=given.metadata,
        prompt_at=None if given.prompt is None else len(messages) - 1,
    )
    return RunState(
        run_key=workflow.info().first_execution_run_id,
        facts=facts,
        deps=DepsVersion(value=given.deps),
        messages=messages,
    )


def _explain_input(error: NotJson | ValidationError) -> str:
    """What is wrong with a run's input, and what it should be."""
    fields = ", ".join(RunInput.model_fields)
    return f"AgentRun takes one JSON object with the fields {fields}. {_explain(error)}"


def _explain(error: NotJson | ValidationError) -> str:
    if isinstance(error, NotJson):
        return str(error)
    count = error.error_count()
    if count > MAX_REPORTED:
        return f"It has {count:,} mistakes."
    problems = [
        f"`{cut('.'.join(map(str, problem['loc'])) or 'input', 200)}`: {cut(problem['msg'], 300)}, "
        f"got {cut(repr(problem['input']), 100)}"
        for problem in error.errors(include_url=False, include_context=False)[:MAX_PROBLEMS]
    ]
    if count > MAX_PROBLEMS:
        problems.append(f"and {count - MAX_PROBLEMS:,} more mistakes")
    return "; ".join(problems)


_STEERING: dict[str, type[Steer | Pause]] = {"steer": Steer, "pause": Pause, "resume": Pause}


def _read_message(name: str, arguments: tuple[Any, ...], *, via: str, at: datetime) -> Event:
    """The event that a signal or update means.

    Raises:
        InvalidDecision: It is not one JSON object with the fields of its kind.
    """
    expected: type[BaseModel] = DECISIONS.get(name) or _STEERING[name]
    try:
        message = expected.model_validate(read_arguments(arguments, default={}))
    except (NotJson, ValidationError) as error:
        fields = ", ".join(field for field in expected.model_fields if field != "kind")
        raise InvalidDecision(f"`{name}` takes one JSON object with the fields {fields}. {_explain(error)}") from None
    match message:
        case Steer(content=content):
            return Steered(content=content, at=at)
        case Pause(by=by):
            return Paused(by=by, at=at) if name == "pause" else Resumed(by=by, at=at)
        case _:
            return Decided(decision=message, via=via, keep=via == "signal", at=at)


def _read_query(name: str, arguments: tuple[Any, ...], fields: set[str]) -> dict[str, Any]:
    try:
        asked = read_arguments(arguments)
    except NotJson as error:
        raise ApplicationError(str(error), type="InvalidQuery") from None
    asked = {} if asked is None else asked
    if not isinstance(asked, dict) or not asked.keys() <= fields:
        takes = f"one JSON object with the fields {', '.join(sorted(fields))}" if fields else "no argument"
        raise ApplicationError(f"The query `{name}` takes {takes}, got {_show(arguments)}", type="InvalidQuery")
    for field, value in asked.items():
        if not isinstance(value, int) or value < 0:
            raise ApplicationError(f"`{field}` is a position, from 0, got {value!r}", type="InvalidQuery")
    return asked


def _answer(value: BaseModel, *, leave_out: set[str] | None = None) -> RawValue:
    return to_raw(value.__pydantic_serializer__.to_json(value, exclude_none=True, exclude=leave_out))


def _show(arguments: tuple[Any, ...]) -> str:
    shown = [
        argument.payload.data.decode(errors="replace") if isinstance(argument, RawValue) else repr(argument)
        for argument in arguments
    ]
    return cut(", ".join(shown), SUMMARY_BYTES)
