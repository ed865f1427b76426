"""Functions of this program as tools."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast, overload

from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import Unpack, override

from outlast.errors import ApprovalRequired, UserError
from outlast.toolsets.abstract import AbstractToolset, ToolsetTool
from outlast.toolsets.awaiting import settled
from outlast.toolsets.context import DepsT, RunContext
from outlast.toolsets.docstring import DocstringFormat
from outlast.toolsets.schema_generator import ToolJsonSchema
from outlast.toolsets.settings import ToolOptions, ToolSettings
from outlast.toolsets.tool import DefinitionOptions, Tool
from outlast.toolsets.variant import variant

__all__ = ("FunctionToolset",)

F = TypeVar("F", bound=Callable[..., Any])


class FunctionToolset(AbstractToolset[DepsT]):
    """Offers functions as tools.

    Args:
        tools: Functions, or `Tool` objects.
        id: A name for the toolset.
        docstring_format: How the functions' docstrings are written.
        require_parameter_descriptions: Refuse functions whose parameters are not all described.
        schema_generator: Makes the JSON schemas.
        options: The fields of `ToolSettings`, for tools that do not set them themselves.

    Raises:
        UserError: A definition has mistakes, or a name is there twice.
    """

    def __init__(
        self,
        tools: Sequence[Tool[DepsT] | Callable[..., Any]] = (),
        *,
        id: str | None = None,  # the same word as the property
        docstring_format: DocstringFormat = "auto",
        require_parameter_descriptions: bool = False,
        schema_generator: type[GenerateJsonSchema] = ToolJsonSchema,
        **options: Unpack[ToolOptions],
    ) -> None:
        self._id = id
        self._defaults: DefinitionOptions = {
            "docstring_format": docstring_format,
            "require_parameter_descriptions": require_parameter_descriptions,
            "schema_generator": schema_generator,
        }
        self.settings = ToolSettings.of(options)
        self.tools: dict[str, Tool[DepsT]] = {}
        self._effective: dict[str, ToolSettings] = {}
        self._offered: dict[str, ToolsetTool[DepsT]] = {}
        for tool in tools:
            if isinstance(tool, Tool):
                self.add_tool(cast("Tool[DepsT]", tool))
            else:
                self.add_function(tool)

    @property
    @override
    def id(self) -> str | None:
        return self._id

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(self, /, **options: Unpack[DefinitionOptions]) -> Callable[[F], F]: ...

    def tool(self, function: F | None = None, /, **options: Unpack[DefinitionOptions]) -> F | Callable[[F], F]:
        """Adds the decorated function as a tool; as `@toolset.tool`, or with options as `@toolset.tool(timeout=30)`.

        Raises:
            UserError: The definition has mistakes, or the name is there already.
        """

        def register(function: F) -> F:
            self.add_function(function, **options)
            return function

        return register if function is None else register(function)

    def add_function(self, function: Callable[..., Any], /, **options: Unpack[DefinitionOptions]) -> Tool[DepsT]:
        """Adds a function as a tool, also while a run is under way: it is offered from the next step.

        Raises:
            UserError: The definition has mistakes, or the name is there already.
        """
        tool = Tool[DepsT](function, **{**self._defaults, **options})
        self.add_tool(tool)
        return tool

    def add_tool(self, tool: Tool[DepsT]) -> None:
        """Adds a tool.

        Raises:
            UserError: The name is there already, or the tool does not go with the toolset's settings.
        """
        if tool.name in self.tools:
            raise UserError(
                f"{self.label} has a tool {tool.name!r} already: give one of them another name with `name='…'`."
            )
        settings = tool.settings.under(self.settings)
        tool.check_prompt(settings)
        self._effective[tool.name] = settings
        self.tools[tool.name] = tool

    @override
    async def get_tools(self, ctx: RunContext[DepsT]) -> dict[str, ToolsetTool[DepsT]]:
        tools: dict[str, ToolsetTool[DepsT]] = {}
        for name in list(self.tools):  # A prepare function may await, and another call may add a tool meanwhile.
            offered = self._offered.get(name) or self._offer(name)
            if offered.settings.prepare is None:
                tools[name] = offered
            elif prepared := await self._prepared(offered, ctx):
                tools[name] = prepared
        return tools

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[DepsT], tool: ToolsetTool[DepsT]
    ) -> Any:
        # No timeout here. Whoever executes the call applies it, in-process and on Temporal alike, so that it means the
        # same on both, and covers the wrappers around this toolset too.
        if tool.settings.requires_approval and not ctx.tool_call_approved:
            raise ApprovalRequired
        registered = self.tools.get(name)
        if registered is None:
            raise UserError(
                f"{self.label} was asked to call {name!r}, which it does not have. A wrapper that renames tools calls "
                "the wrapped toolset with the original name: `super().call_tool(original, …)`."
            )
        return await registered.function_schema.call(tool_args, ctx)

    @override
    def known_names(self) -> Iterable[str]:
        return list(self.tools)

    def _offer(self, name: str) -> ToolsetTool[DepsT]:
        tool, settings = self.tools[name], self._effective[name]
        offered = self._offered[name] = ToolsetTool(
            toolset=self,
            tool_def=tool.define(settings),
            args_validator=tool.function_schema.arguments,
            settings=settings,
            dump_args=tool.function_schema.arguments.dump,
            needs_approval=_always if settings.requires_approval else None,
        )
        return offered

    async def _prepared(self, offered: ToolsetTool[DepsT], ctx: RunContext[DepsT]) -> ToolsetTool[DepsT] | None:
        prepare = offered.settings.prepare
        assert prepare is not None
        # A new definition, with a schema of its own, for a function that may edit it in place.
        tool_def = await settled(prepare(ctx, copy.deepcopy(offered.tool_def)))
        if tool_def is None:
            return None
        if tool_def.name != offered.tool_def.name:
            raise UserError(
                f"the prepare function of tool {offered.tool_def.name!r} renamed it to {tool_def.name!r}. A tool keeps "
                "its name: rename it with `name='…'`, or with `toolset.renamed({'new': 'old'})`."
            )
        return variant(offered, tool_def=tool_def)


def _always(ctx: RunContext[Any], args: dict[str, Any]) -> bool:
    return True
