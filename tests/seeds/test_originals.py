"""The complete example files of the toolsets page run here as they are, with the import root replaced.

The page is not part of this repository: it is looked for beside it, in `../shared/seeds`.

Stated preludes:

- Files import each other, so each runs in a folder with all of them. The page has two files `combined_toolset.py`;
  everything that imports it means the second one, with the prefixes.
- `openai:gpt-4o` is a scripted model.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.seeds.running import Example, run, without_a_provider

SEEDS = Path(__file__).parents[2].parent / "shared" / "seeds"
FILES = [
    "toolsets.py",
    "function_toolset.py",
    "combined_toolset.py",
    "filtered_toolset.py",
    "combined_toolset.py",
    "renamed_toolset.py",
    "prepared_toolset.py",
    "approval_required_toolset.py",
    "logging_toolset.py",
    "deferred_toolset_agent.py",
    "deferred_toolset_api.py",
    "deferred_tools.py",
    "dynamic_toolset.py",
]
QUIET = {"deferred_toolset_api.py"}
"""Files that print nothing: they run as part of those that import them."""


def originals() -> list[Example]:
    """The files of the page, in its order; none where the page is not there."""
    [page, *_] = [*SEEDS.glob("004_*.txt"), None]
    if page is None:
        return []
    text = page.read_text()
    # A file's name stands alone on a line; its code begins with an import and ends before the first line of prose.
    pieces = re.split(r"^(\w+\.py)$", text, flags=re.MULTILINE)
    return [Example(name, _code(body)) for name, body in zip(pieces[1::2], pieces[2::2], strict=True)]


def _code(text: str) -> str:
    lines: list[str] = []
    for line in text.strip("\n").splitlines():
        # Notes below a file are numbered, and prose is in Chinese.
        if re.match(r"\d+\. ", line) or re.match(r"[^\x00-\x7f]", line):
            break
        lines.append(line.replace("pydantic_ai", "outlast") if "import" in line else line)
    return "\n".join(lines).rstrip() + "\n"


ORIGINALS = originals()


@pytest.mark.skipif(not ORIGINALS, reason="the page of the originals is not beside this repository")
def test_the_page_has_the_files_that_are_known() -> None:
    assert [example.name for example in ORIGINALS] == FILES


@pytest.mark.skipif(not ORIGINALS, reason="the page of the originals is not beside this repository")
@pytest.mark.parametrize("index", [i for i, name in enumerate(FILES) if name not in QUIET], ids=lambda i: FILES[i])
def test_an_original_prints_what_it_says(index: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.agent.infer_model", without_a_provider)
    run(ORIGINALS[index], ORIGINALS, tmp_path, monkeypatch)
