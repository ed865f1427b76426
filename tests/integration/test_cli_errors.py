"""What every verb says where the server lacks what it names: one helpful message, and the right exit code."""

# ruff: noqa: E501 -- a message is one line

from __future__ import annotations

import json
import os
from pathlib import Path

import anyio.to_thread
import pytest
from inline_snapshot import snapshot

from outlast.cli.app import main
from outlast.server import EmbeddedServer, find_temporal
from tests.unit.cli.test_errors import ON_A_RUN, ON_A_SERVER, named


@pytest.fixture(autouse=True)
def here(server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("TEMPORAL_", "OUTLAST_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PATH", f"{find_temporal().parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text("from outlast import Agent\nsupport = Agent('test', name='support')\n")


async def said(words: list[str], capsys: pytest.CaptureFixture[str], *, code: int) -> str:
    """The error that a verb ends with; in a thread, for it brings an event loop of its own."""
    assert await anyio.to_thread.run_sync(main, words) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.mark.parametrize("words", ON_A_RUN, ids=named)
async def test_a_run_that_there_is_not(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert await said(words, capsys, code=2) == snapshot(
        "error  There is no run 'run-1' in this namespace. `outlast runs` lists those that there are.\n"
    )
    assert await anyio.to_thread.run_sync(main, [*words, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "UnknownRun"


@pytest.mark.parametrize("words", [*ON_A_SERVER, ["dev", "app.py", "--address", "ADDRESS"]], ids=named)
async def test_a_namespace_that_there_is_not(
    words: list[str], server: EmbeddedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace("ADDRESS", server.address) for word in words]
    error = await said([*words, "--namespace", "nope"], capsys, code=2)
    assert error.replace(server.address, "ADDRESS") == snapshot(
        "error  The Temporal server at ADDRESS has no namespace 'nope'. Say which one with --namespace or TEMPORAL_NAMESPACE, or make it: temporal operator namespace create --namespace nope --address ADDRESS\n"
    )
