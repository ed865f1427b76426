"""The engine without a server: drives the same state machine, in this process, for as long as it lives."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import anyio
from anyio.abc import TaskGroup

from outlast.activities.calling import AttemptFailed, execute_call, jittered_backoff
from outlast.activities.calling import Call as CallToMake
from outlast.activities.entering import entering
from outlast.activities.planning import call_ids, plan_response, plan_step
from outlast.activities.run_tools import RunTools
from outlast.activities.spec import AgentSpec
from outlast.answers import answer, check_answers, decision, outcome, unanswered_calls
from outlast.contracts import (
    Decision,
    PlannedOutput,
    RunFacts,
    UsageLimits,
)
from outlast.errors import ProviderError, RunError, UserError, single_cause
from outlast.messages import (
    JsonObject,
    ModelMessage,
    ModelResponse,
    ToolCallPart,
    Usage,
    UserContent,
    dump_message,
    load_messages,
)
from outlast.toolsets.abstract import AbstractToolset
from outlast.toolsets.context import RunContext
from outlast.toolsets.deferred import DeferredToolRequests, DeferredToolResults
from outlast.workflows import parts
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
    CallCancelled,
    CallEnded,
    CallErrored,
    Decided,
    Event,
    Started,
    StepCancelled,
    StepFailed,
    StepPlanned,
    TimerFired,
)
from outlast.workflows.machine import Machine
from outlast.workflows.state import Call, RunState


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """What an in-process run is asked to do; `deps` and `resources` are live objects, shared with the caller."""

    prompt: str | Sequence[UserContent] | None = None
    deps: Any = None
    message_history: Sequence[ModelMessage] = ()
    deferred_tool_results: DeferredToolResults | None = None
    model_settings: Mapping[str, Any] | None = None
    usage_limits: UsageLimits = field(default_factory=UsageLimits)
    metadata: JsonObject = field(default_factory=dict[str, Any])
    resources: Any = None


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How an in-process run ended: with an output, or with calls that wait."""

    output: Any
    messages: list[ModelMessage]
    usage: Usage


@dataclass(frozen=True, slots=True)
class _Crashed:
    """An exception that is the caller's to see as it is."""

    error: BaseException


