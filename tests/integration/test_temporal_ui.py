"""What the Temporal UI shows of a run on the real server: its page, the summaries of its history, its failures."""

from __future__ import annotations

from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.converter import DataConverter

from outlast.agent import Agent
from outlast.client import Client
from outlast.models.scripted import ScriptedModel
from outlast.testing import call
from tests.integration.conftest import Host


async def page(run: WorkflowHandle[Any, Any]) -> str:
    return (await run.query("__temporal_workflow_metadata")).current_details


async def summaries(run: WorkflowHandle[Any, Any]) -> list[str]:
    """The summaries of a run's activities, as the timeline and the event history show them."""
    found: list[str] = []
    for event in (await run.fetch_history()).events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            [summary] = await DataConverter.default.decode([event.user_metadata.summary], [str])
            found.append(summary)
    return found


async def test_a_run_tells_its_story_in_the_ui(host: Host) -> None:
    agent = Agent(ScriptedModel([[call("look", "a"), call("pay", "b", cents=5)], "Paid."]), name="support")

    @agent.tool_plain(attempts=1)
    def look() -> str:
        raise ValueError("nothing there")

    @agent.tool_plain(requires_approval=True)
    def pay(cents: int) -> str:
        return f"paid {cents}"

    await host.serve(agent)
    started = await Client(host.client, task_queue=host.task_queue).start("support", "Pay *Ann*.")
    run: WorkflowHandle[Any, Any] = host.client.get_workflow_handle(started.id)
    host.runs.append(run)
    await host.until(run, lambda status: status["state"] == "waiting")
    assert "### `pay` waits for an approval" in await page(run)
    await run.signal("approve", {"tool_call_id": "b", "by": "ann"})
    await started.result()
    assert await summaries(run) == [
        "Step 1: Pay *Ann*.",
        "no arguments",
        "approved by ann: cents=5",
        "Step 2 after look (failed), pay",
    ]
    ended = await page(run)
    assert "**support** is done, after 2 steps." in ended
    assert "- `pay` was approved by `ann`" in ended
    described = await run.describe()
    assert await described.static_summary() == r"support: Pay \*Ann\*."
    [failed] = [
        event.activity_task_failed_event_attributes.failure
        for event in (await run.fetch_history()).events
        if event.HasField("activity_task_failed_event_attributes")
    ]
    [place] = await DataConverter.default.decode(failed.application_failure_info.details.payloads, [str])
    assert place.startswith(f"{__file__}:")
    assert place.endswith(", in look")
    assert "raise ValueError" not in failed.stack_trace, "a line of code may hold a secret"
