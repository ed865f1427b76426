"""Text that others wrote, in the Markdown of a run's page: it must read as their text, and as nothing else.

There, what stands in a quote, a box or a code font came from a caller, a model or a tool; all else is outlast's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from unicodedata import east_asian_width

LINE_BYTES = 1_000
"""Most bytes of a line, before anything in it is escaped."""

COLUMNS = 58
"""Columns of a box on a page of usual width."""

MAX_BACKTICKS = 3
"""Most backticks in a row that a name shows as they are: a name must fit between longer ones."""

# What a person cannot see, or sees in another order than it is, must not hide in what the person approves.
_INVISIBLE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
_MARKUP = re.compile(r"[\\`*_\[\]<>&~|!$#]")
_BLOCK = re.compile(r"^(\d*)([-+=:.)])")


def cut(text: str, size_bytes: int) -> str:
    """The text, cut to so many bytes of UTF-8."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= size_bytes:
        return encoded.decode()
    return encoded[: size_bytes - 3].decode(errors="ignore") + "…"


def visible(text: str) -> str:
    """The text, with every character written out that cannot be seen. Line breaks stay."""
    return _INVISIBLE.sub(_written_out, text)


def one_line(text: str, size_bytes: int = LINE_BYTES) -> str:
    """The text in one line, cut, with every character written out that cannot be seen."""
    # Cut twice: of a text of megabytes, no more is looked at than can be shown.
    return cut(visible(" ".join(cut(text, 4 * size_bytes).split())), size_bytes)


def escaped(text: str, size_bytes: int = LINE_BYTES) -> str:
    """The text in one line, cut, so that nothing in it is Markdown or HTML."""
    line = _MARKUP.sub(r"\\\g<0>", one_line(text, size_bytes))
    return _BLOCK.sub(r"\1\\\2", line)


def quoted(text: str, size_bytes: int = LINE_BYTES) -> str:
    """A quote of one line, set apart from what outlast says."""
    return f"> {escaped(text, size_bytes) or '(nothing)'}"


def code(text: str, size_bytes: int = 200) -> str:
    """A name or an ID in the middle of a sentence."""
    line = one_line(text, size_bytes)
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    if longest > MAX_BACKTICKS:
        line, longest = cut(line.replace("`", r"\u0060"), size_bytes), 0
    fence = "`" * (longest + 1)
    # A space is taken off on either side, and needed where a backtick would touch the fence.
    pad = " " if not line.strip() or line[0] in "` " or line[-1] in "` " else ""
    return f"{fence}{pad}{line or '?'}{pad}{fence}"


def wrapped(text: str) -> str:
    """Lines of a box, broken where the page would cut them off: what a person cannot see, they cannot approve."""
    return "\n".join(broken for line in text.splitlines() for broken in _broken(line))


def _broken(line: str) -> Iterable[str]:
    # Indented further than the end of a box may be, so that no broken line can be one.
    start, width, indent = 0, 0, ""
    for at, char in enumerate(line):
        columns = 2 if east_asian_width(char) in "WF" else 1
        if width + columns > COLUMNS:
            yield f"{indent}{line[start:at]} ↩"
            start, width, indent = at, 4, "    "
        width += columns
    yield indent + line[start:]


def moment(at: datetime) -> str:
    """A time as people read it, to the second."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _written_out(match: re.Match[str]) -> str:
    point = ord(match[0])
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
