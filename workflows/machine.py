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

from pydantic_core import from_json, to_json

from outlast.contracts import (
    DECISIONS,
    Approve,
    CallInput,
    CallOutcome,
    Decision,
    DecisionRecord,
    Deferred,
    Deny,
    DepsVersion,
    Failed,
    PendingKind,
    PlannedOutput,
    Position,
    Rejection,
    Resolve,
    Retried,
    Retry,
    Returned,
    RunResult,
    Skipped,
    StepInput,
    StepPlan,
    Transient,
    extend_digest,
)
from outlast.errors import DecisionRejected, UnknownCall
from outlast.messages import JsonObject, ToolCallPart, Usage
from outlast.workflows import decisions, parts
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
from outlast.workflows.state import Call, Early, Ending, Held, RunState, run_state

MAX_LOSSES = 5
"""How often a repeatable call or step may lose its worker before that counts as its failure."""

MAX_PARALLEL_CALLS = 100
"""Most calls of one run under way at once: Temporal allows 2,000 pending activities for a workflow."""

MAX_DELAY_SECONDS = 365 * 24 * 3600
"""Longest time that a call may ask to be tried again after."""

MAX_TEXT_CHARS = 4_000
"""Most of a text that a run keeps for people, such as a reason."""

MAX_REJECTED = 100
"""Most rejected messages that a run keeps, the newest of them."""


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
        self._take_calls(plan, at)
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
                self._reject(event.name, event.error_type, event.message, event.content, event.at)
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
        state, plan = self.state, event.plan
        delta = state.messages[state.known :]
        state.digest = extend_digest(state.digest, [*delta, plan.response])
        state.messages.append(plan.response)
        state.known = len(state.messages)
        state.step_losses = 0
        state.usage += Usage.model_validate({**plan.response.get("usage", {}), "requests": 1})
        self._take_calls(plan, event.at)

    def _take_calls(self, plan: StepPlan, at: datetime) -> None:
        state = self.state
        state.features = plan.features
        state.output = plan.output
        given = _arguments(plan)
        state.calls = {
            planned.tool_call_id: Call(
                plan=planned,
                args=planned.args if planned.args is not None else given.get(planned.tool_call_id, {}),
            )
            for planned in plan.calls
        }
        if plan.retry is not None:
            state.output_retry = parts.retry_prompt(
                plan.retry.content, tool_name=plan.retry.tool_name, tool_call_id=plan.retry.tool_call_id
            )
            state.step_bytes += parts.size_bytes(state.output_retry)
            self._output_invalid(plan.retry.content)
        self._check_usage()
        for call in state.calls.values():
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

    def _step_ended(self, step: int) -> bool:
        """Whether this is the end of the model request that is under way."""
        under_way = self.state.asking and self.state.step == step
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
        if not isinstance(outcome, Transient | Skipped) and outcome.deps:
            self._merge_deps(call, outcome.deps)
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
        elif self.state.retries.get(plan.tool_name, 0) >= plan.policy.max_retries:
            self._fail(
                "ToolRetriesExceeded",
                f"The model tried the tool {plan.tool_name!r} again more often than its max_retries of "
                f"{plan.policy.max_retries} allows. The last problem was: {outcome.content}",
            )

    def _transient(self, call: Call, outcome: Transient, at: datetime) -> None:
        call.transient += 1
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
        self._done(call, parts.failed_return(call.plan, _maybe(reason)))

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

    def _merge_deps(self, call: Call, changed: JsonObject) -> None:
        state = self.state
        conflicts = [name for name in changed if state.deps_changed.get(name, 0) > call.deps_version]
        if conflicts:
            names = ", ".join(map(repr, conflicts))
            self._fail(
                "DepsConflict",
                f"The call {call.plan.tool_call_id!r} of {call.plan.tool_name!r} changed {names} of deps while another "
                f"call that overlapped changed the same. Mark the tools `sequential`.",
            )
            return
        version = state.deps.version + 1
        value = state.deps.value if isinstance(state.deps.value, dict) else {}
        state.deps = DepsVersion(version=version, value={**value, **changed})
        state.deps_changed.update(dict.fromkeys(changed, version))

    # --- waiting and decisions -----------------------------------------------------------------------------------

    def _hold(
        self, call: Call, kind: PendingKind, metadata: JsonObject, json_schema: JsonObject | None, at: datetime
    ) -> None:
        digest = decisions.held_digest(call, kind)
        call.status = "held"
        call.held = Held(kind=kind, digest=digest, requested_at=at, metadata=metadata, json_schema=json_schema)
        self._changed = True
        self._apply_early(call)

    def _apply_early(self, call: Call) -> None:
        """Decisions that came before the call waited, in the order in which they came: the first that fits applies."""
        mine = [early for early in self.state.early if early.decision.get("tool_call_id") == call.plan.tool_call_id]
        for early in mine:
            self.state.early.remove(early)
            decision = DECISIONS[early.name].model_validate(early.decision)
            self._decided(Decided(decision=decision, via=early.via, keep=False, at=early.at))

    def _decided(self, event: Decided) -> None:
        state, decision = self.state, event.decision
        try:
            found = decisions.check(state, decision)
        except DecisionRejected as rejection:
            if not self._keep_early(event, rejection):
                content = decisions.shown(decision)
                self._reject(decision.kind, type(rejection).__name__, rejection.message, content, event.at)
            return
        if isinstance(found, DecisionRecord):
            return
        call, held = found
        edited = isinstance(decision, Approve) and decision.override_args not in (None, call.args)
        state.decisions.append(
            DecisionRecord(
                tool_call_id=decision.tool_call_id,
                tool_name=call.plan.tool_name,
                decision=decision.kind,
                at=event.at,
                via=event.via,
                by=decision.by,
                reason=_reason(decision),
                digest=held.digest,
                fingerprint=decisions.fingerprint(decision),
                edited=edited,
            )
        )
        call.held = None
        self._changed = True
        self._carry_out(call, held, decision)

    def _keep_early(self, event: Decided, rejection: DecisionRejected) -> bool:
        """Keep a decision for a call that may wait later. An approval must say what it approves."""
        state, decision = self.state, event.decision
        if not event.keep or not isinstance(rejection, UnknownCall):
            return False
        if not decisions.may_wait_later(state, decision.tool_call_id):
            return False
        if isinstance(decision, Approve) and decision.digest is None:
            return False
        content = decision.model_dump(mode="json", exclude_defaults=True)
        kept = [content, *(early.decision for early in state.early)]
        if len(kept) > decisions.MAX_EARLY or parts.size_bytes(kept) > decisions.MAX_EARLY_BYTES:
            return False
        state.early.append(Early(name=decision.kind, decision=content, via=event.via, at=event.at))
        return True

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
                message, outcome = _denial(held)
                self._done(call, parts.tool_return(name, call_id, decision.message or message, outcome=outcome))
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
            self._reject("steer", type(rejection).__name__, rejection.message, str(part["content"]), event.at)
            return
        self.state.step_bytes += parts.size_bytes(part)
        self.state.steers.append(part)

    def _reject(self, name: str, error: str, message: str, content: str, at: datetime) -> None:
        rejected = self.state.rejected
        rejected.append(Rejection(name=name, error=error, message=_cut(message), content=content[:400], at=at))
        del rejected[:-MAX_REJECTED]

    def _timer_fired(self, name: str) -> None:
        for call in self.state.calls.values():
            if call.status == "backoff" and _backoff(call) == name:
                call.status = "ready"

    # --- limits --------------------------------------------------------------------------------------------------

    def _output_invalid(self, problem: str | list[JsonObject]) -> None:
        """The model gave an output that is not valid. A step counts once, and not at all where another output is."""
        state = self.state
        invalid = sum(call.plan.output and call.counted for call in state.calls.values())
        if state.output is not None or invalid + (state.output_retry is not None) > 1:
            return
        state.output_retries += 1
        if state.output_retries > state.features.output_retries:
            self._fail(
                "OutputValidationFailed",
                f"The model's output was invalid {state.output_retries} times, and output_retries is "
                f"{state.features.output_retries}. The last problem was: {problem}",
            )

    def _check_usage(self) -> None:
        usage, limits = self.state.usage, self.state.facts.usage_limits
        new_calls = sum(call.plan.settled is None for call in self.state.calls.values())
        for what, count, limit in (
            ("input tokens", usage.input_tokens, limits.input_tokens),
            ("output tokens", usage.output_tokens, limits.output_tokens),
            ("tokens", usage.total_tokens, limits.total_tokens),
            ("tool calls", usage.tool_calls + new_calls, limits.tool_calls),
        ):
            if limit is not None and count > limit:
                self._fail("UsageLimitExceeded", f"The run is at {count:,} {what}, and its limit is {limit:,}.")
                return

    # --- ending --------------------------------------------------------------------------------------------------

    def _fail(self, error_type: str, message: str) -> None:
        """Begin to end the run. A call that must not be repeated may still finish what it began."""
        self._end(Ending(state="failed", error_type=error_type, message=_cut(message)))
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
                self._done(call, parts.failed_return(call.plan, _why_dropped(call.held)))
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
        state, plan = self.state, call.plan
        call.status = "running"
        call.execution += 1
        call.deps_version = state.deps.version
        self._commands.append(
            StartCall(
                input=CallInput(
                    agent=state.facts.agent,
                    run_key=state.run_key,
                    step=state.step,
                    position=self._position(),
                    tool_call_id=plan.tool_call_id,
                    tool_name=plan.tool_name,
                    args=call.args,
                    policy=plan.policy,
                    repeatable=call.repeatable,
                    execution=call.execution,
                    losses=call.losses,
                    retry=state.retries.get(plan.tool_name, 0),
                    approved=call.approved,
                    approved_digest=call.approved_digest,
                    usage=state.usage,
                ),
                heartbeat=timedelta(seconds=state.features.heartbeat_seconds),
            )
        )

    def _close_step(self) -> None:
        """Every call has a result: write them into the conversation, in the order in which they were asked for."""
        state = self.state
        self._count_retries()
        request_parts = [part for call in state.calls.values() for part in call.parts]
        request_parts += [parts.user_prompt(c.user_content) for c in state.calls.values() if c.user_content]
        if state.output_retry is not None:
            request_parts.append(state.output_retry)
        request_parts += state.steers
        self._reject_stale_decisions()
        state.calls, state.output, state.output_retry, state.steers = {}, None, None, []
        state.step_bytes = 0
        if request_parts:
            state.messages.append(parts.request(request_parts))

    def _count_retries(self) -> None:
        """A tool's retries grow by one for a step whose calls the model must try again; a success starts them anew."""
        state = self.state
        called = [call for call in state.calls.values() if not call.plan.output]
        again = dict.fromkeys(call.plan.tool_name for call in called if call.counted)
        for call in called:
            if call.succeeded and call.plan.tool_name not in again:
                state.retries.pop(call.plan.tool_name, None)
        for name in again:
            state.retries[name] = state.retries.get(name, 0) + 1

    def _reject_stale_decisions(self) -> None:
        """Decisions that were kept for calls of this step, which ended without ever waiting."""
        stale = [early for early in self.state.early if early.decision.get("tool_call_id") in self.state.calls]
        for early in stale:
            self.state.early.remove(early)
            message = f"Call {early.decision['tool_call_id']!r} ended without waiting for a decision."
            self._reject(early.name, "UnknownCall", message, str(early.decision), early.at)

    def _request_step(self) -> None:
        state, limit = self.state, self.state.facts.usage_limits.requests
        if limit is not None and state.usage.requests >= limit:
            self._fail(
                "UsageLimitExceeded",
                f"The run has made {state.usage.requests:,} model requests, and its limit is {limit:,}.",
            )
            return
        if state.step_losses == 0:
            state.step += 1
        state.asking = True
        self._commands.append(
            RequestStep(
                input=StepInput(
                    agent=state.facts.agent,
                    run_key=state.run_key,
                    step=state.step,
                    position=self._position(),
                    usage=state.usage,
                    retries={name: used for name, used in state.retries.items() if used},
                ),
                heartbeat=timedelta(seconds=state.features.heartbeat_seconds),
            )
        )

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

    def _position(self) -> Position:
        """What a worker should know, what is new, and what it cannot know yet."""
        state = self.state
        position = Position(
            base=state.known,
            digest=state.digest,
            deps_version=state.deps.version,
            delta=state.messages[state.known :],
        )
        if not state.facts_sent:
            position.facts = state.facts
            state.facts_sent = True
        if state.deps_sent < state.deps.version:
            position.deps = state.deps
            state.deps_sent = state.deps.version
        return position


