"""What an app offers: its agents and their tools, as the model sees them and with what applies to a call of each."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from outlast.agent import Agent
from outlast.errors import UserError
from outlast.messages import JsonObject
from outlast.models.test import TestModel
from outlast.toolsets.abstract import AbstractToolset, ToolsetTool
from outlast.toolsets.combined import CombinedToolset
from outlast.toolsets.context import RunContext
from outlast.toolsets.dynamic import DynamicToolset
from outlast.toolsets.function import FunctionToolset

__all__ = ("AgentEntry", "ToolEntry", "UnlistedTools", "take_inventory")


@dataclass(frozen=True, kw_only=True)
class ToolEntry:
    """A tool of an agent.

    Attributes:
        toolset: Label of the toolset that it was added to, below whatever wraps that.
        where: File and line of its function, where it has one.
        json_schema: Of its arguments.
        policy: What applies to a call, with defaults; durations in seconds.
        approval: `always`, `sometimes` (a function of the arguments says) or `never`.
        external: Its result comes from outside.
    """

    name: str
    description: str | None
    toolset: str
    where: str | None
    json_schema: JsonObject
    policy: JsonObject
    approval: str
    external: bool


@dataclass(frozen=True, kw_only=True)
class UnlistedTools:
    """A toolset whose tools are known only once a run is there, and why."""

    toolset: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class AgentEntry:
    """An agent, with its tools in the order in which the model sees them.

    Attributes:
        problem: What keeps its model from being asked, such as a missing key; None where nothing does.
    """

    name: str
    model: str | None
    problem: str | None = None
    tools: list[ToolEntry] = field(default_factory=list[ToolEntry])
    unlisted: list[UnlistedTools] = field(default_factory=list[UnlistedTools])

    def to_json(self) -> JsonObject:
        """The same as JSON."""
        return asdict(self)


async def take_inventory(agents: Sequence[Agent[Any, Any]]) -> list[AgentEntry]:
    """Everything that can be told of agents without a run, a server or a model.

    Args:
        agents: Those of one app.
    """
    return [await _agent(agent) for agent in agents]


async def _agent(agent: Agent[Any, Any]) -> AgentEntry:
    entry = AgentEntry(name=agent.name or "", model=_model_name(agent), problem=_problem(agent))
    ctx: RunContext[Any] = RunContext(deps=None, model=TestModel())
    for toolset in _apart(agent.combined_toolset()):
        if isinstance(toolset, DynamicToolset):
            made_for = "each step" if toolset.per_run_step else "each run"
            name = getattr(toolset.toolset_func, "__name__", toolset.label)
            entry.unlisted.append(UnlistedTools(toolset=name, reason=f"makes its tools for {made_for}"))
            continue
        try:
            offered = await toolset.get_tools(ctx)
        except Exception as error:  # a user's own function, which may need a real run
            problem = (str(error).strip() or type(error).__name__).splitlines()[0]
            reason = f"lists its tools in a run only: {problem}"
            entry.unlisted.append(UnlistedTools(toolset=toolset.label, reason=reason))
            continue
        entry.tools.extend(_tool(tool.under(agent.tool_settings)) for tool in offered.values())
    return entry


def _apart(toolset: AbstractToolset[Any]) -> list[AbstractToolset[Any]]:
    """The toolsets that are combined, so that one that needs a run does not hide the others."""
    if type(toolset) is CombinedToolset:
        return [part for each in toolset.toolsets for part in _apart(each)]
    return [toolset]


def _model_name(agent: Agent[Any, Any]) -> str | None:
    return agent.model.model_name if agent.model is not None else None


def _problem(agent: Agent[Any, Any]) -> str | None:
    try:
        if agent.model is not None:
            agent.model.check_setup()
    except UserError as error:
        return error.message
    return None


def _tool(tool: ToolsetTool[Any]) -> ToolEntry:
    policy = tool.policy()
    toolset, original = _origin(tool)
    may_wait = tool.may_need_approval
    always = tool.settings.requires_approval is True or tool.tool_def.kind == "unapproved"
    shown = policy.model_dump(mode="json")
    if policy.repeatable is None:
        # Its default depends on the approval, which a function may ask for call by call.
        shown["repeatable"] = not always
    return ToolEntry(
        name=tool.tool_def.name,
        description=tool.tool_def.description,
        toolset=toolset.label,
        where=_where(toolset, original),
        json_schema=tool.tool_def.parameters_json_schema,
        policy=shown,
        approval="always" if always else "sometimes" if may_wait else "never",
        external=tool.tool_def.kind == "external",
    )


def _origin(tool: ToolsetTool[Any]) -> tuple[AbstractToolset[Any], ToolsetTool[Any]]:
    """The toolset that a tool was added to, and the tool as it is there, however many wrappers are around it."""
    toolset = tool.toolset
    while tool.origin is not None:
        toolset, tool = tool.origin
    return toolset, tool


def _where(toolset: AbstractToolset[Any], tool: ToolsetTool[Any]) -> str | None:
    """File and line of the function behind a tool."""
    made = toolset.tools.get(tool.tool_def.name) if isinstance(toolset, FunctionToolset) else None
    if made is None:
        return None
    function: Any = made.function
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    path = Path(code.co_filename)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{code.co_firstlineno}"


def difference(old: Sequence[JsonObject], new: Sequence[JsonObject]) -> list[str]:
    """What became different between two inventories as JSON, a line for each agent; nothing where all is the same."""
    before, after = ({entry["name"]: entry for entry in entries} for entries in (old, new))
    lines = [f"+ agent {name}" for name in after if name not in before]
    lines += [f"- agent {name}" for name in before if name not in after]
    for name in after.keys() & before.keys():
        tools, gone = ({tool["name"]: tool for tool in entry["tools"]} for entry in (after[name], before[name]))
        signs = [f"+ {tool}" for tool in tools if tool not in gone]
        signs += [f"- {tool}" for tool in gone if tool not in tools]
        signs += [f"~ {tool}" for tool in tools if tool in gone and _seen(tools[tool]) != _seen(gone[tool])]
        if after[name]["model"] != before[name]["model"]:
            signs.append(f"model {before[name]['model']} → {after[name]['model']}")
        if signs:
            lines.append(f"{name}: {', '.join(signs)}")
    return lines


def _seen(tool: JsonObject) -> JsonObject:
    return {name: value for name, value in tool.items() if name != "where"}
