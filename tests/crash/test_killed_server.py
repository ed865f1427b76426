"""`kill -9` of the server: its state is in a file, and the workers find it again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from outlast.server import EmbeddedServer
from tests.crash.stage import Stage

pytestmark = pytest.mark.anyio


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """A server that keeps its state, for the test to kill."""
    async with EmbeddedServer(data_dir=tmp_path / "server", ui=False) as server:
        yield server


async def test_a_run_waits_for_its_approval_through_the_death_of_the_server(
    own_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The worker's process survives, and goes on by itself when the server is back."""
    stage = Stage(await Client.connect(own_server.address), tmp_path)
    stage.outside.open_gate("refund")
    try:
        worker = await stage.start_worker()
        run = await stage.start_run([["find", {"order": 1}]], [["refund", {"cents": 500}]])
        call = await stage.pending(run)
        await own_server.kill()
        await own_server.start()
        assert await stage.pending(run) == call
        await run.approve(call.tool_call_id, digest=call.digest)
        assert await stage.told(run) == [["find", "success", "order 1"], ["refund", "success", "refunded 500"]]
        assert worker.is_running
        assert [(done.kind, done.pid) for done in stage.outside.effects()] == [
            ("find", worker.pid),
            ("refund", worker.pid),
        ]
        await stage.assert_healthy(run)
    finally:
        stage.close()


async def test_a_call_that_runs_while_the_server_dies_is_made_once(own_server: EmbeddedServer, tmp_path: Path) -> None:
    """What came of it is reported as soon as the server is back; heartbeats that nobody heard do no harm."""
    stage = Stage(await Client.connect(own_server.address), tmp_path)
    try:
        await stage.start_worker(heartbeat_timeout=30)
        run = await stage.start_run([["find", {"order": 1}]], [["once", {"gate": "once"}]])
        await stage.effects("once")
        await own_server.kill()
        stage.outside.open_gate("once")
        await own_server.start()
        assert await stage.told(run) == [["find", "success", "order 1"], ["once", "success", "once done"]]
        assert len(stage.outside.effects("once")) == 1
        await stage.assert_healthy(run)
    finally:
        stage.close()
