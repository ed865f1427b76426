"""What goes wrong in a call, in a model or in what callers send: each ends in words that someone can act on."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from pydantic import BaseModel
from temporalio.service import RPCError

from outlast import (
    Agent,
    FatalToolError,
    FunctionModel,
    ModelResponse,
    ModelRetry,
    RunContext,
    ScriptedModel,
    TextPart,
    ToolCallPart,
    TransientToolError,
)
from outlast.client import Client
from outlast.errors import InvalidInput, ProviderError
from outlast.testing import call
from tests.histories import activities_scheduled
from tests.integration.conftest import Host, parts


def calling(*responses: Any, **options: Any) -> Agent[Any, Any]:
    return Agent(ScriptedModel([*responses, "Done."]), name="support", **options)


# --- calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_tool_past_its_timeout_tells_the_model_once(host: Host, kind: str) -> None:
    agent = calling([call("work")])
    release = threading.Event()
    if kind == "async":

        @agent.tool_plain(timeout=1)
        async def work() -> None:
            await anyio.sleep(30)

    else:

        @agent.tool_plain(name="work", timeout=1)
        def work_in_thread() -> None:
            release.wait(30)

    await host.serve(agent)
    run = await host.start("support")
    await host.result(run)
    release.set()
    [told] = parts(await host.messages(run), "retry-prompt")
    assert told["content"] == "Timed out after 1 seconds."
    assert activities_scheduled(await run.fetch_history(), "tool:work") == ["call:call_1_0"]


async def test_a_tool_that_always_fails_is_tried_three_times_and_then_the_model_is_told(host: Host) -> None:
    agent = calling([call("pay")])
    attempts: list[int] = []

    @agent.tool(backoff=0.05)
    def pay(ctx: RunContext[Any]) -> None:
        attempts.append(ctx.attempt)
        raise ValueError("card declined")

    await host.serve(agent)
    run = await host.start("support")
    await host.result(run)
    assert attempts == [1, 2, 3]
    [told] = parts(await host.messages(run), "tool-return")
    assert told["content"] == "ValueError: card declined"
    assert told["outcome"] == "failed"


async def test_model_retry_without_end_fails_the_run(host: Host) -> None:
    agent = calling([call("pay")], [call("pay")], [call("pay")])

    @agent.tool_plain
    def pay() -> None:
        raise ModelRetry("Not like that.")

    await host.serve(agent)
    run = await host.start("support")
    error = await host.failure(run)
    assert error.type == "ToolRetriesExceeded"
    assert "'pay'" in error.message
    assert "Not like that." in error.message


async def test_a_timeout_of_the_tools_own_is_an_error_like_any_other(host: Host) -> None:
    agent = calling([call("work")])

    @agent.tool_plain(timeout=30, attempts=1)
    async def work() -> None:
        raise TimeoutError("the shop did not answer")

    await host.serve(agent)
    run = await host.start("support")
    await host.result(run)
    [told] = parts(await host.messages(run), "tool-return")
    assert told["content"] == "TimeoutError: the shop did not answer"


async def test_a_transient_error_is_tried_again_and_a_fatal_one_is_not(host: Host) -> None:
    agent = calling([call("flaky"), call("broken")])
    tries: dict[str, int] = {"flaky": 0, "broken": 0}

    @agent.tool_plain
    async def flaky() -> str:
        tries["flaky"] += 1
        if tries["flaky"] < 3:
            raise TransientToolError("busy", retry_after=0.05)
        return "ok"

    @agent.tool_plain
    async def broken() -> str:
        tries["broken"] += 1
        raise FatalToolError("no such order")

    await host.serve(agent)
    run = await host.start("support")
    await host.result(run)
    assert tries == {"flaky": 3, "broken": 1}
    assert [part["content"] for part in parts(await host.messages(run), "tool-return")] == [
        "ok",
        "FatalToolError: no such order",
    ]


async def test_a_transient_error_of_a_call_that_must_not_be_repeated_waits_in_the_run(host: Host) -> None:
    """Temporal gives the call one attempt; nothing happened, so the run itself makes it again."""
    agent = calling([call("pay")])
    tries: list[int] = []

    @agent.tool_plain(repeatable=False)
    def pay() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise TransientToolError("busy", retry_after=0.05)
        return "paid"

    await host.serve(agent)
    run = await host.start("support")
    await host.result(run)
    assert len(tries) == 3
    assert len(activities_scheduled(await run.fetch_history(), "tool:pay")) == 3


async def test_an_error_of_a_call_that_must_not_be_repeated_is_an_unknown_outcome(host: Host) -> None:
    agent = calling([call("pay", "a")])
    tries: list[int] = []

    @agent.tool_plain(repeatable=False)
    def pay() -> str:
        tries.append(1)
        raise ConnectionError("reset by peer")

    await host.serve(agent)
    run = await host.start("support")
    [waiting] = await host.pending(run)
    assert waiting["kind"] == "unknown_outcome"
    assert waiting["metadata"]["reason"] == "ConnectionError: reset by peer"
    await run.signal("resolve", {"tool_call_id": "a", "result": "it went through"})
    await host.result(run)
    assert len(tries) == 1


async def test_on_error_may_fail_the_run_or_ask(host: Host) -> None:
    agent = calling([call("ask", "a")], [call("fail")])

    @agent.tool_plain(attempts=1, on_error="ask")
    def ask() -> None:
        raise ValueError("which one?")

    @agent.tool_plain(attempts=1, on_error="fail_run")
    def fail() -> None:
        raise ValueError("no way")

    await host.serve(agent)
    run = await host.start("support")
    [waiting] = await host.pending(run)
    assert waiting["metadata"]["reason"] == "ValueError: which one?"
    await run.signal("resolve", {"tool_call_id": "a", "result": "the first"})
    error = await host.failure(run)
    assert (error.type, "no way" in error.message) == ("ToolFailed", True)


async def test_secrets_in_an_error_are_masked(host: Host) -> None:
    agent = calling([call("pay")])

    @agent.tool_plain(attempts=1)
    def pay() -> None:
        raise ValueError("refused: api_key=sk-verysecret123 is not valid")

    await host.serve(agent)
    run = await host.start("support")
    await host.result(run)
    assert "verysecret" not in (await run.fetch_history()).to_json()


async def test_results_that_have_no_json_or_are_too_large_are_told_to_the_model(host: Host) -> None:
    agent = calling([call("thing"), call("stream"), call("large"), call("fine")])

    @dataclass
    class Point:
        x: float

    class Opaque:
        pass

    @agent.tool_plain
    def thing() -> Any:
        return Opaque()

    @agent.tool_plain
    def stream() -> Any:
        return (number for number in range(3))

    @agent.tool_plain
    def large() -> str:
        return "x" * 3_000_000

    @agent.tool_plain
    def fine() -> Any:
        return {"points": [Point(float("nan"))], "raw": b"\xff\x00", "at": None}

    await host.serve(agent)
    run = await host.start("support")
    await host.result(run)
    told = {part["tool_name"]: part for part in parts(await host.messages(run), "tool-return")}
    assert "cannot be written as JSON" in told["thing"]["content"]
    assert "generator" in told["stream"]["content"]
    assert "3,000,0" in told["large"]["content"]
    assert told["fine"]["content"] == {"points": [{"x": "NaN"}], "raw": "_wA=", "at": None}
    assert [told[name].get("outcome", "success") for name in told] == ["failed", "failed", "failed", "success"]


async def test_results_that_are_too_large_only_together_are_told_to_the_model(host: Host) -> None:
    agent = calling([call("large"), call("large"), call("large")])

    @agent.tool_plain
    def large() -> str:
        return "x" * 900_000

    await host.serve(agent)
    run = await host.start("support")
    await host.result(run)
    outcomes = [part.get("outcome", "success") for part in parts(await host.messages(run), "tool-return")]
    assert sorted(outcomes) == ["failed", "success", "success"]


async def test_arguments_of_3_mb_are_told_to_the_model(host: Host) -> None:
    agent = calling([call("write", "a", text="x" * 3_000_000), call("write", "b", text="short")])

    @agent.tool_plain
    def write(text: str) -> int:
        return len(text)

    await host.serve(agent)
    run = await host.start("support")
    await host.result(run)
    messages = await host.messages(run)
    [told] = parts(messages, "retry-prompt")
    assert told["tool_call_id"] == "a"
    assert "3,000," in told["content"]
    [result] = parts(messages, "tool-return")
    assert result["content"] == 5


async def test_arguments_that_do_not_fit_and_tools_that_are_not_there_use_retries(host: Host) -> None:
    agent = calling(
        [
            call("add", "a", x="one"),
            call("sub", "b"),
            ToolCallPart(tool_name="add", args="{not json", tool_call_id="c"),
        ],
        [ToolCallPart(tool_name="add", args='"{\\"x\\": 1}"', tool_call_id="d")],
    )

    @agent.tool_plain
    def add(x: int) -> int:
        return x + 1

    await host.serve(agent)
    run = await host.start("support")
    await host.result(run)
    messages = await host.messages(run)
    told = {part["tool_call_id"]: part["content"] for part in parts(messages, "retry-prompt")}
    assert told["a"][0]["loc"] == ["x"]
    assert "Available tools: 'add'" in told["b"]
    assert "c" in told
    assert [part["content"] for part in parts(messages, "tool-return")] == [2]


# --- models ------------------------------------------------------------------------------------------------------


async def test_a_busy_provider_is_asked_again_and_a_refusal_is_not(host: Host) -> None:
    tries: list[int] = []

    def busy(messages: Any, info: Any) -> ModelResponse:
        tries.append(1)
        if len(tries) < 3:
            raise ProviderError("429 Too Many Requests", retryable=True, retry_after=0.05, status_code=429)
        return ModelResponse(parts=[TextPart(content="Done.")])

    def refusing(messages: Any, info: Any) -> ModelResponse:
        raise ProviderError("401 Unauthorized", retryable=False, status_code=401)

    await host.serve(Agent(FunctionModel(busy), name="busy"), Agent(FunctionModel(refusing), name="refusing"))
    result = await host.run("busy")
    assert (result["output"], len(tries), result["usage"]["requests"]) == ("Done.", 3, 1)
    error = await host.failure(await host.start("refusing"))
    assert error.type == "ModelRequestFailed"
    assert "401 Unauthorized" in error.message


async def test_a_model_that_fails_on_every_attempt_fails_the_run(host: Host) -> None:
    def broken(messages: Any, info: Any) -> ModelResponse:
        raise ProviderError("503 Service Unavailable", retryable=True, retry_after=0.01, status_code=503)

    await host.serve(Agent(FunctionModel(broken), name="support", model_attempts=3))
    error = await host.failure(await host.start("support"))
    assert error.type == "ModelRequestFailed"
    assert "attempt 3 of 3" in error.message


async def test_a_response_of_3_mb_fails_the_run(host: Host) -> None:
    await host.serve(Agent(ScriptedModel(["x" * 3_000_000]), name="support"))
    error = await host.failure(await host.start("support"))
    assert error.type == "UnexpectedModelBehavior"
    assert "3,000," in error.message


async def test_a_run_stops_at_its_limit_of_requests(host: Host) -> None:
    agent = calling(*[[call("add")]] * 5)

    @agent.tool_plain
    def add() -> int:
        return 1

    await host.serve(agent)
    error = await host.failure(await host.start("support", usage_limits={"requests": 3}))
    assert error.type == "UsageLimitExceeded"


# --- what callers send -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (({"agent": "support", "promt": "hi"},), "`promt`"),
        ((), "Got nothing"),
        (({"agent": "support"}, {}), "2 arguments"),
        ((7,), "Got 7"),
        (({"agent": "support"},), "nothing to ask the model"),
        (({"agent": "support", "prompt": "hi", "usage_limits": {"requests": -1}},), "usage_limits.requests"),
        (({"agent": "support", "message_history": [{"kind": "x"}], "prompt": "hi"},), "kind"),
        ((b"\x00\x01",), "binary/plain"),
    ],
    ids=["misspelt", "nothing", "two", "number", "no prompt", "bad limit", "bad history", "bytes"],
)
async def test_an_input_that_does_not_fit_fails_the_run_at_once(
    host: Host, arguments: tuple[Any, ...], says: str
) -> None:
    """It must never fail a workflow task, which Temporal would repeat for ever."""
    await host.serve(calling())
    error = await host.failure(await host.start_with(*arguments))
    assert error.type == "InvalidInput"
    assert says in error.message


async def test_deps_that_do_not_validate_fail_the_run_before_anything_else(host: Host) -> None:
    class Deps(BaseModel):
        user: str

    await host.serve(calling(deps_type=Deps))
    error = await host.failure(await host.start("support", deps={"usr": "ana"}))
    assert error.type == "InvalidDeps"
    assert "`user`" in error.message


async def test_an_agent_that_no_worker_has_is_named_with_those_that_there_are(host: Host) -> None:
    await host.serve(calling())
    error = await host.failure(await host.start("suport"))
    assert error.type == "UnknownAgent"
    assert "'suport'" in error.message
    assert "'support'" in error.message


async def test_a_call_that_lands_on_a_worker_without_its_agent_waits_for_another_worker(host: Host) -> None:
    """As while a release is rolled out; it is not the tool's fault, and uses none of its attempts."""
    other = Host(host.client)
    agent = calling([call("add", "a")])

    @agent.tool_plain(task_queue=other.task_queue, attempts=1)
    def add() -> int:
        return 1

    queue = other.task_queue
    await host.serve(agent)
    await other.serve(Agent(ScriptedModel(["Hi."]), name="another"))
    run = await host.start("support")
    with anyio.fail_after(60):
        while len(activities_scheduled(await run.fetch_history(), "tool:add")) < 2:
            await anyio.sleep(0.05)
    await other.close()
    other = Host(host.client)
    try:
        other.task_queue = queue
        await other.serve(agent)
        assert (await host.result(run))["output"] == "Done."
        assert [part["content"] for part in parts(await host.messages(run), "tool-return")] == [1]
    finally:
        await other.close()


