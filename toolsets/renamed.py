"""Tools under other names."""

from __future__ import annotations

from collections.abc import Iterable

from typing_extensions import override

from outlast.errors import UserError
from outlast.toolsets.abstract import AbstractToolset, ToolsetTool
from outlast.toolsets.context import DepsT, RunContext
from outlast.toolsets.definition import name_problem
from outlast.toolsets.mistakes import DefinitionError
from outlast.toolsets.variant import variant
from outlast.toolsets.wrapper import RewritingToolset

__all__ = ("RenamedToolset",)


class RenamedToolset(RewritingToolset[DepsT]):
    """Offers some tools under other names.

    Args:
        wrapped: The toolset to wrap.
        name_map: New names to original ones. Names that the wrapped toolset does not offer in a step are ignored.

    Raises:
        UserError: A new name is no name for a tool, or a tool would get two names.
    """

    def __init__(self, wrapped: AbstractToolset[DepsT], name_map: dict[str, str]) -> None:
        super().__init__(wrapped)
        problems = [problem for new in name_map if (problem := name_problem(new))]
        originals = list(name_map.values())
        problems += [
            f"{original!r} would get {originals.count(original)} names; the map goes from new names to original ones."
            for original in dict.fromkeys(originals)
            if originals.count(original) > 1
        ]
        if problems:
            raise DefinitionError(f"Renamed tools of {wrapped.label}", problems)
        self.name_map = dict(name_map)
        self._new_names = {original: new for new, original in name_map.items()}

    @override
    def known_names(self) -> Iterable[str]:
        return [self._new_names.get(name, name) for name in self.wrapped.known_names()]

    @override
    async def rewrite(
        self, ctx: RunContext[DepsT], tools: dict[str, ToolsetTool[DepsT]]
    ) -> dict[str, ToolsetTool[DepsT]]:
        renamed: dict[str, ToolsetTool[DepsT]] = {}
        for name, tool in tools.items():
            new = self._new_names.get(name, name)
            if new in renamed:
                raise UserError(
                    f"{self.wrapped.label} already has a tool {new!r}, so {name!r} cannot be renamed to it. "
                    "Choose another name, or rename both."
                )
            renamed[new] = variant(
                tool, toolset=self, tool_def=variant(tool.tool_def, name=new), origin=(self.wrapped, tool)
            )
        return renamed
