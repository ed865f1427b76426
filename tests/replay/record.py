"""Records the histories of one release: `python -m tests.replay.record`, before the release is tagged.

A history that is recorded is never changed: it is what runs in flight look like to every later release.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.worker import Worker

import outlast
from outlast import Agent, RunContext, ScriptedModel, TransientToolError
from outlast.plugin import OutlastPlugin
from outlast.server import EmbeddedServer
from outlast.settings import Settings
from outlast.testing import call
from tests.asking import query_until

Scenario = Callable[[Client, str], Awaitable[WorkflowHandle[Any, Any]]]


class Deps(BaseModel):
    seen: int = 0


def agent(name: str, *responses: Any) -> Agent[Any, Any]:
    made = Agent(ScriptedModel([*responses, "Done."]), name=name, deps_type=Deps)

    @made.tool
    def look(ctx: RunContext[Deps], page: int = 1) -> str:
        ctx.deps.seen += 1
        return f"page {page}"

    @made.tool_plain(requires_approval=True)
    def refund(cents: int) -> str:
        return f"refunded {cents}"

    @made.tool_plain(attempts=2, backoff=0.01)
    def fail() -> None:
        raise ValueError("no")

    @made.tool_plain(repeatable=False, attempts=2)
    def busy() -> None:
        raise TransientToolError("busy", retry_after=0.01)

    @made.tool_plain(repeatable=False)
    def lose() -> None:
        raise ConnectionError("reset")

    @made.tool_plain(sequential=True)
    def first(page: int) -> int:
        return page

    return made


AGENTS = [
    agent("plain", [call("look", "a")], [call("look", "a", page=2), call("nothing", "b"), call("look", "c", page="x")]),
    agent(
        "gate",
        [call("refund", "a", cents=1), call("refund", "b", cents=2), call("look", "c")],
        [call("refund", "a", cents=3)],
    ),
    agent(
        "faults",
        [call("fail", "a"), call("busy", "b"), call("lose", "c")],
        [call("first", "d", page=1), call("first", "e", page=2), call("look", "f")],
    ),
    agent("exceeds", [call("fail", "a")], *[[call("look", page="x")]] * 3),
]


async def start(client: Client, name: str, **fields: Any) -> WorkflowHandle[Any, Any]:
    run_input = {"agent": name, "prompt": "Go.", "deps": {}, **fields}
    return await client.start_workflow("AgentRun", run_input, id=f"{name}-{uuid.uuid4().hex[:6]}", task_queue="outlast")


async def waiting(run: WorkflowHandle[Any, Any], count: int) -> None:
    await query_until(run, "pending", lambda calls: len(calls) == count)


async def plain(client: Client) -> WorkflowHandle[Any, Any]:
    """Calls, an unknown tool, arguments that do not fit, deps that change."""
    run = await start(client, "plain")
    await run.result()
    return run


async def gate(client: Client) -> WorkflowHandle[Any, Any]:
    """Approvals by signal and update, an edit, a denial, early and malformed messages, pause and steer."""
    run = await start(client, "gate")
    await waiting(run, 2)
    await run.signal("approve", {"tool_call": "a"})
    await run.signal("deny", {"tool_call_id": "later", "message": "Kept."})
    await run.execute_update("approve", {"tool_call_id": "b", "override_args": {"cents": 20}, "by": "ana"})
    await run.signal("pause", {"by": "ana"})
    await run.signal("approve", {"tool_call_id": "a", "by": "ben"})
    await run.signal("steer", {"content": "Be brief."})
    await run.execute_update("resume", {})
    await waiting(run, 1)
    [call_again] = await run.query("pending")
    await run.execute_update("deny", {"tool_call_id": call_again["tool_call_id"], "message": "Enough."})
    await run.result()
    return run


async def faults(client: Client) -> WorkflowHandle[Any, Any]:
    """Errors, transient errors with a timer, an unknown outcome, sequential calls."""
    run = await start(client, "faults")
    await waiting(run, 1)
    await run.signal("resolve", {"tool_call_id": "c", "result": "it went through"})
    await run.result()
    return run


async def exceeds(client: Client) -> WorkflowHandle[Any, Any]:
    """The run fails."""
    run = await start(client, "exceeds")
    try:
        await run.result()
    except WorkflowFailureError:
        return run
    raise AssertionError("the run should have failed")


async def cancelled(client: Client) -> WorkflowHandle[Any, Any]:
    """The run is cancelled while calls wait."""
    run = await start(client, "gate")
    await waiting(run, 2)
    await run.cancel()
    try:
        await run.result()
    except WorkflowFailureError:
        return run
    raise AssertionError("the run should have been cancelled")


async def invalid(client: Client) -> WorkflowHandle[Any, Any]:
    """The input does not fit."""
    run = await start(client, "plain", promt="x")
    try:
        await run.result()
    except WorkflowFailureError:
        return run
    raise AssertionError("the run should have failed")


SCENARIOS = {scenario.__name__: scenario for scenario in (plain, gate, faults, exceeds, cancelled, invalid)}


def scrubbed(history: Any) -> Any:
    """The history without stack traces, which hold paths of the machine that recorded it."""
    if isinstance(history, dict):
        return {key: scrubbed(value) for key, value in history.items() if key != "stackTrace"}
    return [scrubbed(value) for value in history] if isinstance(history, list) else history


async def main() -> None:
    """Record every scenario."""
    folder = Path(__file__).parent / "histories" / outlast.__version__
    folder.mkdir(parents=True, exist_ok=True)
    settings = Settings(heartbeat_timeout=timedelta(seconds=10))
    async with EmbeddedServer(ui=False) as server:
        client = await Client.connect(server.address, namespace=server.namespace, identity="recorder")
        plugin = OutlastPlugin(agents=AGENTS, settings=settings)
        async with Worker(client, task_queue="outlast", plugins=[plugin], identity="recorder"):
            for name, scenario in SCENARIOS.items():
                run = await scenario(client)
                history = json.loads((await run.fetch_history()).to_json())
                text = json.dumps(scrubbed(history), indent=1, sort_keys=True)
                (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
                print(f"{name}: {len(history['events'])} events")


if __name__ == "__main__":
    asyncio.run(main())