class InProcessRun:
    """One run of an agent in this process.

    Args:
        agent: What to run.
        toolset: The toolsets of this run, in one.
        request: What to do.
    """

    def __init__(self, agent: AgentSpec, toolset: AbstractToolset[Any], request: RunRequest) -> None:
        self._agent = agent
        self._toolset = toolset
        prompt = request.prompt
        self._prompt = prompt if prompt is None or isinstance(prompt, str) else list(prompt)
        self._tools: RunTools
        self._request = request
        self._answered: dict[str, JsonObject] = {}
        self._machine = Machine(self._open())
        self._messages: list[ModelMessage] = []
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._end: Finish | Fail | EndCancelled | None = None
        self._output: PlannedOutput | None = None
        self._under_way = 0
        self._send, self._receive = anyio.create_memory_object_stream[Event | _Crashed](max_buffer_size=1_000)

    def _open(self) -> RunState:
        request = self._request
        messages = [dump_message(message) for message in request.message_history]
        steers: list[JsonObject] = []
        if request.prompt is not None and request.deferred_tool_results is not None:
            # The results of the calls come first, in the same request: a model wants them right behind the calls.
            steers.append(parts.user_prompt(request.prompt))
        elif request.prompt is not None:
            messages.append(parts.request([parts.user_prompt(request.prompt)]))
        elif not messages:
            raise UserError("There is nothing to ask the model: give a prompt, or a message_history.")
        facts = RunFacts(
            agent=self._agent.name or "agent",
            model_settings=dict(request.model_settings) if request.model_settings else None,
            usage_limits=request.usage_limits,
            metadata=request.metadata,
        )
        return RunState(run_key=uuid.uuid4().hex, facts=facts, messages=messages, steers=steers)

    async def run(self) -> Ended:
        """Drive the run to its end.

        Raises:
            RunError: The run ended without an output.
            UserError: Calls wait, and `DeferredToolRequests` is not among the output types.
        """
        async with self._toolset:
            try:
                async with entering() as enter, anyio.create_task_group() as group:
                    self._tools = RunTools(self._agent, self._toolset, enter=enter)
                    await self._begin(group)
                    while self._end is None and self._under_way:
                        event = await self._receive.receive()
                        self._under_way -= 1
                        if isinstance(event, _Crashed):
                            raise event.error
                        self._execute(self._machine.apply(event), group)
                    group.cancel_scope.cancel()
            except BaseExceptionGroup as error:
                raise single_cause(error) from None
        return self._ended()

    async def _begin(self, group: TaskGroup) -> None:
        results, history = self._request.deferred_tool_results, self._request.message_history
        if results is None:
            self._refuse_open_calls(history)
            self._execute(self._machine.apply(Started(at=_now())), group)
            return
        response, unanswered = unanswered_calls(history)
        check_answers(results, unanswered)
        self._answered = results.metadata
        open_calls = response.model_copy(update={"parts": unanswered})
        ctx = self._context(step=1)
        offered = await self._tools.for_step(ctx)
        plan = await plan_response(self._agent, ctx, offered.tools, open_calls, used_ids=set(), retries={})
        for planned in plan.calls:
            answer(planned, results)
        self._execute(self._machine.resume_step(plan, _now()), group)
        for call_id, approval in results.approvals.items():
            self._decide(decision(call_id, approval), group)
        for call_id, result in results.calls.items():
            self._execute(self._machine.settle(call_id, outcome(call_id, result), _now()), group)

    def _decide(self, decided: Decision, group: TaskGroup) -> None:
        rejected = len(self._machine.state.rejected)
        self._execute(self._machine.apply(Decided(decision=decided, via="in-process", keep=False, at=_now())), group)
        for rejection in self._machine.state.rejected[rejected:]:
            if self._machine.state.calls[decided.tool_call_id].status != "done":
                raise UserError(f"deferred_tool_results.approvals[{decided.tool_call_id!r}]: {rejection.message}")

    def _refuse_open_calls(self, history: Sequence[ModelMessage]) -> None:
        _, unanswered = unanswered_calls(history)
        if unanswered:
            waiting = ", ".join(f"{part.tool_call_id!r} ({part.tool_name})" for part in unanswered)
            raise UserError(f"The message_history ends with calls that wait, {waiting}: give deferred_tool_results.")
        if self._request.prompt is None and isinstance(history[-1], ModelResponse):
            raise UserError("The message_history ends with a response: give a prompt to go on from it.")

    # --- the engine ----------------------------------------------------------------------------------------------

    def _execute(self, commands: list[Command], group: TaskGroup) -> None:
        for command in commands:
            match command:
                case RequestStep():
                    self._start(group, f"model:{command.input.step}", self._step, command)
                case StartCall():
                    self._start(group, f"call:{command.input.tool_call_id}", self._call, command)
                case StartTimer():
                    self._start(group, command.name, self._timer, command)
                case CancelStep(step=step):
                    self._cancel(f"model:{step}")
                case CancelCall(tool_call_id=call_id):
                    self._cancel(f"call:{call_id}")
                case CancelTimer(name=name):
                    self._cancel(name)
                case Publish():
                    pass
                case Finish() | Fail() | EndCancelled():
                    self._end = command

    def _start(self, group: TaskGroup, name: str, work: Any, command: Command) -> None:
        self._under_way += 1
        group.start_soon(self._report, name, work, command, name=f"outlast {name}")

    async def _report(self, name: str, work: Any, command: Any) -> None:
        """Do some work, and report exactly one event of it."""
        with anyio.CancelScope() as scope:
            self._scopes[name] = scope
            try:
                event = await work(command)
            except Exception as error:
                event = _Crashed(error)
            self._send.send_nowait(event)
        if scope.cancelled_caught:
            self._send.send_nowait(_cancelled(command))

    def _cancel(self, name: str) -> None:
        if scope := self._scopes.get(name):
            scope.cancel()

    async def _step(self, command: RequestStep) -> Event:
        data = command.input
        ctx = self._context(step=data.step)
        for attempt in range(1, self._agent.model_attempts + 1):
            try:
                plan = await plan_step(
                    self._agent,
                    ctx,
                    (await self._tools.for_step(ctx)).tools,
                    used_ids=call_ids(ctx.messages),
                    retries=data.retries,
                    settings_override=self._request.model_settings,
                )
            except ProviderError as error:
                if not error.retryable or attempt == self._agent.model_attempts:
                    return StepFailed(step=data.step, error_type="ModelRequestFailed", message=error.message, at=_now())
                wait = error.retry_after
                await anyio.sleep(jittered_backoff(1.0, attempt).total_seconds() if wait is None else wait)
            except RunError as error:
                return StepFailed(step=data.step, error_type=type(error).__name__, message=error.message, at=_now())
            else:
                self._output = plan.output
                return StepPlanned(step=data.step, plan=plan, at=_now())
        raise AssertionError("model_attempts is at least 1")

    async def _call(self, command: StartCall) -> Event:
        data = command.input
        call = CallToMake(tool_name=data.tool_name, args=data.args, policy=data.policy, repeatable=data.repeatable)
        ctx = self._context(step=data.step)
        ctx.tool_call_id, ctx.tool_name = data.tool_call_id, data.tool_name
        ctx.tool_call_approved = data.approved
        ctx.tool_call_metadata = self._answered.get(data.tool_call_id, {})
        ctx.retry, ctx.max_retries = data.retry, data.policy.max_retries
        ctx.idempotency_key = f"{data.run_key}:{data.tool_call_id}"
        which: dict[str, Any] = {"tool_call_id": data.tool_call_id, "execution": data.execution}
        while True:
            try:
                outcome = await execute_call(call, ctx, await self._tools.for_step(ctx))
            except AttemptFailed as failure:
                if ctx.attempt >= data.policy.attempts:
                    return CallErrored(error_type=failure.error_type, message=failure.message, at=_now(), **which)
                await anyio.sleep(failure.retry_after.total_seconds())
                ctx.attempt += 1
            else:
                return CallEnded(outcome=outcome, size_bytes=0, at=_now(), **which)

    async def _timer(self, command: StartTimer) -> Event:
        await anyio.sleep(command.delay.total_seconds())
        return TimerFired(name=command.name, at=_now())

    # --- what the user's code sees -------------------------------------------------------------------------------

    def _sync_messages(self) -> list[ModelMessage]:
        known = len(self._messages)
        self._messages += load_messages(self._machine.state.messages[known:])
        return self._messages

    def _context(self, *, step: int) -> RunContext[Any]:
        state, request = self._machine.state, self._request
        return RunContext(
            deps=request.deps,
            model=self._agent.model_for(None),
            usage=state.usage,
            usage_limits=request.usage_limits,
            prompt=self._prompt,
            messages=list(self._sync_messages()),
            run_step=step,
            run_id=state.run_key,
            metadata=request.metadata,
            resources=request.resources,
        )

    def _ended(self) -> Ended:
        state = self._machine.state
        match self._end:
            case Finish():
                messages = self._sync_messages()
                assert self._output is not None
                return Ended(output=self._output.live, messages=messages, usage=state.usage)
            case Fail(error_type=error_type, message=message):
                raise RunError.by_name.get(error_type, RunError)(message)
            case _:
                return self._deferred()

    def _deferred(self) -> Ended:
        """Nothing runs, and calls wait: that is how far a run in this process can go."""
        state = self._machine.state
        held = [call for call in state.calls.values() if call.held is not None]
        if not self._agent.output.allows_deferred:
            names = ", ".join(dict.fromkeys(_why(call) for call in held))
            raise UserError(
                f"Calls wait for a decision or a result from outside: {names}. Put DeferredToolRequests into the "
                f"agent's output_type to get them as the output, or run the agent durably, where they wait."
            )
        waiting: dict[str, list[ToolCallPart]] = {"approval": [], "other": []}
        metadata: dict[str, JsonObject] = {}
        for call in held:
            assert call.held is not None
            part = ToolCallPart(tool_name=call.plan.tool_name, args=call.args, tool_call_id=call.plan.tool_call_id)
            waiting["approval" if call.held.kind == "approval" else "other"].append(part)
            if call.held.metadata:
                metadata[call.plan.tool_call_id] = call.held.metadata
        messages = list(self._sync_messages())
        done = [part for call in state.calls.values() for part in call.parts]
        done += [parts.user_prompt(call.user_content) for call in state.calls.values() if call.user_content]
        if done:
            messages += load_messages([parts.request(done)])
        output = DeferredToolRequests(calls=waiting["other"], approvals=waiting["approval"], metadata=metadata)
        return Ended(output=output, messages=messages, usage=state.usage)


def _why(call: Call) -> str:
    assert call.held is not None
    known = call.held.metadata
    reason = known.get("reason") or (f"invalid arguments, {known['invalid']}" if "invalid" in known else None)
    return repr(call.plan.tool_name) + (f" ({reason})" if reason else "")


def _now() -> datetime:
    return datetime.now(UTC)


def _cancelled(command: Command) -> Event:
    match command:
        case RequestStep():
            return StepCancelled(step=command.input.step, at=_now())
        case StartCall():
            data = command.input
            return CallCancelled(tool_call_id=data.tool_call_id, execution=data.execution, at=_now())
        case StartTimer():
            # The machine no longer waits for it, and ignores it.
            return TimerFired(name="cancelled", at=_now())
        case _:
            raise AssertionError(f"nothing runs for {command!r}")
