"""How things look on a screen of 80 columns."""

# ruff: noqa: E501 -- a message is one line

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from inline_snapshot import snapshot
from rich.console import Console, RenderableType

from outlast.cli.rendering import ago, call_line, waiting_calls
from outlast.cli.screen import Labelled, printable, whole
from outlast.cli.telling import Teller
from outlast.cli.timeline import Call, Execution
from tests.unit.cli.test_edits import CALL

NOW = CALL.requested_at + timedelta(minutes=3)


def shown(*renderables: RenderableType) -> str:
    console = Console(file=StringIO(), width=80, soft_wrap=True, highlight=False)
    for renderable in renderables:
        console.print(renderable)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_call_that_waits_for_an_approval() -> None:
    assert shown(waiting_calls([CALL], now=NOW)) == snapshot("""\
run-1  refund waits for an approval, since 3 minutes ago
  Refund 1999 cents of order 1042?
  refund(order_id=1042, cents=1999)
  outlast approve run-1 call_2_0
  outlast deny run-1 call_2_0

""")


def test_a_call_as_the_memo_knows_it() -> None:
    assert shown(waiting_calls([replace(CALL, args=None)], now=NOW)) == snapshot("""\
run-1  refund waits for an approval, since 3 minutes ago
  Refund 1999 cents of order 1042?
  outlast approve run-1 call_2_0
  outlast deny run-1 call_2_0

""")


def test_a_call_whose_outcome_is_unknown_with_all_that_can_be_known() -> None:
    call = replace(
        CALL,
        kind="unknown_outcome",
        expires_at=NOW,
        metadata={"reason": "Its worker was lost", "run": {"requester": "ada"}},
        run_id="ada's run",
    )
    assert shown(waiting_calls([call], now=NOW)) == snapshot("""\
ada's run  refund may or may not have taken effect, since 3 minutes ago
  Refund 1999 cents of order 1042?
  refund(order_id=1042, cents=1999)
  Its worker was lost
  run: {"requester": "ada"}
  until 2026-01-02 03:07:05+00:00
  outlast approve 'ada'"'"'s run' call_2_0
  outlast resolve 'ada'"'"'s run' call_2_0 RESULT
  outlast deny 'ada'"'"'s run' call_2_0

""")


def test_what_a_model_wrote_cannot_change_what_the_terminal_shows() -> None:
    """An approval is worth what its reader saw: no escape sequence, no text that runs backwards, no markup."""
    call = replace(
        CALL, sentence="Refund \x1b[2K\r5 cents \u202eflip? [bold]x[/bold]", args={"note": "\x1b]0;x\x07 [red]"}
    )
    text = shown(waiting_calls([call], now=NOW))
    assert "\x1b" not in text
    assert "\r" not in text
    assert "\u202e" not in text
    assert r"Refund \x1b[2K\r5 cents \u202eflip? [bold]x[/bold]" in text
    assert r"[red]" in text


def test_words_are_wrapped_beside_their_label_and_commands_are_left_whole() -> None:
    words = "word " * 30
    command = "outlast run support " + "x" * 90
    assert shown(Labelled("label", words, whole(command)), Labelled("next", "one")) == snapshot("""\
label      word word word word word word word word word word word word word word
           word word word word word word word word word word word word word word
           word word
           outlast run support xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
next       one
""")


def test_what_happens_to_calls_is_told_once() -> None:
    at = CALL.requested_at
    teller = Teller()
    told: list[RenderableType] = []

    def tell(outcome: dict[str, Any] | None, problem: str = "", *, executions: int = 1) -> None:
        done = [Execution(scheduled_at=at, started_at=at, ended_at=at, problem=problem) for _ in range(executions)]
        call = Call(
            tool_call_id=str(len(told)), tool_name="refund", args={"cents": 5}, executions=done, outcome=outcome
        )
        told.extend([*teller.tell(call), *teller.tell(call)])

    tell({"kind": "returned", "content": "Refunded."})
    tell({"kind": "returned", "content": [{"a": 1}]})
    tell({"kind": "returned", "content": "x" * 200})
    tell({"kind": "retried", "content": "No such order."})
    tell({"kind": "failed", "message": "card declined"})
    tell({"kind": "deferred", "wait_for": "approval"})
    tell(None, "ValueError: card declined")
    tell(None, "its worker gave no sign of life any more", executions=2)
    assert shown(*told) == snapshot("""\
call       refund(cents=5)
           refund → Refunded.
call       refund(cents=5)
           refund → [{"a": 1}]
call       refund(cents=5)
           refund → xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
call       refund(cents=5)
           refund → try again: No such order.
call       refund(cents=5)
           refund → failed: card declined
call       refund(cents=5)
           refund → has to wait
call       refund(cents=5)
           refund → ValueError: card declined
call       refund(cents=5)
           refund → its worker gave no sign of life any more
call       refund(cents=5)  again: its worker gave no sign of life any more
           refund → its worker gave no sign of life any more
""")


@pytest.mark.parametrize(
    ("passed", "words"),
    [
        (timedelta(milliseconds=10), "just now"),
        (timedelta(seconds=-5), "just now"),
        (timedelta(seconds=1), "1 second ago"),
        (timedelta(minutes=59, seconds=59), "59 minutes ago"),
        (timedelta(hours=25), "1 day ago"),
    ],
)
def test_a_time_is_told_in_its_largest_unit(passed: timedelta, words: str) -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    assert ago(now - passed, now) == words


def test_a_call_is_written_as_one_would_write_it() -> None:
    assert call_line("pay", {"to": "Zoë", "n": None, "x": [1.5]}) == 'pay(to="Zoë", n=null, x=[1.5])'


def test_text_for_people_of_all_languages_is_left_alone() -> None:
    assert printable("Zoë 光头 🙂\nline") == "Zoë 光头 🙂\nline"
