"""Tools with a prefix before their names."""

from __future__ import annotations

from collections.abc import Iterable

from typing_extensions import override

from outlast.errors import UserError
from outlast.toolsets.abstract import AbstractToolset, ToolsetTool
from outlast.toolsets.context import DepsT, RunContext
from outlast.toolsets.definition import name_problem
from outlast.toolsets.variant import variant
from outlast.toolsets.wrapper import RewritingToolset

__all__ = ("PrefixedToolset",)


class PrefixedToolset(RewritingToolset[DepsT]):
    """Offers each tool as `<prefix>_<name>`, so that toolsets whose names conflict fit together.

    Args:
        wrapped: The toolset to wrap.
        prefix: Without the underscore that follows it.

    Raises:
        UserError: No tool can have a name that starts so.
    """

    def __init__(self, wrapped: AbstractToolset[DepsT], prefix: str) -> None:
        super().__init__(wrapped)
        if name_problem(prefix):
            raise UserError(f"a prefix is made of letters, digits, `_`, `-` or `.`, got {prefix!r}.")
        self.prefix = prefix

    @property
    @override
    def tool_name_conflict_hint(self) -> str:
        return f"Give one of the toolsets another prefix than {self.prefix!r}."

    @override
    def known_names(self) -> Iterable[str]:
        return [f"{self.prefix}_{name}" for name in self.wrapped.known_names()]

    @override
    async def rewrite(
        self, ctx: RunContext[DepsT], tools: dict[str, ToolsetTool[DepsT]]
    ) -> dict[str, ToolsetTool[DepsT]]:
        prefixed: dict[str, ToolsetTool[DepsT]] = {}
        for name, tool in tools.items():
            new = f"{self.prefix}_{name}"
            prefixed[new] = variant(
                tool, toolset=self, tool_def=variant(tool.tool_def, name=new), origin=(self.wrapped, tool)
            )
        return prefixed
