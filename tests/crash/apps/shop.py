"""A worker process that the crash tests start, kill and start again; everything it does is counted outside of it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio

from outlast.agent import Agent
from outlast.connection import connect
from outlast.errors import ModelRetry
from outlast.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from outlast.models.function import AgentInfo, FunctionModel
from outlast.settings import Settings
from outlast.toolsets.context import RunContext
from outlast.worker import run_worker
from tests.crash.outside import Outside

outside = Outside(Path(os.environ["OUTSIDE"]))


async def follow_script(messages: list[ModelMessage], info: AgentInfo) -> Any:
    """Follow the script that the run's prompt holds, a JSON list with one entry for each step.

    An entry is a list of calls `[name, arguments]`, or `{"gate": name, "calls": […]}` for an answer that takes until
    the gate is open. After the last entry the answer is what the model was told of its calls.
    """
    script = json.loads(_prompt(messages))
    step = sum(isinstance(message, ModelResponse) for message in messages)
    if step >= len(script):
        return json.dumps(_told(messages))
    line = script[step] if isinstance(script[step], dict) else {"calls": script[step]}
    if gate := line.get("gate"):
        outside.record(f"model:{gate}")
        await outside.pass_gate(gate)
    calls = [
        ToolCallPart(tool_name=name, args=args, tool_call_id=f"{name}_{step + 1}_{number}")
        for number, (name, args) in enumerate(line["calls"], start=1)
    ]
    return calls or json.dumps(_told(messages))


def _prompt(messages: list[ModelMessage]) -> str:
    return next(str(part.content) for part in messages[0].parts if isinstance(part, UserPromptPart))


def _told(messages: list[ModelMessage]) -> list[list[Any]]:
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    return [
        [part.tool_name, part.outcome if isinstance(part, ToolReturnPart) else "retry", part.content]
        for part in parts
        if isinstance(part, ToolReturnPart | RetryPromptPart)
    ]


agent: Agent[Any, str] = Agent(FunctionModel(follow_script), name="shop")


def _record(ctx: RunContext[Any]) -> None:
    outside.record(ctx.tool_name or "", key=ctx.idempotency_key, attempt=ctx.attempt)


@agent.tool
async def find(ctx: RunContext[Any], order: int) -> str:
    """Ends at once; may be repeated."""
    _record(ctx)
    return f"order {order}"


@agent.tool
async def slow(ctx: RunContext[Any], gate: str) -> str:
    """Takes until the gate is open; may be repeated."""
    _record(ctx)
    try:
        await outside.pass_gate(gate)
    finally:
        outside.record("slow left", key=ctx.idempotency_key, attempt=ctx.attempt)
    return "slow done"


@agent.tool
def slow_sync(ctx: RunContext[Any], gate: str) -> str:
    """The same in a thread, which nothing can stop."""
    _record(ctx)
    outside.pass_gate_sync(gate)
    return "slow_sync done"


@agent.tool
async def slow_executor(ctx: RunContext[Any], gate: str) -> str:
    """The same in a thread of the event loop's executor, as libraries do it."""
    _record(ctx)
    await asyncio.to_thread(outside.pass_gate_sync, gate)
    return "slow_executor done"


@agent.tool(repeatable=False)
async def once(ctx: RunContext[Any], gate: str) -> str:
    """Has its effect, then takes until the gate is open; must not be repeated."""
    _record(ctx)
    await outside.pass_gate(gate)
    return "once done"


@agent.tool(requires_approval=True)
async def refund(ctx: RunContext[Any], cents: int) -> str:
    """Has its effect, then takes until the gate `refund` is open; needs an approval, so must not be repeated."""
    _record(ctx)
    await outside.pass_gate("refund")
    return f"refunded {cents}"


@agent.tool(timeout=1)
async def nap(ctx: RunContext[Any]) -> str:
    """Sleeps far longer than its timeout allows."""
    _record(ctx)
    await anyio.sleep(30)
    return "rested"


@agent.tool(timeout=1)
def nap_sync(ctx: RunContext[Any]) -> str:
    """The same in a thread."""
    _record(ctx)
    time.sleep(30)
    return "rested"


@agent.tool
async def block(ctx: RunContext[Any], seconds: float) -> str:
    """Blocks the worker's event loop, as an async function must not."""
    _record(ctx)
    time.sleep(seconds)  # noqa: ASYNC251 - the mistake that the test is about
    outside.record("block left")
    return "blocked"


@agent.tool(backoff=0.2)
async def decline(ctx: RunContext[Any]) -> str:
    """Always fails."""
    _record(ctx)
    raise ValueError("card declined")


@agent.tool
async def picky(ctx: RunContext[Any]) -> str:
    """Is never content with what the model asks for."""
    _record(ctx)
    raise ModelRetry("ask for something else")


async def main() -> None:
    """Serve until told to stop."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s", stream=sys.stdout)
    await run_worker(await connect(), [agent], settings=Settings.load(), on_ready=lambda: print("ready", flush=True))


if __name__ == "__main__":
    asyncio.run(main())
