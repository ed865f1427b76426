"""Toolsets put together: which tools a step offers, and where a call goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from outlast.errors import UserError
from outlast.toolsets import (
    AbstractToolset,
    CombinedToolset,
    DynamicToolset,
    FunctionToolset,
    RunContext,
    ToolDefinition,
    ToolsetTool,
    WrapperToolset,
)


@pytest.fixture
def weather() -> FunctionToolset[Any]:
    toolset = FunctionToolset[Any](id="weather")
    toolset.add_function(lambda city: f"21 in {city}", name="celsius")
    toolset.add_function(lambda city: f"69 in {city}", name="fahrenheit")
    return toolset


@pytest.fixture
def clock() -> FunctionToolset[Any]:
    toolset = FunctionToolset[Any](id="clock")
    toolset.add_function(lambda: "noon", name="now")
    return toolset


async def names(toolset: AbstractToolset[Any], ctx: RunContext[Any]) -> list[str]:
    tools = await toolset.get_tools(ctx)
    assert list(tools) == [tool.tool_def.name for tool in tools.values()]
    return list(tools)


async def test_a_call_finds_its_way_through_every_wrapper(
    weather: FunctionToolset[Any], clock: FunctionToolset[Any], ctx: RunContext[Any], call: Callable[..., Any]
):
    toolset = (
        CombinedToolset([weather.prefixed("weather"), clock.prefixed("datetime")])
        .renamed({"current_time": "datetime_now"})
        .filtered(lambda ctx, tool_def: "fahrenheit" not in tool_def.name)
        .prepared(lambda ctx, tool_defs: [replace(each, description=each.name) for each in tool_defs])
        .approval_required(lambda ctx, tool_def, args: False)
        .with_metadata(team="x")
        .prefixed("all")
    )
    assert await names(toolset, ctx) == ["all_weather_celsius", "all_current_time"]
    assert list(toolset.known_names()) == ["all_weather_celsius", "all_weather_fahrenheit", "all_current_time"]
    assert await call(toolset, "all_weather_celsius", {"city": "Bo"}) == "21 in Bo"
    assert await call(toolset, "all_current_time") == "noon"


async def test_a_wrapper_leaves_the_tools_of_the_wrapped_toolset_as_they_are(
    weather: FunctionToolset[Any], ctx: RunContext[Any]
):
    before = repr(await weather.get_tools(ctx))
    await weather.prefixed("a").with_metadata(x=1).get_tools(ctx)
    assert repr(await weather.get_tools(ctx)) == before


async def test_names_that_conflict_are_refused_with_both_toolsets_and_a_way_out(
    weather: FunctionToolset[Any], ctx: RunContext[Any]
):
    other = FunctionToolset[Any]([], id="other")
    other.add_function(lambda: 1, name="celsius")
    with pytest.raises(UserError) as caught:
        await CombinedToolset([weather.filtered(lambda ctx, tool_def: True), other]).get_tools(ctx)
    assert caught.value.message == snapshot(
        "two toolsets have a tool 'celsius': FilteredToolset(FunctionToolset 'weather') and FunctionToolset 'other'. "
        "Rename one of the tools, or give its toolset a prefix: `toolset.prefixed('…')`."
    )


async def test_a_filter_may_be_async(weather: FunctionToolset[Any], ctx: RunContext[Any]):
    async def only_celsius(ctx: RunContext[Any], tool_def: ToolDefinition) -> bool:
        return tool_def.name == "celsius"

    assert await names(weather.filtered(only_celsius), ctx) == ["celsius"]


async def test_preparing_can_reorder_and_leave_out(weather: FunctionToolset[Any], ctx: RunContext[Any]):
    async def backwards(ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        return tool_defs[::-1]

    assert await names(weather.prepared(backwards), ctx) == ["fahrenheit", "celsius"]
    assert await names(weather.prepared(lambda ctx, tool_defs: None), ctx) == []


@pytest.mark.parametrize("new", [["other"], ["celsius", "celsius"]])
async def test_preparing_cannot_add_or_rename(weather: FunctionToolset[Any], ctx: RunContext[Any], new: list[str]):
    prepared = weather.prepared(lambda ctx, tool_defs: [ToolDefinition(name) for name in new])
    with pytest.raises(UserError, match="add_function"):
        await prepared.get_tools(ctx)


async def test_a_schema_that_one_run_edits_in_place_is_not_seen_by_another(
    weather: FunctionToolset[Any], ctx: RunContext[Any]
):
    """Definitions are made once and shared; a tenant's name written into one must not reach the next tenant."""

    def edit(ctx: RunContext[Any], tool_def: ToolDefinition) -> ToolDefinition:
        assert "description" not in tool_def.parameters_json_schema["properties"]["city"]
        tool_def.parameters_json_schema["properties"]["city"]["description"] = "secret"
        return tool_def

    weather.add_function(lambda city: city, name="edited", prepare=edit)
    prepared = weather.prepared(lambda ctx, tool_defs: [edit(ctx, each) for each in tool_defs if each.name != "edited"])
    for _ in range(2):
        await prepared.get_tools(ctx)