async def test_a_prompt_of_3_mb_is_refused_when_the_run_is_started(host: Host) -> None:
    await host.serve(calling())
    with pytest.raises(RPCError):
        await host.start("support", "x" * 3_000_000)
    with pytest.raises(InvalidInput, match=r"3,000,\d+ bytes"):
        await Client(host.client, task_queue=host.task_queue).start("support", "x" * 3_000_000)


async def test_a_prompt_just_below_the_limit_passes_and_one_just_above_is_refused(host: Host) -> None:
    await host.serve(calling())
    result = await host.run("support", "x" * 2_000_000)
    assert result["output"] == "Done."
    error = await host.failure(await host.start("support", "x" * 2_050_000))
    assert error.type == "InvalidInput"
    assert "bytes" in error.message


async def test_a_run_may_start_from_earlier_messages(host: Host) -> None:
    await host.serve(calling("Hello."))
    first = await host.start("support", "One.")
    await host.result(first)
    second = await host.start("support", "Two.", message_history=await host.messages(first))
    await host.result(second)
    prompts = [part["content"] for part in parts(await host.messages(second), "user-prompt")]
    assert prompts == ["One.", "Two."]


async def test_a_blocked_event_loop_does_not_hide_that_time_passes(host: Host) -> None:
    """A tool that blocks the loop past its timeout is ended by the server; the model is told the same."""
    agent = calling([call("block")])

    @agent.tool_plain(timeout=0.2)
    async def block() -> None:
        time.sleep(7)  # noqa: ASYNC251 - that is the fault

    await host.serve(agent)
    run = await host.start("support")
    await host.result(run)
    [told] = parts(await host.messages(run), "retry-prompt")
    assert told["content"] == "Timed out after 0.2 seconds."
