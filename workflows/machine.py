"""The run as a state machine: `apply(event)` changes the state and says what to do. It does nothing itself.

Invariants, whatever happens in whatever order:

- A call gets one result. Events of an execution that is not under way any more are ignored.
- A decision applies once, to the call that it names, while that call waits.
- A call that was held starts only after an approval, and once for each.
- The next step begins when every call of this one has a result.
"""

# Replay: everything here follows from the state and the event alone; there is no clock, no randomness, no setting,
# and no set is ever iterated.

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_never

from outlast.contracts import (
    Approve,
    CallOutcome,
    Decision,
    DecisionRecord,
    Deferred,
    Deny,
    Failed,
    PendingKind,
    PlannedOutput,
    Resolve,
    Retried,
    Retry,
    Returned,
    RunResult,
    Skipped,
    StepPlan,
    Transient,
)
from outlast.errors import DecisionRejected
from outlast.messages import JsonObject, Usage
from outlast.workflows import decisions, deps, limits, mailbox, parts, step
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
    CallLost,
    CallTimedOut,
    CallUnclaimed,
    CancelRequested,
    Decided,
    Event,
    Paused,
    Refused,
    Resumed,
    Started,
    Steered,
    StepCancelled,
    StepFailed,
    StepLost,
    StepPlanned,
    TimerFired,
)
from outlast.workflows.state import Call, Ending, Held, RunState, run_state

MAX_LOSSES = 5
"""How often a repeatable call or step may lose its worker before that counts as its failure."""

MAX_MISPLACED = 10
"""How often, a second apart, workers that do not host a call's agent may take it: another is being deployed."""

MAX_PARALLEL_CALLS = 40
"""Most calls of one run under way at once. The server fails a workflow task during which more than 100 events arrive,
and makes it again; each call that ends brings two."""

MAX_DELAY_SECONDS = 365 * 24 * 3600
"""Longest time that a call may ask to be tried again after."""


