"""The tools of one run, resolved once for the run and once for each step."""

from __future__ import annotations

from typing import Any

import anyio

from outlast.activities.spec import AgentSpec
from outlast.toolsets.abstract import AbstractToolset, ToolsetTool
from outlast.toolsets.context import RunContext


class RunTools:
    """Resolves an agent's toolsets for a run; keeps what it found for the step that is under way."""

    def __init__(self, agent: AgentSpec, extra: AbstractToolset[Any] | None = None) -> None:
        self.agent = agent
        self._toolset = extra or agent.toolset
        self._for_run: AbstractToolset[Any] | None = None
        self._step: int | None = None
        self._tools: dict[str, ToolsetTool] = {}
        self._lock = anyio.Lock()

    async def for_step(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool]:
        """The tools of the step that `ctx` is in, by name."""
        if self._step == ctx.run_step:
            return self._tools
        async with self._lock:
            if self._step == ctx.run_step:
                return self._tools
            if self._for_run is None:
                self._for_run = await self._toolset.for_run(ctx)
            toolset = await self._for_run.for_run_step(ctx)
            self._tools = await toolset.get_tools(ctx)
            self._step = ctx.run_step
        return self._tools
