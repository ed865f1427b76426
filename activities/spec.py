"""What the activities must know of an agent. `outlast.Agent` is one; it is handed in, never imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pydantic import TypeAdapter

from outlast.activities.output import Output
from outlast.models.model import Model, ModelSettings
from outlast.toolsets.abstract import AbstractToolset
from outlast.toolsets.context import RunContext
from outlast.toolsets.settings import ToolSettings


class AgentSpec(Protocol):
    """An agent, as a worker or the in-process engine sees it."""

    @property
    def name(self) -> str | None:
        """What runs are started with."""
        ...

    @property
    def toolset(self) -> AbstractToolset[Any]:
        """All of the agent's toolsets in one."""
        ...

    @property
    def output(self) -> Output:
        """What a run may end with."""
        ...

    @property
    def tool_settings(self) -> ToolSettings:
        """What holds for every tool whose own settings and toolset do not say otherwise."""
        ...

    @property
    def model_attempts(self) -> int:
        """Most attempts at one model request."""
        ...

    @property
    def output_retries(self) -> int:
        """How often the model may give an invalid output."""
        ...

    @property
    def deps_adapter(self) -> TypeAdapter[Any] | None:
        """Reads and writes the deps of durable runs; None where there is no `deps_type`."""
        ...

    def model_for(self, override: str | None) -> Model:
        """The model of a run: the agent's own, or the one that the run names."""
        ...

    def settings_for(self, override: Mapping[str, Any] | None) -> ModelSettings:
        """The model settings of a run: the agent's own, and single ones that the run overrides."""
        ...

    def deps_for(self, given: Callable[[], Any]) -> Any:
        """The deps of a run: those that it was given, unless the agent replaces them."""
        ...

    async def instructions_for(self, ctx: RunContext[Any]) -> str | None:
        """The agent's instructions for one step."""
        ...