class Machine:
    """Drives one `RunState`."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self._commands: list[Command] = []
        self._changed = False

    def apply(self, event: Event) -> list[Command]:
        """Take one event in.

        Returns:
            What the engine must do now, in this order.
        """
        if self.state.ended is not None:
            return []
        waited = run_state(self.state) == "waiting"
        self._handle(event)
        self._advance()
        if waited != (run_state(self.state) == "waiting"):
            self._changed = True
        return self._flush()

    def resume_step(self, plan: StepPlan, at: datetime) -> list[Command]:
        """Take up a step whose response is in the conversation already: only the calls of the plan are open."""
        self.state.step = 1
        self._take_plan(plan, at)
        self._advance()
        return self._flush()

    def settle(self, tool_call_id: str, outcome: CallOutcome, at: datetime) -> list[Command]:
        """Give a waiting call an outcome that is no decision of a person, as an in-process caller may."""
        call = self.state.calls.get(tool_call_id)
        if call is not None and call.held is not None:
            call.held, self._changed = None, True
            self._outcome(call, outcome, None, at)
            self._advance()
        return self._flush()

    # --- events --------------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        match event:
            case Started():
                pass
            case StepPlanned():
                self._planned(event)
            case StepLost():
                self._step_lost(event)
            case StepFailed():
                if self._step_ended(event.step):
                    self._fail(event.error_type, event.message)
            case StepCancelled():
                if self._step_ended(event.step):
                    self._fail("RunCancelled", "The model request was cancelled.")
            case CallEnded():
                if call := self._ended_execution(event.tool_call_id, event.execution):
                    self._outcome(call, event.outcome, event.size_bytes, event.at)
            case CallErrored():
                if call := self._ended_execution(event.tool_call_id, event.execution):
                    self._errored(call, event.error_type, event.message, event.at)
            case CallTimedOut():
                if call := self._ended_execution(event.tool_call_id, event.execution):
                    self._timed_out(call, event.at)
            case CallLost():
                if call := self._ended_execution(event.tool_call_id, event.execution):
                    self._call_lost(call, event.reason, event.at)
            case CallUnclaimed():
                # It never began: it is ready to start once more.
                self._ended_execution(event.tool_call_id, event.execution)
            case CallCancelled():
                if call := self._ended_execution(event.tool_call_id, event.execution):
                    self._call_lost(call, "The call was cancelled while it ran", event.at)
            case Decided():
                self._decided(event)
            case Steered():
                self._steered(event)
            case Paused():
                self.state.paused, self.state.paused_by, self._changed = True, event.by, True
            case Resumed():
                self.state.paused, self.state.paused_by, self._changed = False, None, True
            case Refused():
                mailbox.reject(self.state, event.name, event.error_type, event.message, event.content, event.at)
            case TimerFired():
                self._timer_fired(event.name)
            case CancelRequested():
                self._cancel()
            case _:
                assert_never(event)

    def _flush(self) -> list[Command]:
        commands, self._commands = self._commands, []
        if self._changed:
            self._changed = False
            # First, so that what waits is shown even in the very task that ends the run.
            commands.insert(0, Publish())
        return commands

    def _planned(self, event: StepPlanned) -> None:
        if not self._step_ended(event.step):
            return
        # Only now is it known where and how a run may be shown.
        self._changed = self._changed or event.plan.features != self.state.features
        step.take_response(self.state, event.plan.response)
        self._take_plan(event.plan, event.at)

    def _take_plan(self, plan: StepPlan, at: datetime) -> None:
        step.take_plan(self.state, plan)
        if plan.retry is not None:
            self._output_invalid(plan.retry.content)
        if exceeded := limits.exceeded(self.state):
            self._fail("UsageLimitExceeded", exceeded)
        for call in self.state.calls.values():
            self._begin(call, at)

    def _begin(self, call: Call, at: datetime) -> None:
        """Take a call of a fresh plan in: it is settled, it waits, or it is ready to start."""
        plan = call.plan
        if plan.settled is not None:
            self._outcome(call, plan.settled, None, at)
        elif plan.wait_for is not None and self.state.ending is None:
            call.gated = plan.wait_for == "approval"
            self._hold(call, plan.wait_for, plan.metadata, plan.json_schema, at)

    def _step_lost(self, event: StepLost) -> None:
        if not self._step_ended(event.step):
            return
        self.state.step_losses += 1
        if self.state.step_losses > MAX_LOSSES:
            self._fail(
                "ModelRequestFailed", f"The worker was lost {MAX_LOSSES + 1} times in step {event.step}: {event.reason}"
            )

    def _step_ended(self, number: int) -> bool:
        """Whether this is the end of the model request that is under way."""
        under_way = self.state.asking and self.state.step == number
        if under_way:
            self.state.asking = False
        return under_way

    def _ended_execution(self, call_id: str, execution: int) -> Call | None:
        """The call whose execution just ended, or None for one that is not under way any more.

        Unless what follows says otherwise, it may start again.
        """
        call = self.state.calls.get(call_id)
        if call is None or call.status != "running" or call.execution != execution:
            return None
        call.status = "ready"
        return call

    # --- how a call ends -----------------------------------------------------------------------------------------

    def _outcome(self, call: Call, outcome: CallOutcome, size_bytes: int | None, at: datetime) -> None:
        changed = {} if isinstance(outcome, Transient | Skipped) else outcome.deps
        if changed and (conflict := deps.merge(self.state, call, changed)):
            self._fail("DepsConflict", conflict)
        match outcome:
            case Returned():
                self._returned(call, outcome, size_bytes)
            case Retried():
                self._retried(call, outcome, at)
            case Failed():
                message = f"{outcome.error_type}: {outcome.message}"
                if outcome.known:
                    # The tool itself says so, to the model: `on_error` is for what nobody planned.
                    self._done(call, parts.failed_return(call.plan, message))
                else:
                    self._unknown(call, message, at)
            case Transient():
                self._transient(call, outcome, at)
            case Deferred():
                call.gated = call.gated or outcome.wait_for == "approval"
                call.approved = False
                schema = outcome.json_schema or call.plan.json_schema
                self._hold(call, outcome.wait_for, {**call.plan.metadata, **outcome.metadata}, schema, at)
            case Skipped():
                self._done(call, parts.tool_return(call.plan.tool_name, call.plan.tool_call_id, outcome.content))
            case _:
                assert_never(outcome)

    def _returned(self, call: Call, outcome: Returned, size_bytes: int | None) -> None:
        name, call_id = call.plan.tool_name, call.plan.tool_call_id
        call.succeeded = True
        if not call.plan.output:
            self.state.usage += Usage(tool_calls=1)
        call.user_content = outcome.user_content
        part = parts.tool_return(name, call_id, outcome.content, metadata=outcome.metadata)
        self._done(call, part, size_bytes=size_bytes)

    def _retried(self, call: Call, outcome: Retried, at: datetime) -> None:
        plan = call.plan
        if call.approved and outcome.reason == "arguments":
            # The edited arguments pass the JSON schema but not the tool's own validation: a person edits again.
            call.approved = False
            self._hold(call, "approval", {**plan.metadata, "invalid": outcome.content}, plan.json_schema, at)
            return
        call.counted = True
        self._done(call, parts.retry_prompt(outcome.content, tool_name=plan.tool_name, tool_call_id=plan.tool_call_id))
        if plan.output:
            self._output_invalid(outcome.content)
        elif exceeded := limits.retries_exceeded(self.state, call, outcome.content):
            self._fail("ToolRetriesExceeded", exceeded)

    def _output_invalid(self, problem: str | list[JsonObject]) -> None:
        if exceeded := limits.output_exceeded(self.state, problem):
            self._fail("OutputValidationFailed", exceeded)

    def _transient(self, call: Call, outcome: Transient, at: datetime) -> None:
        if outcome.misplaced:
            call.misplaced += 1
            if call.misplaced > MAX_MISPLACED:
                self._done(call, parts.failed_return(call.plan, outcome.message))
                self._fail(outcome.error_type, outcome.message)
                return
        else:
            call.transient += 1
            call.misplaced = 0
        if call.transient >= call.plan.policy.attempts:
            self._failed(call, outcome.error_type, outcome.message, at)
        elif self.state.ending is None:
            call.status = "backoff"
            wait = call.plan.policy.backoff if outcome.retry_after is None else outcome.retry_after
            self._commands.append(StartTimer(name=_backoff(call), delay=_delay(wait)))

    def _timed_out(self, call: Call, at: datetime) -> None:
        message = f"Timed out after {call.plan.policy.timeout} seconds."
        if call.repeatable:
            self._retried(call, Retried(content=message, reason="timeout"), at)
        else:
            self._unknown(call, message.rstrip("."), at)

    def _call_lost(self, call: Call, reason: str, at: datetime) -> None:
        call.losses += 1
        if not call.repeatable:
            self._unknown(call, reason, at)
        elif call.losses > MAX_LOSSES:
            self._failed(call, "WorkerLost", f"{reason}, {call.losses} times in a row.", at)

    def _errored(self, call: Call, error_type: str, message: str, at: datetime) -> None:
        if call.repeatable:
            self._failed(call, error_type, message, at)
        else:
            self._unknown(call, f"{error_type}: {message}", at)

    def _failed(self, call: Call, error_type: str, message: str, at: datetime) -> None:
        """The call failed for good, and its outcome is known."""
        plan = call.plan
        match plan.policy.on_error if self.state.ending is None else "tell_model":
            case "tell_model":
                content = f"{error_type}: {message}"
                self._done(call, parts.failed_return(plan, content))
            case "fail_run":
                self._done(call, parts.failed_return(plan, message))
                self._fail("ToolFailed", f"The tool {plan.tool_name!r} failed, {error_type}: {message}")
            case "ask":
                self._ask(call, f"{error_type}: {message}", at, effect="failed")

    def _unknown(self, call: Call, reason: str, at: datetime) -> None:
        """The call may or may not have taken effect: that is never glossed over."""
        if call.plan.policy.on_unknown == "ask" and self.state.ending is None:
            self._ask(call, reason, at, effect="unknown")
            return
        self._done(call, parts.unknown_return(call.plan, reason))

    def _ask(self, call: Call, reason: str, at: datetime, *, effect: str) -> None:
        metadata = {**call.plan.metadata, "reason": reason, "effect": effect, "executions": call.execution}
        self._hold(call, "unknown_outcome", metadata, call.plan.json_schema, at)

    def _done(self, call: Call, part: JsonObject, *, size_bytes: int | None = None) -> None:
        """The call has its result: this part, if the step has room for it; its size is measured if it is not given."""
        size_bytes = parts.size_bytes(part) if size_bytes is None else size_bytes
        room = self.state.room_bytes
        if size_bytes > room:
            part = parts.failed_return(
                call.plan,
                f"The result has {size_bytes:,} bytes, and {room:,} bytes are left for this step's results. "
                f"Ask for less: a filter, a page, or fewer calls at once.",
            )
            size_bytes, call.user_content = parts.size_bytes(part), None
        self.state.step_bytes += size_bytes
        call.status, call.held, call.parts = "done", None, [part]

    # --- waiting and decisions -----------------------------------------------------------------------------------

    def _hold(
        self, call: Call, kind: PendingKind, metadata: JsonObject, json_schema: JsonObject | None, at: datetime
    ) -> None:
        digest = decisions.held_digest(call, kind)
        call.status = "held"
        call.held = Held(kind=kind, digest=digest, requested_at=at, metadata=metadata, json_schema=json_schema)
        self._changed = True
        for early in mailbox.take_early(self.state, call.plan.tool_call_id):
            self._decided(early)

    def _decided(self, event: Decided) -> None:
        try:
            found = decisions.check(self.state, event.decision)
        except DecisionRejected as rejection:
            mailbox.keep_or_reject(self.state, event, rejection)
            return
        if isinstance(found, DecisionRecord):
            return
        call, held = found
        self.state.decisions.append(decisions.record(event, call, held))
        call.held = None
        self._changed = True
        self._carry_out(call, held, event.decision)

    def _carry_out(self, call: Call, held: Held, decision: Decision) -> None:
        name, call_id = call.plan.tool_name, call.plan.tool_call_id
        match decision:
            case Approve():
                if decision.override_args is not None:
                    call.args = decision.override_args
                call.approved, call.gated, call.status = True, True, "ready"
                call.transient = call.losses = 0
                call.approvals += 1
                call.approved_digest = decisions.args_digest(name, call.args)
            case Deny():
                self._done(call, parts.denied_return(call.plan, held, decision.message))
            case Resolve():
                call.succeeded = True
                self.state.usage += Usage(tool_calls=1)
                self._done(call, parts.tool_return(name, call_id, decision.result))
            case Retry():
                # A person asks for it, so it uses none of the tool's retries.
                self._done(call, parts.retry_prompt(decision.message, tool_name=name, tool_call_id=call_id))
            case _:
                assert_never(decision)

    def _steered(self, event: Steered) -> None:
        part = parts.user_prompt(event.content)
        try:
            decisions.check_steer(self.state, part)
        except DecisionRejected as rejection:
            content = mailbox.shown({"content": part["content"]})
            mailbox.reject(self.state, "steer", type(rejection).__name__, rejection.message, content, event.at)
            return
        self.state.step_bytes += parts.size_bytes(part)
        self.state.steers.append(part)

    def _timer_fired(self, name: str) -> None:
        for call in self.state.calls.values():
            if call.status == "backoff" and _backoff(call) == name:
                call.status = "ready"

    # --- ending --------------------------------------------------------------------------------------------------

    def _fail(self, error_type: str, message: str) -> None:
        """Begin to end the run. A call that must not be repeated may still finish what it began."""
        self._end(Ending(state="failed", error_type=error_type, message=parts.cut(message)))
        self._cancel_calls(also_unrepeatable=False)

    def _cancel(self) -> None:
        """Begin to end the run, now. Where it is failing already, the failure stands, and nothing is waited for."""
        self._end(Ending(state="cancelled", error_type="RunCancelled", message="The run was cancelled."))
        self._cancel_calls(also_unrepeatable=True)

    def _end(self, ending: Ending) -> None:
        state = self.state
        if state.ending is None:
            state.ending = ending
            self._changed = True
            if state.asking:
                self._commands.append(CancelStep(step=state.step))

    def _cancel_calls(self, *, also_unrepeatable: bool) -> None:
        for call_id, call in self.state.calls.items():
            if call.status == "running" and not call.cancelled and (also_unrepeatable or call.repeatable):
                call.cancelled = True
                self._commands.append(CancelCall(tool_call_id=call_id))

    def _go_on_ending(self, ending: Ending) -> None:
        """Start nothing, drop what waits, wait for what is under way; then write down what came of each call."""
        state = self.state
        for call in state.calls.values():
            if call.status == "backoff":
                self._commands.append(CancelTimer(name=_backoff(call)))
            if call.status in ("ready", "held", "backoff"):
                self._done(call, parts.overtaken_return(call.plan, call.held))
        if state.asking or any(call.status == "running" for call in state.calls.values()):
            return
        self._close_step()
        state.ended = ending.state
        if ending.state == "cancelled":
            self._commands.append(EndCancelled())
        else:
            self._commands.append(Fail(error_type=ending.error_type, message=ending.message))

    # --- what comes next -----------------------------------------------------------------------------------------

    def _advance(self) -> None:
        state = self.state
        if state.ending is None and not state.asking:
            self._go_on()
        # What comes next may be what ends the run.
        if state.ending is not None:
            self._go_on_ending(state.ending)

    def _go_on(self) -> None:
        state = self.state
        if any(call.status != "done" for call in state.calls.values()):
            if not state.paused:
                self._start_ready()
        elif state.output is not None and not state.steers:
            self._finish(state.output)
        elif not state.paused:
            self._close_step()
            self._request_step()

    def _start_ready(self) -> None:
        """Start what may start: sequential calls run alone, in their place in the order."""
        running = [call for call in self.state.calls.values() if call.status == "running"]
        if any(call.plan.policy.sequential for call in running):
            return
        under_way = len(running)
        for call in self.state.calls.values():
            if call.status != "ready":
                continue
            if call.plan.policy.sequential:
                if under_way == 0:
                    self._start(call)
                return
            if under_way >= MAX_PARALLEL_CALLS:
                return
            self._start(call)
            under_way += 1

    def _start(self, call: Call) -> None:
        call.status = "running"
        call.execution += 1
        call.deps_version = self.state.deps.version
        self._commands.append(StartCall(input=step.call_input(self.state, call), heartbeat=self._heartbeat()))

    def _close_step(self) -> None:
        mailbox.reject_early(self.state)
        step.close(self.state)

    def _request_step(self) -> None:
        state = self.state
        if exceeded := limits.requests_exceeded(state):
            self._fail("UsageLimitExceeded", exceeded)
            return
        if state.step_losses == 0:
            state.step += 1
        state.asking = True
        self._commands.append(RequestStep(input=step.request_input(state), heartbeat=self._heartbeat()))

    def _heartbeat(self) -> timedelta:
        return timedelta(seconds=self.state.features.heartbeat_seconds)

    def _finish(self, planned: PlannedOutput) -> None:
        state = self.state
        output = parts.text(state.messages[-1]) if planned.text else planned.value
        self._close_step()
        state.ended = "completed"
        self._changed = True
        result = RunResult.model_construct(
            output=output, usage=state.usage, steps=state.step, messages=len(state.messages)
        )
        self._commands.append(Finish(result=result))


def _delay(seconds: float) -> timedelta:
    """As asked, as far as there can be such a timer; a tool may ask for anything, even for what is no number."""
    return timedelta(seconds=min(seconds, MAX_DELAY_SECONDS) if seconds > 0 else 0)


def _backoff(call: Call) -> str:
    return f"backoff:{call.plan.tool_call_id}"
