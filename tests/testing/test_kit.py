"""What the kit does for a user's tests, and what it says when something is wrong."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest
from inline_snapshot import snapshot
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHistory

from outlast import Agent, CallDeferred, RunContext, TransientToolError
from outlast.errors import DecisionRejected, InvalidInput, ToolRetriesExceeded, UserError
from outlast.testing import (
    Durable,
    HostedRun,
    NotDurable,
    NothingCame,
    ScriptedModel,
    TestModel,
    approve_all,
    call,
    check_history,
    deny_all,
)
from outlast.testing.progress import where_it_stands
from tests.asking import PATIENCE


def support(*lines: Any) -> Agent[Any, Any]:
    agent = Agent(ScriptedModel([*lines, "Done."]), name="support")

    @agent.tool_plain(requires_approval=True)
    def refund(order_id: int) -> str:
        return f"refunded {order_id}"

    @agent.tool_plain
    def find(order_id: int) -> str:
        return f"order {order_id}"

    @agent.tool_plain
    def hand_over(order_id: int) -> str:
        raise CallDeferred

    return agent


def scrubbed(error: BaseException) -> str:
    return re.sub(r"support-[0-9a-f]{12}", "support-…", str(error))


# --- one run ---------------------------------------------------------------------------------------------------------


async def test_a_run_is_followed_to_its_end_and_told_in_full(durable: Durable) -> None:
    finished = await durable.run(support(call("find", order_id=1)), "Where is order 1?")
    assert finished.output == "Done."
    assert finished.steps == 2
    assert finished.usage.requests == 2
    assert [message.kind for message in finished.messages] == ["request", "response", "request", "response"]
    assert finished.scheduled() == ["model:1", "call:call_1_0", "model:2"]
    assert finished.scheduled("tool:find") == ["call:call_1_0"]
    assert finished.decisions == []


async def test_each_call_that_waits_is_offered_once(durable: Durable) -> None:
    offered: list[str] = []

    async def decide(run: HostedRun, waiting: Any) -> None:
        offered.append(waiting.tool_call_id)
        await run.approve(waiting.tool_call_id, by="ada")

    script = [[call("refund", "a", order_id=1), call("refund", "b", order_id=2)], call("refund", "c", order_id=3)]
    finished = await durable.run(support(*script), "Go.", decide=decide)
    assert sorted(offered) == ["a", "b", "c"]
    assert [(record.decision, record.by) for record in finished.decisions] == [("approve", "ada")] * 3


async def test_everything_may_be_denied(durable: Durable) -> None:
    finished = await durable.run(support(call("refund", order_id=1)), "Go.", decide=deny_all)
    assert finished.scheduled("tool:refund") == []


async def test_a_run_takes_deps_and_its_worker_resources(durable: Durable) -> None:
    @asynccontextmanager
    async def resources() -> AsyncGenerator[str]:
        yield "database"

    agent = Agent(TestModel(), name="support", deps_type=dict[str, int])

    @agent.tool
    def look(ctx: RunContext[dict[str, int]]) -> str:
        return f"{ctx.deps['a']} {ctx.resources}"

    finished = await durable.run(agent, "Go.", resources=resources, deps={"a": 1})
    assert finished.output == '{"look":"1 database"}'


async def test_a_run_that_fails_raises_its_own_error(durable: Durable) -> None:
    with pytest.raises(ToolRetriesExceeded):
        await durable.run(support(call("find", order_id="x"), call("find", order_id="y")), "Go.")


async def test_the_model_of_a_test_stands_for_the_agents_own_and_for_no_longer(durable: Durable) -> None:
    agent = support()
    async with durable(agent, model=ScriptedModel(["Other."])) as host:
        assert (await agent.run("Go.")).output == "Done."
        run = await host.start(agent, "Go.")
        assert (await run.result()).output == "Other."


# --- a block ---------------------------------------------------------------------------------------------------------


async def test_a_run_is_decided_call_by_call(durable: Durable) -> None:
    agent = support([call("refund", "a", order_id=1), call("hand_over", "b", order_id=2)])
    async with durable(agent) as host:
        run = await host.start(agent, "Go.")
        assert sorted(waiting.kind for waiting in await run.pending(2)) == ["approval", "deferred"]
        await run.resolve("b", "handed over")
        [refund] = await run.pending()
        await run.approve(refund.tool_call_id, override_args={"order_id": 7})
        assert await run.result(output_type=str) == "Done."
        told = (await run.messages())[-2].parts
        assert [getattr(part, "content", None) for part in told] == ["refunded 7", "handed over"]


async def test_a_run_is_awaited_by_what_its_status_says_even_at_its_end(durable: Durable) -> None:
    """It may end between the question whether it fulfils the condition and the one whether it goes on."""
    agent = support(call("find", order_id=1))
    async with durable(agent) as host:
        run = await host.start(agent, "Go.")
        assert (await run.until(lambda status: status.state == "completed")).step == 2


async def test_two_agents_are_hosted_side_by_side(durable: Durable) -> None:
    other = Agent(ScriptedModel(["Other."]), name="other")
    async with durable(support(), other) as host:
        runs = [await host.start("support", "Go."), await host.start(other, "Go.")]
        assert [(await run.result()).output for run in runs] == ["Done.", "Other."]


async def test_a_run_that_still_waits_when_the_block_ends_is_ended(durable: Durable, client: Client) -> None:
    """It would show up in the inbox of every later test."""
    agent = support(call("refund", order_id=1))
    async with durable(agent) as host:
        run = await host.start(agent, "Go.")
        await run.pending()
    assert (await client.get_workflow_handle(run.id).describe()).status == WorkflowExecutionStatus.TERMINATED


async def test_without_a_fixture_a_block_has_a_server_of_its_own() -> None:
    assert (await Durable().run(support(), "Go.")).output == "Done."


# --- time ------------------------------------------------------------------------------------------------------------


async def test_back_offs_and_timers_of_hours_pass_at_once(durable: Durable) -> None:
    """Temporal's own, of a call that may be repeated, and the run's, of one that must not be."""
    attempts = {"repeatable": 0, "once": 0}
    agent = Agent(ScriptedModel([[call("repeatable"), call("once")], "Done."]), name="support")

    def busy(name: str) -> str:
        attempts[name] += 1
        if attempts[name] < 3:
            raise TransientToolError("busy", retry_after=timedelta(hours=1))
        return "ok"

    @agent.tool_plain
    def repeatable() -> str:
        return busy("repeatable")

    @agent.tool_plain(repeatable=False)
    def once() -> str:
        return busy("once")

    finished = await durable.run(agent, "Go.", skip_time=True)
    assert attempts == {"repeatable": 3, "once": 3}
    first, last = finished.history.events[0].event_time, finished.history.events[-1].event_time
    assert last.ToDatetime() - first.ToDatetime() >= timedelta(hours=2)


async def test_days_pass_while_a_call_waits(durable: Durable) -> None:
    agent = support(call("refund", order_id=1))
    async with durable(agent) as host:
        run = await host.start(agent, "Go.")
        [waiting] = await run.pending()
        await run.fast_forward(timedelta(days=30))
        await run.approve(waiting.tool_call_id)
        await run.result()
        [record] = (await run.status()).decisions
        assert record.at - waiting.requested_at >= timedelta(days=30)


# --- what is wrong, said so that it can be mended --------------------------------------------------------------------


async def test_an_agent_without_a_name_is_refused(durable: Durable) -> None:
    with pytest.raises(UserError, match="needs a name"):
        await durable.run(Agent(TestModel()), "Go.")


async def test_an_agent_that_is_not_hosted_is_refused_at_once(durable: Durable) -> None:
    async with durable(support()) as host:
        with pytest.raises(UserError) as caught:
            await host.start("suport", "Go.")
    assert caught.value.message == snapshot(
        "The agent 'suport' is not hosted here: give it to the block that hosts the others ('support')."
    )


async def test_an_input_that_does_not_fit_is_refused(durable: Durable) -> None:
    with pytest.raises(InvalidInput):
        await durable.run(support(), cast(Any, 7))


async def test_a_run_that_waits_for_a_person_where_nobody_decides_does_not_wait_long(durable: Durable) -> None:
    with pytest.raises(NothingCame) as caught:
        await durable.run(support(call("refund", order_id=1)), "Go.")
    assert scrubbed(caught.value) == snapshot(
        """\
