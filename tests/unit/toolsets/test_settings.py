"""Settings of a tool, under those of its toolset and its agent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.contracts import CallPolicy
from outlast.errors import UserError
from outlast.toolsets import Approval, FunctionToolset, RunContext, ToolSettings


def test_settings_that_are_not_set_come_from_outside():
    tool = ToolSettings(timeout=5, metadata={"a": 1})
    toolset = ToolSettings(timeout=9, max_retries=2, metadata={"a": 0, "b": 2})
    agent = ToolSettings(max_retries=7, attempts=4)
    merged = tool.under(toolset).under(agent)
    assert merged == ToolSettings(timeout=5, max_retries=2, attempts=4, metadata={"a": 1, "b": 2})


def test_nothing_set_means_the_defaults_of_the_contract():
    assert ToolSettings().policy() == CallPolicy()


def test_a_timeout_is_kept_as_it_was_written():
    """The model reads it: "Timed out after 1 seconds."."""
    assert repr(ToolSettings(timeout=1).policy().timeout) == "1"
    assert repr(ToolSettings(timeout=1.5).policy().timeout) == "1.5"
    assert repr(ToolSettings(timeout=timedelta(minutes=1)).policy().timeout) == "60"
    assert ToolSettings(backoff=timedelta(milliseconds=50)).policy().backoff == 0.05


def test_an_approval_says_that_one_is_required():
    assert ToolSettings(approval=Approval()).requires_approval is True


def test_a_tool_can_be_excused_from_the_approval_of_its_toolset():
    merged = ToolSettings(requires_approval=False).under(ToolSettings(approval=Approval(prompt="Sure?")))
    assert merged.requires_approval is False
    assert merged.approval is None


def test_a_toolset_cannot_take_back_the_approval_of_its_tool():
    merged = ToolSettings(approval=Approval(prompt="Sure?")).under(ToolSettings(requires_approval=False))
    assert merged.requires_approval is True


def test_settings_that_contradict_those_of_the_toolset_are_refused_when_the_tool_is_added():
    toolset = FunctionToolset[Any](local=True)
    with pytest.raises(UserError, match="local"):
        toolset.add_function(lambda: 1, name="now", requires_approval=True)
    assert toolset.tools == {}


async def test_settings_of_a_toolset_reach_its_tools(ctx: RunContext[Any]):
    toolset = FunctionToolset[Any](sequential=True, timeout=3, metadata={"team": "shop"}, requires_approval=True)
    toolset.add_function(lambda: 1, name="now", timeout=5, strict=True)
    tool = (await toolset.get_tools(ctx))["now"]
    assert tool.policy() == CallPolicy(timeout=5, sequential=True)
    assert (tool.tool_def.sequential, tool.tool_def.strict, tool.tool_def.kind) == (True, True, "unapproved")
    assert tool.tool_def.metadata == {"team": "shop"}
    assert tool.under(ToolSettings(attempts=9)).policy().attempts == 9


async def test_a_call_that_may_need_approval_is_never_local(ctx: RunContext[Any]):
    toolset = FunctionToolset[Any](local=True)
    toolset.add_function(lambda: 1, name="now")
    assert (await toolset.get_tools(ctx))["now"].policy().local is True
    gated = toolset.approval_required(lambda ctx, tool_def, args: False)
    assert (await gated.get_tools(ctx))["now"].policy().local is False


SOME = st.fixed_dictionaries(
    {},
    optional={
        "max_retries": st.integers(0, 5),
        "timeout": st.integers(1, 9) | st.timedeltas(min_value=timedelta(seconds=1)),
        "repeatable": st.booleans(),
        "on_error": st.sampled_from(["tell_model", "fail_run", "ask"]),
        "metadata": st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    },
).map(ToolSettings.of)


@given(SOME, SOME, SOME)
def test_it_does_not_matter_which_two_of_three_are_merged_first(a: ToolSettings, b: ToolSettings, c: ToolSettings):
    assert a.under(b).under(c) == a.under(b.under(c))
