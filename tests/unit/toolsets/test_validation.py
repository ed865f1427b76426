"""Arguments from what a model wrote to what a tool is called with."""

from __future__ import annotations

import datetime
import json
import logging
import uuid
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Annotated, Any, Literal

import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from outlast.contracts import canonical_json
from outlast.errors import ApprovalRequired, ModelRetry
from outlast.toolsets import FunctionToolset, Invalid, RunContext, ToolsetTool, Valid, validate_args


class SomeModel:
    model_name = "m"


def context() -> RunContext[Any]:
    return RunContext(deps=None, model=SomeModel())


async def tool_of(function: Callable[..., Any], **options: Any) -> ToolsetTool[Any]:
    toolset = FunctionToolset[Any]()
    toolset.add_function(function, name="tool", **options)
    return (await toolset.get_tools(context()))["tool"]


async def validated(function: Callable[..., Any], raw: Any, **options: Any) -> Valid | Invalid:
    return await validate_args(await tool_of(function, **options), raw, context())


def search(query: str, top_k: Annotated[int, Field(ge=1, le=5)] = 3, filters: dict[str, int] | None = None) -> None: ...


@pytest.mark.parametrize(
    "raw",
    [
        '{"query": "x"}',
        {"query": "x"},
        ' {"query": "x"} ',
        '"{\\"query\\": \\"x\\"}"',
        json.dumps(json.dumps({"query": "x"})),
        '{"query": "x", "top_k": "3", "filters": null}',
    ],
)
async def test_arguments_arrive_however_they_are_wrapped(raw: Any):
    assert await validated(search, raw) == Valid(
        {"query": "x", "top_k": 3, "filters": None}, {"query": "x", "top_k": 3, "filters": None}
    )


@pytest.mark.parametrize("raw", [None, "", "  ", "null", "{}", {}, '""'])
async def test_nothing_stands_for_no_arguments(raw: Any):
    assert await validated(lambda: 1, raw) == Valid({}, {})


async def test_an_object_that_was_sent_as_text_is_opened_where_the_schema_wants_one():
    outcome = await validated(search, {"query": "[1]", "filters": '{"a": 1}'})
    assert outcome == Valid(*[{"query": "[1]", "top_k": 3, "filters": {"a": 1}}] * 2)


async def test_a_key_that_the_tool_does_not_know_is_told_to_the_model():
    assert await validated(search, '{"query": "x", "limit": 3}') == snapshot(
        Invalid(
            errors=[{"type": "extra_forbidden", "loc": ["limit"], "msg": "Extra inputs are not permitted", "input": 3}]
        )
    )


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ("{", "json_invalid"),
        ("[1]", "dict_type"),
        ("3", "dict_type"),
        ('{"query": 1}', "string_type"),
        ("{}", "missing"),
    ],
)
async def test_what_does_not_fit_is_told_with_its_kind(raw: str, kind: str):
    outcome = await validated(search, raw)
    assert isinstance(outcome, Invalid)
    assert isinstance(outcome.errors, list)
    assert outcome.errors[0]["type"] == kind


@pytest.mark.parametrize("number", [float("nan"), float("inf"), "NaN", "Infinity", "-Infinity"])
async def test_numbers_that_json_does_not_have_are_invalid(number: Any):
    raw = f'{{"x": {number}}}' if isinstance(number, str) else {"x": number}

    def take(x: float) -> None: ...

    def take_any(x: Any) -> None: ...

    assert isinstance(await validated(take, raw), Invalid)
    assert isinstance(await validated(take_any, raw), Invalid)


async def test_errors_are_short_and_few():
    def take(numbers: list[int]) -> None: ...

    outcome = await validated(take, {"numbers": ["x" * 1000] * 100})
    assert isinstance(outcome, Invalid)
    assert len(json.dumps(outcome.errors)) < 10_000
    assert outcome.errors[-1] == {"type": "more", "loc": [], "msg": "and 80 more errors"}


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: datetime.date
    tags: set[str] = set()


