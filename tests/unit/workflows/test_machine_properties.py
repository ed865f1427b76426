"""The run's state machine under random plans, results, decisions and losses, in any order.

`Run` is an engine that does what the commands say and keeps its own books. Nothing in the books is read from the
machine's own counters, so that a mistake there cannot hide itself.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from outlast.contracts import (
    DECISIONS,
    Approve,
    CallPolicy,
    Deferred,
    Deny,
    DepsVersion,
    Failed,
    Features,
    OutputRetry,
    PlannedCall,
    PlannedOutput,
    Resolve,
    Retried,
    Returned,
    RunFacts,
    Skipped,
    StepPlan,
    Transient,
    UsageLimits,
    call_digest,
    extend_digest,
)
from outlast.messages import ImageUrl, JsonObject
from outlast.workflows import page, views
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
from outlast.workflows.machine import MAX_PARALLEL_CALLS, Machine
from outlast.workflows.state import RunState

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}
TOOLS = ("find", "refund", "mail")


@dataclass
class Book:
    """What the test knows of one call."""

    call_id: str
    tool: str
    policy: CallPolicy
    authorised: int
    """Executions that may still begin without anybody's further word."""
    gated: bool
    denied: bool = False
    starts: int = 0
    started_at: datetime = START
    approvals: int = 0
    unknown_since: datetime | None = None
    """When its last execution ended without anybody knowing what it did."""
    approved_args: JsonObject | None = None
    digests: set[str] = field(default_factory=set)

    @property
    def repeatable(self) -> bool:
        return self.policy.repeatable if self.policy.repeatable is not None else not self.gated


@dataclass
class Books:
    """What the test knows of the run: what is under way, and what was said."""

    asking: int | None = None
    running: dict[str, StartCall] = field(default_factory=dict)
    cancelled: set[tuple[str, int]] = field(default_factory=set)
    timers: set[str] = field(default_factory=set)
    calls: dict[str, Book] = field(default_factory=dict)
    order: dict[int, list[str]] = field(default_factory=dict)
    """By position of a response in the conversation, the IDs of its calls."""
    said: dict[str, Any] = field(default_factory=dict)
    """Every decision, by who made it: each is made by somebody else."""
    times: Counter[str] = field(default_factory=Counter)
    """How often each was sent while the run was open."""
    applied: set[str] = field(default_factory=set)
    steers: list[str] = field(default_factory=list)
    planned: int = 0
    results: int = 0
    deps: JsonObject = field(default_factory=lambda: {"a": 0})
    changed: dict[str, datetime] = field(default_factory=dict)
    """When a call last changed a field of the deps."""
    ended: Command | None = None


policies = st.builds(
    CallPolicy,
    repeatable=st.sampled_from([None, None, True, False]),
    attempts=st.sampled_from([1, 3, 3]),
    max_retries=st.integers(0, 3),
    on_error=st.sampled_from(["tell_model", "tell_model", "ask", "fail_run"]),
    on_unknown=st.sampled_from(["ask", "ask", "tell_model"]),
    sequential=st.booleans(),
    local=st.booleans(),
)
settled = st.one_of(
    st.just(Retried(content="No such tool.", reason="unknown_tool")),
    st.just(Retried(content=[{"loc": ["x"], "msg": "bad"}], reason="arguments")),
    st.just(Skipped(content="Not used.")),
    st.just(Returned(content={"ok": True})),
)
user_contents = st.sampled_from([None, None, "look", ["see", ImageUrl(url="https://example.com/a.png")]])
changes = st.sampled_from([{}, {}, {}, {"a": 1}, {"b": 2}])
outcomes = st.one_of(
    st.builds(
        Returned, content=st.sampled_from([None, "é", 1.5, {"k": [1, None]}]), user_content=user_contents, deps=changes
    ),
    st.builds(Retried, content=st.just("Try again."), reason=st.sampled_from(["tool", "arguments", "timeout"])),
    st.builds(Failed, error_type=st.just("ValueError"), message=st.just("no"), known=st.booleans()),
    st.builds(
        Transient, error_type=st.just("Busy"), message=st.just("b"), retry_after=st.sampled_from([None, 0, 2.5, -1.0])
    ),
    st.builds(Deferred, wait_for=st.sampled_from(["approval", "deferred"]), metadata=st.just({"m": 1})),
)


