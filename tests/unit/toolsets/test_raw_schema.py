"""JSON schemas from outside, and the tools that come with them."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from outlast.errors import UserError
from outlast.toolsets import ExternalToolset, Invalid, RunContext, ToolDefinition, Valid, validate_args
from outlast.toolsets.raw_schema import check

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": {"type": "object", "properties": {"cents": {"type": "integer"}}}},
        "name": {"type": "string"},
    },
    "required": ["name"],
    "additionalProperties": False,
}


def test_a_value_that_fits_has_nothing_to_say():
    assert check(SCHEMA, {"name": "x", "items": [{"cents": 1}]}) == []


def test_what_does_not_fit_is_told_with_the_way_to_it():
    assert check(SCHEMA, {"items": [{"cents": "x"}], "z": 1}) == snapshot(
        [
            'items.0.cents: "x" is not of type "integer"',
            "Additional properties are not allowed ('z' was unexpected)",
            '"name" is a required property',
        ]
    )


def test_a_hostile_pattern_does_not_freeze_the_worker():
    """A backtracking engine needs 2^40 steps for this; it froze a whole worker."""
    started = time.monotonic()
    assert check({"type": "string", "pattern": "^(a+)+$"}, "a" * 40 + "!")
    assert time.monotonic() - started < 1


@pytest.mark.parametrize("reference", ["http://127.0.0.1:9/x.json", "https://example.com/x", "file:///etc/passwd"])
def test_nothing_is_fetched_for_a_reference(reference: str):
    with pytest.raises(UserError, match="Nothing is fetched"):
        check({"$ref": reference}, 1)
    with pytest.raises(UserError, match="Nothing is fetched"):
        check({"properties": {"a": {"$ref": reference}}}, 1)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nope"},
        {"$ref": "#/$defs/none"},
        {"pattern": "("},
        {"pattern": "(?=a)b"},
        {"$schema": "http://foo/bar"},
        {"properties": 3},
        [],
        None,
        "x",
        True,
    ],
)
def test_a_broken_schema_is_a_mistake_of_whoever_wrote_it(schema: Any):
    with pytest.raises(UserError):
        check(schema, {})


def test_messages_are_short_and_few():
    messages = check({"items": {"type": "integer"}}, ["x" * 1_000] * 100)
    assert len(messages) == 20
    assert all(len(message) < 400 for message in messages)


def test_a_large_value_that_does_not_fit_is_refused_at_once():
    """All its errors would take ten seconds; a workflow task that blocks for two is given up as deadlocked."""
    started = time.monotonic()
    assert check({"items": {"type": "integer"}}, ["x"] * 500_000) == ['0: "x" is not of type "integer"']
    assert time.monotonic() - started < 1


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just(object()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@given(ANY)
def test_any_value_can_be_checked(value: Any):
    assert isinstance(check(SCHEMA, value), list)


@given(ANY)
def test_any_schema_is_taken_or_refused(schema: Any):
    with contextlib.suppress(UserError):
        check(schema, {})


async def test_an_external_tool_has_its_arguments_checked(ctx: RunContext[Any]):
    toolset = ExternalToolset[Any]([ToolDefinition("order", SCHEMA)], id="front end")
    tool = (await toolset.get_tools(ctx))["order"]
    assert tool.tool_def.kind == "external"
    for raw in ('{"name": "x"}', {"name": "x"}, '"{\\"name\\": \\"x\\"}"'):
        assert await validate_args(tool, raw, ctx) == Valid({"name": "x"}, {"name": "x"})
    assert await validate_args(tool, {"name": 1, "items": {}}, ctx) == snapshot(
        Invalid(
            errors=[
                {"type": "json_schema", "loc": ["name"], "msg": '1 is not of type "string"', "input": 1},
                {
                    "type": "json_schema",
                    "loc": ["items"],
                    "msg": '{} is not of type "array"',
                    "input": {},
                },
            ]
        )
    )
    for raw in ("{", "[1]", '{"name": NaN}', None):
        assert isinstance(await validate_args(tool, raw, ctx), Invalid)


async def test_an_external_tool_is_never_run(ctx: RunContext[Any]):
    toolset = ExternalToolset[Any]([ToolDefinition("order")])
    tool = (await toolset.get_tools(ctx))["order"]
    with pytest.raises(UserError, match="resolve"):
        await toolset.call_tool("order", {}, ctx, tool)


def test_all_mistakes_of_external_definitions_are_told_at_once():
    with pytest.raises(UserError) as caught:
        ExternalToolset[Any](
            [ToolDefinition("a", {"required": 3}), ToolDefinition("b"), ToolDefinition("b")], id="front end"
        )
    assert caught.value.message == snapshot("""\
ExternalToolset 'front end': 2 mistakes.
1. tool 'a': the JSON schema is broken at required: 3 is not of type "array"
2. there are two tools 'b'; names are unique within a toolset.\
""")
