"""Requests and results of calls that wait, as they are shown."""

from __future__ import annotations

from inline_snapshot import snapshot

from outlast.messages import ImageUrl, ToolCallPart
from outlast.tools import (
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    Tool,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
    ToolReturn,
)


def test_requests_are_shown_as_the_seeds_print_them():
    requests = DeferredToolRequests(approvals=[ToolCallPart(tool_name="t", args={"city": "a"}, tool_call_id="c")])
    assert repr(requests) == snapshot(
        "DeferredToolRequests(calls=[], approvals=[ToolCallPart(tool_name='t', args={'city': 'a'}, tool_call_id='c')])"
    )


def test_what_is_at_its_default_is_not_shown():
    assert repr(DeferredToolResults(approvals={"c": True})) == "DeferredToolResults(calls={}, approvals={'c': True})"
    assert repr(ToolApproved(override_args={"a": 1})) == "ToolApproved(override_args={'a': 1})"
    assert repr(ToolDenied()) == "ToolDenied(message='The tool call was denied.')"
    assert repr(ToolReturn(content=[ImageUrl(url="u")])) == "ToolReturn(return_value=None, content=[ImageUrl(url='u')])"


def test_results_of_two_runs_share_nothing():
    DeferredToolResults().calls["a"] = 1
    assert DeferredToolResults().calls == {}


def test_the_names_of_the_seeds_are_there():
    assert all((RunContext, Tool, ToolDefinition))