def asked(index: int) -> tuple[str, JsonObject]:
    """What the call at this place of a response asks for: known in advance, so that it can be decided early."""
    return TOOLS[index % len(TOOLS)], {"x": index}


@st.composite
def plans(draw: st.DrawFn, step: int) -> StepPlan:
    calls: list[PlannedCall] = []
    parts: list[JsonObject] = []
    output = None
    for index in range(draw(st.sampled_from([1, 2, 2, 3, 4, 0]))):
        call_id, tool, args = f"c{step}-{index}", *asked(index)
        kind = draw(st.sampled_from(["plain", "plain", "approval", "approval", "external", "settled", "output"]))
        planned = PlannedCall(tool_call_id=call_id, tool_name=tool, policy=draw(policies))
        if draw(st.integers(0, 3)) == 0:
            planned.args = {**args, "checked": True}
        if kind == "approval":
            planned.wait_for, planned.json_schema = "approval", SCHEMA
        elif kind == "external":
            planned.wait_for = "external"
        elif kind == "settled":
            planned.settled = draw(settled)
        elif kind == "output":
            planned.output, planned.tool_name = True, "answer"
            if output is None and draw(st.integers(0, 3)) == 0:
                output = PlannedOutput(value="done", tool_call_id=call_id)
                planned.settled = Returned(content="Final result processed.")
            else:
                planned.settled = draw(
                    st.sampled_from([Retried(content="Wrong output."), Skipped(content="Not used.")])
                )
        calls.append(planned)
        parts.append({"part_kind": "tool-call", "tool_name": tool, "args": args, "tool_call_id": call_id})
    retry = None
    if not calls:
        if draw(st.booleans()):
            output = PlannedOutput(value="done")
        else:
            retry = OutputRetry(content="Answer in JSON.")
        parts = [{"part_kind": "text", "content": "hi"}]
    usage = {"input_tokens": draw(st.integers(0, 5)), "output_tokens": 1}
    response = {"kind": "response", "parts": parts, "usage": usage}
    return StepPlan(
        response=response,
        calls=calls,
        output=output,
        retry=retry,
        features=Features(output_retries=draw(st.integers(0, 3))),
    )


while_open = precondition(lambda self: self.state.ended is None)


