"""The code blocks of a page, with the settings that follow their language."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(?P<language>\w+)(?P<settings>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Block:
    """One block.

    Attributes:
        language: First word after the fence.
        settings: `name="value"` after it.
        text: What is between the fences.
        follows: Nothing but blank lines is between this block and the one before.
    """

    language: str
    settings: dict[str, str]
    text: str
    follows: bool


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, from top to bottom."""
    text, end = page.read_text(), 0
    found: list[Block] = []
    for match in _FENCE.finditer(text):
        block = Block(
            language=match["language"],
            settings=dict(re.findall(r'(\w+)="([^"]*)"', match["settings"])),
            text=match["text"],
            follows=not text[end : match.start()].strip(),
        )
        found.append(block)
        end = match.end()
    return found


def page_id(page: Path) -> str:
    """The page as a test's name shows it."""
    return page.relative_to(ROOT).as_posix()
