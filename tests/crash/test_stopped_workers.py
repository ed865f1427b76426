"""SIGTERM: a worker drains, hands back what it cannot finish, and its process ends."""

from __future__ import annotations

import time

import pytest

from tests.crash.stage import Stage

pytestmark = pytest.mark.anyio

GRACE_SECONDS = 1
# A loss that only the silence of a dead worker tells would come far too late for these tests.
LONG_HEARTBEAT_SECONDS = 60


async def test_a_worker_that_is_stopped_finishes_a_call_within_its_grace_period(stage: Stage) -> None:
    worker = await stage.start_worker(shutdown_grace=20)
    run = await stage.start_run([["slow", {"gate": "slow"}]])
    await stage.effects("slow")
    worker.terminate()
    stage.outside.open_gate("slow")
    assert await worker.ended(within_seconds=10) == 0
    assert "Draining" in worker.log
    await stage.start_worker()
    assert await stage.told(run) == [["slow", "success", "slow done"]]
    assert len(stage.outside.effects("slow")) == 1
    await stage.assert_healthy(run)


@pytest.mark.parametrize("tool", ["slow", "slow_sync", "slow_executor"])
async def test_a_repeatable_call_past_the_grace_period_is_taken_up_by_another_worker_at_once(
    stage: Stage, tool: str
) -> None:
    """And the process ends, though nothing can stop a thread, and says which one it left behind."""
    settings = {"shutdown_grace": GRACE_SECONDS, "heartbeat_timeout": LONG_HEARTBEAT_SECONDS}
    first = await stage.start_worker(**settings)
    run = await stage.start_run([[tool, {"gate": "slow"}]])
    await stage.effects(tool)
    second = await stage.start_worker(**settings)
    stopped = time.time()
    first.terminate()
    _, taken_up = await stage.effects(tool, 2)
    assert (taken_up.pid, taken_up.attempt) == (second.pid, 2)
    assert taken_up.at - stopped < GRACE_SECONDS + 5
    assert await first.ended(within_seconds=10) == 0
    assert f"tool:{tool} of run {run.id} did not end within the grace period" in first.log
    assert "Traceback" not in first.log
    assert ("pass_gate_sync" in first.log) == (tool != "slow")
    stage.outside.open_gate("slow")
    assert await stage.told(run) == [[tool, "success", f"{tool} done"]]
    await stage.assert_healthy(run)


async def test_a_call_that_must_not_be_repeated_past_the_grace_period_waits_for_a_person(stage: Stage) -> None:
    settings = {"shutdown_grace": GRACE_SECONDS, "heartbeat_timeout": LONG_HEARTBEAT_SECONDS}
    first = await stage.start_worker(**settings)
    run = await stage.start_run([["once", {"gate": "never"}]])
    await stage.effects("once")
    await stage.start_worker(**settings)
    first.terminate()
    call = await stage.pending(run)
    assert call.kind == "unknown_outcome"
    assert "shut down" in call.metadata["reason"]
    assert await first.ended(within_seconds=10) == 0
    await run.resolve(call.tool_call_id, "it did")
    assert await stage.told(run) == [["once", "success", "it did"]]
    assert len(stage.outside.effects("once")) == 1
    await stage.assert_healthy(run)


async def test_a_model_request_past_the_grace_period_is_made_again_by_another_worker_at_once(stage: Stage) -> None:
    settings = {"shutdown_grace": GRACE_SECONDS, "heartbeat_timeout": LONG_HEARTBEAT_SECONDS}
    first = await stage.start_worker(**settings)
    run = await stage.start_run([["find", {"order": 1}]], {"gate": "asked", "calls": []})
    await stage.effects("model:asked")
    second = await stage.start_worker(**settings)
    stopped = time.time()
    first.terminate()
    _, asked_again = await stage.effects("model:asked", 2)
    assert asked_again.pid == second.pid
    assert asked_again.at - stopped < GRACE_SECONDS + 5
    stage.outside.open_gate("asked")
    assert await stage.told(run) == [["find", "success", "order 1"]]
    assert len(stage.outside.effects("find")) == 1
    await stage.assert_healthy(run)
