"""How waiting calls and decisions look on a screen."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from rich.console import Group, RenderableType
from rich.text import Text

from outlast.cli.looking import WaitingCall
from outlast.cli.screen import Labelled, printable, whole
from outlast.messages import JsonObject

__all__ = ("ago", "answers", "call_line", "clock", "command", "kind_words", "waiting_calls")

_KINDS = {
    "approval": "waits for an approval",
    "external": "waits for its result from outside",
    "deferred": "waits for its result from another system",
    "unknown_outcome": "may or may not have taken effect",
}


def kind_words(kind: str) -> str:
    """What a call of this kind waits for."""
    return _KINDS.get(kind, kind)


def ago(at: datetime, now: datetime | None = None) -> str:
    """`3 minutes ago`."""
    passed = max((now or datetime.now(UTC)) - at, timedelta())
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        if (number := int(passed.total_seconds() // size)) > 0:
            return f"{number} {unit}{'s' if number > 1 else ''} ago"
    return "just now"


def clock(at: datetime) -> str:
    """`2026-01-02 03:04:05`, in the time zone of the reader."""
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def call_line(tool_name: str, args: JsonObject | str) -> str:
    """A call as one would write it: `refund(order_id=1042, cents=1999)`."""
    inner = (
        args
        if isinstance(args, str)
        else ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in args.items())
    )
    return printable(f"{tool_name}({inner})")


def command(*words: str) -> str:
    """A command line that a shell takes as it is printed."""
    return shlex.join(["outlast", *words])


def waiting_calls(calls: Sequence[WaitingCall], *, now: datetime | None = None) -> RenderableType:
    """Calls that wait, each with what to type."""
    return Group(*[part for call in calls for part in _waiting_call(call, now)])


def _waiting_call(call: WaitingCall, now: datetime | None) -> Iterator[RenderableType]:
    head = Text(printable(call.run_id), style="bold")
    head.append(f"  {call.tool_name} {kind_words(call.kind)}, since {ago(call.requested_at, now)}", style="not bold")
    yield head
    sentence = printable(call.sentence or "")
    if sentence:
        yield _indented(Text(sentence, style="yellow"))
    if call.args is not None:
        yield _indented(Text(call_line(call.tool_name, call.args)))
    if reason := call.metadata.get("reason"):
        yield _indented(Text(printable(str(reason))))
    for name, value in call.metadata.items():
        if name != "reason":
            shown = printable(f"{name}: {json.dumps(value, ensure_ascii=False)}")
            yield _indented(Text(shown, style="dim"))
    if call.expires_at is not None:
        until = call.expires_at.isoformat(sep=" ", timespec="seconds")
        yield _indented(Text(f"until {until}", style="dim"))
    for line in answers(call):
        yield _indented(whole(line))
    yield ""


def _indented(words: Text) -> RenderableType:
    return Labelled("", words, indent=2)


def answers(call: WaitingCall) -> Iterator[str]:
    """The commands that decide on a call."""
    where = (call.run_id, call.tool_call_id)
    if call.kind in ("approval", "unknown_outcome"):
        yield command("approve", *where)
    if call.kind != "approval":
        yield f"{command('resolve', *where)} RESULT"
    yield command("deny", *where)
