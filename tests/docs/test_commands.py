"""Every ```console block runs as a newcomer types it, in one folder from the top of the page to its end.

Python blocks with a title are saved as that file when they are reached. Settings of a block:

- `test="skip"`: does not run; `reason="…"` says why not.
- `background="yes"`: is `outlast dev APP`, which runs until the page ends, on free ports.
- `background="again"`: the one that runs is killed with SIGKILL, and starts again.
- `exit="3"`: its exit code, where it is not 0.

A ```text block right after one is what it prints; `pytest --update-examples` writes it. IDs are not compared, nor is
the order of the lines: calls that run side by side end in any order.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import anyio
import anyio.abc
import pytest

from outlast.server import find_temporal
from tests.asking import PATIENCE
from tests.docs.blocks import PAGES, Block, blocks, page_id

COMMANDS = [page for page in PAGES if any(block.language == "console" for block in blocks(page))]


class Terminal:
    """A folder, and what runs there."""

    def __init__(self, folder: Path) -> None:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TEMPORAL_", "OUTLAST_", "OPENAI_", "DEEPSEEK_"))
        }
        path = os.pathsep.join([str(Path(sys.executable).parent), str(find_temporal().parent), os.environ["PATH"]])
        self.env = {**kept, "PATH": path, "COLUMNS": "100", "TEMPORAL_CONFIG_FILE": os.devnull}
        self.folder = folder
        self._dev: anyio.abc.Process | None = None

    async def start(self, command: str) -> None:
        """Start `outlast dev`, and wait until it listens."""
        assert command.startswith("outlast dev "), command
        log = (self.folder / "dev.log").open("ab")
        words = [*command.split(), "--port", "0", "--json"]
        self._dev = await anyio.open_process(words, env=self.env, cwd=self.folder, stderr=log)
        log.close()
        assert self._dev.stdout is not None
        said = b""
        with anyio.fail_after(PATIENCE):
            while not said.endswith(b"\n"):
                said += await self._dev.stdout.receive()
        self.env["TEMPORAL_ADDRESS"] = json.loads(said)["address"]

    async def save(self, name: str, text: str) -> None:
        """Save a file as an editor does; where `outlast dev` follows it, wait until its new worker has taken over."""
        taken_over = self._taken_over()
        (self.folder / "new").write_text(text)
        (self.folder / "new").replace(self.folder / name)
        with anyio.fail_after(PATIENCE):
            while self._dev is not None and self._taken_over() == taken_over:
                await anyio.sleep(0.05)

    def _taken_over(self) -> int:
        log = self.folder / "dev.log"
        return log.read_text().count("has taken over") if log.exists() else 0

    async def run(self, block: Block) -> str:
        """What the command prints."""
        with anyio.fail_after(PATIENCE):
            done = await anyio.run_process(
                ["sh", "-ec", block.text], env=self.env, cwd=self.folder, check=False, stderr=-2, input=b""
            )
        said = done.stdout.decode()
        assert done.returncode == int(block.settings.get("exit", "0")), f"{block.text}\n{said}"
        return said

    async def kill(self) -> None:
        """End what runs in the background, as `kill -9` does, and wait until its server and its worker are gone."""
        if self._dev is not None:
            with anyio.CancelScope(shield=True):
                self._dev.send_signal(signal.SIGKILL)
                await self._dev.aclose()


def comparable(said: str) -> list[str]:
    """The lines of an output, without what differs from run to run."""
    return sorted(re.sub(r"\b[0-9a-f]{12}\b", "…", line).strip() for line in said.splitlines() if line.strip())


@pytest.mark.timeout(300)  # Many programs one after the other, each of which imports all of outlast.
@pytest.mark.parametrize("page", COMMANDS, ids=page_id)
async def test_the_commands_of_a_page_do_what_it_says(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    terminal = Terminal(tmp_path)
    said: str | None = None
    try:
        for block in blocks(page):
            before, said = said, None
            if block.settings.get("test") in ("skip", "contract"):
                continue
            if title := block.settings.get("title"):
                await terminal.save(title, block.text)
            elif block.language == "text" and block.follows and before is not None:
                check_output(page, block, before, update=bool(request.config.getoption("update_examples")))
            elif block.language == "console" and "background" in block.settings:
                if block.settings["background"] == "again":
                    await terminal.kill()
                await terminal.start(block.text.strip())
            elif block.language == "console":
                said = await terminal.run(block)
    finally:
        await terminal.kill()


def check_output(page: Path, block: Block, said: str, *, update: bool) -> None:
    if update and comparable(said) != comparable(block.text):
        text = page.read_text()
        page.write_text(text.replace(f"```text\n{block.text}```", f"```text\n{said.strip()}\n```", 1))
    else:
        assert comparable(said) == comparable(block.text)
