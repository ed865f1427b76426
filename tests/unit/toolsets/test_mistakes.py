# ruff: noqa: E501 # messages as they are printed
"""Mistakes of a definition: all at once, and each with what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from inline_snapshot import snapshot

from outlast.errors import UserError
from outlast.toolsets import Approval, FunctionToolset, RunContext, Tool, ToolSettings


def message(function: Callable[..., Any], **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        Tool(function, **options)
    place = f" ({__file__}:{getattr(function, '__code__').co_firstlineno})"  # noqa: B009
    return caught.value.message.replace(place, "")


class Weird: ...


def test_a_context_where_none_is_allowed():
    async def bad(ctx: RunContext[int], x: int) -> str: ...

    assert message(bad, takes_ctx=False) == snapshot("""\
Tool 'bad': it is registered as a tool without context, but `ctx` is a RunContext. Register it with `@agent.tool`, or leave the context out:
    async def bad(x: int) -> str:\
""")


def test_no_context_where_one_is_needed():
    def bad(user_id: int, *, limit: int = 3) -> str: ...

    assert message(bad, takes_ctx=True) == snapshot("""\
Tool 'bad': it is registered as a tool with context, but its first parameter `user_id` is no RunContext. Register it with `@agent.tool_plain`, or take the context first:
    def bad(ctx: RunContext, user_id: int, *, limit: int = 3) -> str:\
""")


def test_a_context_without_its_annotation():
    def bad(ctx, x: int): ...  # type: ignore[no-untyped-def]

    assert message(bad, takes_ctx=True) == snapshot("""\
Tool 'bad': it is registered as a tool with context, but its first parameter `ctx` is not annotated. Register it with `@agent.tool_plain`, or take the context first:
    def bad(ctx: RunContext, x: int):\
""")


@pytest.mark.parametrize("takes_ctx", [None, True])
def test_a_context_that_does_not_come_first(takes_ctx: bool | None):
    def bad(user_id: int, ctx: RunContext[int]) -> str: ...

    assert message(bad, takes_ctx=takes_ctx) == snapshot("""\
Tool 'bad': its context `ctx` is not the first parameter: the context comes once, and first:
    def bad(ctx: RunContext[int], user_id: int) -> str:\
""")


def test_all_mistakes_are_told_at_once():
    def bad(a: Weird, b: Callable[[int], int], c: int) -> None: ...

    assert message(bad, name="no good", timeout=-1, attempts=0, local=True, requires_approval=True) == snapshot("""\
Tool 'no good': 6 mistakes.
1. parameter `a: Weird` has no JSON schema, so no model can give it. Use JSON's own types, a pydantic model, a dataclass or a TypedDict; take live objects from `ctx.deps` or `ctx.resources`.
2. parameter `b: Callable[[int], int]` has no JSON schema, so no model can give it. Use JSON's own types, a pydantic model, a dataclass or a TypedDict; take live objects from `ctx.deps` or `ctx.resources`.
3. `timeout` must be longer than 0, got -1: write timeout=30 for 30 seconds.
4. `attempts` is a whole number from 1, got 0: 1 means that a call is made once and never tried again.
5. `local=True` calls are repeated without limit when their worker dies, so a call that a person approves cannot be local: remove `local`, or the approval.
6. a tool's name is 1 to 128 letters, digits, `_`, `-` or `.`, got 'no good': give one with `name='…'`.\
""")


def test_a_type_that_nobody_defined():
    def bad(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert message(bad) == snapshot(
        "Tool 'bad': its annotations cannot be read: name 'Nowhere' is not defined. Import or define the type before "
        "the tool, at the top of its module and not only under `if TYPE_CHECKING:`."
    )


def test_parameters_without_a_description_where_one_is_required():
    def bad(a: int, b: int, c: int) -> None:
        """X.

        Args:
            a: Yes.
        """

    assert message(bad, require_parameter_descriptions=True) == snapshot('''\
Tool 'bad': these parameters have no description: b, c. Say what they are in its docstring:
    """…

    Args:
        b: …
        c: …
    """\
''')


def test_an_approval_prompt_that_names_no_argument_of_the_tool():
    def refund(order: dict[str, str], cents: int) -> None: ...

    Tool(refund, approval=Approval(prompt="Refund {cents} of {order[id]}, {{really}}?"))
    assert message(refund, approval=Approval(prompt="{amount} {order.id} {}")) == snapshot("""\
Tool 'refund': 3 mistakes.
1. the approval prompt names {amount}, but the tool's arguments are: order, cents.
2. the approval prompt reads {order.id}; arguments are JSON, so write {order[id]}.
3. the approval prompt '{amount} {order.id} {}' names no argument in {}: write {argument}.\
""")
    assert message(refund, approval=Approval(prompt="{cents")) == snapshot(
        "Tool 'refund': the approval prompt '{cents' is no format string: expected '}' before end of string. Write a "
        "literal brace as '{{'."
    )


@pytest.mark.parametrize(
    ("option", "hint"),
    [("retries", "did you mean 'max_retries'?"), ("time_out", "did you mean 'timeout'?"), ("zzz", "the options are")],
)
def test_an_unknown_option_is_told_the_known_ones(option: str, hint: str):
    assert hint in message(lambda: 1, name="x", **{option: 1})


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": True},
        {"timeout": float("nan")},
        {"timeout": "30"},
        {"backoff": -1},
        {"max_retries": -1},
        {"max_retries": 1.5},
        {"attempts": True},
        {"on_error": "ignore"},
        {"on_unknown": "fail_run"},
        {"approval": "Sure?"},
        {"approval": Approval(), "requires_approval": False},
        {"task_queue": " "},
        {"metadata": {"x": object()}},
        {"metadata": [1]},
        {"repair": "strip"},
        {"sequential": 1},
        {"local": True, "repeatable": False},
        {"local": True, "approval": Approval()},
    ],
)
def test_a_value_that_makes_no_sense_is_refused(options: dict[str, Any]):
    with pytest.raises(UserError):
        ToolSettings.of(options)


def test_a_lambda_needs_a_name():
    assert message(lambda: 1) == "Tool '': a lambda has no name: give one with `name='…'`."


def test_a_tool_is_made_from_a_function():
    with pytest.raises(UserError, match="made from a function"):
        Tool("search")  # type: ignore[arg-type]


def test_a_name_is_given_once_per_toolset():
    toolset = FunctionToolset[Any](id="shop")
    toolset.add_function(lambda: 1, name="now")
    with pytest.raises(UserError) as caught:
        toolset.add_function(lambda: 2, name="now")
    assert caught.value.message == snapshot(
        "FunctionToolset 'shop' has a tool 'now' already: give one of them another name with `name='…'`."
    )
