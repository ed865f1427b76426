"""Runs without a server: calls that wait and their answers, ends of every kind, and what stays a live object."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, Field

from outlast import (
    AbstractToolset,
    Agent,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    DynamicToolset,
    ExternalToolset,
    FunctionModel,
    FunctionToolset,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelRetry,
    RunContext,
    ScriptedModel,
    TextPart,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
    ToolReturn,
    ToolReturnPart,
    ToolsetTool,
    TransientToolError,
    UsageLimits,
    UserError,
    UserPromptPart,
    WrapperToolset,
    errors,
)
from outlast.messages import Usage
from outlast.models.chat import chat_messages
from outlast.models.function import AgentInfo
from outlast.testing import call

EXTERNAL = ExternalToolset([ToolDefinition("ring", {"type": "object", "properties": {"n": {"type": "integer"}}})])


def shop(*lines: Any) -> Agent[Any, Any]:
    """An agent with a tool of each kind, whose output may be what waits."""
    agent: Agent[Any, Any] = Agent(
        ScriptedModel(lines), output_type=[str, DeferredToolRequests], toolsets=[EXTERNAL], backoff=0.001
    )
    agent.paid = []  # type: ignore[attr-defined]

    @agent.tool(requires_approval=True)
    def pay(ctx: RunContext[Any], cents: int, to: str = "ana") -> str:
        agent.paid.append(cents)  # type: ignore[attr-defined]
        return f"{cents} to {to} {ctx.tool_call_metadata or ''}".strip()

    @agent.tool_plain
    def look() -> ToolReturn:
        return ToolReturn(return_value="seen", content="And more.")

    @agent.tool_plain
    def later() -> None:
        raise CallDeferred({"job": 7})

    @agent.tool
    def maybe(ctx: RunContext[Any], cents: int) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired({"limit": 10})
        return f"maybe {cents}"

    return agent


async def waiting(agent: Agent[Any, Any]) -> tuple[DeferredToolRequests, list[ModelMessage]]:
    result = await agent.run("Go.")
    assert isinstance(result.output, DeferredToolRequests)
    return result.output, result.all_messages()


async def answered(agent: Agent[Any, Any], history: list[ModelMessage], **answers: Any) -> list[Any]:
    """What the model is told in the end."""
    result = await agent.run(message_history=history, deferred_tool_results=DeferredToolResults(**answers))
    assert result.output == "Done."
    return told(result.all_messages())


def told(messages: list[ModelMessage]) -> list[Any]:
    return [
        part.content  # type: ignore[union-attr]
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if part.part_kind in ("tool-return", "retry-prompt")
    ]


# --- calls that wait ---------------------------------------------------------------------------------------------


async def test_the_run_ends_with_what_waits() -> None:
    agent = shop([call("pay", "a", cents="5"), call("ring", "b", n=1), call("later", "c"), call("maybe", "d", cents=1)])
    requests, messages = await waiting(agent)
    # As they were validated: with types, and with defaults.
    assert requests.approvals == [call("pay", "a", cents=5, to="ana"), call("maybe", "d", cents=1)]
    assert requests.calls == [call("ring", "b", n=1), call("later", "c")]
    assert requests.metadata == {"c": {"job": 7}, "d": {"limit": 10}}
    assert [message.kind for message in messages] == ["request", "response"]
    assert agent.paid == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (True, "5 to ana"),
        (False, "The tool call was denied."),
        (ToolApproved(), "5 to ana"),
        (ToolApproved(override_args={"cents": 3, "to": "bob"}), "3 to bob"),
        (ToolDenied(), "The tool call was denied."),
        (ToolDenied("Not today."), "Not today."),
    ],
    ids=str,
)
async def test_an_approval_in_each_form(answer: Any, expected: str) -> None:
    agent = shop([call("pay", "a", cents=5)], "Done.")
    _, messages = await waiting(agent)
    assert await answered(agent, messages, approvals={"a": answer}) == [expected]
    assert len(agent.paid) == (expected[-3:] in ("ana", "bob"))  # type: ignore[attr-defined]


class Answer(BaseModel):
    city: str


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, None),
        ("text", "text"),
        ({"a": [1]}, {"a": [1]}),
        (Answer(city="Rome"), {"city": "Rome"}),
        (float("nan"), "NaN"),
        (ToolReturn(return_value=1, content="Look.", metadata={"x": 1}), 1),
        (ModelRetry("Ring again."), "Ring again."),
    ],
    ids=str,
)
async def test_a_result_in_each_form(answer: Any, expected: Any) -> None:
    agent = shop([call("ring", "a", n=1)], "Done.")
    _, messages = await waiting(agent)
    assert await answered(agent, messages, calls={"a": answer}) == [expected]


async def test_a_result_may_come_for_a_call_that_waits_for_an_approval() -> None:
    agent = shop([call("pay", "a", cents=5)], "Done.")
    _, messages = await waiting(agent)
    assert await answered(agent, messages, calls={"a": "paid in cash"}) == ["paid in cash"]
    assert agent.paid == []  # type: ignore[attr-defined]


async def test_a_result_may_come_for_a_tool_that_is_gone_by_now() -> None:
    """A front end gives its tools with each request, and may leave them out of the one that brings the result."""
    first = shop([call("ring", "a", n=1)])
    _, messages = await waiting(first)
    second: Agent[Any, Any] = Agent(ScriptedModel(["-", "Done."]))
    assert await answered(second, messages, calls={"a": "rang"}) == ["rang"]
    assert await answered(second, messages, approvals={"a": False}) == ["The tool call was denied."]


async def test_tools_that_asked_themselves_run_again_from_their_start() -> None:
    agent = shop([call("maybe", "a", cents=1), call("later", "b")], "Done.")
    _, messages = await waiting(agent)
    assert await answered(agent, messages, approvals={"a": True}, calls={"b": 2}) == ["maybe 1", 2]


async def test_metadata_of_the_answer_reaches_the_tool() -> None:
    agent = shop([call("pay", "a", cents=5)], "Done.")
    _, messages = await waiting(agent)
    assert await answered(agent, messages, approvals={"a": True}, metadata={"a": {"by": "eve"}}) == [
        "5 to ana {'by': 'eve'}"
    ]


async def test_calls_of_the_same_step_that_ran_already_do_not_run_again() -> None:
    agent = shop([call("look", "a"), call("ring", "b", n=1), call("look", "c")], "Done.")
    requests, messages = await waiting(agent)
    assert [part.tool_call_id for part in requests.calls] == ["b"]
    assert told(messages) == ["seen", "seen"]
    result = await agent.run(message_history=messages, deferred_tool_results=DeferredToolResults(calls={"b": "rang"}))
    assert told(result.all_messages()) == ["seen", "seen", "rang"]
    assert result.all_messages()[: len(messages)] == messages
    assert told(result.new_messages()) == ["rang"]
    # Chat completions want all results of a response right behind it, and what is said besides after them.
    roles = [message["role"] for message in chat_messages(result.all_messages(), instructions=None, provider_name="x")]
    assert roles == ["user", "assistant", "tool", "tool", "tool", "user", "user", "assistant"]


async def test_a_new_prompt_comes_after_the_results() -> None:
    agent = shop([call("ring", "a", n=1)], "Done.")
    _, messages = await waiting(agent)
    results = DeferredToolResults(calls={"a": "rang"})
    result = await agent.run("And hurry.", message_history=messages, deferred_tool_results=results)
    [request, _] = result.new_messages()
    assert isinstance(request, ModelRequest)
    assert request.parts == [ToolReturnPart("ring", "rang", "a"), UserPromptPart("And hurry.")]


async def test_waiting_twice_in_one_conversation() -> None:
    agent = shop([call("ring", "a", n=1)], [call("pay", "b", cents=2)], "Done.")
    _, messages = await waiting(agent)
    second = await agent.run(message_history=messages, deferred_tool_results=DeferredToolResults(calls={"a": 1}))
    assert isinstance(second.output, DeferredToolRequests)
    assert await answered(agent, second.all_messages(), approvals={"b": True}) == [1, "2 to ana"]


async def test_every_answer_that_does_not_fit_is_named() -> None:
    agent = shop([call("pay", "a", cents=5), call("ring", "b", n=1), call("later", "c")], "Done.")
    _, messages = await waiting(agent)
    results = DeferredToolResults(approvals={"a": True, "x": False}, calls={"a": 1})
    with pytest.raises(UserError) as caught:
        await agent.run(message_history=messages, deferred_tool_results=results)
    assert caught.value.message == (
        "deferred_tool_results needs one answer for each call that waits: there is no answer for 'b' (ring), "
        "'c' (later); no call waits with the ID 'x'; there are two answers for 'a'."
    )
    assert agent.paid == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"approvals": {"a": "yes", "b": False}}, "is True, False, ToolApproved or ToolDenied, got 'yes'"),
        ({"approvals": {"a": ToolApproved(override_args={"cents": "x"}), "b": False}}, "cents"),
        ({"approvals": {"a": True, "b": True}}, "approves a call of 'ring', which runs elsewhere"),
        ({"approvals": {"a": True}, "calls": {"b": object()}}, "calls['b'] cannot be used"),
    ],
)
async def test_an_answer_that_cannot_be_used_says_why(answers: Any, expected: str) -> None:
    agent = shop([call("pay", "a", cents=5), call("ring", "b", n=1)], "Done.")
    _, messages = await waiting(agent)
    with pytest.raises(UserError) as caught:
        await agent.run(message_history=messages, deferred_tool_results=DeferredToolResults(**answers))
    assert expected in caught.value.message


async def test_edited_arguments_that_only_the_tool_itself_refuses_wait_again() -> None:
    def even(ctx: RunContext[Any], cents: int) -> None:
        if cents % 2:
            raise ModelRetry("Even, please.")

    agent = shop([call("give", "a", cents=2)], "Done.")
    agent.tool_plain(requires_approval=True, args_validator=even, name="give")(_give)
    _, messages = await waiting(agent)
    results = DeferredToolResults(approvals={"a": ToolApproved(override_args={"cents": 5})})
    with pytest.raises(UserError, match=r"'give' \(invalid arguments, Even, please.\)"):
        await agent.run(message_history=messages, deferred_tool_results=results, output_type=str)
    again = await agent.run(message_history=messages, deferred_tool_results=results)
    assert isinstance(again.output, DeferredToolRequests)
    assert again.output.metadata == {"a": {"invalid": "Even, please."}}
    # The conversation has not moved on: the same call waits.
    assert again.all_messages() == messages
    assert await answered(agent, messages, approvals={"a": True}) == [2]


def _give(cents: int) -> int:
    return cents


async def test_results_without_a_call_that_waits() -> None:
    with pytest.raises(UserError, match="ends without a call that waits"):
        await shop("Done.").run("Go.", deferred_tool_results=DeferredToolResults(calls={"a": 1}))


async def test_open_calls_without_results() -> None:
    """A provider would refuse the conversation with a puzzling error."""
    agent = shop([call("pay", "a", cents=5), call("look", "b")], "Done.")
    _, messages = await waiting(agent)
    for prompt in (None, "Hello?"):
        with pytest.raises(UserError, match=r"ends with calls that wait, 'a' \(pay\): give deferred_tool_results"):
            await agent.run(prompt, message_history=messages)


async def test_waiting_needs_an_output_type_that_allows_it() -> None:
    agent = shop([call("pay", "a", cents=5), call("ring", "b", n=1)])
    with pytest.raises(UserError, match=r"'pay', 'ring'\. Put DeferredToolRequests into the agent's output_type"):
        await agent.run("Go.", output_type=str)


async def test_an_unknown_outcome_says_what_happened() -> None:
    """A call that must not be repeated failed half-way: the error of the tool must not be lost."""
    agent: Agent[Any, Any] = Agent(ScriptedModel([[call("pay", "a")], "Done."]))

    @agent.tool_plain(repeatable=False)
    def pay() -> None:
        raise ValueError("connection lost")

    with pytest.raises(UserError, match=r"'pay' \(ValueError: connection lost\)"):
        await agent.run("Go.")
    result = await agent.run("Go.", output_type=[str, DeferredToolRequests])
    assert isinstance(result.output, DeferredToolRequests)
    assert result.output.metadata["a"]["reason"] == "ValueError: connection lost"
    assert await answered(agent, result.all_messages(), calls={"a": "it was paid"}) == ["it was paid"]


async def test_a_sequential_call_that_waits_holds_nobody() -> None:
    agent = shop([call("alone", "a"), call("look", "b")])
    agent.tool_plain(sequential=True, requires_approval=True, name="alone")(lambda: None)
    _, messages = await waiting(agent)
    assert told(messages) == ["seen"]


# --- how runs end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "options", "expected"),
    [
        ([[call("never", "a")], [call("never", "b")]], {}, errors.ToolRetriesExceeded),
        ([[call("broken", "a")]], {}, errors.ToolFailed),
        (["x"], {"usage_limits": UsageLimits(requests=0)}, errors.UsageLimitExceeded),
        (["", ""], {}, errors.OutputValidationFailed),
        ([errors.ProviderError("401: no key", retryable=False)], {}, errors.ModelRequestFailed),
        ([errors.ProviderError("503", retryable=True, retry_after=0)], {}, errors.ModelRequestFailed),
        (["x" * 3_000_000], {}, errors.UnexpectedModelBehavior),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_each_failure_is_an_error_of_its_own_type(lines: Any, options: Any, expected: type[Exception]) -> None:
    agent: Agent[Any, str] = Agent(ScriptedModel(lines), attempts=1)

    @agent.tool_plain
    def never() -> None:
        raise ModelRetry("Again.")

    @agent.tool_plain(on_error="fail_run")
    def broken() -> None:
        raise ValueError("broken")

    with pytest.raises(expected) as caught:
        await agent.run("Go.", **options)
    assert isinstance(caught.value, errors.RunError)
    assert caught.value.message


class Odd(Exception):
    pass


async def test_what_a_custom_model_raises_passes_unchanged() -> None:
    odd = Odd("mine")
    with pytest.raises(Odd) as caught:
        await Agent(ScriptedModel([odd])).run("Go.")
    assert caught.value is odd


async def test_a_provider_that_recovers_is_asked_again() -> None:
    asked: list[int] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> str:
        asked.append(1)
        if len(asked) < 3:
            raise errors.ProviderError("429", retryable=True, retry_after=0)
        return "Done."

    assert (await Agent(FunctionModel(model)).run("Go.")).output == "Done."
    assert len(asked) == 3


@pytest.mark.parametrize("place", ["toolset", "instructions", "prepare", "validator"])
async def test_what_the_users_own_functions_raise_passes_unchanged(place: str) -> None:
    def fail(*_: Any) -> Any:
        raise Odd(place)

    agent: Agent[Any, str] = Agent(
        ScriptedModel(["Done."]),
        toolsets=[fail] if place == "toolset" else [],
        instructions=fail if place == "instructions" else None,
        prepare_tools=fail if place == "prepare" else None,
    )
    if place == "validator":
        agent.output_validator(fail)
    with pytest.raises(Odd, match=place):
        await agent.run("Go.")


async def test_a_tool_that_exits_is_a_tool_that_failed() -> None:
    agent: Agent[Any, str] = Agent(ScriptedModel([[call("leave", "a")], "Done."]), attempts=1)

    @agent.tool_plain
    def leave() -> None:
        raise SystemExit(3)

    assert told((await agent.run("Go.")).all_messages()) == ["RuntimeError: the tool called `sys.exit(3)`"]


async def test_cancelling_the_run_cancels_its_calls() -> None:
    began, cleaned = asyncio.Event(), asyncio.Event()
    agent: Agent[Any, str] = Agent(ScriptedModel([[call("wait", "a"), call("wait", "b")], "Done."]))

    @agent.tool_plain
    async def wait() -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.set()

    run = asyncio.create_task(agent.run("Go."))
    await began.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert cleaned.is_set()


async def test_cancelling_the_run_cancels_its_model_request() -> None:
    began = asyncio.Event()

    async def model(messages: list[ModelMessage], info: AgentInfo) -> str:
        began.set()
        await anyio.sleep_forever()
        raise AssertionError

    run = asyncio.create_task(Agent(FunctionModel(model)).run("Go."))
    await began.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_a_failing_run_waits_for_what_must_not_be_interrupted() -> None:
    """A call that must not be repeated may finish what it began; one that may be is cancelled."""
    began, done = anyio.Event(), anyio.Event()
    agent: Agent[Any, str] = Agent(ScriptedModel([[call("fail", "a"), call("pay", "b"), call("wait", "c")], "Done."]))

    @agent.tool_plain(on_error="fail_run", attempts=1)
    async def fail() -> None:
        await began.wait()
        raise ValueError("broken")

    @agent.tool_plain(repeatable=False)
    async def pay() -> None:
        began.set()
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        done.set()

    @agent.tool_plain
    async def wait() -> None:
        await anyio.sleep_forever()

    with pytest.raises(errors.ToolFailed):
        await agent.run("Go.")
    assert done.is_set()


async def test_a_call_that_is_tried_again_waits_for_nobody() -> None:
    agent = shop([call("fetch", "a"), call("pay", "b", cents=1)])
    tried: list[int] = []

    @agent.tool_plain(repeatable=False)
    def fetch() -> int:
        tried.append(1)
        if len(tried) < 3:
            raise TransientToolError("busy", retry_after=0)
        return len(tried)

    requests, messages = await waiting(agent)
    assert told(messages) == [3]
    assert [part.tool_call_id for part in requests.approvals] == ["b"]


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([], "There is nothing to ask the model: give a prompt, or a message_history."),
        (
            [ModelRequest.user_text_prompt("Hi."), ModelResponse([TextPart("Hello.")])],
            "The message_history ends with a response: give a prompt to go on from it.",
        ),
    ],
)
async def test_a_run_without_anything_to_ask(history: Any, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        await shop("Done.").run(message_history=history)
    assert caught.value.message == expected


# --- live objects ------------------------------------------------------------------------------------------------


async def test_deps_and_resources_are_the_callers_own_objects() -> None:
    class Database:
        def __init__(self) -> None:
            self.rows: list[int] = []

    agent: Agent[Database, str] = Agent(
        ScriptedModel([[call("insert", str(n), n=n) for n in range(3)], "Done."]), deps_type=Database
    )
    seen: list[object] = []

    @agent.tool
    def insert(ctx: RunContext[Database], n: int) -> None:
        ctx.deps.rows.append(n)
        seen.append(ctx.resources)

    deps, resources = Database(), object()
    await agent.run("Go.", deps=deps, resources=resources)
    assert sorted(deps.rows) == [0, 1, 2]
    assert all(one is resources for one in seen)


async def test_the_output_is_the_very_object_that_was_validated() -> None:
    class Aliased(BaseModel):
        city: str = Field(validation_alias="cityName", serialization_alias="CITY")

    agent = Agent(ScriptedModel([[call("final_result", "a", cityName="Rome")]]), output_type=Aliased)
    made: list[Aliased] = []

    @agent.output_validator
    def keep(output: Aliased) -> Aliased:
        made.append(output)
        return output

    result = await agent.run("Go.")
    assert result.output is made[0]
    assert result.output.city == "Rome"


async def test_messages_that_a_run_added_and_its_cost() -> None:
    history: list[ModelMessage] = [ModelRequest.user_text_prompt("Hi."), ModelResponse([TextPart("Hello.")])]
    answer = ModelResponse([TextPart("Done.")], usage=Usage(requests=1, input_tokens=7, output_tokens=2))
    agent = Agent(ScriptedModel(["-", [call("look_around", "a")], answer]), tools=[look_around])
    result = await agent.run("Go.", message_history=history)
    assert result.all_messages()[:2] == history
    assert len(result.new_messages()) == 4
    assert result.response == result.all_messages()[-1]
    assert (result.usage.requests, result.usage.tool_calls, result.usage.total_tokens) == (2, 1, 9)
    result.all_messages().clear()
    assert len(result.all_messages()) == 6


def look_around() -> str:
    return "seen"


async def test_tools_that_are_added_in_a_tool_are_there_in_the_next_step() -> None:
    toolset: FunctionToolset[Any] = FunctionToolset()

    @toolset.tool
    def learn() -> str:
        toolset.add_function(lambda: "learnt", name="use")
        return "ok"

    agent = Agent(ScriptedModel([[call("learn", "a")], [call("use", "b")], "Done."]), toolsets=[toolset])
    assert told((await agent.run("Go.")).all_messages()) == ["ok", "learnt"]


# --- toolsets that hold something --------------------------------------------------------------------------------


@dataclasses.dataclass(eq=False)
class Holding(WrapperToolset[Any]):
    """Notes when it is entered and left; a task group inside wants one task to do both."""

    log: list[str] = dataclasses.field(default_factory=list)
    name: str = "run"

    async def __aenter__(self) -> Any:
        self._scope = self._hold()
        await self._scope.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._scope.__aexit__(*error)

    @asynccontextmanager
    async def _hold(self) -> AsyncGenerator[None]:
        async with anyio.create_task_group():
            self.log.append(f"enter {self.name}")
            try:
                yield
            finally:
                await anyio.lowlevel.checkpoint()
                self.log.append(f"leave {self.name}")

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        self.log.append(f"call {name} of {self.name}")
        return await super().call_tool(name, tool_args, ctx, tool)


@pytest.mark.parametrize("ending", ["well", "failing"])
async def test_what_is_made_for_a_run_or_a_step_is_entered_and_left(ending: str) -> None:
    log: list[str] = []

    def per_run(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return Holding(FunctionToolset([look_around]).prefixed("run"), log)

    def per_step(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        return Holding(FunctionToolset([look_around]).prefixed("step"), log, f"step {ctx.run_step}")

    last: Any = "Done." if ending == "well" else Odd("broken")
    agent: Agent[Any, str] = Agent(
        ScriptedModel([[call("run_look_around", "a")], [call("step_look_around", "b")], last]),
        toolsets=[DynamicToolset(per_run, per_run_step=False), per_step],
    )
    if ending == "well":
        await agent.run("Go.")
    else:
        with pytest.raises(Odd):
            await agent.run("Go.")
    steps = [line for line in log if "step" in line]
    assert steps == [
        "enter step 1",
        "leave step 1",
        "enter step 2",
        "call step_look_around of step 2",
        "leave step 2",
        "enter step 3",
        "leave step 3",
    ]
    assert [line for line in log if "step" not in line] == ["enter run", "call run_look_around of run", "leave run"]
    assert log[0] == "enter run"
    assert log[-1] == "leave run"
