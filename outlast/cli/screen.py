"""Where a verb writes: for people in words, for programs one JSON value on standard output."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from pydantic_core import to_jsonable_python
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.text import Text

__all__ = ("Labelled", "Screen", "in_one_line", "printable", "whole")

INDENT = 11


class Screen:
    """What one verb writes and asks.

    Args:
        as_json: The answer is one JSON value on standard output; words go to standard error.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._out = Console(highlight=False, soft_wrap=True)
        self._err = Console(highlight=False, soft_wrap=True, stderr=True)

    @property
    def words(self) -> Console:
        """Where words for people go."""
        return self._err if self.as_json else self._out

    @property
    def asks(self) -> bool:
        """Somebody is there to answer: a terminal on both sides, and no program that wants JSON."""
        return not self.as_json and sys.stdin.isatty() and sys.stdout.isatty()

    def answer(self, value: Any, *words: RenderableType) -> None:
        """The verb's answer, as JSON or in words."""
        if self.as_json:
            text = json.dumps(to_jsonable_python(value), ensure_ascii=False, indent=2 if sys.stdout.isatty() else None)
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
            return
        for word in words:
            self._out.print(word)

    def say(self, *words: RenderableType) -> None:
        """Something beside the answer."""
        for word in words:
            self.words.print(word)

    def note(self, text: str) -> None:
        """Something to know, on standard error."""
        self._err.print(f"[yellow]note[/]  {escape(printable(text))}")

    def error(self, name: str, message: str) -> None:
        """Why the verb ended without an answer."""
        if self.as_json:
            self.answer({"error": {"type": name, "message": message}})
        else:
            self._err.print(f"[bold red]error[/]  {escape(printable(message))}")

    async def ask(self, question: RenderableType) -> str | None:
        """The line that a person types, without blocking anything else; None at the end of input."""
        with self._out.capture() as shown:
            self._out.print(question)
        sys.stdout.write(shown.get().rstrip("\n") + " ")
        sys.stdout.flush()
        if os.name != "posix":
            return input()  # noqa: ASYNC250 -- nothing else can be done there
        loop = asyncio.get_running_loop()
        line: asyncio.Future[str] = loop.create_future()
        # Not in a thread: nothing could end a thread that waits for a line, and Ctrl-C would hang until Enter.
        loop.add_reader(sys.stdin.fileno(), lambda: line.done() or line.set_result(sys.stdin.readline()))
        try:
            typed = await line
        finally:
            loop.remove_reader(sys.stdin.fileno())
        return typed.strip() if typed else None


class Labelled:
    """Words under each other, beside a label.

    Args:
        label: At most nine characters.
        *words: Wrapped at the width of the terminal; but a `Text` with `no_wrap` is left whole, to be copied, and one
            whose `overflow` is "ellipsis" is cut at the width.
        style: Of the label.
        indent: Columns for the label.
    """

    def __init__(self, label: str, *words: str | Text, style: str = "bold", indent: int = INDENT) -> None:
        self._indent = indent
        self._label = label
        self._words = [word if isinstance(word, Text) else Text(word) for word in words]
        self._style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        label = Text(self._label.ljust(self._indent), style=self._style)
        width = max(20, options.max_width - self._indent)
        for word in self._words:
            if word.overflow == "ellipsis":
                word = word.copy()
                word.truncate(width, overflow="ellipsis")
            for line in [word] if word.no_wrap else word.wrap(console, width):
                line.rstrip()
                yield Text.assemble(label, line)
                label = Text(" " * self._indent)


def whole(text: str, style: str = "cyan") -> Text:
    """A link or a command, which is never broken into lines."""
    return Text(text, style=style, no_wrap=True)


def in_one_line(text: str, style: str = "") -> Text:
    """Words that are cut where the line ends."""
    return Text(text, style=style, overflow="ellipsis")


def printable(text: str) -> str:
    r"""Text from models and programs, with whatever could change what a terminal shows written as `\x1b`."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode() for char in text
    )