async def test_the_prepare_function_of_a_tool_hides_it_or_changes_it(ctx: RunContext[Any]):
    toolset = FunctionToolset[Any]()

    @toolset.tool(prepare=lambda ctx, tool_def: tool_def if ctx.run_step else None)
    def later() -> int:
        return 1

    @toolset.tool(prepare=lambda ctx, tool_def: replace(tool_def, name="other") if ctx.run_step > 1 else tool_def)
    def renamed() -> int:
        return 1

    assert await names(toolset, ctx) == ["renamed"]
    ctx.run_step = 1
    assert await names(toolset, ctx) == ["later", "renamed"]
    ctx.run_step = 2
    with pytest.raises(UserError, match="keeps its name"):
        await toolset.get_tools(ctx)


@pytest.mark.parametrize(
    ("name_map", "problem"),
    [
        ({"a b": "celsius"}, "a tool's name"),
        ({"x": "celsius", "y": "celsius"}, "would get 2 names"),
    ],
)
def test_a_map_of_names_that_cannot_work_is_refused(
    weather: FunctionToolset[Any], name_map: dict[str, str], problem: str
):
    with pytest.raises(UserError, match=problem):
        weather.renamed(name_map)


async def test_renaming_to_a_name_that_is_there_is_refused(weather: FunctionToolset[Any], ctx: RunContext[Any]):
    with pytest.raises(UserError, match="already has a tool 'fahrenheit'"):
        await weather.renamed({"fahrenheit": "celsius"}).get_tools(ctx)


async def test_two_tools_can_swap_their_names(
    weather: FunctionToolset[Any], ctx: RunContext[Any], call: Callable[..., Any]
):
    swapped = weather.renamed({"fahrenheit": "celsius", "celsius": "fahrenheit"})
    assert await call(swapped, "celsius", {"city": "Bo"}) == "69 in Bo"


async def test_a_wrapper_of_ones_own_sees_every_call(
    weather: FunctionToolset[Any], ctx: RunContext[Any], call: Callable[..., Any]
):
    log: list[str] = []

    class Logging(WrapperToolset[Any]):
        async def call_tool(
            self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
        ) -> Any:
            log.append(f"{name} {tool_args}")
            return await super().call_tool(name, tool_args, ctx, tool)

    outer, inner = Logging(weather.prefixed("w")), CombinedToolset([Logging(weather)]).prefixed("w")
    assert await call(outer, "w_celsius", {"city": "Bo"}) == "21 in Bo"
    assert await call(inner, "w_celsius", {"city": "Bo"}) == "21 in Bo"
    assert log == ["w_celsius {'city': 'Bo'}", "celsius {'city': 'Bo'}"]


@dataclass
class Loud(WrapperToolset[Any]):
    mark: str = "!"

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        return await super().call_tool(name, tool_args, ctx, tool) + self.mark


async def test_a_wrapper_of_ones_own_can_be_a_dataclass(weather: FunctionToolset[Any], call: Callable[..., Any]):
    assert await call(Loud(weather, mark="?").prefixed("w"), "w_celsius", {"city": "Bo"}) == "21 in Bo?"


async def test_a_wrapper_that_forgets_the_original_name_is_told(weather: FunctionToolset[Any], ctx: RunContext[Any]):
    tool = (await weather.get_tools(ctx))["celsius"]
    with pytest.raises(UserError, match="original name"):
        await WrapperToolset(weather).call_tool("warmth", {}, ctx, tool)


