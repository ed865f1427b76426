"""History grows linearly with the conversation: each message is stored once per place it is needed."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import Client, WorkflowHistory

from outlast import Agent, FunctionModel, ModelResponse, RunContext, TextPart, ToolCallPart
from outlast.server import EmbeddedServer
from tests.integration.conftest import Host, parts

STEPS = 100
RESULT = "x" * 1_000


def looking() -> Agent[Any, Any]:
    """An agent that makes one call a step, each with a result of 1 KB, and notices when it is shown too little."""

    def answer(messages: list[Any], info: Any) -> ModelResponse:
        step = sum(isinstance(message, ModelResponse) for message in messages)
        assert len(messages) == 2 * step + 1
        if step == STEPS - 1:
            return ModelResponse(parts=[TextPart(content="Done.")])
        return ModelResponse(parts=[ToolCallPart(tool_name="look", args={"page": step})])

    agent = Agent(FunctionModel(answer), name="support")

    @agent.tool
    def look(ctx: RunContext[Any], page: int) -> str:
        assert len(ctx.messages) == 2 * page + 2
        return RESULT

    return agent


def check_growth(history: WorkflowHistory) -> None:
    sizes = [event.ByteSize() for event in history.events]
    print(f"{sum(sizes):,} bytes of history in {len(sizes):,} events")
    assert sum(sizes) <= 500_000, f"{sum(sizes):,} bytes"
    first = len(sizes) // 10
    assert max(sizes[first:]) <= 2 * max(sizes[:first])


@pytest.mark.parametrize("cache_mb", [64, 0], ids=["with conversation cache", "without conversation cache"])
async def test_100_steps_with_results_of_1_kb_stay_below_500_kb(host: Host, cache_mb: int) -> None:
    await host.serve(looking(), settings={"conversation_cache_mb": cache_mb}, max_cached_workflows=10)
    run = await host.start("support", usage_limits={"requests": STEPS})
    result = await host.result(run)
    assert (result["steps"], result["messages"]) == (STEPS, 2 * STEPS)
    check_growth(await run.fetch_history())


async def test_100_steps_shared_by_two_workers_stay_below_500_kb(host: Host, server: EmbeddedServer) -> None:
    """Neither worker sees the whole conversation pass: each asks the run for what it missed."""
    for name in ("one", "two"):
        other = await Client.connect(server.address, namespace=server.namespace, identity=name)
        await host.serve(looking(), client=other, max_cached_workflows=10, disable_eager_activity_execution=True)
    run = await host.start("support", usage_limits={"requests": STEPS})
    result = await host.result(run)
    assert result["steps"] == STEPS
    assert len(parts(await host.messages(run), "tool-return")) == STEPS - 1
    history = await run.fetch_history()
    identities = {
        event.activity_task_started_event_attributes.identity
        for event in history.events
        if event.HasField("activity_task_started_event_attributes")
    }
    assert identities == {"one", "two"}
    check_growth(history)
