"""`outlast show`, `watch` and `runs` against the real server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from temporalio.client import Client

from outlast.client import Client as OutlastClient
from outlast.contracts import UsageLimits
from outlast.server import EmbeddedServer
from outlast.settings import Settings
from outlast.worker import build_worker
from tests.asking import PATIENCE, query_until
from tests.integration.test_cli import Shell, shop_agent


@pytest.fixture
def shell(client: Client, server: EmbeddedServer, tmp_path: Path) -> Shell:
    return Shell(client, server, tmp_path)


@pytest.fixture
async def served(shell: Shell) -> AsyncIterator[Shell]:
    async with shell.worker():
        yield shell


async def test_a_waiting_run_shows_what_to_type_and_the_story_of_its_end(served: Shell) -> None:
    run_id, call_id = await served.waiting("pay 500")
    text = await served.outlast("show", run_id)
    assert f"{run_id}  waiting" in text
    assert f"outlast approve {run_id} {call_id}" in text
    await served.outlast("approve", run_id, call_id, "--edit", "cents=400", "--by", "ada")
    assert await served.output(run_id) == "success: paid 400 cents to ada"
    text = await served.outlast("show", run_id)
    assert "approved at" in text
    assert "by ada" in text
    assert 'pay(cents=400, to="ada")' in text
    shown = await served.json("show", run_id)
    assert (shown["state"], shown["output"]) == ("completed", "success: paid 400 cents to ada")
    assert [call["state"] for step in shown["steps"] for call in step["calls"]] == ["returned"]


async def test_a_failed_run_says_where_how_to_fix_it_and_what_does_not_run_again(served: Shell) -> None:
    run_id = await served.start("fail")
    text = await served.outlast("watch", run_id, code=1)
    for words in ("ToolFailed", "card declined", "step 1, fail()", "on_error", "nothing of it runs again"):
        assert words in " ".join(text.split())
    assert " ".join((await served.outlast("show", run_id)).split()).endswith("nothing of it runs again.")


async def test_without_a_worker_a_run_is_shown_all_the_same(shell: Shell) -> None:
    async with shell.worker():
        run_id, call_id = await shell.waiting("pay 500")
    text = await shell.outlast("show", run_id)
    assert f"outlast approve {run_id} {call_id}" in text
    assert "worker" in shell.error
    async with shell.worker():
        await shell.outlast("deny", run_id, call_id)
        await shell.output(run_id)


async def test_watch_as_json_is_a_line_for_each_happening(served: Shell) -> None:
    run_id = await served.start("hello")
    lines = [json.loads(line) for line in (await served.outlast("watch", run_id, "--json")).splitlines()]
    assert [lines[0]["kind"], lines[-1]["kind"]] == ["run", "end"]
    assert lines[-1]["output"] == "hello hello"


async def test_runs_that_were_cancelled_and_terminated_say_so(served: Shell) -> None:
    cancelled, _ = await served.waiting("pay 1")
    await served.outlast("cancel", cancelled)
    terminated, _ = await served.waiting("pay 2")
    await served.client.get_workflow_handle(terminated).terminate(reason="no longer needed")
    assert "cancelled  Somebody cancelled the run." in await served.outlast("watch", cancelled, code=1)
    text = await served.outlast("watch", terminated, code=1)
    assert "terminated no longer needed" in text
    with pytest.raises(Exception, match="cancelled"):
        await OutlastClient(served.client).get(cancelled).result()


async def test_runs_are_listed_by_state(served: Shell) -> None:
    run_id, call_id = await served.waiting("pay 500")
    await served.listed(run_id)
    listed = (await served.json("runs", "--state", "waiting", "--agent", "shop", "--limit", "1000"))["runs"]
    [entry] = [entry for entry in listed if entry["run_id"] == run_id]
    assert (entry["agent"], entry["state"], entry["pending"]) == ("shop", "waiting", 1)
    await served.outlast("deny", run_id, call_id)
    await served.output(run_id)


async def test_a_paused_run_says_how_to_go_on_and_is_listed_as_paused(served: Shell) -> None:
    run_id, call_id = await served.waiting("pay 500")
    await served.outlast("pause", run_id, "--by", "eve")
    await query_until(served.client.get_workflow_handle(run_id), "status", lambda status: status["paused"])
    text = await served.outlast("show", run_id)
    assert f"{run_id}  paused" in text
    assert f"outlast resume {run_id}" in text
    assert "by eve" in text
    with anyio.fail_after(PATIENCE):
        while True:
            listed = (await served.json("runs", "--state", "paused", "--limit", "1000"))["runs"]
            if [entry["pending"] for entry in listed if entry["run_id"] == run_id] == [1]:
                break
    await served.outlast("resume", run_id)
    await served.outlast("deny", run_id, call_id)
    await served.output(run_id)


async def test_a_run_of_200_steps_is_folded_and_can_be_seen_in_full(shell: Shell) -> None:
    settings = Settings(task_queue=shell.task_queue)
    async with build_worker(shell.client, [shop_agent()], settings=settings):
        started = await OutlastClient(shell.client, task_queue=shell.task_queue).start(
            "shop", "look 200 times", usage_limits=UsageLimits(requests=None)
        )
        with anyio.fail_after(PATIENCE):
            assert (await started.result()).steps == 201
    text = await shell.outlast("show", started.id)
    assert f"outlast show {started.id} --full" in text
    assert "look(page=0)" in text
    assert "look(page=199)" in text
    assert len(text.splitlines()) < 100
    full = await shell.outlast("show", started.id, "--full")
    assert all(f"look(page={page})" in full for page in range(200))
    assert len((await shell.json("show", started.id))["steps"]) == 201


async def test_a_run_whose_worker_is_gone_says_so_and_what_was_under_way(shell: Shell) -> None:
    async with shell.worker():
        run_id, _ = await shell.waiting("pay 500")
    text = await shell.outlast("show", run_id)
    assert 'pay(cents=500, to="ada")' in text
    assert f"No worker listens on the task queue '{shell.task_queue}'" in shell.error
    assert (await shell.json("show", run_id))["workers"] == []
    await shell.client.get_workflow_handle(run_id).terminate()
    assert "nothing of it runs again" in await shell.outlast("watch", run_id, code=1)
    assert shell.error == "", "of a run that has ended, nobody has to listen"


async def test_what_is_not_there_is_one_helpful_line(served: Shell) -> None:
    for verb in ("show", "watch"):
        await served.outlast(verb, "nowhere", code=2)
        assert served.error.startswith("error  There is no run 'nowhere'")