class Run(RuleBasedStateMachine):
    """Two machines with the same events; one is written as JSON and read back before each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.books = Books()
        self.now = START
        self.serial = 0

    @initialize(
        requests=st.sampled_from([None, 1, 3, 50]),
        tool_calls=st.sampled_from([None, None, 5]),
        early=st.booleans(),
    )
    def open(self, requests: int | None, tool_calls: int | None, early: bool) -> None:
        state = RunState(
            run_key="run",
            facts=RunFacts(agent="desk", usage_limits=UsageLimits(requests=requests, tool_calls=tool_calls)),
            deps=DepsVersion(value={"a": 0}),
            messages=[{"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "hi"}]}],
        )
        self.machine = Machine(state)
        self.written = state.model_dump_json()
        if early:
            self.apply(Paused(by=None, at=self.tick()))
        self.apply(Started(at=self.tick()))

    # --- what happens --------------------------------------------------------------------------------------------

    @precondition(lambda self: self.books.asking is not None)
    @rule(data=st.data())
    def the_model_answers(self, data: st.DataObject) -> None:
        step = self.books.asking
        assert step is not None
        plan = data.draw(plans(step))
        self.books.asking = None
        self.books.planned += 1
        self.books.order[len(self.state.messages)] = [call.tool_call_id for call in plan.calls]
        for call in plan.calls:
            free = call.settled is None and call.wait_for is None
            gated = call.wait_for == "approval"
            self.books.calls[call.tool_call_id] = Book(call.tool_call_id, call.tool_name, call.policy, int(free), gated)
            if isinstance(call.settled, Returned) and not call.output:
                self.books.results += 1
        exceeded = self.over_limit(plan)
        ending = self.state.ending is not None
        self.apply(StepPlanned(step=step, plan=plan, at=self.tick()))
        if exceeded and not ending:
            assert self.state.ending is not None
            assert self.state.ending.error_type == "UsageLimitExceeded"

    @precondition(lambda self: self.books.asking is not None)
    @rule(how=st.sampled_from(["lost", "lost", "lost", "failed", "cancelled"]), sure=st.integers(0, 2))
    def the_model_request_ends_badly(self, how: str, sure: int) -> None:
        step = self.books.asking
        assert step is not None
        if sure and self.state.ending is None:
            return
        self.books.asking = None
        match how:
            case "lost":
                self.apply(StepLost(step=step, reason="gone", at=self.tick()))
            case "failed":
                self.apply(StepFailed(step=step, error_type="ModelRequestFailed", message="no", at=self.tick()))
            case _:
                self.apply(StepCancelled(step=step, at=self.tick()))

    @precondition(lambda self: self.books.running)
    @rule(data=st.data(), outcome=outcomes)
    def a_call_ends(self, data: st.DataObject, outcome: Any) -> None:
        self.a_call_ends_with(data, outcome)

    def a_call_ends_with(self, data: st.DataObject, outcome: Any) -> None:
        call, start = self.pick_running(data)
        if isinstance(outcome, Transient | Deferred) or (
            isinstance(outcome, Retried) and outcome.reason == "arguments"
        ):
            # It says that nothing happened, or that somebody must be asked.
            call.authorised = 1 if isinstance(outcome, Transient) else 0
        if isinstance(outcome, Deferred) and outcome.wait_for == "approval":
            call.gated = True
        if isinstance(outcome, Returned):
            self.books.results += 1
        if isinstance(outcome, Failed) and not outcome.known:
            call.unknown_since = self.now
        changed = outcome.deps if isinstance(outcome, Returned) else {}
        conflict = any(self.books.changed.get(name, START) > call.started_at for name in changed)
        ending = self.state.ending
        self.apply(
            CallEnded(
                tool_call_id=call.call_id,
                execution=start.input.execution,
                outcome=outcome,
                size_bytes=len(outcome.to_json()),
                at=self.tick(),
            )
        )
        if ending is None:
            now = self.state.ending
            assert conflict == (now is not None and now.error_type == "DepsConflict")
            self.books.changed |= dict.fromkeys(changed, self.now)
            self.books.deps |= {} if conflict else changed
            assert self.state.deps.value == self.books.deps

    @precondition(lambda self: self.books.running)
    @rule(data=st.data(), outcome=outcomes)
    def another_call_ends(self, data: st.DataObject, outcome: Any) -> None:
        """A second rule of it: hypothesis gives each the same share."""
        self.a_call_ends_with(data, outcome)

    @precondition(lambda self: self.books.running)
    @rule(
        data=st.data(),
        how=st.sampled_from([CallErrored, CallTimedOut, CallLost, CallLost, CallUnclaimed, CallCancelled]),
    )
    def a_call_ends_badly(self, data: st.DataObject, how: type[Any]) -> None:
        call, start = self.pick_running(data)
        if how is CallUnclaimed:
            call.authorised = 1
        else:
            call.unknown_since = self.now
        self.apply(self.bad_end(how, call.call_id, start.input.execution))

    @while_open
    @rule(data=st.data(), how=st.sampled_from(["call", "step", "planned", "ended"]), shift=st.sampled_from([-1, 0, 1]))
    def something_old_is_reported(self, data: st.DataObject, how: str, shift: int) -> None:
        before = self.written
        if how == "step":
            step = (self.books.asking or 0) - 1
            event: Event = StepLost(step=step, reason="old", at=self.tick())
        elif how == "planned":
            event = StepPlanned(
                step=(self.books.asking or 0) + 1,
                plan=StepPlan(response={"kind": "response", "parts": []}),
                at=self.tick(),
            )
        else:
            call_id = data.draw(st.sampled_from([*self.books.calls, "nobody"]))
            start = self.books.running.get(call_id)
            execution = 1 if start is None else start.input.execution + (shift or 1)
            if how == "call":
                event = self.bad_end(
                    data.draw(st.sampled_from([CallErrored, CallLost, CallUnclaimed])), call_id, execution
                )
            else:
                outcome = data.draw(outcomes)
                event = CallEnded(
                    tool_call_id=call_id, execution=execution, outcome=outcome, size_bytes=9, at=self.tick()
                )
        commands = self.apply(event)
        assert [c for c in commands if not isinstance(c, Publish)] == []
        assert self.written == before

    @precondition(lambda self: bool(views.pending(self.state)))
    @rule(data=st.data(), kind=st.sampled_from(["approve", "approve", *DECISIONS]), keep=st.booleans())
    def somebody_decides_on_a_call_that_waits(self, data: st.DataObject, kind: str, keep: bool) -> None:
        waiting = [pending.tool_call_id for pending in views.pending(self.state)]
        self.decide(data, data.draw(st.sampled_from(waiting)), kind, keep)

    @precondition(lambda self: any(pending.kind != "external" for pending in views.pending(self.state)))
    @rule(data=st.data(), keep=st.booleans(), digest=st.sampled_from(["as shown", "as shown", "of the call", None]))
    def somebody_approves(self, data: st.DataObject, keep: bool, digest: str | None) -> None:
        waiting = [pending for pending in views.pending(self.state) if pending.kind != "external"]
        pending = data.draw(st.sampled_from(waiting))
        if digest is not None:
            digest = pending.digest if digest == "as shown" else call_digest(pending.tool_name, pending.args)
        self.serial += 1
        self.say(Approve(tool_call_id=pending.tool_call_id, digest=digest, by=f"<p{self.serial}>"), keep)

    @precondition(lambda self: self.state.ending is not None and self.state.ended is None)
    @rule()
    def somebody_cancels_a_run_that_ends(self) -> None:
        self.apply(CancelRequested(at=self.tick()))

    @while_open
    @rule(data=st.data(), kind=st.sampled_from([*DECISIONS]), keep=st.booleans())
    def somebody_decides_on_any_call(self, data: st.DataObject, kind: str, keep: bool) -> None:
        step = self.state.step
        ids = [*self.books.calls, "nobody", *(f"c{n}-{i}" for n in (step, step + 1) for i in range(3))]
        self.decide(data, data.draw(st.sampled_from(ids)), kind, keep)

    @while_open
    @rule(data=st.data(), kind=st.sampled_from([*DECISIONS]), index=st.integers(0, 2))
    def somebody_decides_early(self, data: st.DataObject, kind: str, index: int) -> None:
        self.decide(data, f"c{self.state.step + (self.books.asking is None)}-{index}", kind, keep=True)

    @precondition(lambda self: self.books.said and self.state.ended is None)
    @rule(data=st.data(), keep=st.booleans())
    def somebody_says_the_same_again(self, data: st.DataObject, keep: bool) -> None:
        applied = [by for by in self.books.said if by in self.books.applied]
        by = data.draw(st.sampled_from(applied[-2:] * 4 + [*self.books.said]))
        self.say(self.books.said[by], keep)

    @while_open
    @rule(data=st.data(), what=st.sampled_from(["pause", "resume", "resume", "steer", "malformed", "cancel", "timer"]))
    def somebody_does_something_else(self, data: st.DataObject, what: str) -> None:
        """In one rule, so that most of what happens is what calls and decisions do."""
        at = self.tick()
        match what:
            case "pause":
                self.apply(Paused(by="ops", at=at))
            case "resume":
                self.apply(Resumed(by=None, at=at))
            case "steer":
                self.serial += 1
                text = f"steer {self.serial}"
                content: Any = data.draw(st.sampled_from([text, [text, ImageUrl(url="https://example.com")]]))
                self.apply(Steered(content=content, at=at))
                self.books.steers.append(text)
            case "malformed":
                count = len(self.state.rejected)
                self.apply(Refused(name="deny", error_type="InvalidDecision", message="m", content="{", at=at))
                assert len(self.state.rejected) == count + 1
            case "cancel":
                if self.state.ending is not None or data.draw(st.sampled_from([False, False, True])):
                    self.apply(CancelRequested(at=at))
                    assert self.state.ending is not None
            case _:
                before = self.written
                gone = {f"backoff:{call_id}" for call_id in [*self.books.calls, "nobody"]} - self.books.timers
                self.apply(TimerFired(name=data.draw(st.sampled_from(sorted(gone))), at=at))
                assert self.written == before

    @precondition(lambda self: self.books.timers)
    @rule(data=st.data())
    def a_timer_fires(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.books.timers)))
        self.books.timers.remove(name)
        self.apply(TimerFired(name=name, at=self.tick()))

    @precondition(lambda self: self.state.ended is not None)
    @rule(requests=st.sampled_from([None, 3]), early=st.booleans())
    def nothing_happens_after_the_end_and_another_run_begins(self, requests: int | None, early: bool) -> None:
        before = self.written
        call_id = next(iter(self.books.calls), "nobody")
        for event in (
            Steered(content="more", at=self.tick()),
            Decided(decision=Deny(tool_call_id=call_id), via="signal", keep=True, at=self.tick()),
            CallLost(tool_call_id=call_id, execution=1, reason="late", at=self.tick()),
            TimerFired(name=f"backoff:{call_id}", at=self.tick()),
            CancelRequested(at=self.tick()),
        ):
            assert self.apply(event) == []
        assert self.written == before
        self.books = Books()
        self.open(requests=requests, tool_calls=None, early=early)

    def teardown(self) -> None:
        """From wherever it is, the run comes to an end once everything that is under way ends and everyone answers."""
        if not hasattr(self, "machine"):
            return
        self.apply(Resumed(by=None, at=self.tick()))
        for _ in range(300):
            if self.state.ended is not None:
                return
            if self.books.asking is not None:
                step, self.books.asking = self.books.asking, None
                self.books.planned += 1
                self.books.order[len(self.state.messages)] = []
                response = {"kind": "response", "parts": [{"part_kind": "text", "content": "bye"}]}
                plan = StepPlan(response=response, output=PlannedOutput(value="bye"))
                self.apply(StepPlanned(step=step, plan=plan, at=self.tick()))
            elif self.books.running:
                call_id, start = self.books.running.popitem()
                self.books.results += 1
                self.apply(
                    CallEnded(
                        tool_call_id=call_id,
                        execution=start.input.execution,
                        outcome=Returned(content=1),
                        size_bytes=20,
                        at=self.tick(),
                    )
                )
            elif self.books.timers:
                self.apply(TimerFired(name=self.books.timers.pop(), at=self.tick()))
            else:
                waiting = views.pending(self.state)
                assert waiting, "nothing is under way and nobody is asked"
                self.serial += 1
                self.say(Deny(tool_call_id=waiting[0].tool_call_id, by=f"<p{self.serial}>"), False)
        raise AssertionError("the run does not end")

    # --- the engine, and what must hold ---------------------------------------------------------------------------

    @property
    def state(self) -> RunState:
        return self.machine.state

    def tick(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now

    def apply(self, event: Event) -> list[Command]:
        self.twin = Machine(RunState.model_validate_json(self.written))
        ended, ending, length = self.state.ended, self.state.ending, len(self.state.messages)
        records = [record.model_copy() for record in self.state.decisions]
        early = len(self.state.early)
        commands = self.machine.apply(event)
        assert self.twin.apply(event) == commands
        self.written = self.state.model_dump_json()
        assert self.twin.state.model_dump_json() == self.written
        if ended is not None:
            assert commands == []
        if ending is not None:
            assert len(self.state.early) <= early
            assert not any(isinstance(c, RequestStep | StartCall | StartTimer | Finish) for c in commands)
        assert self.state.decisions[: len(records)] == records
        for record in self.state.decisions[len(records) :]:
            self.note(record)
        for command in commands:
            self.execute(command)
        self.check(length)
        return commands

    def execute(self, command: Command) -> None:
        books, state = self.books, self.state
        assert books.ended is None, "a command after the end"
        match command:
            case RequestStep(input=given):
                assert not state.paused
                assert books.asking is None
                assert not books.running
                self.check_position(given.position)
                assert given.step == books.planned + 1
                books.asking = given.step
            case StartCall(input=given):
                self.check_start(command)
                self.check_position(given.position)
                books.running[given.tool_call_id] = command
            case CancelStep(step=step):
                assert books.asking == step
                assert ("", step) not in books.cancelled
                books.cancelled.add(("", step))
            case CancelCall(tool_call_id=call_id):
                which = (call_id, books.running[call_id].input.execution)
                assert which not in books.cancelled
                books.cancelled.add(which)
            case StartTimer(name=name, delay=delay):
                assert name not in books.timers
                assert delay >= timedelta(0)
                books.timers.add(name)
            case CancelTimer(name=name):
                books.timers.remove(name)
            case Publish():
                assert len(page.render(state, "run").encode()) < 20_000
                views.pending_summary(state, START)
                views.status(state)
            case Finish() | Fail() | EndCancelled():
                if isinstance(command, Finish):
                    assert "steer " not in str(state.messages[-1]), "the user's last word was never sent"
                assert books.asking is None
                assert not books.running
                assert not books.timers
                books.ended = command

    def check_start(self, command: StartCall) -> None:
        books, given = self.books, command.input
        call = books.calls[given.tool_call_id]
        assert not self.state.paused
        assert books.asking is None
        assert given.tool_call_id not in books.running
        assert not call.denied
        assert given.repeatable == call.repeatable
        call.starts += 1
        call.started_at = self.now
        assert given.execution == call.starts
        assert call.authorised > 0, "it starts, and nobody said so"
        if not call.repeatable:
            call.authorised -= 1
        if call.approved_args is not None:
            assert given.approved
            assert given.args == call.approved_args
            assert given.approved_digest == call_digest(given.tool_name, given.args)
        together = [*books.running.values(), command]
        assert len(together) <= MAX_PARALLEL_CALLS
        assert len(together) == 1 or not any(start.input.policy.sequential for start in together)

    def check_position(self, position: Any) -> None:
        state = self.state
        assert [*state.messages[: position.base], *position.delta] == state.messages
        assert position.digest == extend_digest("", state.messages[: position.base])

    def check(self, length: int) -> None:
        state, books = self.state, self.books
        assert (state.ended is not None) == (books.ended is not None)
        assert state.asking == (books.asking is not None)
        assert {i for i, call in state.calls.items() if call.status == "running"} == books.running.keys()
        assert state.digest == extend_digest("", state.messages[: state.known])
        assert state.usage.requests == books.planned
        assert state.usage.tool_calls == books.results
        for call_id, call in state.calls.items():
            assert (call.held is not None) == (call.status == "held")
            assert (len(call.parts) == 1) == (call.status == "done"), call_id
        for message in state.messages[length:]:
            if message["kind"] == "request":
                self.check_results(message)
        if state.ended is None and not state.paused:
            assert books.asking or books.running or books.timers or views.pending(state), "stuck"
        for text in books.steers:
            told = sum(text in str(message["parts"]).replace("'", '"').split('"') for message in state.messages)
            waits = sum(text in str(steer).replace("'", '"').split('"') for steer in state.steers)
            refused = sum(text in rejection.content.replace("'", '"').split('"') for rejection in state.rejected)
            assert told + waits + refused == 1, text
        self.check_decisions()

    def check_decisions(self) -> None:
        """Each decision is in one place for every time that it was sent, but for copies of one that stands."""
        state = self.state
        where = [*(str(r.by) for r in state.decisions), *(e.decision["by"] for e in state.early)]
        where += [by for r in state.rejected for by in re.findall(r"<p\d+>", r.content)]
        for early in state.early:
            call_id = early.decision["tool_call_id"]
            assert call_id in state.calls or call_id not in self.books.calls, "kept for a call that is over"
        found = Counter(where)
        stands = {(record.tool_call_id, record.decision) for record in state.decisions}
        for by, times in self.books.times.items():
            assert found[by] <= times, "a decision is taken twice"
            said = self.books.said[by]
            assert found[by] or not times or (said.tool_call_id, said.kind) in stands, "a decision is lost"

    def check_results(self, message: JsonObject) -> None:
        """Each call of the step before has one result, in the order in which the model asked."""
        index = next(i for i, other in enumerate(self.state.messages) if other is message)
        results = [
            part["tool_call_id"]
            for part in message["parts"]
            if part["part_kind"] in ("tool-return", "retry-prompt") and "tool_call_id" in part
        ]
        assert results == self.books.order.get(index - 1, [])

    # --- decisions -----------------------------------------------------------------------------------------------

    def decide(self, data: st.DataObject, call_id: str, kind: str, keep: bool) -> None:
        call = self.state.calls.get(call_id)
        held = call.held if call is not None else None
        self.serial += 1
        said: JsonObject = {"tool_call_id": call_id, "by": f"<p{self.serial}>"}
        if kind == "approve":
            digests = ["0" * 64, None, None]
            if call is not None:
                digests.append(call_digest(call.plan.tool_name, call.args))
            elif call_id[-1].isdigit():
                digests += [call_digest(*asked(int(call_id[-1])))] * 4
            said["digest"] = data.draw(st.sampled_from([held.digest] * 4 + digests if held is not None else digests))
            said["override_args"] = data.draw(st.sampled_from([None, None, {"x": 7}, {"x": "seven"}]))
        elif kind == "resolve":
            said["result"] = data.draw(st.sampled_from([None, "r", {"deep": [1.0, "ü"]}]))
        elif kind == "retry":
            said["message"] = "better"
        elif data.draw(st.booleans()):
            said["message"] = "no"
        self.say(DECISIONS[kind](**said), keep)

    def say(self, decision: Any, keep: bool) -> None:
        """A decision that fits applies at once; any other is kept, or listed, or is one that stands already."""
        self.books.said[decision.by] = decision
        fits = self.fits(decision)
        before = len(self.state.decisions), len(self.state.rejected) + len(self.state.early)
        same = any(r.by == decision.by for r in self.state.decisions) or any(
            (r.tool_call_id, r.decision) == (decision.tool_call_id, decision.kind) for r in self.state.decisions
        )
        ended = self.state.ended
        self.books.times[decision.by] += ended is None
        via = "signal" if keep else "update"
        self.apply(Decided(decision=decision, via=via, keep=keep, at=self.tick()))
        if ended is not None:
            return
        applied = len(self.state.decisions) - before[0]
        listed = len(self.state.rejected) + len(self.state.early) - before[1]
        assert applied == fits
        assert listed == (not fits) or (listed == 0 and same), "the decision vanished"

    def fits(self, decision: Any) -> bool:
        call = self.state.calls.get(decision.tool_call_id)
        if call is None or call.held is None:
            return False
        if not isinstance(decision, Approve):
            return True
        held, book = call.held, self.books.calls[decision.tool_call_id]
        if held.kind not in ("approval", "unknown_outcome"):
            return False
        if held.json_schema is not None and (decision.override_args or {}).get("x") == "seven":
            return False
        if decision.digest is None:
            # Enough for a first approval; another one must say that it knows of the first.
            return book.approvals == 0 and not (book.unknown_since is not None and book.gated)
        return decision.digest == held.digest

    def note(self, record: Any) -> None:
        """Write down what an applied decision allows."""
        assert record.by not in self.books.applied, "applied twice"
        self.books.applied.add(record.by)
        decision, book = self.books.said[record.by], self.books.calls[record.tool_call_id]
        assert (decision.kind, decision.tool_call_id) == (record.decision, record.tool_call_id)
        if isinstance(decision, Resolve):
            self.books.results += 1
        if decision.kind == "deny":
            book.denied = True
        if isinstance(decision, Approve):
            if book.unknown_since is not None:
                assert record.at > book.unknown_since, "said before anybody knew that it may have taken effect"
            assert record.digest not in book.digests, "two approvals with one digest"
            book.digests.add(record.digest)
            book.approvals += 1
            book.authorised, book.gated, book.unknown_since = 1, True, None
            args = decision.override_args
            book.approved_args = self.state.calls[record.tool_call_id].args if args is None else args

    # --- small things --------------------------------------------------------------------------------------------

    def over_limit(self, plan: StepPlan) -> bool:
        limit = self.state.facts.usage_limits.tool_calls
        asked = sum(call.settled is None for call in plan.calls)
        settled_results = sum(isinstance(call.settled, Returned) and not call.output for call in plan.calls)
        return limit is not None and self.books.results - settled_results + asked > limit

    def pick_running(self, data: st.DataObject) -> tuple[Book, StartCall]:
        call_id = data.draw(st.sampled_from(sorted(self.books.running)))
        return self.books.calls[call_id], self.books.running.pop(call_id)

    def bad_end(self, how: type[Any], call_id: str, execution: int) -> Any:
        extra: dict[type[Any], dict[str, str]] = {
            CallErrored: {"error_type": "ValueError", "message": "no"},
            CallLost: {"reason": "The worker was lost while the call ran"},
        }
        return how(tool_call_id=call_id, execution=execution, at=self.tick(), **extra.get(how, {}))


TestRun = Run.TestCase
TestRun.settings = settings(
    max_examples=350,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
