"""What happens in a run, in words, one line each."""

from __future__ import annotations

import json

from rich.console import RenderableType
from rich.text import Text

from outlast.cli.following import CallEnded, CallStarted
from outlast.cli.rendering import call_line
from outlast.cli.screen import Labelled, printable
from outlast.messages import JsonObject

__all__ = ("call_ended", "call_started", "cut")

WIDTH = 110


def call_started(happening: CallStarted) -> RenderableType:
    """`call  find_orders(customer="Ada")`."""
    return Labelled("call", Text(call_line(happening.tool_name, happening.summary)))


def call_ended(happening: CallEnded) -> RenderableType:
    """What came of a call."""
    return Labelled("", Text(f"{happening.tool_name} → {_outcome(happening)}", style="dim"))


def _outcome(happening: CallEnded) -> str:
    outcome: JsonObject = happening.outcome or {}
    match outcome.get("kind"):
        case "returned":
            content = outcome.get("content")
            return cut(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
        case "retried":
            content = outcome.get("content")
            return cut(f"try again: {content if isinstance(content, str) else json.dumps(content)}")
        case "failed":
            return cut(f"failed: {outcome.get('message', '')}")
        case "deferred":
            return "has to wait"
        case _:
            return cut(happening.problem or "no result")


def cut(text: str, width: int = WIDTH) -> str:
    """The text in one line, cut."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= width else line[: width - 1] + "…"
