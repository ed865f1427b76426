"""A toolset that is made for the run, or for each of its steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from typing_extensions import override

from outlast.errors import UserError
from outlast.toolsets.abstract import AbstractToolset, ToolsetTool
from outlast.toolsets.awaiting import settled
from outlast.toolsets.combined import CombinedToolset
from outlast.toolsets.context import DepsT, RunContext

__all__ = ("DynamicToolset", "ToolsetFunction")

ToolsetFunction: TypeAlias = Callable[
    [RunContext[Any]], AbstractToolset[Any] | Awaitable[AbstractToolset[Any] | None] | None
]


class DynamicToolset(AbstractToolset[DepsT]):
    """Stands for the toolset that a function returns.

    Args:
        toolset_func: Called with the run's context; sync or async. None stands for no tools.
        per_run_step: Called before each step; else once per run.
        id: A name for the toolset.
    """

    def __init__(
        self,
        toolset_func: ToolsetFunction,
        *,
        per_run_step: bool = True,
        id: str | None = None,  # the same word as the property
    ) -> None:
        self.toolset_func = toolset_func
        self.per_run_step = per_run_step
        self._id = id

    @property
    @override
    def id(self) -> str | None:
        return self._id

    @override
    async def for_run(self, ctx: RunContext[DepsT]) -> AbstractToolset[DepsT]:
        return self if self.per_run_step else await self._made(ctx)

    @override
    async def for_run_step(self, ctx: RunContext[DepsT]) -> AbstractToolset[DepsT]:
        return await (await self._made(ctx)).for_run_step(ctx)

    @override
    async def get_tools(self, ctx: RunContext[DepsT]) -> dict[str, ToolsetTool[DepsT]]:
        raise UserError(
            f"{self.label} has no tools before it is made: call `for_run(ctx)`, then `for_run_step(ctx)`, and use what "
            "that returns."
        )

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[DepsT], tool: ToolsetTool[DepsT]
    ) -> Any:
        raise UserError(f"{self.label} cannot call {name!r} itself: use the toolset that `for_run_step(ctx)` returned.")

    async def _made(self, ctx: RunContext[DepsT]) -> AbstractToolset[DepsT]:
        made = await settled(self.toolset_func(ctx))
        if made is None:
            return CombinedToolset([])
        if not isinstance(made, AbstractToolset):  # pyright: ignore[reportUnnecessaryIsInstance] # a user's function
            raise UserError(f"the function of {self.label} returns a toolset or None, got {made!r}.")
        return await made.for_run(ctx)
