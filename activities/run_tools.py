"""The tools of one run, resolved once for the run and once for each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from outlast.activities.entering import Enter, Leave, holding
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
    """Resolves an agent's toolsets for a run; keeps what it found for the step that is under way.

    Args:
        agent: Whose run it is.
        toolset: Instead of the agent's; it is entered already.
        enter: Enters what is made for the run or a step.
    """

    def __init__(
        self, agent: AgentSpec, toolset: AbstractToolset[Any] | None = None, *, enter: Enter | None = None
    ) -> None:
        self.agent = agent
        self._toolset = toolset or agent.toolset
        self._enter = enter
        self._leave_step: list[Leave] = []
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
                    await self._enter_new(self._for_run, self._toolset)
                while self._leave_step:
                    await self._leave_step.pop()()
                toolset = await self._for_run.for_run_step(ctx)
                self._leave_step = await self._enter_new(toolset, self._for_run)
                self._step_tools = StepTools(toolset, await toolset.get_tools(ctx))
                self._step = ctx.run_step
            return self._step_tools

    async def _enter_new(self, toolset: AbstractToolset[Any], entered: AbstractToolset[Any]) -> list[Leave]:
        """Enter what is new in a toolset that was made from another, which is entered already."""
        if self._enter is None or toolset is entered:
            return []
        known = {id(each) for each in holding(entered)}
        return [await self._enter(each) for each in holding(toolset) if id(each) not in known]