The run 'support-…' waits for a person to decide about refund {"order_id":1} (kind approval), and nobody does: give \
`decide=approve_all`, or a function of your own.\
"""
    )


async def test_a_run_that_does_not_end_says_what_it_waits_for(durable: Durable) -> None:
    agent = support([call("hand_over", "a", order_id=1), call("late", "b"), call("once", "c")])

    @agent.tool_plain
    def late() -> str:
        raise TransientToolError("The shop is closed.", retry_after=600)

    @agent.tool_plain(repeatable=False)
    def once() -> str:
        raise TransientToolError("The shop is closed.", retry_after=600)

    async with durable(agent) as host:
        run = await host.start(agent, "Go.")
        with anyio.fail_after(PATIENCE):
            stands = ""
            while "begins in" not in stands or "a timer" not in stands or "workflow task" in stands:
                await anyio.sleep(0.05)
                stands = await where_it_stands(run.handle)
        assert re.sub(r"in \d+ s", "in … s", stands) == snapshot("""\
It waits for
  a decision about a, hand_over: order_id=1 (kind deferred)
  tool:late, attempt 2, which begins in … s (`skip_time=True` lets that pass at once); the last one ended with \
TransientToolError: The shop is closed.
  a timer of 600 s (`skip_time=True` lets it pass at once)\