def _arguments(plan: StepPlan) -> dict[str, JsonObject]:
    """The arguments of the response's calls, by call ID, for calls that run with exactly these."""
    given: dict[str, JsonObject] = {}
    if all(planned.args is not None for planned in plan.calls):
        return given
    for part in plan.response["parts"]:
        if part["part_kind"] == "tool-call":
            try:
                # As they are sent: in a number such as 1e999 Python sees infinity, and JSON nothing.
                given[part["tool_call_id"]] = from_json(to_json(ToolCallPart.model_validate(part).args_as_dict()))
            except ValueError:
                # Arguments that are no object never start a call: the plan has settled it.
                given[part["tool_call_id"]] = {}
    return given


def _reason(decision: Decision) -> str | None:
    match decision:
        case Approve(reason=text) | Deny(message=text) | Retry(message=text):
            return None if text is None else _cut(text)
        case Resolve():
            return None
        case _:
            assert_never(decision)


def _maybe(reason: str) -> str:
    return f"{reason}. The call may or may not have taken effect."


def _why_dropped(held: Held | None) -> str:
    """What the conversation says of a call that nobody will make or answer any more."""
    match held:
        case Held(kind="unknown_outcome", metadata={"effect": "unknown", "reason": str(reason)}):
            return _maybe(reason)
        case Held(kind="unknown_outcome", metadata={"reason": str(reason)}):
            return f"{reason}."
        case Held(kind="external" | "deferred"):
            return "The run ended before its result came."
        case _:
            return "The call was not made: the run ended."


def _denial(held: Held) -> tuple[str, str]:
    """What the model is told by default of a call that a person refuses, and as which outcome."""
    if held.kind != "unknown_outcome":
        return "The tool call was denied.", "denied"
    # Refused is only another execution: the first may have taken effect, and was not denied.
    return f"{_why_dropped(held)} It was not made again.", "failed"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}…"


def _delay(seconds: float) -> timedelta:
    """As asked, as far as there can be such a timer; a tool may ask for anything, even for what is no number."""
    return timedelta(seconds=min(seconds, MAX_DELAY_SECONDS) if seconds > 0 else 0)


def _backoff(call: Call) -> str:
    return f"backoff:{call.plan.tool_call_id}"
