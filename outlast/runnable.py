"""An agent as the engines see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from outlast.activities.output import Output
from outlast.models.infer import infer_model
from outlast.models.model import Model, ModelSettings, load_settings, merge_settings
from outlast.toolsets.abstract import AbstractToolset
from outlast.toolsets.context import RunContext
from outlast.toolsets.settings import ToolSettings

if TYPE_CHECKING:
    from outlast.agent import Agent


class RunnableAgent:
    """An agent as an engine sees it: what `AgentSpec` asks for, with what one run replaces."""

    def __init__(self, agent: Agent[Any, Any], *, model: Model | None = None, output: Output | None = None) -> None:
        self.agent = agent
        self._model = model
        self._output = output

    @property
    def name(self) -> str | None:
        """What runs are started with."""
        return self.agent.name

    @property
    def toolset(self) -> AbstractToolset[Any]:
        """All of the agent's toolsets in one."""
        return self.agent.combined_toolset()

    @property
    def output(self) -> Output:
        """What a run may end with."""
        return self._output or self.agent.output

    @property
    def tool_settings(self) -> ToolSettings:
        """What holds for every tool whose own settings and toolset do not say otherwise."""
        return self.agent.tool_settings

    @property
    def model_attempts(self) -> int:
        """Most attempts at one model request."""
        return self.agent.model_attempts

    @property
    def output_retries(self) -> int:
        """How often the model may give an invalid output."""
        return self.agent.output_retries

    @property
    def deps_adapter(self) -> TypeAdapter[Any] | None:
        """Reads and writes the deps of durable runs; None where there is no `deps_type`."""
        return self.agent.deps_adapter

    def model_for(self, override: str | None) -> Model:
        """The model of a run: the agent's own, or the one that the run names."""
        return self.agent.model_for_run(infer_model(override) if override is not None else self._model)

    def settings_for(self, override: Mapping[str, Any] | None) -> ModelSettings:
        """The model settings of a run: the agent's own, and single ones that the run overrides."""
        return merge_settings(self.agent.model_settings, load_settings(override))

    def deps_for(self, given: Callable[[], Any]) -> Any:
        """The deps of a run: those that it was given, unless the agent replaces them."""
        return self.agent.deps_for_run(given)

    async def instructions_for(self, ctx: RunContext[Any]) -> str | None:
        """The agent's instructions for one step."""
        return await self.agent.render_instructions(ctx)
