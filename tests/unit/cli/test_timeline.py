"""Runs as their histories tell them, and how they look. The histories are recorded ones, of the real server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from inline_snapshot import snapshot
from temporalio.api.enums.v1 import EventType, PendingActivityState, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.api.history.v1 import (
    HistoryEvent,
    WorkflowExecutionSignaledEventAttributes,
    WorkflowTaskCompletedEventAttributes,
    WorkflowTaskFailedEventAttributes,
)
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import WorkflowHistory

from outlast.cli.advice import advice_for
from outlast.cli.history import HistoryReader
from outlast.cli.listening import Listening
from outlast.cli.listing import RunEntry, runs_table
from outlast.cli.live import in_motion
from outlast.cli.looking import Seen
from outlast.cli.showing import story
from outlast.cli.telling import Teller, duration_words
from outlast.cli.timeline import Call, Execution, Step, Timeline
from outlast.errors import RunError
from tests.unit.cli.test_edits import CALL
from tests.unit.cli.test_rendering import shown

HISTORIES = Path(__file__).parents[2] / "replay" / "histories"
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def decode(payloads: Any) -> Any:
    try:
        return json.loads(payloads[0].data) if payloads and payloads[0].data else None
    except ValueError:
        return None


def events(name: str, until: int | None = None) -> Any:
    text = next(HISTORIES.glob(f"*/{name}.json")).read_text(encoding="utf-8")
    return WorkflowHistory.from_json("run-1", text).events[:until]


async def read(name: str, until: int | None = None) -> Timeline:
    reader = HistoryReader("run-1", decode)
    for event in events(name, until):
        await reader.apply(event)
    return reader.timeline


async def told(name: str) -> str:
    reader, teller = HistoryReader("run-1", decode), Teller()
    lines: list[Any] = []
    for event in events(name):
        for change in await reader.apply(event):
            lines.extend(teller.tell(change))
    return shown(*lines)


def seen(timeline: Timeline, *calls: Any) -> Seen:
    listening = Listening(task_queue="outlast", workers=["1@here"])
    return Seen(run_id="run-1", state=timeline.state, calls=list(calls), listening=listening)


def screen(timeline: Timeline, *calls: Any, full: bool = False, steady: bool = True) -> str:
    """The story of a run, with all times and durations the same in each recording."""
    text = shown(*story(timeline, seen(timeline, *calls), full=full, now=AT))
    if not steady:
        return text
    import re

    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "2026-01-02 03:04:05", text)
    return re.sub(r"\b[\d.]+ (ms|s|min|h|d)\b( \d+ (s|min|h)\b)?", "5 ms", text)


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*/*.json")), ids=lambda path: path.stem)
async def test_every_recorded_history_is_read_and_shown(path: Path) -> None:
    timeline = await read(path.stem)
    assert timeline.ending is not None
    assert timeline.agent
    assert timeline.steps or timeline.error_type == "InvalidInput"
    assert all(call.state not in ("running", "planned") for call in timeline.calls) or timeline.ending != "completed"
    assert screen(timeline)


async def test_a_run_that_completed() -> None:
    assert screen(await read("plain")) == snapshot("""\
run        run-1  completed
           Go.
agent      plain
started    2026-01-02 03:04:05, took 5 ms
steps      3, 4 calls
step 1     the model  5 ms
           look(page=1)
             5 ms  → page 1
step 2     the model  5 ms
           look(page=2)
             5 ms  → page 2
           nothing()
             → try again: Unknown tool name: 'nothing'. Available tools: 'look'…
           look(page="x")
             → try again: page: Input should be a valid integer, unable to pars…
step 3     the model  5 ms
output     Done.
""")


async def test_a_run_with_decisions() -> None:
    assert screen(await read("gate")) == snapshot("""\
run        run-1  completed
           Go.
agent      gate
started    2026-01-02 03:04:05, took 5 ms
steps      3, 4 calls
step 1     the model  5 ms
           refund(cents=1)
             5 ms  → refunded 1
             approved at 2026-01-02 03:04:05, by ben
           refund(cents=20)
             5 ms  → refunded 20
             approved at 2026-01-02 03:04:05, by ana with {"cents": 20}
           look(page=1)
             5 ms  → page 1