""")


async def test_what_does_not_come_in_time_is_named(durable: Durable) -> None:
    agent = support(call("refund", order_id=1))
    async with durable(agent, patience=0.5) as host:
        run = await host.start(agent, "Go.")
        with pytest.raises(NothingCame, match=r"Waited 0.5 s for the run .* to wait for 3 decisions, in vain"):
            await run.pending(3)


async def test_a_run_that_has_ended_says_so_to_who_waits_for_a_decision(durable: Durable) -> None:
    agent = support(call("find", order_id="x"), call("find", order_id="y"))
    async with durable(agent) as host:
        run = await host.start(agent, "Go.")
        with pytest.raises(NothingCame) as caught:
            await run.pending()
        assert scrubbed(caught.value).startswith(
            "The run 'support-…' ended; the test expected it to wait for 1 decision. It failed after 2 steps, with "
            "ToolRetriesExceeded: "
        )
        assert await where_it_stands(run.handle) == snapshot("The run has ended: failed.")


async def test_a_history_that_does_not_fit_the_code_is_noticed(durable: Durable) -> None:
    history = (await durable.run(support(), "Go.")).history
    changed = WorkflowHistory.from_json("changed", history.to_json().replace("model:1", "model:7"))
    with pytest.raises(NotDurable) as caught:
        await check_history(changed)
    first, *_, last = str(caught.value).splitlines()
    assert first == snapshot("The history of the run 'changed' does not replay.")
    assert last == snapshot(
        """\
  No agent's code runs in a workflow: the mistake is outlast's own, or that of an interceptor or a codec of yours.\
"""
    )


async def test_an_error_of_the_test_stays_in_sight_and_leaves_no_run(durable: Durable, client: Client) -> None:
    """What is wrong with a history by then may well come from it."""
    agent = support(call("refund", order_id=1))
    started: list[HostedRun] = []
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 -- the block is what is tested
        async with durable(agent) as host:
            started.append(await host.start(agent, "Go."))
            raise ZeroDivisionError
    assert (await client.get_workflow_handle(started[0].id).describe()).status == WorkflowExecutionStatus.TERMINATED


async def test_a_test_that_runs_out_of_its_own_time_leaves_no_run(durable: Durable, client: Client) -> None:
    """What takes the block down is not cancelled together with what was in it."""
    agent = support(call("refund", order_id=1))
    started: list[HostedRun] = []
    with anyio.CancelScope() as scope:
        async with durable(agent) as host:
            started.append(await host.start(agent, "Go."))
            await started[0].pending()
            scope.cancel()
            await started[0].result()
    assert scope.cancelled_caught
    assert (await client.get_workflow_handle(started[0].id).describe()).status == WorkflowExecutionStatus.TERMINATED


async def test_a_test_on_another_event_loop_is_told_so() -> None:
    """A task of trio has no running loop of asyncio; nor has a thread."""

    def enter() -> None:
        cast(Any, Durable()(support()).__aenter__()).send(None)

    with pytest.raises(UserError, match="anyio_backend"):
        await anyio.to_thread.run_sync(enter)


async def test_a_decision_that_cannot_apply_fails_the_test(durable: Durable) -> None:
    with pytest.raises(DecisionRejected):
        await durable.run(support(call("hand_over", order_id=1)), "Go.", decide=approve_all)
