"""The tools of one run, resolved once for the run and once for each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from outlast.activities.spec import AgentSpec
from outlast.toolsets.abstract import AbstractToolset, ToolsetTool
from outlast.toolsets.context import RunContext


@dataclass(frozen=True)
class StepTools:
    """The tools of one step.

    Attributes:
        toolset: The outermost toolset, which every call goes through, so that no wrapper is passed by.
        tools: What it offers, by name.
    """

    toolset: AbstractToolset[Any]
    tools: Mapping[str, ToolsetTool[Any]]


class RunTools:
    """Resolves an agent's toolsets for a run; keeps what it found for the step that is under way."""

    def __init__(self, agent: AgentSpec, extra: AbstractToolset[Any] | None = None) -> None:
        self.agent = agent
        self._toolset = extra or agent.toolset
        self._for_run: AbstractToolset[Any] | None = None
        self._step: int | None = None
        self._step_tools: StepTools | None = None
        self._lock = anyio.Lock()

    async def for_step(self, ctx: RunContext[Any]) -> StepTools:
        """The tools of the step that `ctx` is in."""
        if self._step_tools is not None and self._step == ctx.run_step:
            return self._step_tools
        async with self._lock:
            if self._step_tools is None or self._step != ctx.run_step:
                if self._for_run is None:
                    self._for_run = await self._toolset.for_run(ctx)
                toolset = await self._for_run.for_run_step(ctx)
                self._step_tools = StepTools(toolset, await toolset.get_tools(ctx))
                self._step = ctx.run_step
            return self._step_tools
