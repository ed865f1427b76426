"""`kill -9` of workers: every run ends as it would have without, and nothing happens twice that must not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outlast.messages import dump_message
from tests.crash.stage import Stage
from tests.histories import activities_scheduled

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("approved", ["while no worker is there", "by the next worker"])
async def test_a_run_waits_for_its_approval_through_the_death_of_its_worker(stage: Stage, approved: str) -> None:
    stage.outside.open_gate("refund")
    first = await stage.start_worker()
    run = await stage.start_run([["refund", {"cents": 500}]])
    call = await stage.pending(run)
    first.kill()
    if approved == "while no worker is there":
        await stage.handle(run).signal("approve", {"tool_call_id": call.tool_call_id, "digest": call.digest})
        second = await stage.start_worker()
    else:
        second = await stage.start_worker()
        assert await stage.pending(run) == call
        assert (await run.approve(call.tool_call_id, digest=call.digest)).state == "approved"
    assert await stage.told(run) == [["refund", "success", "refunded 500"]]
    [effect] = stage.outside.effects("refund")
    assert (effect.pid, effect.attempt) == (second.pid, 1)
    await stage.assert_healthy(run)


async def test_a_repeatable_call_that_loses_its_worker_is_made_again(stage: Stage) -> None:
    first = await stage.start_worker()
    run = await stage.start_run([["slow", {"gate": "slow"}]])
    await stage.effects("slow")
    first.kill()
    stage.outside.open_gate("slow")
    second = await stage.start_worker()
    assert await stage.told(run) == [["slow", "success", "slow done"]]
    lost, made = stage.outside.effects("slow")
    assert [(lost.pid, lost.attempt), (made.pid, made.attempt)] == [(first.pid, 1), (second.pid, 2)]
    assert lost.key == made.key is not None
    await stage.assert_healthy(run)


@pytest.mark.parametrize("step", [1, 2])
async def test_a_model_request_that_loses_its_worker_is_made_again(stage: Stage, step: int) -> None:
    """The first step of a run does not know its worker's heartbeat timeout yet, and takes the default."""
    first = await stage.start_worker()
    run = await stage.start_run(*[[["find", {"order": 1}]]] * (step - 1), {"gate": "asked", "calls": []})
    await stage.effects("model:asked")
    first.kill()
    stage.outside.open_gate("asked")
    second = await stage.start_worker()
    assert await stage.told(run) == [["find", "success", "order 1"]] * (step - 1)
    assert [effect.pid for effect in stage.outside.effects("model:asked")] == [first.pid, second.pid]
    assert len(stage.outside.effects("find")) == step - 1
    history = await stage.assert_healthy(run)
    assert activities_scheduled(history, "model:shop") == [
        *(f"model:{n}" for n in range(1, step)),
        *[f"model:{step}"] * 2,
    ]


async def test_a_call_survives_the_loss_of_three_workers_in_a_row(stage: Stage) -> None:
    killed: list[int] = []
    run = None
    for times in (1, 2, 3):
        worker = await stage.start_worker()
        run = run or await stage.start_run([["slow", {"gate": "slow"}]])
        await stage.effects("slow", times)
        worker.kill()
        killed.append(worker.pid)
    assert run is not None
    stage.outside.open_gate("slow")
    last = await stage.start_worker()
    assert await stage.told(run) == [["slow", "success", "slow done"]]
    effects = stage.outside.effects("slow")
    assert [(effect.pid, effect.attempt) for effect in effects] == list(
        zip([*killed, last.pid], (1, 2, 3, 4), strict=True)
    )
    assert len({effect.key for effect in effects}) == 1
    await stage.assert_healthy(run)


async def _outcome_unknown(stage: Stage) -> tuple[Any, Any, Any]:
    """A run whose worker died between the effect of an approved call and the report of it."""
    first = await stage.start_worker()
    run = await stage.start_run([["refund", {"cents": 500}]])
    call = await stage.pending(run)
    await stage.handle(run).signal("approve", {"tool_call_id": call.tool_call_id, "digest": call.digest, "by": "ann"})
    await stage.effects("refund")
    first.kill()
    await stage.start_worker()
    unknown = await stage.pending(run)
    assert unknown.kind == "unknown_outcome"
    assert unknown.args == call.args
    assert unknown.digest != call.digest
    assert "worker was lost" in unknown.metadata["reason"]
    return run, call, unknown


async def test_an_approved_call_whose_worker_died_after_its_effect_is_never_made_again_by_itself(stage: Stage) -> None:
    """Nobody knows whether the money left: a person looks, and says what came of it."""
    run, call, unknown = await _outcome_unknown(stage)
    for late_copy in ({"digest": call.digest, "by": "ann"}, {"by": "ann"}):
        await stage.handle(run).signal("approve", {"tool_call_id": call.tool_call_id, **late_copy})
    status = await run.status()
    assert [rejected.error for rejected in status.rejected] == ["DigestMismatch", "DigestMismatch"]
    assert [waiting.digest for waiting in status.pending] == [unknown.digest]
    await run.resolve(call.tool_call_id, "refunded 500, as the bank says", by="bob")
    assert await stage.told(run) == [["refund", "success", "refunded 500, as the bank says"]]
    assert len(stage.outside.effects("refund")) == 1
    history = await stage.assert_healthy(run)
    assert len(activities_scheduled(history, "tool:refund")) == 1


async def test_a_second_approval_with_the_digest_of_what_waits_now_makes_the_call_again(stage: Stage) -> None:
    run, call, unknown = await _outcome_unknown(stage)
    stage.outside.open_gate("refund")
    await run.approve(call.tool_call_id, digest=unknown.digest, by="bob")
    assert await stage.told(run) == [["refund", "success", "refunded 500"]]
    first, second = stage.outside.effects("refund")
    assert first.key == second.key
    assert [record.by for record in (await run.status()).decisions] == ["ann", "bob"]
    history = await stage.assert_healthy(run)
    assert len(activities_scheduled(history, "tool:refund")) == 2


async def test_another_worker_goes_on_with_a_run_that_it_knows_nothing_of(stage: Stage) -> None:
    """It asks the run itself for the conversation, and the messages are those of a run that nothing happened to."""
    script = [[["find", {"order": n}], ["find", {"order": -n}]] for n in (1, 2, 3)]
    script += [[["slow", {"gate": "slow"}]], [["find", {"order": 4}]]]
    first = await stage.start_worker()
    run = await stage.start_run(*script)
    await stage.effects("slow")
    second = await stage.start_worker()
    first.kill()
    stage.outside.open_gate("slow")
    told = await stage.told(run)
    assert stage.outside.effects("find")[-1].pid == second.pid
    undisturbed = await stage.start_run(*script)
    assert await stage.told(undisturbed) == told
    assert await _messages(run) == await _messages(undisturbed)
    await stage.assert_healthy(run)


async def _messages(run: Any) -> list[Any]:
    """The conversation without its times."""

    def timeless(value: Any) -> Any:
        if isinstance(value, list):
            return [timeless(item) for item in value]
        if isinstance(value, dict):
            return {key: timeless(item) for key, item in value.items() if key != "timestamp"}
        return value

    return timeless(json.loads(json.dumps([dump_message(message) for message in await run.messages()])))
