"""Several toolsets as one."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from outlast.errors import UserError
from outlast.toolsets.abstract import AbstractToolset, ToolsetTool
from outlast.toolsets.context import DepsT, RunContext
from outlast.toolsets.variant import variant

__all__ = ("CombinedToolset",)


class CombinedToolset(AbstractToolset[DepsT]):
    """Offers the tools of several toolsets, and calls each where it came from.

    Args:
        toolsets: In the order in which their tools are listed.
    """

    def __init__(self, toolsets: Sequence[AbstractToolset[DepsT]]) -> None:
        self.toolsets = list(toolsets)

    @property
    @override
    def label(self) -> str:
        return f"{type(self).__name__}({', '.join(toolset.label for toolset in self.toolsets)})"

    @override
    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as entered:
            for toolset in self.toolsets:
                await entered.enter_async_context(toolset)
            entered.pop_all()
        return self

    @override
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        # The stack is made here and not kept since entering, so that one toolset can be entered more than once.
        exits = AsyncExitStack()
        for toolset in self.toolsets:
            exits.push_async_exit(toolset)
        return await exits.__aexit__(kind, error, traceback)

    @override
    async def for_run(self, ctx: RunContext[DepsT]) -> AbstractToolset[DepsT]:
        return self._of([await toolset.for_run(ctx) for toolset in self.toolsets])

    @override
    async def for_run_step(self, ctx: RunContext[DepsT]) -> AbstractToolset[DepsT]:
        return self._of([await toolset.for_run_step(ctx) for toolset in self.toolsets])

    @override
    async def get_tools(self, ctx: RunContext[DepsT]) -> dict[str, ToolsetTool[DepsT]]:
        """The tools of all toolsets, by name.

        Raises:
            UserError: Two toolsets have a tool of the same name.
        """
        combined: dict[str, ToolsetTool[DepsT]] = {}
        for toolset in self.toolsets:
            for name, tool in (await toolset.get_tools(ctx)).items():
                if name in combined:
                    raise _conflict(name, combined[name], toolset)
                combined[name] = variant(tool, toolset=self, origin=(toolset, tool))
        return combined

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[DepsT], tool: ToolsetTool[DepsT]
    ) -> Any:
        if tool.origin is None:
            raise UserError(f"{self.label} was asked to call {name!r} with a tool that it did not list itself.")
        toolset, original = tool.origin
        return await toolset.call_tool(name, tool_args, ctx, original)

    @override
    def known_names(self) -> Iterable[str]:
        return [name for toolset in self.toolsets for name in toolset.known_names()]

    def _of(self, toolsets: list[AbstractToolset[DepsT]]) -> AbstractToolset[DepsT]:
        if all(new is old for new, old in zip(toolsets, self.toolsets, strict=True)):
            return self
        copied = copy.copy(self)
        copied.toolsets = toolsets
        return copied


def _conflict(name: str, tool: ToolsetTool[Any], second: AbstractToolset[Any]) -> UserError:
    first = tool.origin[0] if tool.origin else tool.toolset
    return UserError(
        f"two toolsets have a tool {name!r}: {first.label} and {second.label}. {second.tool_name_conflict_hint}"
    )
