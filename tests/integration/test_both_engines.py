"""Each behaviour runs in this process and durably, and must leave the same conversation and the same output.

The two engines share the state machine, the planning of a step and the execution of a call. What differs is how they
carry values, count attempts and end; so everything that reaches a model or a caller is compared as JSON.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import anyio
import pytest
from pydantic import BaseModel, Field
from pydantic_core import to_jsonable_python
from temporalio.client import WorkflowFailureError
from typing_extensions import TypedDict

from outlast import (
    Agent,
    ApprovalRequired,
    BinaryContent,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    DynamicToolset,
    FatalToolError,
    FunctionModel,
    FunctionToolset,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelRetry,
    RunContext,
    RunError,
    ScriptedModel,
    TestModel,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolDefinition,
    ToolReturn,
    ToolReturnPart,
    ToolsetTool,
    TransientToolError,
    UsageLimits,
    UserPromptPart,
    WrapperToolset,
)
from outlast.messages import Usage, dump_message, load_messages
from outlast.models.function import AgentInfo
from outlast.testing import call
from tests.asking import PATIENCE
from tests.histories import assert_healthy
from tests.integration.conftest import Host, parts

AnyAgent = Agent[Any, Any]


@dataclass
class Ran:
    """What a run left behind, the same on both engines."""

    output: Any
    messages: list[dict[str, Any]]
    error: tuple[str, str] | None

    def told(self) -> list[Any]:
        """What the model was told about its calls: results and retries, in order."""
        kinds = ("tool-return", "retry-prompt")
        every = [part for message in self.messages for part in message["parts"]]
        return [part.get("content") for part in every if part["part_kind"] in kinds]


class Engines:
    """Runs an agent on both engines, each time made anew, and compares."""

    def __init__(self, host: Host) -> None:
        self.host = host

    async def run(
        self,
        make: Callable[[], AnyAgent],
        prompt: Any = "Go.",
        *,
        deps: Any = None,
        history: list[ModelMessage] | None = None,
        limits: UsageLimits | None = None,
        settings: Any = None,
        metadata: dict[str, Any] | None = None,
    ) -> Ran:
        """Run what `make` makes; `deps` is the live object, whose JSON a durable run is started with."""
        options: dict[str, Any] = {"usage_limits": limits, "model_settings": settings, "metadata": metadata}
        fields: dict[str, Any] = {name: to_jsonable_python(value) for name, value in options.items() if value}
        if deps is not None:
            fields["deps"] = to_jsonable_python(deps)
        if history:
            fields["message_history"] = [dump_message(message) for message in history]
        durable = await self._durably(make(), prompt, fields)
        here = await self._here(make(), prompt, deps=deps, message_history=history, **options)
        assert here.error == durable.error
        if here.error is None:
            assert to_jsonable_python(here.output) == durable.output
            assert here.messages == durable.messages
        return Ran(here.output, durable.messages, durable.error)

    async def _here(self, agent: AnyAgent, prompt: Any, **options: Any) -> Ran:
        try:
            with anyio.fail_after(PATIENCE):
                result = await agent.run(prompt, **options)
        except RunError as error:
            return Ran(None, [], (type(error).__name__, error.message))
        return Ran(result.output, _shown(result.all_messages()), None)

    async def _durably(self, agent: AnyAgent, prompt: Any, fields: dict[str, Any]) -> Ran:
        # A name of its own: one test may run several agents on its queue.
        agent.name = f"agent-{uuid.uuid4().hex[:6]}"
        async with self.host.serving(agent):
            run = await self.host.start(agent.name, prompt, **fields)
            try:
                with anyio.fail_after(PATIENCE):
                    result = await run.result()
            except WorkflowFailureError as failure:
                cause: Any = failure.cause
                ran = Ran(None, await self.host.messages(run), (cause.type, cause.message))
            else:
                ran = Ran(result["output"], _shown(load_messages(await self.host.messages(run))), None)
        # Other files replay each history in the strict sandbox, too, which takes more than a second a run.
        self.host.runs.remove(run)
        await assert_healthy(run)
        return ran


def _shown(messages: list[ModelMessage]) -> list[dict[str, Any]]:
    """Messages as JSON. What tools returned is JSON already, and not something that pydantic would write as JSON."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                assert repr(json.loads(json.dumps(part.content))) == repr(part.content)
    return [dump_message(message) for message in messages]


@pytest.fixture
def engines(host: Host) -> Engines:
    return Engines(host)


def scripted(*lines: Any, **options: Any) -> AnyAgent:
    """An agent whose model follows a script, and whose attempts do not wait."""
    return Agent(ScriptedModel(lines), **cast("Any", {"backoff": 0.01, **options}))


# --- calls -------------------------------------------------------------------------------------------------------


