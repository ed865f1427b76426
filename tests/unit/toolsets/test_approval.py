"""Calls that a person must approve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.errors import ApprovalRequired, UserError
from outlast.toolsets import Approval, FunctionToolset, RunContext, ToolDefinition, ToolSettings


@pytest.fixture
def shop() -> FunctionToolset[Any]:
    toolset = FunctionToolset[Any]()
    toolset.add_function(lambda cents: cents, name="refund")
    toolset.add_function(lambda: "ok", name="look")
    return toolset


async def test_whether_a_call_needs_approval_is_known_before_it_starts(
    shop: FunctionToolset[Any], ctx: RunContext[Any]
):
    async def large(ctx: RunContext[Any], tool_def: ToolDefinition, args: dict[str, Any]) -> bool:
        return tool_def.name == "refund" and args["cents"] > 100

    tool = (await shop.approval_required(large).get_tools(ctx))["refund"]
    assert await tool.approval_needed(ctx, {"cents": 101})
    assert not await tool.approval_needed(ctx, {"cents": 99})


async def test_approvals_add_up_and_each_sees_the_name_of_its_own_layer(
    shop: FunctionToolset[Any], ctx: RunContext[Any]
):
    seen: list[str] = []

    def inner(ctx: RunContext[Any], tool_def: ToolDefinition, args: dict[str, Any]) -> bool:
        seen.append(tool_def.name)
        return True

    def outer(ctx: RunContext[Any], tool_def: ToolDefinition, args: dict[str, Any]) -> bool:
        seen.append(tool_def.name)
        return False

    toolset = shop.approval_required(inner).prefixed("shop").approval_required(outer).prefixed("all")
    tool = (await toolset.get_tools(ctx))["all_shop_refund"]
    assert await tool.approval_needed(ctx, {"cents": 1})
    assert seen == ["shop_refund", "refund"]


async def test_a_call_without_a_plan_is_still_held(shop: FunctionToolset[Any], call: Callable[..., Any]):
    shop.add_function(lambda: "done", name="wipe", requires_approval=True)
    held = shop.approval_required(lambda ctx, tool_def, args: tool_def.name == "refund")
    with pytest.raises(ApprovalRequired):
        await call(held, "refund", {"cents": 1})
    with pytest.raises(ApprovalRequired):
        await call(shop, "wipe")
    assert await call(held, "look") == "ok"
    assert await call(held, "refund", {"cents": 1}, approved=True) == 1
    assert await call(shop, "wipe", approved=True) == "done"


async def test_a_call_is_held_when_asking_whether_it_needs_approval_fails(
    shop: FunctionToolset[Any], ctx: RunContext[Any], caplog: pytest.LogCaptureFixture
):
    held = shop.approval_required(lambda ctx, tool_def, args: args["nothing"])
    assert await (await held.get_tools(ctx))["look"].approval_needed(ctx, {})
    assert "asking whether a call of 'look' needs approval failed" in caplog.text


def test_the_prompt_of_a_toolset_is_checked_against_each_of_its_tools():
    toolset = FunctionToolset[Any](approval=Approval(prompt="Pay {cents}?"))
    toolset.add_function(lambda cents: cents, name="pay")
    with pytest.raises(UserError, match="the tool's arguments are: amount"):
        toolset.add_function(lambda amount: amount, name="refund")
    assert list(toolset.tools) == ["pay"]


async def test_a_prepare_function_cannot_take_an_approval_back(shop: FunctionToolset[Any], ctx: RunContext[Any]):
    shop.add_function(lambda: 1, name="wipe", requires_approval=True)
    eased = shop.prepared(lambda ctx, tool_defs: [ToolDefinition(each.name, kind="function") for each in tool_defs])
    assert await (await eased.get_tools(ctx))["wipe"].approval_needed(ctx, {})


async def test_the_agent_can_require_approval_of_tools_that_say_nothing(
    shop: FunctionToolset[Any], ctx: RunContext[Any]
):
    shop.add_function(lambda: 1, name="excused", requires_approval=False)
    agent = ToolSettings(approval=Approval(prompt="Sure?"))
    tools = await shop.get_tools(ctx)
    assert await tools["look"].under(agent).approval_needed(ctx, {})
    assert not await tools["excused"].under(agent).approval_needed(ctx, {})


def test_a_prompt_shows_the_arguments():
    approval = Approval(prompt="Refund {cents:,} cents of {order[id]} {{now}}?")
    assert approval.render({"cents": 1234, "order": {"id": "o1"}}) == "Refund 1,234 cents of o1 {now}?"
    assert Approval().render({"cents": 1}) is None


def test_no_argument_decides_how_wide_another_is_shown():
    """The model gives the arguments; a width of a billion would end the worker."""
    assert Approval(prompt="{a:>{b}}").problems(["a", "b"]) == [
        "the approval prompt formats {a} by another argument: write the format itself."
    ]


def test_an_argument_that_the_prompt_cannot_show_is_shown_by_its_name():
    """A person must see something even where the model left an optional argument out."""
    approval = Approval(prompt="Refund {cents:.2f} of {order[id]}, {note}?")
    assert approval.render({"cents": "many", "order": None}) == "Refund many of {order[id]}, {note}?"


@given(
    st.sampled_from(["{a}", "{a[b]}", "{a:>9}", "{a!r}", "{a:,.2f}", "{a[0]}"]),
    st.dictionaries(
        st.sampled_from(["a", "b"]),
        st.none() | st.integers() | st.just(10**5000) | st.text() | st.lists(st.text(), max_size=2),
    ),
)
def test_a_checked_prompt_can_always_be_shown(prompt: str, args: dict[str, Any]):
    approval = Approval(prompt=prompt)
    assert approval.problems(["a", "b"]) == []
    assert isinstance(approval.render(args), str)