async def test_a_strict_model_takes_what_json_can_say():
    """A date is text in JSON; validated as a Python value, a strict model would refuse it."""

    def take(value: Strict) -> None: ...

    outcome = await validated(take, {"day": "2026-01-02", "tags": ["a"]})
    assert outcome == Valid(
        {"value": Strict(day=datetime.date(2026, 1, 2), tags={"a"})}, {"day": "2026-01-02", "tags": ["a"]}
    )


async def test_defaults_are_part_of_what_is_approved():
    def take(key: Annotated[str, Field(default_factory=lambda: uuid.uuid4().hex)]) -> None: ...

    outcome = await validated(take, None)
    assert isinstance(outcome, Valid)
    assert await validated(take, outcome.json) == outcome


class Login(BaseModel):
    password: SecretStr
    user: str = "me"


async def test_values_that_do_not_survive_json_stay_as_the_model_sent_them():
    def take(login: Login, name: str = "x") -> None: ...

    outcome = await validated(take, {"login": {"password": "hush"}})
    assert isinstance(outcome, Valid)
    assert outcome.json == {"login": {"password": "hush"}}
    assert outcome.args["login"].password.get_secret_value() == "hush"


async def test_an_iterator_is_not_used_up_by_dumping_it():
    def take(numbers: Iterable[int]) -> None: ...

    outcome = await validated(take, {"numbers": [1, 2]})
    assert isinstance(outcome, Valid)
    assert list(outcome.args["numbers"]) == [1, 2]
    assert outcome.json == {"numbers": [1, 2]}


async def test_a_default_that_no_model_could_give_is_left_to_the_function():
    marker = object()

    def take(x: Any = marker) -> None: ...

    outcome = await validated(take, {})
    assert outcome == Valid({"x": marker}, {})


async def test_a_validator_of_the_tool_may_ask_for_another_try():
    seen: list[Any] = []

    async def check(ctx: RunContext[Any], query: str, **rest: Any) -> None:
        seen.append((ctx.run_step, query, rest))
        if query == "bad":
            raise ModelRetry("Ask for something else.")

    assert await validated(search, {"query": "bad"}, args_validator=check) == Invalid("Ask for something else.")
    assert isinstance(await validated(search, {"query": "ok"}, args_validator=check), Valid)
    assert seen[-1] == (0, "ok", {"top_k": 3, "filters": None})


@pytest.mark.parametrize("error", [ValueError("too long"), AssertionError("too long")])
async def test_a_validator_may_refuse_as_pydantics_do(error: Exception):
    def check(ctx: RunContext[Any], **args: Any) -> None:
        raise error

    assert await validated(search, {"query": "x"}, args_validator=check) == Invalid("too long")


async def test_a_validator_that_has_a_bug_is_told_and_logged(caplog: pytest.LogCaptureFixture):
    """To fail here would repeat a model request that has been paid for."""

    def check(ctx: RunContext[Any], **args: Any) -> None:
        raise KeyError("oops")

    assert await validated(search, {"query": "x"}, args_validator=check) == Invalid(
        "The arguments could not be checked: KeyError: 'oops'"
    )
    assert "a validator of tool 'tool' failed" in caplog.text


async def test_a_validator_may_ask_for_approval():
    def check(ctx: RunContext[Any], **args: Any) -> None:
        raise ApprovalRequired({"why": "large"})

    with pytest.raises(ApprovalRequired):
        await validated(search, {"query": "x"}, args_validator=check)


def repair_search(raw: dict[str, Any]) -> dict[str, Any]:
    raw["top_k"] = max(1, min(5, int(float(raw.get("top_k", 3)))))
    raw["query"] = raw["query"].strip()
    return raw


