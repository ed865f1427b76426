"""The same job as an outlast agent."""

from __future__ import annotations

import json
from typing import Any

import anyio

from outlast import Agent, FunctionModel, ModelMessage, ModelResponse, RunContext, TextPart, ToolCallPart
from outlast.models import AgentInfo


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """What the model says: decided by the conversation alone, and at once."""
    job: dict[str, Any] = json.loads(str(messages[0].parts[-1].content))  # type: ignore[union-attr]
    if len(messages) // 2 == job["steps"] - 1:
        return ModelResponse(parts=[TextPart(content="Done.")])
    tool = "held" if job["held"] else "quick" if job["local"] else "work"
    calls = [
        ToolCallPart(tool, {"size": job["result_bytes"]}, "held" if job["held"] else "") for _ in range(job["calls"])
    ]
    return ModelResponse(parts=calls)


agent: Agent[Any, Any] = Agent(FunctionModel(answer), name="bench")


@agent.tool_plain
async def work(size: int) -> str:
    """Give a result of some size."""
    return "x" * size


@agent.tool_plain(local=True)
async def quick(size: int) -> str:
    """Give it by a local activity."""
    return "x" * size


@agent.tool_plain(requires_approval=True)
async def held(size: int) -> str:
    """Give it once a person agrees."""
    return "x" * size


def stuck(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Calls the tool that hangs, once."""
    return ModelResponse(parts=[ToolCallPart("hang", {})] if len(messages) == 1 else [TextPart(content="Done.")])


crashing: Agent[Any, Any] = Agent(FunctionModel(stuck), name="crashing")


@crashing.tool
async def hang(ctx: RunContext[Any]) -> str:
    """Hang at the first attempt, until the process is killed."""
    if ctx.attempt == 1:
        await anyio.sleep_forever()
    return "ok"