async def test_one_call_and_an_answer(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted([call("add", "a", x=1, y=2)], "Three.")

        @agent.tool_plain
        def add(x: int, y: int) -> int:
            return x + y

        return agent

    ran = await engines.run(make)
    assert ran.output == "Three."
    assert ran.told() == [3]


async def test_parallel_calls_overlap_and_are_told_in_their_order(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted([call("meet", str(n), n=n) for n in range(5)], "Done.")
        arrived = anyio.Event()
        there: set[int] = set()

        @agent.tool_plain
        async def meet(n: int) -> int:
            there.add(n)
            if len(there) == 5:
                arrived.set()
            with anyio.fail_after(PATIENCE):
                await arrived.wait()
            return n

        return agent

    assert (await engines.run(make)).told() == [0, 1, 2, 3, 4]


async def test_sequential_calls_run_alone(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted([call("free", "a"), call("alone", "b"), call("free", "c"), call("alone", "d")], "Done.")
        under_way: list[str] = []

        async def work(name: str) -> str:
            under_way.append(name)
            seen = " ".join(sorted(under_way))
            await anyio.sleep(0.01)
            under_way.remove(name)
            return seen

        @agent.tool_plain(sequential=True)
        async def alone() -> str:
            return await work("alone")

        @agent.tool_plain
        async def free() -> str:
            return (await work("free")).split()[0]

        return agent

    assert (await engines.run(make)).told() == ["free", "alone", "free", "alone"]


async def test_text_and_thinking_next_to_calls(engines: Engines) -> None:
    def make() -> AnyAgent:
        first = [ThinkingPart(content="Hm."), TextPart(content="I look it up."), call("look", "a")]
        agent = scripted(first, "It is there.")

        @agent.tool_plain
        def look() -> str:
            return "there"

        return agent

    ran = await engines.run(make)
    assert ran.output == "It is there."
    assert [part["part_kind"] for part in ran.messages[1]["parts"]] == ["thinking", "text", "tool-call"]


async def test_ids_that_a_provider_repeats_leaves_out_or_makes_up(engines: Engines) -> None:
    """Every call of a run has an ID of its own, and both engines give it the same one."""

    def make() -> AnyAgent:
        agent = scripted(
            [call("echo", "2", n=1), call("echo", "2", n=2), call("echo", "", n=3), call("echo", "ä" * 70, n=4)],
            [call("echo", "2", n=5)],
            "Done.",
        )

        @agent.tool_plain
        def echo(n: int) -> int:
            return n

        return agent

    ran = await engines.run(make)
    ids = [part["tool_call_id"] for part in parts(ran.messages, "tool-call")]
    assert len(set(ids)) == 5
    assert ids[0] == "2"
    assert ran.told() == [1, 2, 3, 4, 5]


async def test_sync_and_async_tools_and_methods(engines: Engines) -> None:
    class Shop:
        def __init__(self) -> None:
            self.stock = {"tea": 3}

        def count(self, item: str) -> int:
            return self.stock[item]

        async def add(self, item: str, n: int = 1) -> int:
            return self.stock[item] + n

    def make() -> AnyAgent:
        shop = Shop()
        calls = [call("count", "a", item="tea"), call("add", "b", item="tea")]
        return scripted(calls, "Done.", tools=[shop.count, shop.add])

    assert (await engines.run(make)).told() == [3, 4]


async def test_the_context_of_a_call_is_the_same(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted("Wait.", [call("look", "a")], [call("look", "b")], "Done.", max_retries=7)

        @agent.tool
        def look(ctx: RunContext[Any]) -> dict[str, Any]:
            assert ctx.idempotency_key is not None
            assert ctx.idempotency_key.endswith(f":{ctx.tool_call_id}")
            return {
                "step": ctx.run_step,
                "messages": [message.kind for message in ctx.messages],
                "prompt": ctx.prompt,
                "model": ctx.model.model_name,
                "requests": ctx.usage.requests,
                "tool_calls": ctx.usage.tool_calls,
                "limit": ctx.usage_limits.requests,
                "call": [ctx.tool_name, ctx.tool_call_id, ctx.tool_call_approved],
                "retry": [ctx.retry, ctx.max_retries, ctx.last_attempt],
                "attempt": ctx.attempt,
                "metadata": ctx.metadata,
                "resources": ctx.resources,
            }

        return agent

    history: list[ModelMessage] = [
        ModelRequest.user_text_prompt("Earlier."),
        ModelResponse(parts=[TextPart(content="Wait.")]),
    ]
    limits = UsageLimits(requests=9)
    ran = await engines.run(make, "Now.", history=history, limits=limits, metadata={"ticket": 7})
    first, second = ran.told()
    assert first["step"] == 1
    assert first["prompt"] == "Now."
    assert first["messages"] == ["request", "response", "request", "response"]
    assert first["metadata"] == {"ticket": 7}
    assert second["tool_calls"] == 1


# --- what the model must try again -------------------------------------------------------------------------------


async def test_model_retry_is_told_and_counted(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted([call("guess", n=1)], [call("guess", n=2)], [call("guess", n=3)], "Found.", max_retries=2)

        @agent.tool
        def guess(ctx: RunContext[Any], n: int) -> str:
            if n < 3:
                raise ModelRetry(f"More than {n}; retry {ctx.retry}, last {ctx.last_attempt}.")
            return f"Yes, after {ctx.retry}."

        return agent

    told = (await engines.run(make)).told()
    assert told == ["More than 1; retry 0, last False.", "More than 2; retry 1, last False.", "Yes, after 2."]


async def test_retries_start_anew_after_a_success(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted(*[[call("flip", n=n)] for n in range(6)], "Done.")

        @agent.tool_plain
        def flip(n: int) -> str:
            if n % 2 == 0:
                raise ModelRetry("Again.")
            return "Good."

        return agent

    assert (await engines.run(make)).told() == ["Again.", "Good."] * 3


async def test_retries_without_end_fail_the_run(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted(*[[call("never")]] * 9)

        @agent.tool_plain
        def never() -> None:
            raise ModelRetry("Again.")

        return agent

    ran = await engines.run(make)
    told = "The model tried the tool 'never' again more often than its max_retries of 1 allows. The last problem was: "
    assert ran.error == ("ToolRetriesExceeded", f"{told}Again.")


async def test_invalid_arguments_are_told_with_their_errors(engines: Engines) -> None:
    def make() -> AnyAgent:
        bad = [call("pay", "a", cents="many", to=1), ToolCallPart(tool_name="pay", args="{not json", tool_call_id="b")]
        agent = scripted(bad, [call("pay", "c", cents=3)], "Paid.")

        @agent.tool_plain
        def pay(cents: int) -> int:
            return cents

        return agent

    told = (await engines.run(make)).told()
    assert [error["loc"] for error in told[0]] == [["cents"], ["to"]]
    assert told[1][0]["type"] == "json_invalid"
    assert told[2] == 3


@pytest.mark.parametrize("raw", ["", "null", "{}", '"{}"', None, {}])
async def test_arguments_that_say_nothing(engines: Engines, raw: Any) -> None:
    def make() -> AnyAgent:
        agent = scripted([ToolCallPart(tool_name="now", args=raw, tool_call_id="a")], "Done.")

        @agent.tool_plain
        def now(zone: str = "utc") -> str:
            return zone

        return agent

    assert (await engines.run(make)).told() == ["utc"]


async def test_repair_mends_what_does_not_validate(engines: Engines) -> None:
    def repair(raw: dict[str, Any]) -> dict[str, Any]:
        return {**raw, "top_k": max(1, min(5, int(float(raw["top_k"]))))}

    def make() -> AnyAgent:
        agent = scripted([call("search", "a", query="x", top_k="10.0")], "Done.")

        @agent.tool_plain(repair=repair)
        def search(query: str, top_k: Annotated[int, Field(ge=1, le=5)]) -> str:
            return f"{top_k} of {query}"

        return agent

    assert (await engines.run(make)).told() == ["5 of x"]


async def test_an_args_validator_refuses(engines: Engines) -> None:
    def check(ctx: RunContext[Any], cents: int) -> None:
        if cents > 100:
            raise ModelRetry(f"At most 100, not {cents}; retry {ctx.retry} of {ctx.tool_name}.")

    def make() -> AnyAgent:
        agent = scripted([call("pay", "a", cents=500)], [call("pay", "b", cents=50)], "Paid.")

        @agent.tool_plain(args_validator=check)
        def pay(cents: int) -> int:
            return cents

        return agent

    assert (await engines.run(make)).told() == ["At most 100, not 500; retry 0 of pay.", 50]


async def test_an_unknown_tool_is_answered_with_the_names_that_exist(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted([call("pai", "a")], [call("pay", "b")], "Paid.")

        @agent.tool_plain
        def pay() -> str:
            return "paid"

        return agent

    assert (await engines.run(make)).told() == ["Unknown tool name: 'pai'. Available tools: 'pay'.", "paid"]


async def test_an_unknown_tool_without_end_fails_the_run(engines: Engines) -> None:
    ran = await engines.run(lambda: scripted(*[[call("pai")]] * 9))
    assert ran.error is not None
    assert ran.error[0] == "ToolRetriesExceeded"


# --- results -----------------------------------------------------------------------------------------------------


class Size(enum.Enum):
    SMALL = "s"
    LARGE = 7


class Colour(str, enum.Enum):  # noqa: UP042 # as it was written before Python 3.11
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Address(BaseModel):
    street: str
    since: date = date(2020, 1, 2)


@dataclass
class Person:
    name: str
    address: Address
    tags: set[str] = field(default_factory=lambda: {"one"})


class Point(NamedTuple):
    x: int
    y: int


class Movie(TypedDict):
    title: str
    year: int


HOME = Address(street="Lane")
RESULTS: dict[str, tuple[Any, Any]] = {
    "str": ("text", "text"),
    "empty str": ("", ""),
    "none": (None, None),
    "bool": (True, True),
    "int": (3, 3),
    "large int": (2**70, 2**70),
    "float": (1.5, 1.5),
    "nan": (math.nan, "NaN"),
    "nested infinity": ({"x": [math.inf, -math.inf]}, {"x": ["Infinity", "-Infinity"]}),
    "dict": ({"a": 1, 2: "b", "n": {"x": None}}, {"a": 1, "2": "b", "n": {"x": None}}),
    "list": ([1, "a", None], [1, "a", None]),
    "tuple": ((1, (2, 3)), [1, [2, 3]]),
    "named tuple": (Point(1, 2), [1, 2]),
    "frozenset": (frozenset({1}), [1]),
    "model": (HOME, {"street": "Lane", "since": "2020-01-02"}),
    "models": ([HOME], [{"street": "Lane", "since": "2020-01-02"}]),
    "dataclass": (
        Person("Ana", HOME),
        {"name": "Ana", "address": {"street": "Lane", "since": "2020-01-02"}, "tags": ["one"]},
    ),
    "typed dict": (Movie(title="M", year=1), {"title": "M", "year": 1}),
    "date": (date(2024, 2, 3), "2024-02-03"),
    "datetime": (datetime(2024, 2, 3, 4, 5, tzinfo=UTC), "2024-02-03T04:05:00Z"),
    "time": (time(4, 5), "04:05:00"),
    "timedelta": (timedelta(seconds=90), "PT1M30S"),
    "decimal": (Decimal("1.10"), "1.10"),
    "uuid": (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "path": (Path("a/b"), "a/b"),
    "enum": (Size.SMALL, "s"),
    "enum of int": (Size.LARGE, 7),
    "str enum": (Colour.RED, "red"),
    "int enum": (Level.HIGH, 3),
    "enums inside": ({"a": [Colour.RED, Level.HIGH]}, {"a": ["red", 3]}),
    "bytes": (b"\xff\x00", "_wA="),
    "bytes inside": ({"b": b"abc"}, {"b": "YWJj"}),
    "model with bytes": (
        BinaryContent(data=b"abc", media_type="text/plain"),
        {"data": "YWJj", "media_type": "text/plain", "kind": "binary"},
    ),
}


async def test_results_of_any_kind_are_told_as_their_json(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted([call("give", str(n), kind=kind) for n, kind in enumerate(RESULTS)], "Done.")

        @agent.tool_plain
        def give(kind: str) -> Any:
            return RESULTS[kind][0]

        return agent

    told = (await engines.run(make)).told()
    for (kind, (_, expected)), content in zip(RESULTS.items(), told, strict=True):
        assert (kind, repr(content)) == (kind, repr(expected))


async def test_results_without_json_are_told_as_failures(engines: Engines) -> None:
    values = [object(), (n for n in range(3)), lambda: 1, "\ud800", {"a": {"b": object()}}, _loop()]

    def make() -> AnyAgent:
        agent = scripted([call("give", str(n), n=n) for n in range(len(values))], "Done.")

        @agent.tool_plain
        def give(n: int) -> Any:
            return values[n]

        return agent

    for told in (await engines.run(make)).told():
        assert told.startswith("UnserialisableResult: The tool ran, but its result, a ")


def _loop() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


async def test_a_tool_return_with_content_and_metadata(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted([call("draw", "a", n=1), call("draw", "b", n=2), call("say", "c")], "Nice.")

        @agent.tool_plain
        def draw(n: int) -> ToolReturn:
            picture = BinaryContent(data=bytes([n, 255]), media_type="image/png")
            url = ImageUrl(url=f"https://example.org/{n}.png")
            return ToolReturn(return_value={"n": n}, content=[f"Picture {n}", url, picture], metadata={"cost": n})

        @agent.tool_plain
        def say() -> ToolReturn:
            return ToolReturn(content="Only this.")

        return agent

    ran = await engines.run(make)
    returns = parts(ran.messages, "tool-return")
    assert [part.get("content") for part in returns] == [{"n": 1}, {"n": 2}, None]
    assert [part.get("metadata") for part in returns] == [{"cost": 1}, {"cost": 2}, None]
    shown = [part["content"] for part in parts(ran.messages, "user-prompt")][1:]
    assert [content[0] if isinstance(content, list) else content for content in shown] == [
        "Picture 1",
        "Picture 2",
        "Only this.",
    ]


async def test_a_prompt_of_text_pictures_and_bytes(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted([call("look", "a")], "Nice.")

        @agent.tool
        def look(ctx: RunContext[Any]) -> list[str]:
            assert isinstance(ctx.prompt, list)
            return [type(item).__name__ for item in ctx.prompt]

        return agent

    picture = BinaryContent(data=b"\x00\xff", media_type="image/png")
    prompt = ["Look:", ImageUrl(url="https://example.org/a.png"), picture]
    here = await make().run(prompt)
    agent = make()
    agent.name = "pictures"
    await engines.host.serve(agent)
    run = await engines.host.start("pictures", to_jsonable_python(prompt, bytes_mode="base64"))
    await engines.host.result(run)
    assert [dump_message(message) for message in here.all_messages()] == await engines.host.messages(run)


# --- tools that fail ---------------------------------------------------------------------------------------------


async def test_a_fatal_error_is_told_at_once(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted([call("pay", "a")], "I see.", max_retries=0)

        @agent.tool
        def pay(ctx: RunContext[Any]) -> None:
            raise FatalToolError(f"No money, attempt {ctx.attempt}.")

        return agent

    ran = await engines.run(make)
    assert ran.told() == ["FatalToolError: No money, attempt 1."]
    assert parts(ran.messages, "tool-return")[0]["outcome"] == "failed"


async def test_a_transient_error_is_tried_again(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted([call("fetch", "a")], "Done.")

        @agent.tool
        def fetch(ctx: RunContext[Any]) -> str:
            if ctx.attempt < 3:
                raise TransientToolError("busy", retry_after=0.01)
            return f"attempt {ctx.attempt}"

        return agent

    assert (await engines.run(make)).told() == ["attempt 3"]


async def test_a_transient_error_of_a_call_that_is_not_repeatable_is_tried_again(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted([call("fetch", "a")], "Done.")
        seen: list[int] = []

        @agent.tool_plain(repeatable=False)
        def fetch() -> str:
            seen.append(1)
            if len(seen) < 3:
                raise TransientToolError("busy", retry_after=0.01)
            return f"attempt {len(seen)}"

        return agent

    assert (await engines.run(make)).told() == ["attempt 3"]


async def test_any_other_error_is_told_after_the_last_attempt(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted([call("pay", "a"), call("wait", "b")], "I see.", attempts=2)

        @agent.tool
        def pay(ctx: RunContext[Any]) -> None:
            raise ValueError(f"card declined, attempt {ctx.attempt}, api_key=sk-1234567890")

        @agent.tool_plain
        async def wait() -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(_raise, KeyError("gone"))

        return agent

    assert (await engines.run(make)).told() == [
        "ValueError: card declined, attempt 2, api_key=***",
        "KeyError: 'gone'",
    ]


async def _raise(error: Exception) -> None:
    raise error


async def test_an_error_may_fail_the_run(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted([call("pay", "a")], attempts=1)

        @agent.tool_plain(on_error="fail_run")
        def pay() -> None:
            raise ValueError("card declined")

        return agent

    ran = await engines.run(make)
    assert ran.error == ("ToolFailed", "The tool 'pay' failed, ValueError: card declined")


async def test_an_unknown_outcome_may_be_told(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted([call("pay", "a")], "I see.")

        @agent.tool_plain(repeatable=False, on_unknown="tell_model")
        def pay() -> None:
            raise ValueError("connection lost")

        return agent

    told = (await engines.run(make)).told()
    assert told == ["ValueError: connection lost. The call may or may not have taken effect."]


async def test_a_timeout_is_told_once(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted([call("slow", "a")], "I see.")

        @agent.tool_plain(timeout=0.2)
        async def slow() -> None:
            await anyio.sleep_forever()

        return agent

    assert (await engines.run(make)).told() == ["Timed out after 0.2 seconds."]


async def test_a_timeout_error_of_the_tools_own_is_no_timeout(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted([call("ask", "a")], "I see.", attempts=1)

        @agent.tool_plain
        async def ask() -> None:
            raise TimeoutError("the printer did not answer")

        return agent

    assert (await engines.run(make)).told() == ["TimeoutError: the printer did not answer"]


# --- output ------------------------------------------------------------------------------------------------------


class Answer(BaseModel):
    city: str
    population: int
    founded: date | None = None


class Refusal(BaseModel):
    reason: str


@dataclass
class Coordinates:
    lat: float
    lon: float


async def test_an_output_of_a_model(engines: Engines) -> None:
    def make() -> AnyAgent:
        bad = [call("final_result", "a", city="Rome", population="many")]
        good = [call("final_result", "b", city="Rome", population="3", founded="0753-04-21")]
        return scripted(bad, good, output_type=Answer)

    ran = await engines.run(make)
    assert ran.output == Answer(city="Rome", population=3, founded=date(753, 4, 21))
    assert ran.told()[1] == "Final result processed."


@pytest.mark.parametrize(
    ("output_type", "args", "expected"),
    [
        (list[int], {"response": [1, "2"]}, [1, 2]),
        (int, {"response": "7"}, 7),
        (bool, {"response": True}, True),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (Coordinates, {"lat": 1, "lon": 2}, Coordinates(1.0, 2.0)),
        (Movie, {"title": "M", "year": 1}, {"title": "M", "year": 1}),
        (Size, {"response": "s"}, Size.SMALL),
        (date, {"response": "2024-01-02"}, date(2024, 1, 2)),
        (list[Answer], {"response": [{"city": "Rome", "population": 3}]}, [Answer(city="Rome", population=3)]),
        (Answer | None, {"response": None}, None),
    ],
    ids=str,
)
async def test_an_output_of_any_type(engines: Engines, output_type: Any, args: dict[str, Any], expected: Any) -> None:
    def make() -> AnyAgent:
        return scripted([call("final_result", "a", **args)], output_type=output_type)

    assert (await engines.run(make)).output == expected


@pytest.mark.parametrize("output_type", [[Answer, Refusal], Answer | Refusal, [Answer, [Refusal]]], ids=str)
async def test_an_output_of_one_of_two_types(engines: Engines, output_type: Any) -> None:
    def make() -> AnyAgent:
        return scripted([call("final_result_Refusal", "a", reason="No.")], output_type=output_type)

    assert (await engines.run(make)).output == Refusal(reason="No.")


@pytest.mark.parametrize("output_type", [[str, Answer], str | Answer], ids=str)
async def test_an_output_of_text_or_a_model(engines: Engines, output_type: Any) -> None:
    ran = await engines.run(lambda: scripted("Just text.", output_type=output_type))
    assert ran.output == "Just text."


async def test_text_where_an_output_tool_is_wanted(engines: Engines) -> None:
    def make() -> AnyAgent:
        return scripted("Rome.", [call("final_result", "a", city="Rome", population=3)], output_type=Answer)

    ran = await engines.run(make)
    assert ran.output == Answer(city="Rome", population=3)
    assert ran.told()[0] == "Plain text responses are not permitted: answer by calling 'final_result'."


async def test_calls_beside_an_output_are_not_made(engines: Engines) -> None:
    def make() -> AnyAgent:
        answer = call("final_result", "b", city="Rome", population=3)
        agent = scripted(
            [call("pay", "a"), answer, call("final_result", "c", city="Bern", population=1)], output_type=Answer
        )

        @agent.tool_plain
        def pay() -> None:
            raise AssertionError

        return agent

    ran = await engines.run(make)
    assert ran.output == Answer(city="Rome", population=3)
    assert ran.told() == [
        "Tool not executed - a final result was already processed.",
        "Final result processed.",
        "Output tool not used - a final result was already processed.",
    ]


async def test_an_output_validator_refuses_and_changes(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted("short", "long enough")

        @agent.output_validator
        def check(ctx: RunContext[Any], output: str) -> str:
            if len(output) < 8:
                raise ModelRetry(f"Longer, please; step {ctx.run_step}.")
            return output.upper()

        return agent

    ran = await engines.run(make)
    assert ran.output == "LONG ENOUGH"
    assert ran.told() == ["Longer, please; step 1."]


async def test_an_output_validator_of_a_model(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent = scripted(
            [call("final_result", "a", city="Rome", population=0)],
            [call("final_result", "b", city="Rome", population=3)],
            output_type=Answer,
        )

        @agent.output_validator
        async def check(output: Answer) -> Answer:
            if not output.population:
                raise ModelRetry("Nobody lives there?")
            return output.model_copy(update={"city": output.city.upper()})

        return agent

    ran = await engines.run(make)
    assert ran.output == Answer(city="ROME", population=3)
    assert ran.told() == ["Nobody lives there?", "Final result processed."]


async def test_an_output_that_stays_invalid_fails_the_run(engines: Engines) -> None:
    ran = await engines.run(lambda: scripted(*["No."] * 9, output_type=Answer, output_retries=2))
    assert ran.error is not None
    assert ran.error[0] == "OutputValidationFailed"


async def test_an_empty_answer_is_asked_for_again(engines: Engines) -> None:
    ran = await engines.run(lambda: scripted("", "Here."))
    assert ran.output == "Here."


# --- instructions, settings, limits, history -----------------------------------------------------------------------


async def test_instructions_are_rendered_for_each_step_and_never_stored(engines: Engines) -> None:
    def make() -> AnyAgent:
        def model(messages: list[ModelMessage], info: AgentInfo) -> Any:
            if info.instructions and info.instructions.endswith("step 1"):
                return [call("look", "a")]
            return info.instructions

        def today() -> str:
            return "Today."

        agent: AnyAgent = Agent(FunctionModel(model), instructions=["Be kind.", today])

        @agent.instructions
        async def step(ctx: RunContext[Any]) -> str | None:
            return f"{ctx.prompt} step {ctx.run_step}"

        @agent.tool_plain
        def look() -> None: ...

        return agent

    ran = await engines.run(make)
    assert ran.output == "Be kind.\n\nToday.\n\nGo. step 2"
    assert "kind." not in str(ran.messages[:-1])


async def test_model_settings_of_agent_and_run(engines: Engines) -> None:
    def make() -> AnyAgent:
        def model(messages: list[ModelMessage], info: AgentInfo) -> str:
            return str(sorted((info.model_settings or {}).items()))

        return Agent(FunctionModel(model), model_settings={"temperature": 0.5, "seed": 1})

    ran = await engines.run(make, settings={"seed": 2})
    assert ran.output == "[('seed', 2), ('temperature', 0.5)]"


@pytest.mark.parametrize(
    "limits",
    [
        UsageLimits(requests=2),
        UsageLimits(tool_calls=1),
        UsageLimits(input_tokens=25),
        UsageLimits(output_tokens=11),
        UsageLimits(total_tokens=40),
    ],
    ids=str,
)
async def test_usage_limits(engines: Engines, limits: UsageLimits) -> None:
    def make() -> AnyAgent:
        step = ModelResponse(parts=[call("tick")], usage=Usage(requests=1, input_tokens=10, output_tokens=5))
        agent = scripted(*[step] * 9)

        @agent.tool_plain
        def tick() -> None: ...

        return agent

    ran = await engines.run(make, limits=limits)
    assert ran.error is not None
    assert ran.error[0] == "UsageLimitExceeded"


async def test_a_message_history_goes_on(engines: Engines) -> None:
    history: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(content=["Look.", ImageUrl(url="https://example.org/a.png")])]),
        ModelResponse(parts=[call("look", "call_1_0")]),
        ModelRequest(parts=[ToolReturnPart(tool_name="look", content={"a": 1}, tool_call_id="call_1_0")]),
        ModelResponse(parts=[TextPart(content="Seen.")]),
    ]

    def make() -> AnyAgent:
        agent = scripted("-", "-", [call("look")], "Again.")

        @agent.tool
        def look(ctx: RunContext[Any]) -> int:
            return len(ctx.messages)

        return agent

    ran = await engines.run(make, history=history)
    assert ran.output == "Again."
    assert ran.told() == [{"a": 1}, 6]


async def test_a_history_that_ends_in_a_request_needs_no_prompt(engines: Engines) -> None:
    history: list[ModelMessage] = [ModelRequest.user_text_prompt("Hello?")]
    assert (await engines.run(lambda: scripted("Hello."), None, history=history)).output == "Hello."


# --- deps --------------------------------------------------------------------------------------------------------


@dataclass
class Basket:
    items: list[str] = field(default_factory=list)
    owner: str = "ana"
    total: Decimal = Decimal(0)


async def test_changes_to_deps_are_seen_by_the_next_call_and_step(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent: AnyAgent = Agent(
            ScriptedModel(
                [[call("put", "a", item="tea"), call("put", "b", item="milk")], [call("show", "c")], "Done."]
            ),
            deps_type=Basket,
        )

        @agent.tool(sequential=True)
        def put(ctx: RunContext[Basket], item: str) -> int:
            ctx.deps.items.append(item)
            ctx.deps.total += Decimal("1.10")
            return len(ctx.deps.items)

        @agent.tool
        def show(ctx: RunContext[Basket]) -> Basket:
            return ctx.deps

        @agent.instructions
        def what(ctx: RunContext[Basket]) -> str:
            return f"{ctx.deps.owner} has {ctx.deps.items}"

        return agent

    ran = await engines.run(make, deps=Basket())
    assert ran.told() == [1, 2, {"items": ["tea", "milk"], "owner": "ana", "total": "2.20"}]


async def test_changes_to_deps_by_a_call_that_must_be_tried_again_are_kept(engines: Engines) -> None:
    def make() -> AnyAgent:
        agent: AnyAgent = Agent(ScriptedModel([[call("put", "a")], [call("put", "b")], "Done."]), deps_type=Basket)

        @agent.tool
        def put(ctx: RunContext[Basket]) -> list[str]:
            ctx.deps.items.append("x")
            if len(ctx.deps.items) < 2:
                raise ModelRetry("Once more.")
            return ctx.deps.items

        return agent

    assert (await engines.run(make, deps=Basket())).told() == ["Once more.", ["x", "x"]]


# --- toolsets ----------------------------------------------------------------------------------------------------


def weather() -> FunctionToolset[Any]:
    def celsius(city: str) -> float:
        return 21.0

    def fahrenheit(city: str) -> float:
        return 69.8

    return FunctionToolset([celsius, fahrenheit])


def asking_for_all(*toolsets: Any, **options: Any) -> AnyAgent:
    """An agent that calls each tool that it is offered, and tells the names."""
    return Agent(TestModel(), toolsets=list(toolsets), **options)


def called(ran: Ran) -> list[str]:
    return [part["tool_name"] for part in parts(ran.messages, "tool-call")]


TOOLSETS: dict[str, tuple[Callable[[], AnyAgent], list[str]]] = {
    "prefixed": (lambda: asking_for_all(weather().prefixed("w")), ["w_celsius", "w_fahrenheit"]),
    "prefixed twice": (
        lambda: asking_for_all(weather().prefixed("a").prefixed("b")),
        ["b_a_celsius", "b_a_fahrenheit"],
    ),
    "renamed": (lambda: asking_for_all(weather().renamed({"warm": "celsius"})), ["warm", "fahrenheit"]),
    "swapped": (
        lambda: asking_for_all(weather().renamed({"celsius": "fahrenheit", "fahrenheit": "celsius"})),
        ["fahrenheit", "celsius"],
    ),
    "filtered": (lambda: asking_for_all(weather().filtered(lambda ctx, tool: tool.name < "d")), ["celsius"]),
    "prepared": (lambda: asking_for_all(weather().prepared(lambda ctx, tools: tools[1:])), ["fahrenheit"]),
    "prepare_tools": (lambda: asking_for_all(weather(), prepare_tools=lambda ctx, tools: tools[:1]), ["celsius"]),
    "all of them": (
        lambda: asking_for_all(
            weather().prefixed("w").renamed({"warm": "w_celsius"}).filtered(lambda ctx, tool: tool.name != "x"),
            weather().prefixed("v").prepared(lambda ctx, tools: tools[:1]).with_metadata(a=1),
        ),
        ["warm", "w_fahrenheit", "v_celsius"],
    ),
    "dynamic": (
        lambda: asking_for_all(lambda ctx: weather() if ctx.run_step == 1 else None),
        ["celsius", "fahrenheit"],
    ),
    "dynamic once": (
        lambda: asking_for_all(DynamicToolset(lambda ctx: weather(), per_run_step=False)),
        ["celsius", "fahrenheit"],
    ),
}


@pytest.mark.parametrize("kind", TOOLSETS)
async def test_calls_go_through_every_wrapper(engines: Engines, kind: str) -> None:
    make, names = TOOLSETS[kind]
    ran = await engines.run(make)
    assert called(ran) == names
    assert set(ran.told()) <= {21.0, 69.8}


async def test_a_wrapper_changes_how_a_tool_is_called(engines: Engines) -> None:
    class Doubling(WrapperToolset[Any]):
        async def call_tool(
            self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
        ) -> Any:
            assert name == ctx.tool_name
            return 2 * await super().call_tool(name, tool_args, ctx, tool)

    ran = await engines.run(lambda: asking_for_all(Doubling(weather().prefixed("w"))))
    assert ran.told() == [42.0, 139.6]


async def test_prepared_definitions_are_what_the_model_sees(engines: Engines) -> None:
    def make() -> AnyAgent:
        def model(messages: list[ModelMessage], info: AgentInfo) -> str:
            return " ".join(f"{tool.name}:{tool.description}" for tool in info.function_tools)

        def describe(ctx: RunContext[Any], tools: list[ToolDefinition]) -> list[ToolDefinition]:
            return [dataclasses.replace(tool, description=f"{tool.name}!") for tool in tools]

        agent: AnyAgent = Agent(FunctionModel(model), toolsets=[weather().prepared(describe)])

        @agent.tool_plain(prepare=lambda ctx, tool: None)
        def hidden() -> None: ...

        @agent.tool_plain(prepare=lambda ctx, tool: dataclasses.replace(tool, description="Prepared."))
        def shown() -> None: ...

        return agent

    assert (await engines.run(make)).output == "shown:Prepared. celsius:celsius! fahrenheit:fahrenheit!"


async def test_a_dynamic_toolset_follows_deps_that_a_tool_changed(engines: Engines) -> None:
    def make() -> AnyAgent:
        def model(messages: list[ModelMessage], info: AgentInfo) -> Any:
            names = [tool.name for tool in info.function_tools]
            return [call("rename", "a")] if len(messages) == 1 else " ".join(names)

        agent: AnyAgent = Agent(FunctionModel(model), deps_type=Basket)

        @agent.toolset
        def of_the_owner(ctx: RunContext[Basket]) -> FunctionToolset[Any]:
            return weather().prefixed(ctx.deps.owner)  # type: ignore[return-value]

        @agent.tool
        def rename(ctx: RunContext[Basket]) -> None:
            ctx.deps.owner = "bob"

        return agent

    ran = await engines.run(make, deps=Basket())
    assert ran.output == "rename bob_celsius bob_fahrenheit"


async def test_a_tool_that_left_between_plan_and_call_is_told(engines: Engines) -> None:
    """A filter may change its mind between two steps; a call of what the model was not offered is an unknown tool."""

    def make() -> AnyAgent:
        agent = scripted([call("celsius", "a", city="x")], [call("celsius", "b", city="x")], "Done.")
        agent._toolsets.append(weather().filtered(lambda ctx, tool: ctx.run_step == 1))
        return agent

    assert (await engines.run(make)).told() == [21.0, "Unknown tool name: 'celsius'. Available tools: none."]


# --- override ----------------------------------------------------------------------------------------------------


async def test_override_replaces_model_toolsets_tools_and_deps(host: Host) -> None:
    """Durably, what counts is where the worker started."""

    def shown(ctx: RunContext[Basket]) -> str:
        return ctx.deps.owner

    agent: Agent[Basket, str] = Agent(ScriptedModel(["The real one."]), name="shop", deps_type=Basket)

    @agent.tool_plain
    def own() -> str:
        raise AssertionError

    def changed() -> FunctionToolset[Any]:
        return weather()

    model = ScriptedModel([[call("shown", "a"), call("celsius", "b", city="x"), call("own", "c")], "Replaced."])
    with agent.override(model=model, tools=[shown], toolsets=[changed()], deps=Basket(owner="bob")):
        here = await agent.run("Go.", deps=Basket())
        await host.serve(agent)
    run = await host.start("shop", deps=to_jsonable_python(Basket()))
    result = await host.result(run)
    assert here.output == result["output"] == "Replaced."
    messages = await host.messages(run)
    assert [dump_message(message) for message in here.all_messages()] == messages
    assert [part["content"] for part in parts(messages, "tool-return")] == ["bob", 21.0]
    assert (await agent.run("Go.", deps=Basket())).output == "The real one."


# --- calls that wait ---------------------------------------------------------------------------------------------


async def test_a_tool_that_asks_for_somebody_itself(host: Host) -> None:
    """In-process the run ends with what waits; durably it waits. The calls that wait are the same."""

    def make() -> AnyAgent:
        agent = scripted([call("big", "a", cents=5), call("slow", "b"), call("free", "c")], "Done.")

        @agent.tool
        def big(ctx: RunContext[Any], cents: int) -> str:
            if not ctx.tool_call_approved:
                raise ApprovalRequired({"why": "much"})
            return f"paid {cents}"

        @agent.tool_plain
        def slow() -> None:
            raise CallDeferred({"job": 7})

        @agent.tool_plain
        def free() -> str:
            return "free"

        return agent

    agent = make()
    here = await agent.run("Go.", output_type=[str, DeferredToolRequests])
    requests = here.output
    assert isinstance(requests, DeferredToolRequests)
    assert [part.tool_call_id for part in requests.approvals] == ["a"]
    assert [part.tool_call_id for part in requests.calls] == ["b"]
    assert requests.metadata == {"a": {"why": "much"}, "b": {"job": 7}}
    ended = await agent.run(
        message_history=here.all_messages(),
        deferred_tool_results=DeferredToolResults(approvals={"a": True}, calls={"b": {"late": 1}}),
    )

    agent = make()
    agent.name = "asking"
    await host.serve(agent)
    run = await host.start("asking")
    waiting = await host.pending(run, 2)
    assert {one["tool_call_id"]: one["metadata"] for one in waiting} == requests.metadata
    await run.signal("approve", {"tool_call_id": "a"})
    await run.signal("resolve", {"tool_call_id": "b", "result": {"late": 1}})
    assert (await host.result(run))["output"] == ended.output == "Done."
    returns = parts(await host.messages(run), "tool-return")
    assert [part["content"] for part in returns] == ["paid 5", {"late": 1}, "free"]
    here_returns = parts([dump_message(message) for message in ended.all_messages()], "tool-return")
    assert sorted(here_returns, key=str) == sorted(returns, key=str)