step 2     the model  5 ms
           refund(cents=3)
             never ran
             denied at 2026-01-02 03:04:05, Enough.
step 3     the model  5 ms
approve    2026-01-02 03:04:05  names no call, so it did not apply
pause      2026-01-02 03:04:05  by ana
steer      2026-01-02 03:04:05  Be brief.
resume     2026-01-02 03:04:05  from outside
output     Done.
""")


async def test_a_run_that_failed() -> None:
    assert screen(await read("exceeds")) == snapshot("""\
run        run-1  failed
           Go.
agent      exceeds
started    2026-01-02 03:04:05, took 5 ms
steps      3, 3 calls
step 1     the model  5 ms
           fail()
             5 ms at attempt 2  → ValueError: no
step 2     the model  5 ms
           look(page="x")
             → try again: page: Input should be a valid integer, unable to pars…
step 3     the model  5 ms
           look(page="x")
             → try again: page: Input should be a valid integer, unable to pars…
failed     ToolRetriesExceeded: The model tried the tool 'look' again more often
           than its max_retries of 1 allows. The last problem was: [{'type':
           'int_parsing', 'loc': ['page'], 'msg': 'Input should be a valid
           integer, unable to parse string as an integer', 'input': 'x'}]
where      step 3, look(page="x") → try again: page: Input should be a valid
           integer, unable to parse string as an integer
fix        The model called the tool again and again in a way that it refuses.
           Describe the tool and its arguments better, or allow more with the
           tool's `max_retries`.
           The run has ended: nothing of it runs again.
""")


async def test_what_happened_is_told_as_it_happened() -> None:
    assert await told("gate") == snapshot("""\
call       look(page=1)
           look → page 1
approve    names no call, so it did not apply
deny       later: Kept.
approve    b by ana with {"cents": 20}
call       refund(cents=20)
pause      by ana
           refund → refunded 20
approve    a by ben
steer      Be brief.
resume     from outside
call       refund(cents=1)
           refund → refunded 1
deny       call_2_0: Enough.
""")


async def test_a_history_that_is_cut_anywhere_can_be_shown() -> None:
    """A run is looked at in the middle of everything."""
    for name in ("gate", "faults"):
        for until in range(1, len(events(name))):
            timeline = await read(name, until)
            assert screen(timeline)
            shown(*in_motion(timeline, AT))


def long_run(steps: int) -> Timeline:
    timeline = Timeline(run_id="run-1", agent="shop", prompt="Go.", started_at=AT - timedelta(hours=2))
    for number in range(1, steps + 1):
        done = Execution(scheduled_at=AT, started_at=AT, ended_at=AT + timedelta(milliseconds=9))
        call = Call(tool_call_id=f"c{number}", tool_name="look", args={"page": number}, executions=[done])
        call.outcome = {"kind": "returned", "content": "x" * 300}
        timeline.steps.append(Step(number=number, requests=[done], calls=[call]))
    return timeline


def test_a_long_run_is_folded_in_the_middle() -> None:
    lines = screen(long_run(200), steady=False).splitlines()
    assert len(lines) < 60
    assert [line for line in lines if "…" in line and "steps" in line] == [
        "           … 185 steps with 185 calls: `outlast show run-1 --full`"
    ]
    assert len(screen(long_run(200), full=True).splitlines()) > 600


def test_a_run_that_waits_shows_what_to_type() -> None:
    timeline = long_run(1)
    timeline.steps[0].calls.append(
        Call(
            tool_call_id="call_2_0",
            tool_name="refund",
            args={"order_id": 1042},
            waits_for="approval",
            waits_since=AT - timedelta(hours=1),
        )
    )
    timeline.count = 1
    assert timeline.state == "waiting"
    assert screen(timeline, CALL, steady=False).split("started", 1)[1] == snapshot("""\
    2026-01-02 01:04:05, for 2 h
steps      1, 2 calls
step 1     the model  9 ms
           look(page=1)
             9 ms  → xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
           refund(order_id=1042)
             call_2_0 waits for an approval, since 1 h

run-1  refund waits for an approval, since just now
  Refund 1999 cents of order 1042?
  refund(order_id=1042, cents=1999)
  outlast approve run-1 call_2_0
  outlast deny run-1 call_2_0

""")


def pending(identity: str, attempt: int, failure: str, *, in_seconds: int | None) -> PendingActivityInfo:
    info = PendingActivityInfo(
        activity_id=identity, attempt=attempt, maximum_attempts=3, last_worker_identity="7@there"
    )
    info.last_failure.CopyFrom(
        Failure(message=failure, application_failure_info=ApplicationFailureInfo(type="ConnectionError"))
    )
    if in_seconds is None:
        info.state = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
        info.last_started_time.CopyFrom(Timestamp(seconds=int(AT.timestamp()) - 4))
    else:
        info.state = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
        info.next_attempt_schedule_time.CopyFrom(Timestamp(seconds=int(AT.timestamp()) + in_seconds))
    return info


async def test_attempts_and_back_off_are_shown_while_they_happen() -> None:
    reader = HistoryReader("run-1", decode)
    running: list[Call] = []
    for event in events("plain"):
        await reader.apply(event)
        running = [call for call in reader.timeline.calls if call.state == "running"]
        if running:
            break
    identity = f"call:{running[0].tool_call_id}"
    reader.refresh([pending(identity, 2, "busy", in_seconds=8)])
    assert "attempt 2 of 3 in 8.0 s: ConnectionError: busy" in shown(*in_motion(reader.timeline, AT))
    reader.refresh([pending(identity, 3, "busy", in_seconds=None)])
    assert "4.0 s, attempt 3 of 3 after ConnectionError: busy" in shown(*in_motion(reader.timeline, AT))


def test_what_is_in_motion_stays_short() -> None:
    timeline = long_run(0)
    timeline.steps.append(
        Step(
            number=1,
            calls=[
                Call(tool_call_id=f"c{i}", tool_name="look", args={}, executions=[Execution(scheduled_at=AT)])
                for i in range(30)
            ],
        )
    )
    lines = shown(*in_motion(timeline, AT)).splitlines()
    assert len(lines) == 13
    assert lines[-1].strip() == "… and 18 more"


def test_every_error_that_ends_a_run_has_advice() -> None:
    assert [name for name in RunError.by_name if not advice_for(name) and name != "RunCancelled"] == []


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0123, "12 ms"),
        (3.44, "3.4 s"),
        (60, "1 min"),
        (302, "5 min 2 s"),
        (7_380, "2 h 3 min"),
        (352_800, "4 d 2 h"),
    ],
)
def test_a_duration_is_told_for_people(seconds: float, words: str) -> None:
    assert duration_words(seconds) == words


def test_runs_are_listed_under_each_other() -> None:
    entries = [
        RunEntry(
            run_id="a", agent="shop", state="waiting", pending=2, started_at=AT - timedelta(hours=3), ended_at=None
        ),
        RunEntry(
            run_id="b" * 20,
            agent="shop",
            state="failed",
            pending=0,
            started_at=AT - timedelta(days=3),
            ended_at=AT - timedelta(days=3) + timedelta(seconds=2),
        ),
    ]
    assert shown(runs_table(entries, AT)) == snapshot("""\
run                   agent  state          started      took \n\
a                     shop   waiting for 2  3 hours ago  3 h  \n\
bbbbbbbbbbbbbbbbbbbb  shop   failed         3 days ago   2.0 s
""")


def event(kind: Any, **attributes: Any) -> HistoryEvent:
    """An event as the server writes it, at a fixed time; `summary` is its own."""
    made = HistoryEvent(event_type=kind, event_id=99)
    made.event_time.FromDatetime(AT)
    if summary := attributes.pop("summary", None):
        made.user_metadata.summary.data = json.dumps(summary).encode()
    for name, value in attributes.items():
        getattr(made, name).CopyFrom(value)
    return made


def signal(name: str) -> HistoryEvent:
    attributes = WorkflowExecutionSignaledEventAttributes(signal_name=name)
    return event(
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, workflow_execution_signaled_event_attributes=attributes
    )


async def reader_of(name: str, until: int | None = None) -> HistoryReader:
    reader = HistoryReader("run-1", decode)
    for each in events(name, until):
        await reader.apply(each)
    return reader


async def test_a_paused_run_says_so_and_how_to_go_on() -> None:
    """A pause that is forgotten looks like a run that hangs."""
    reader = await reader_of("gate", 19)
    await reader.apply(signal("pause"))
    timeline = reader.timeline
    assert timeline.state == "paused"
    assert "outlast resume run-1" in screen(timeline)
    assert "outlast resume run-1" in shown(*in_motion(timeline, AT))
    await reader.apply(signal("resume"))
    assert timeline.state == "waiting"
    assert "outlast resume" not in screen(timeline)


async def test_a_run_that_its_worker_cannot_go_on_with_says_why_until_it_can() -> None:
    """Code that does not fit the history keeps a run from going on, and nothing of that is seen from outside."""
    reader = await reader_of("gate", 19)
    failed = WorkflowTaskFailedEventAttributes(failure=Failure(message="Nondeterminism: no such command"))
    kind = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    await reader.apply(event(kind, workflow_task_failed_event_attributes=failed))
    assert "a worker cannot go on with it: Nondeterminism" in shown(*in_motion(reader.timeline, AT))
    text = " ".join(screen(reader.timeline).split())
    assert "stuck Nondeterminism: no such command A worker cannot go on with this run. Nothing is lost" in text
    completed = WorkflowTaskCompletedEventAttributes()
    kind = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    await reader.apply(event(kind, workflow_task_completed_event_attributes=completed))
    assert reader.timeline.stuck == ""


async def test_a_message_in_the_task_that_ends_a_run_is_no_trouble() -> None:
    reader = await reader_of("gate", 19)
    failed = WorkflowTaskFailedEventAttributes(
        cause=WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND
    )
    kind = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    assert await reader.apply(event(kind, workflow_task_failed_event_attributes=failed)) == []
    assert reader.timeline.stuck == ""


async def test_a_call_that_the_run_itself_makes_again_says_when_and_why() -> None:
    """A call that must not be repeated has one attempt: the run waits by a timer of its own, which is no attempt."""
    reader = HistoryReader("run-1", decode)
    for each in events("faults"):
        await reader.apply(each)
        if each.event_type == EventType.EVENT_TYPE_TIMER_STARTED:
            break
    call = next(call for call in reader.timeline.calls if call.tool_name == "busy")
    assert call.state == "backing off"
    assert reader.timeline.state == "running", "nobody has to do anything about it"
    assert call.again_at is not None
    soon = call.again_at - timedelta(seconds=4)
    assert "busy() made again in 4.0 s: busy" in shown(*in_motion(reader.timeline, soon))
    assert "made again in 4.0 s: busy" in shown(*story(reader.timeline, seen(reader.timeline), now=soon))
    assert all(call.again_at is None for call in (await read("faults")).calls)


async def test_a_run_that_continued_as_new_is_one_story() -> None:
    """Its events are numbered anew, and what was read before stays."""
    reader = await reader_of("plain")
    steps, started = len(reader.timeline.steps), reader.timeline.started_at
    assert steps > 0
    reader.timeline.ending = reader.timeline.ended_at = None
    for each in events("gate"):
        await reader.apply(each)
    assert (reader.timeline.agent, reader.timeline.started_at) == ("plain", started)
    assert reader.timeline.state == "completed"
    assert len(reader.timeline.steps) > steps


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*/*.json")), ids=lambda path: path.stem)
async def test_payloads_of_any_kind_are_read_without_error(path: Path) -> None:
    """A history may be one of a later release, or hold whatever somebody sent: nothing of it breaks a view."""
    for value in (None, 7, "text", [1, "two", None], {"calls": 3, "response": [], "position": "x", "kind": 5}):

        async def anything(payloads: Any, value: Any = value) -> Any:
            return value

        reader, teller = HistoryReader("run-1", anything), Teller()
        for each in events(path.stem):
            for change in await reader.apply(each):
                list(teller.tell(change))
        assert screen(reader.timeline)
        assert shown(*in_motion(reader.timeline, AT)) is not None
