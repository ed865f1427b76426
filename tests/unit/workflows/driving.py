"""A run's machine, driven by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from outlast.contracts import (
    DECISIONS,
    CallOutcome,
    CallPolicy,
    DecisionRecord,
    DepsVersion,
    Features,
    OutputRetry,
    PlannedCall,
    PlannedOutput,
    Rejection,
    Returned,
    RunFacts,
    StepPlan,
    UsageLimits,
)
from outlast.messages import JsonObject
from outlast.workflows import parts
from outlast.workflows.commands import Command, Fail, Finish, RequestStep, StartCall
from outlast.workflows.events import (
    CallEnded,
    CallErrored,
    CallLost,
    CallTimedOut,
    CallUnclaimed,
    CancelRequested,
    Decided,
    Event,
    Paused,
    Resumed,
    Started,
    Steered,
    StepLost,
    StepPlanned,
    TimerFired,
)
from outlast.workflows.machine import Machine
from outlast.workflows.state import Call, RunState

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
C = TypeVar("C")

HOSTILE = [
    "x" * 5_000,
    "ü😀" * 2_000,
    "\x00\x1b[2J" * 500,
    "'; rm -rf / #",
    "\n```\n\n### Nothing waits\n",
    "\u202egnp.exe",
    '"},"count":0,"calls":[],"x":"',
    "\ud800",
    "<img src=x onerror=alert(1)> **b** _i_ [a](javascript:b) | c | ~~d~~ &lt; #e $f$ ![g](h)",
    "- [x] done",
    "1. done",
    "`" * 600,
    "=" * 90,
]


def call(
    tool_call_id: str,
    tool_name: str = "find",
    *,
    args: JsonObject | None = None,
    settled: CallOutcome | None = None,
    wait_for: Literal["approval", "external"] | None = None,
    output: bool = False,
    json_schema: JsonObject | None = None,
    prompt: str | None = None,
    metadata: JsonObject | None = None,
    **policy: Any,
) -> PlannedCall:
    """A planned call; what is left over is its policy."""
    return PlannedCall(
        tool_call_id=tool_call_id,
        tool_name=tool_name,
        args={"x": 1} if args is None else args,
        policy=CallPolicy(**policy),
        settled=settled,
        wait_for=wait_for,
        output=output,
        json_schema=json_schema,
        prompt=prompt,
        metadata=metadata or {},
    )


class Driven:
    """A started run whose events are told in one word each."""

    def __init__(
        self, *, deps: Any = None, metadata: JsonObject | None = None, limits: UsageLimits | None = None
    ) -> None:
        self.now = START
        self.machine = Machine(
            RunState(
                run_key="run",
                facts=RunFacts(
                    agent="desk", metadata=metadata or {}, usage_limits=limits or UsageLimits(), prompt_at=0
                ),
                deps=DepsVersion(value=deps),
                messages=[parts.request([parts.user_prompt("hi")])],
            )
        )
        self.commands: list[Command] = []
        self.apply(Started(at=self.now))

    @property
    def state(self) -> RunState:
        return self.machine.state

    def apply(self, event: Event) -> list[Command]:
        self.now += timedelta(seconds=1)
        self.commands = self.machine.apply(event)
        return self.commands

    # --- what happens --------------------------------------------------------------------------------------------

    def plans(
        self,
        *calls: PlannedCall,
        output: Any = None,
        retry: str | None = None,
        features: Features | None = None,
        usage: JsonObject | None = None,
    ) -> list[Command]:
        """The model answers with these calls, or with text."""
        asked = [
            {"part_kind": "tool-call", "tool_name": c.tool_name, "args": c.args, "tool_call_id": c.tool_call_id}
            for c in calls
        ]
        response = {
            "kind": "response",
            "parts": asked or [{"part_kind": "text", "content": "hello"}],
            "usage": usage or {},
        }
        plan = StepPlan(
            response=response,
            calls=list(calls),
            output=None if output is None else PlannedOutput(value=output),
            retry=None if retry is None else OutputRetry(content=retry),
            features=features or Features(),
        )
        return self.apply(StepPlanned(step=self.state.step, plan=plan, at=self.now))

    def ends(self, call_id: str, outcome: CallOutcome, *, size_bytes: int | None = None) -> list[Command]:
        size_bytes = len(outcome.to_json()) if size_bytes is None else size_bytes
        return self.apply(CallEnded(outcome=outcome, size_bytes=size_bytes, **self._which(call_id)))

    def returns(self, call_id: str, content: Any = "found", **deps: Any) -> list[Command]:
        return self.ends(call_id, Returned(content=content, deps=deps))

    def errs(self, call_id: str) -> list[Command]:
        return self.apply(CallErrored(error_type="ValueError", message="card declined", **self._which(call_id)))

    def times_out(self, call_id: str) -> list[Command]:
        return self.apply(CallTimedOut(**self._which(call_id)))

    def is_lost(self, call_id: str) -> list[Command]:
        return self.apply(CallLost(reason="The worker was lost while the call ran", **self._which(call_id)))

    def is_unclaimed(self, call_id: str) -> list[Command]:
        return self.apply(CallUnclaimed(**self._which(call_id)))

    def loses_step(self) -> list[Command]:
        return self.apply(StepLost(step=self.state.step, reason="the worker was lost", at=self.now))

    def signals(self, kind: str, call_id: str, **fields: Any) -> list[Command]:
        return self._decides(kind, call_id, keep=True, **fields)

    def updates(self, kind: str, call_id: str, **fields: Any) -> list[Command]:
        return self._decides(kind, call_id, keep=False, **fields)

    def _decides(self, kind: str, call_id: str, *, keep: bool, **fields: Any) -> list[Command]:
        decision = DECISIONS[kind](tool_call_id=call_id, **fields)
        return self.apply(Decided(decision=decision, via="signal" if keep else "update", keep=keep, at=self.now))

    def steers(self, content: Any) -> list[Command]:
        return self.apply(Steered(content=content, at=self.now))

    def pauses(self) -> list[Command]:
        return self.apply(Paused(by=None, at=self.now))

    def resumes(self) -> list[Command]:
        return self.apply(Resumed(by=None, at=self.now))

    def cancels(self) -> list[Command]:
        return self.apply(CancelRequested(at=self.now))

    def timer_fires(self, name: str) -> list[Command]:
        return self.apply(TimerFired(name=name, at=self.now))

    def _which(self, call_id: str) -> dict[str, Any]:
        return {"tool_call_id": call_id, "execution": self.call(call_id).execution, "at": self.now}

    # --- what came of it -----------------------------------------------------------------------------------------

    def call(self, call_id: str) -> Call:
        return self.state.calls[call_id]

    def last(self, kind: type[C]) -> list[C]:
        """The commands of this kind that the last event gave."""
        return [command for command in self.commands if isinstance(command, kind)]

    @property
    def started(self) -> list[str]:
        return [command.input.tool_call_id for command in self.last(StartCall)]

    @property
    def asks(self) -> bool:
        return bool(self.last(RequestStep))

    @property
    def failure(self) -> tuple[str, str] | None:
        """Why the run fails, also where it still waits for calls that are under way."""
        for command in self.last(Fail):
            return command.error_type, command.message
        ending = self.state.ending
        return None if ending is None else (ending.error_type, ending.message)

    @property
    def output(self) -> Any:
        [finish] = self.last(Finish)
        return finish.result.output

    @property
    def told(self) -> list[JsonObject]:
        """What the model is told by the newest request."""
        return self.state.messages[-1]["parts"]

    def told_about(self, call_id: str) -> JsonObject:
        [part] = [part for part in self.told if part.get("tool_call_id") == call_id]
        return part

    @property
    def records(self) -> Sequence[DecisionRecord]:
        return self.state.decisions

    @property
    def rejected(self) -> Sequence[Rejection]:
        return self.state.rejected


def hostile_run(text: str, calls: int = 50) -> Driven:
    """A run with calls that wait and that show this text wherever a model, a tool or a caller can put one."""
    run = Driven(metadata={"requester": text})
    run.plans(
        *(
            call(f"c{i}", text or "find", args={text: text, "n": i}, wait_for="approval", prompt=text or None)
            for i in range(calls)
        )
    )
    run.state.paused_by, run.state.paused = text, True
    return run
