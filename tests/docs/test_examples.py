"""Every Python block of README.md and docs/ runs, and prints what it says it prints.

The blocks of a page that start with ```python run from top to bottom, each as a program of its own, in an empty
folder, until one fails: its place in the page is in the message. `TEMPORAL_ADDRESS`
names the test server, so that `outlast.connection.connect()` reaches it. Settings follow the word, as in
```python test="skip" lint="skip":

- `test="skip"`: does not run; `reason="…"` says why not.
- `test="contract"`: runs in tests/integration/test_readme_contract.py, which brings a worker.
- `title="app.py"`: is written to that file, too, so that later blocks can import it.
- `continues="yes"`: goes on where the block before it ended, with its names.
- `lint="skip"`: may break the style.

Comments that start with `#>` are the expected output of the `print` above them; `pytest --update-examples` writes
them. What becomes of the blocks of other kinds is said in `test_commands.py` and `test_pages.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_examples import CodeExample, EvalExample, find_examples

from outlast.server import EmbeddedServer
from tests.docs.blocks import PAGES, page_id


def python_blocks(page: Path) -> list[CodeExample]:
    return [example for example in find_examples(page) if example.prefix.split()[:1] == ["python"]]


@pytest.fixture
def folder(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for module in set(sys.modules) - before:
        if str(getattr(sys.modules[module], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[module]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_the_blocks_of_a_page_run_as_written(page: Path, folder: Path, eval_example: EvalExample) -> None:
    names: dict[str, Any] = {}
    for block in python_blocks(page):
        settings = block.prefix_settings()
        continues = settings.get("continues") == "yes"
        # D: a page explains itself. F821: what goes on uses names of the block before.
        ignored = ["D", "I001", "T201", *(["F821"] if continues else [])]
        target: Any = "py311"
        eval_example.set_config(line_length=120, target_version=target, ruff_ignore=ignored)
        if settings.get("lint") != "skip":
            (eval_example.format_ruff if eval_example.update_examples else eval_example.lint_ruff)(block)
        if title := settings.get("title"):
            (folder / title).write_text(block.source)
        if settings.get("test") in ("skip", "contract"):
            continue
        run = eval_example.run_print_update if eval_example.update_examples else eval_example.run_print_check
        names = run(block, module_globals=names if continues else {"__name__": "__main__"})