async def test_arguments_are_repaired_only_when_they_do_not_fit():
    sent = {"query": " x ", "top_k": "10"}
    outcome = await validated(search, sent, repair=repair_search)
    assert isinstance(outcome, Valid)
    assert outcome.json == {"query": "x", "top_k": 5, "filters": None}
    assert sent == {"query": " x ", "top_k": "10"}
    untouched = await validated(search, {"query": " x "}, repair=repair_search)
    assert isinstance(untouched, Valid)
    assert untouched.args["query"] == " x "


async def test_a_repair_that_fails_leaves_the_errors_that_called_for_it(caplog: pytest.LogCaptureFixture):
    plain = await validated(search, {"top_k": 9})
    assert await validated(search, {"top_k": 9}, repair=repair_search) == plain
    assert "the repair function of tool 'tool' failed" in caplog.text


@pytest.mark.parametrize("repaired", [None, [1], "x", {"query": object()}, {"query": 1}])
async def test_a_repair_that_gives_nonsense_is_invalid(repaired: Any):
    assert isinstance(await validated(search, {"query": 7}, repair=lambda raw: repaired), Invalid)


async def test_a_type_may_ask_for_another_try():
    def never(value: Any) -> Any:
        raise ModelRetry("Not this one.")

    def take(x: Annotated[int, BeforeValidator(never)]) -> None: ...

    assert await validated(take, {"x": 1}) == Invalid("Not this one.")


async def test_a_type_whose_validator_has_a_bug_is_told_and_logged(caplog: pytest.LogCaptureFixture):
    def broken(value: int) -> int:
        raise LookupError("oops")

    def take(x: Annotated[int, AfterValidator(broken)]) -> None: ...

    with caplog.at_level(logging.ERROR):
        assert isinstance(await validated(take, {"x": 1}), Invalid)
    assert "a validator of tool 'tool' failed" in caplog.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["text", "number", "amount", "when", "choice", "items", "anything", "extra"])


def many(
    text: str = "",
    number: int = 0,
    amount: Decimal = Decimal(1),
    when: datetime.datetime | None = None,
    choice: Literal["a", 1, True] = "a",
    items: list[int | str | float] = [],  # noqa: B006 # left as it is by validation, which is what is tested
    anything: Any = None,
    **extra: Any,
) -> None: ...


@given(JSON | st.dictionaries(NAMES, JSON).map(lambda args: args) | st.text() | st.binary().map(repr))
async def test_nothing_that_a_model_writes_is_an_error_of_ours(raw: Any):
    outcome = await validate_args(await tool_of(many, repair=lambda raw: raw), raw, context())
    if isinstance(outcome, Valid):
        canonical_json(outcome.json).encode()
    else:
        pydantic_core.to_json(outcome.errors)
        canonical_json(outcome.errors).encode()


@given(st.dictionaries(NAMES, JSON))
async def test_validating_what_was_approved_changes_nothing(raw: dict[str, Any]):
    """The digest of a call is taken over its JSON; the worker that runs it validates that JSON once more."""
    tool = await tool_of(many)
    outcome = await validate_args(tool, raw, context())
    if isinstance(outcome, Valid):
        again = await validate_args(tool, json.loads(canonical_json(outcome.json)), context())
        assert isinstance(again, Valid)
        assert canonical_json(again.json) == canonical_json(outcome.json)
        assert again.args == outcome.args


@pytest.mark.parametrize(
    "raw",
    [
        {"anything": "\ud800"},
        {"\ud800": 1},
        {"anything": object()},
        {"anything": b"\xff"},
        {1: 2},
        {"anything": 10**5000},
    ],
)
async def test_python_values_that_are_no_json_are_handled(raw: Any):
    outcome = await validate_args(await tool_of(many), raw, context())
    if isinstance(outcome, Valid):
        canonical_json(outcome.json).encode()
    else:
        canonical_json(outcome.errors).encode()


async def test_arguments_that_are_nested_without_end_are_invalid():
    assert isinstance(await validated(many, '{"anything": ' + "[" * 100_000), Invalid)
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    assert isinstance(await validated(many, {"anything": deep}), Invalid)