async def test_a_dynamic_toolset_is_made_for_each_step(
    weather: FunctionToolset[Any], clock: FunctionToolset[Any], ctx: RunContext[Any], call: Callable[..., Any]
):
    made: list[int] = []

    async def choose(ctx: RunContext[Any]) -> AbstractToolset[Any] | None:
        made.append(ctx.run_step)
        return [None, weather, clock][ctx.run_step]

    shared = CombinedToolset([DynamicToolset(choose)]).prefixed("p").filtered(lambda ctx, tool_def: True)
    run = await shared.for_run(ctx)
    seen: list[list[str]] = []
    for step in range(3):
        ctx.run_step = step
        seen.append(await names(await run.for_run_step(ctx), ctx))
    assert seen == [[], ["p_celsius", "p_fahrenheit"], ["p_now"]]
    assert made == [0, 1, 2]
    assert await call(await run.for_run_step(ctx), "p_now") == "noon"
    with pytest.raises(UserError, match="for_run_step"):
        await shared.get_tools(ctx)


async def test_a_dynamic_toolset_can_be_made_once_per_run(weather: FunctionToolset[Any], ctx: RunContext[Any]):
    made: list[int] = []

    def choose(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        made.append(1)
        return weather

    run = await DynamicToolset[Any](choose, per_run_step=False).for_run(ctx)
    for _ in range(3):
        assert await names(await run.for_run_step(ctx), ctx) == ["celsius", "fahrenheit"]
    assert made == [1]


async def test_what_does_not_change_from_run_to_run_is_not_copied(
    weather: FunctionToolset[Any], clock: FunctionToolset[Any], ctx: RunContext[Any]
):
    toolset = CombinedToolset([weather.prefixed("a"), clock])
    assert await toolset.for_run(ctx) is toolset
    assert await toolset.for_run_step(ctx) is toolset


class Connection(FunctionToolset[Any]):
    def __init__(self, name: str, log: list[str], broken: bool = False) -> None:
        super().__init__(id=name)
        self.log = log
        self.broken = broken

    async def __aenter__(self) -> Connection:
        if self.broken:
            raise ConnectionError(self.id)
        self.log.append(f"open {self.id}")
        return self

    async def __aexit__(self, *error: object) -> None:
        self.log.append(f"close {self.id}")


async def test_toolsets_are_entered_in_order_and_left_backwards():
    log: list[str] = []
    async with CombinedToolset([Connection("a", log).prefixed("x"), Connection("b", log)]):
        log.append("work")
    assert log == ["open a", "open b", "work", "close b", "close a"]


async def test_toolsets_that_were_entered_are_left_when_a_later_one_fails():
    log: list[str] = []
    with pytest.raises(ConnectionError):
        await CombinedToolset([Connection("a", log), Connection("b", log, broken=True)]).__aenter__()
    assert log == ["open a", "close a"]


LAYERS = st.lists(st.sampled_from(["prefixed", "renamed", "filtered", "prepared", "approval", "metadata", "combined"]))


@given(LAYERS)
async def test_any_stack_of_wrappers_offers_each_tool_once_and_calls_it(layers: list[str]):
    class Model:
        model_name = "m"

    ctx = RunContext[Any](deps=None, model=Model(), tool_call_approved=True)
    toolset: AbstractToolset[Any] = FunctionToolset([])
    toolset.add_function(lambda x: ("a", x), name="a")
    toolset.add_function(lambda x: ("b", x), name="b")
    for layer in layers:
        first = next(iter(await toolset.get_tools(ctx)))
        match layer:
            case "prefixed":
                toolset = toolset.prefixed("p")
            case "renamed":
                toolset = toolset.renamed({f"{first}-new": first})
            case "filtered":
                toolset = toolset.filtered(lambda ctx, tool_def: True)
            case "prepared":
                toolset = toolset.prepared(lambda ctx, tool_defs: tool_defs)
            case "approval":
                toolset = toolset.approval_required()
            case "metadata":
                toolset = toolset.with_metadata(x=1)
            case _:
                toolset = CombinedToolset([toolset])
    tools = await toolset.get_tools(ctx)
    assert list(tools) == list(toolset.known_names())
    results = [await toolset.call_tool(name, {"x": 1}, ctx, tool) for name, tool in tools.items()]
    assert results == [("a", 1), ("b", 1)]
    assert all(tool.may_need_approval == ("approval" in layers) for tool in tools.values())
