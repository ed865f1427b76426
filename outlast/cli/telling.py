"""What happens in a run, in words, a line or two each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import cast

from rich.console import RenderableType
from rich.text import Text

from outlast.cli.history import Change
from outlast.cli.rendering import call_line
from outlast.cli.screen import Labelled, in_one_line, printable
from outlast.cli.timeline import DECISIONS, Call, Execution, Message, Step
from outlast.messages import JsonObject

__all__ = ("Teller", "cut", "message_words", "outcome_words", "spent_words")

WIDTH = 200


class Teller:
    """Tells each thing once, however many events speak of it."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str, int]] = set()

    def tell(self, change: Change) -> Iterator[RenderableType]:
        """What is new in a change."""
        match change:
            case Call():
                yield from self._call(change)
            case Step():
                yield from self._step(change)
            case Message():
                yield Labelled(change.name, Text(message_words(change)), style="bold yellow")
            case _:
                pass

    def _call(self, call: Call) -> Iterator[RenderableType]:
        for number, execution in enumerate(call.executions):
            if self._first("start", call.tool_call_id, number):
                line = Text(call_line(call.tool_name, call.args or {}))
                if number:
                    line.append(f"  again: {call.executions[number - 1].problem}", style="yellow")
                yield Labelled("call", line)
            if execution.ended_at is not None and self._first("end", call.tool_call_id, number):
                last = number == len(call.executions) - 1
                words = outcome_words(call.outcome if last and not execution.problem else None, execution)
                if execution.attempt > 1:
                    words += f"  (attempt {execution.attempt})"
                yield Labelled("", in_one_line(f"{call.tool_name} → {words}", "dim"))

    def _step(self, step: Step) -> Iterator[RenderableType]:
        for number, request in enumerate(step.requests):
            if request.problem and request.ended_at is not None and self._first("lost", str(step.number), number):
                yield Labelled("model", Text(printable(request.problem), style="yellow"))
        if step.text and step.calls and self._first("text", str(step.number), 0):
            yield Labelled("says", Text(cut(step.text)))
        if step.retry and self._first("retry", str(step.number), 0):
            yield Labelled("", Text(cut(f"no valid output, so the model tries again: {step.retry}"), style="yellow"))
        for call in step.calls:
            settled = call.outcome is not None and not call.executions
            if settled and self._first("settled", call.tool_call_id, 0):
                yield Labelled("call", Text(call_line(call.tool_name, call.args or {})))
                yield Labelled("", in_one_line(f"{call.tool_name} → {outcome_words(call.outcome)}", "dim"))

    def _first(self, what: str, name: str, number: int) -> bool:
        key = (what, name, number)
        if key in self._told:
            return False
        self._told.add(key)
        return True


def outcome_words(outcome: JsonObject | None, execution: Execution | None = None) -> str:
    """What came of a call, or of one execution of it, in one line."""
    outcome = outcome or {}
    content = outcome.get("content")
    match outcome.get("kind"):
        case "returned":
            return cut(_text(content))
        case "retried":
            return cut(f"try again: {_problems(content)}")
        case "failed":
            return cut(f"failed: {outcome.get('message', '')}")
        case "transient":
            return cut(f"nothing happened, and it is tried again: {outcome.get('message', '')}")
        case "skipped":
            return cut(f"not made: {_text(content)}")
        case "deferred":
            return "has to wait"
        case _:
            return cut(execution.problem if execution is not None and execution.problem else "no result")


def message_words(message: Message) -> str:
    """Who said what: `call_2_0 by ada: too expensive`."""
    fields = message.content
    words = [message.tool_call_id or ""]
    if message.by:
        words.append(f"by {message.by}")
    if fields.get("override_args") is not None:
        words.append(f"with {json.dumps(fields['override_args'], ensure_ascii=False)}")
    said = fields.get("reason") or fields.get("message") or fields.get("content") or fields.get("result")
    if message.name in DECISIONS and message.tool_call_id is None:
        return "names no call, so it did not apply"
    line = " ".join(word for word in words if word)
    if said is not None:
        line = f"{line}: {_text(said)}" if line else _text(said)
    if message.rejected:
        line = f"{line} (did not apply: {message.rejected})"
    return cut(line) if line else "from outside"


def spent_words(execution: Execution) -> str:
    """`12 ms`, `3.4 s after 2 attempts`; empty where it has not ended."""
    if execution.seconds is None:
        return ""
    words = duration_words(execution.seconds)
    return words if execution.attempt < 2 else f"{words} at attempt {execution.attempt}"


def duration_words(seconds: float) -> str:
    """A time for people: `12 ms`, `3.4 s`, `5 min 2 s`, `2 h 3 min`, `4 d 2 h`."""
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    for (unit, size), (smaller, part) in pairwise(units):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def _problems(content: object) -> str:
    """A message to the model, or what pydantic found wrong with arguments."""
    if not isinstance(content, list):
        return _text(content)
    problems = [_object(each) for each in cast("list[object]", content)]
    return "; ".join(f"{'.'.join(map(str, each.get('loc') or ()))}: {each.get('msg')}" for each in problems)


def _object(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def cut(text: str, width: int = WIDTH) -> str:
    """The text in one line, cut."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= width else line[: width - 1] + "…"
