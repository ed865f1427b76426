"""Calls that take too long, block, fail for good or are cancelled: each ends where a model or a person can act."""

from __future__ import annotations

import time

import anyio
import pytest

from outlast.errors import RunCancelled, ToolRetriesExceeded
from tests.crash.stage import Stage
from tests.histories import activities_scheduled

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("tool", ["nap", "nap_sync"])
async def test_the_model_is_told_once_that_a_call_timed_out(stage: Stage, tool: str) -> None:
    await stage.start_worker()
    run = await stage.start_run([[tool, {}]], [["find", {"order": 1}]])
    assert await stage.told(run, within_seconds=10) == [
        [tool, "retry", "Timed out after 1 seconds."],
        ["find", "success", "order 1"],
    ]
    assert len(stage.outside.effects(tool)) == 1
    await stage.assert_healthy(run, crashed=False)


async def test_a_tool_that_blocks_the_event_loop_does_not_make_other_calls_look_lost(stage: Stage) -> None:
    """A thread beats for them, and says which tool is at fault."""
    worker = await stage.start_worker()
    other = await stage.start_run([["slow", {"gate": "slow"}]])
    await stage.effects("slow")
    run = await stage.start_run([["slow", {"gate": "slow"}], ["block", {"seconds": 5}]])
    await stage.effects("slow", 2)
    await stage.effects("block left")
    stage.outside.open_gate("slow")
    assert await stage.told(other) == [["slow", "success", "slow done"]]
    assert await stage.told(run) == [["slow", "success", "slow done"], ["block", "success", "blocked"]]
    assert [effect.attempt for effect in stage.outside.effects("slow")] == [1, 1]
    assert [effect.attempt for effect in stage.outside.effects("block")] == [1]
    [warning] = [line for line in worker.log.splitlines() if "blocks the worker's event loop" in line]
    assert "The activity tool:block blocks" in warning
    await stage.assert_healthy(run)


async def test_cancelling_a_run_ends_the_call_that_it_is_in(stage: Stage) -> None:
    """The tool's own `finally` runs, nothing new starts, and the run is cancelled, not failed."""
    await stage.start_worker()
    run = await stage.start_run([["slow", {"gate": "never"}]], [["find", {"order": 1}]])
    await stage.effects("slow")
    cancelled = time.time()
    await run.cancel()
    [left] = await stage.effects("slow left")
    assert left.at - cancelled < 3
    with pytest.raises(RunCancelled):
        await run.result()
    assert stage.outside.effects("find") == []
    history = await stage.assert_healthy(run, crashed=False)
    assert activities_scheduled(history) == ["model:1", "call:slow_1_1"]


async def test_cancelling_a_run_does_not_wait_for_a_thread(stage: Stage) -> None:
    await stage.start_worker()
    run = await stage.start_run([["slow_sync", {"gate": "never"}]])
    await stage.effects("slow_sync")
    await run.cancel()
    with anyio.fail_after(5), pytest.raises(RunCancelled):
        await run.result()
    await stage.assert_healthy(run, crashed=False)


async def test_a_run_cancelled_while_its_worker_is_dead_makes_no_call_again(stage: Stage) -> None:
    first = await stage.start_worker()
    run = await stage.start_run([["slow", {"gate": "never"}]])
    await stage.effects("slow")
    first.kill()
    await run.cancel()
    await stage.start_worker()
    with anyio.fail_after(20), pytest.raises(RunCancelled):
        await run.result()
    assert len(stage.outside.effects("slow")) == 1
    await stage.assert_healthy(run)


async def test_a_tool_that_always_fails_is_tried_three_times_and_the_model_is_told(stage: Stage) -> None:
    await stage.start_worker()
    run = await stage.start_run([["decline", {}]], [["find", {"order": 1}]])
    assert await stage.told(run) == [
        ["decline", "failed", "ValueError: card declined"],
        ["find", "success", "order 1"],
    ]
    attempts = stage.outside.effects("decline")
    assert [effect.attempt for effect in attempts] == [1, 2, 3]
    assert len({effect.key for effect in attempts}) == 1
    await stage.assert_healthy(run, crashed=False)


async def test_a_tool_that_asks_the_model_again_without_end_fails_the_run(stage: Stage) -> None:
    await stage.start_worker()
    run = await stage.start_run(*[[["picky", {}]]] * 10)
    with pytest.raises(ToolRetriesExceeded, match="ask for something else"):
        await run.result()
    assert len(stage.outside.effects("picky")) == 2
    await stage.assert_healthy(run, crashed=False)
