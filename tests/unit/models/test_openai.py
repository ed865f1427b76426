"""What `OpenAIModel` sends, reads and raises, against a local provider that fails on demand."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import openai
import pytest

from outlast.errors import ProviderError, UserError
from outlast.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    Usage,
)
from outlast.models import ModelRequestParameters, ModelSettings, OpenAIModel
from outlast.models.openai import retry_after_seconds
from outlast.toolsets.definition import ToolDefinition
from tests.unit.models.provider_stub import Stub, completion, cut, hang, provider, reply

KEY = "sk-test-0123456789abcdef"

WEATHER = ToolDefinition(
    name="weather",
    description="Weather of a city.",
    parameters_json_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
OUTPUT = ToolDefinition(name="final_result", parameters_json_schema={"type": "object", "properties": {}})


@pytest.fixture
def stub() -> Iterator[Stub]:
    with provider() as running:
        yield running


@pytest.fixture
async def model(stub: Stub) -> AsyncIterator[OpenAIModel]:
    async with openai.AsyncOpenAI(base_url=stub.base_url, api_key=KEY) as client:
        yield OpenAIModel("gpt-4o", api_key=KEY, client=client)


async def ask(
    model: OpenAIModel, settings: ModelSettings | None = None, parameters: ModelRequestParameters | None = None
) -> ModelResponse:
    messages = [ModelRequest.user_text_prompt("hi")]
    return await model.request([*messages], settings, parameters or ModelRequestParameters())


async def failure(model: OpenAIModel, settings: ModelSettings | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(model, settings)
    assert KEY not in caught.value.message
    assert len(caught.value.message) <= 300
    return caught.value


async def test_a_text_answer_becomes_a_response(stub: Stub, model: OpenAIModel) -> None:
    stub.will(reply(completion({"content": "Hello!"})))
    response = await ask(model)
    assert response == ModelResponse(
        parts=[TextPart(content="Hello!")],
        usage=Usage(requests=1, input_tokens=12, output_tokens=3),
        model_name="gpt-4o-2024-08-06",
        timestamp=datetime.fromtimestamp(1_700_000_000, UTC),
        finish_reason="stop",
    )
    assert stub.requests == [{"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}]
    assert stub.headers[0]["authorization"] == f"Bearer {KEY}"


async def test_calls_pass_with_ids_and_arguments_as_they_came(stub: Stub, model: OpenAIModel) -> None:
    """Missing, empty and repeated IDs are made unique by the planner, which has to see them."""
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}},
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": ""}},
        {"id": None, "type": "function", "function": {"name": "weather", "arguments": None}},
        {"id": "", "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}},
        {"type": "function", "function": {"name": "weather", "arguments": "{"}},
    ]
    stub.will(reply(completion({"content": None, "tool_calls": calls}, finish_reason="tool_calls")))
    response = await ask(model)
    assert response.parts == [
        ToolCallPart(tool_name="weather", args='{"city": "Rome"}', tool_call_id="c1"),
        ToolCallPart(tool_name="weather", args="", tool_call_id="c1"),
        ToolCallPart(tool_name="weather", args=None, tool_call_id=""),
        ToolCallPart(tool_name="weather", args={"city": "Oslo"}, tool_call_id=""),
        ToolCallPart(tool_name="weather", args="{", tool_call_id=""),
    ]
    assert response.finish_reason == "tool_call"


async def test_reasoning_is_kept_and_counted(stub: Stub, model: OpenAIModel) -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 15, "audio_tokens": 2},
        "prompt_cache_hit_tokens": 64,
    }
    stub.will(reply(completion({"reasoning_content": "Hmm.", "content": "42"}, usage=usage)))
    response = await ask(model)
    assert response.parts == [
        ThinkingPart(content="Hmm.", id="reasoning_content", provider_name="openai"),
        TextPart(content="42"),
    ]
    assert response.usage == Usage(
        requests=1,
        input_tokens=100,
        output_tokens=20,
        details={"cached_tokens": 64, "reasoning_tokens": 15, "output_audio_tokens": 2},
    )


async def test_a_refusal_is_text_that_is_marked_as_filtered(stub: Stub, model: OpenAIModel) -> None:
    stub.will(reply(completion({"content": None, "refusal": "I cannot help with that."})))
    response = await ask(model)
    assert response.text == "I cannot help with that."
    assert response.finish_reason == "content_filter"


@pytest.mark.parametrize(
    "body",
    [
        completion({"content": None}, finish_reason="content_filter", usage=None),
        completion({}, finish_reason="content_filter", usage={"prompt_tokens": None}, created=None, model=None),
        {"choices": [{"finish_reason": "content_filter", "message": None}]},
    ],
)
async def test_an_answer_with_nothing_in_it_has_no_parts(stub: Stub, model: OpenAIModel, body: object) -> None:
    stub.will(reply(body))
    response = await ask(model)
    assert response.parts == []
    assert response.finish_reason == "content_filter"
    assert response.model_name
    assert response.usage.requests == 1


async def test_the_first_of_several_choices_counts(stub: Stub, model: OpenAIModel) -> None:
    body = completion({"content": "first"})
    body["choices"].append({"index": 1, "finish_reason": "length", "message": {"content": "second"}})
    stub.will(reply(body))
    assert (await ask(model)).text == "first"


async def test_content_in_pieces_is_one_text(stub: Stub, model: OpenAIModel) -> None:
    pieces = [{"type": "text", "text": "Hel"}, {"type": "other"}, {"type": "text", "text": "lo"}]
    stub.will(reply(completion({"content": pieces})))
    assert (await ask(model)).text == "Hello"


# --- what is sent ------------------------------------------------------------------------------------------------


async def test_tools_and_settings_are_sent(stub: Stub, model: OpenAIModel) -> None:
    stub.will(reply(completion({"content": "ok"})))
    settings = ModelSettings(
        temperature=0.1,
        max_tokens=100,
        seed=7,
        stop_sequences=["END"],
        parallel_tool_calls=False,
        extra_headers={"x-team": "billing"},
        extra_body={"top_k": 3},
    )
    parameters = ModelRequestParameters(function_tools=[WEATHER], instructions="Be brief.")
    await ask(model, settings, parameters)
    assert stub.requests == [
        {
            "model": "gpt-4o",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
            "temperature": 0.1,
            "max_completion_tokens": 100,
            "seed": 7,
            "stop": ["END"],
            "parallel_tool_calls": False,
            "top_k": 3,
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "weather",
                        "description": "Weather of a city.",
                        "parameters": WEATHER.parameters_json_schema,
                    },
                }
            ],
        }
    ]
    assert stub.headers[0]["x-team"] == "billing"


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        (True, {}, None),
        (False, {}, "required"),
        (False, {"tool_choice": "auto"}, "auto"),
        (True, {"tool_choice": "weather"}, {"type": "function", "function": {"name": "weather"}}),
    ],
)
async def test_a_tool_is_required_where_text_is_no_output(
    stub: Stub, model: OpenAIModel, text: bool, settings: ModelSettings, expected: object
) -> None:
    stub.will(reply(completion({"content": "ok"})))
    parameters = ModelRequestParameters(function_tools=[WEATHER], output_tools=[OUTPUT], allow_text_output=text)
    await ask(model, settings, parameters)
    assert stub.requests[0].get("tool_choice") == expected
    assert [tool["function"]["name"] for tool in stub.requests[0]["tools"]] == ["weather", "final_result"]


async def test_without_tools_nothing_about_tools_is_sent(stub: Stub, model: OpenAIModel) -> None:
    """OpenAI refuses `tool_choice` and `parallel_tool_calls` without `tools`."""
    stub.will(reply(completion({"content": "ok"})))
    await ask(model, {"parallel_tool_calls": True, "tool_choice": "auto"})
    assert stub.requests[0].keys() == {"model", "messages"}


async def test_a_name_that_the_format_forbids_is_changed_there_and_back(stub: Stub, model: OpenAIModel) -> None:
    tool = ToolDefinition(name="crm.find")
    stub.will(lambda handler: reply(_calls(stub.requests[0]["tools"][0]["function"]["name"]))(handler))
    response = await ask(model, None, ModelRequestParameters(function_tools=[tool]))
    sent = stub.requests[0]["tools"][0]["function"]["name"]
    assert sent.startswith("crm_find_")
    assert [call.tool_name for call in response.tool_calls] == ["crm.find"]


def _calls(name: str) -> object:
    return completion({"tool_calls": [{"id": "c1", "function": {"name": name, "arguments": "{}"}}]})


async def test_a_longer_conversation_starts_with_the_bytes_of_a_shorter_one(stub: Stub, model: OpenAIModel) -> None:
    """Providers cache the prompt by its longest common prefix."""
    conversation = [
        ModelRequest.user_text_prompt("Weather?"),
        ModelResponse(parts=[ToolCallPart(tool_name="weather", args={"city": "Rome"}, tool_call_id="c1")]),
        ModelRequest(parts=[ToolReturnPart(tool_name="weather", content={"b": 1, "a": [2]}, tool_call_id="c1")]),
        ModelResponse(parts=[TextPart(content="Sunny.")]),
        ModelRequest.user_text_prompt("And tomorrow?"),
    ]
    stub.will(reply(completion({"content": "ok"})), reply(completion({"content": "ok"})))
    for length in (3, 5):
        await model.request(conversation[:length], None, ModelRequestParameters(instructions="Be brief."))
    shorter, longer = (raw.decode().partition('"messages":')[2] for raw in stub.raw_requests)
    assert longer.startswith(shorter[: shorter.rindex("]")])


# --- failures ----------------------------------------------------------------------------------------------------


async def test_a_429_is_retryable_after_what_the_provider_says(stub: Stub, model: OpenAIModel) -> None:
    stub.will(reply({"error": {"message": "Slow down"}}, status=429, headers={"Retry-After": "7"}))
    error = await failure(model)
    assert (error.retryable, error.retry_after, error.status_code) == (True, 7.0, 429)
    assert error.message == "openai:gpt-4o answered with status 429: Slow down"
    assert len(stub.requests) == 1, "the SDK must not retry: Temporal does"


async def test_an_empty_account_is_not_retried(stub: Stub, model: OpenAIModel) -> None:
    """OpenAI says 429 for this too, and no waiting helps."""
    body = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    stub.will(reply(body, status=429))
    assert not (await failure(model)).retryable


@pytest.mark.parametrize("status", [500, 502, 503, 529])
async def test_a_failing_provider_is_retryable(stub: Stub, model: OpenAIModel, status: int) -> None:
    stub.will(reply(b"<html>Bad gateway</html>", status=status, content_type="text/html"))
    error = await failure(model)
    assert (error.retryable, error.status_code, error.retry_after) == (True, status, None)


@pytest.mark.parametrize("status", [400, 402, 403, 404, 422])
async def test_a_refused_request_is_not_retryable(stub: Stub, model: OpenAIModel, status: int) -> None:
    stub.will(reply({"error": {"message": "No such model"}}, status=status))
    error = await failure(model)
    assert (error.retryable, error.status_code) == (False, status)
    assert "No such model" in error.message


async def test_a_refused_key_is_not_shown(stub: Stub, model: OpenAIModel) -> None:
    message = f"Incorrect API key provided: {KEY}, also known as sk-tes**********cdef."
    stub.will(reply({"error": {"message": message, "code": "invalid_api_key"}}, status=401))
    error = await failure(model)
    assert error.message == (
        "openai:gpt-4o answered with status 401: Incorrect API key provided: ***, also known as ***."
    )
    assert not error.retryable


async def test_the_provider_may_say_itself_whether_to_retry(stub: Stub, model: OpenAIModel) -> None:
    stub.will(reply({}, status=400, headers={"x-should-retry": "true"}))
    stub.will(reply({}, status=500, headers={"x-should-retry": "false"}))
    assert (await failure(model)).retryable
    assert not (await failure(model)).retryable


async def test_a_long_error_is_cut(stub: Stub, model: OpenAIModel) -> None:
    stub.will(reply({"error": {"message": "very " * 1000}}, status=400))
    assert (await failure(model)).message.endswith("…")


async def test_a_cut_connection_is_retryable(stub: Stub, model: OpenAIModel) -> None:
    stub.will(cut)
    error = await failure(model)
    assert (error.retryable, error.status_code) == (True, None)
    assert "broke the connection" in error.message


async def test_no_server_at_all_is_retryable() -> None:
    with provider() as stub:
        address = stub.base_url
    async with openai.AsyncOpenAI(base_url=address, api_key=KEY) as client:
        error = await failure(OpenAIModel("gpt-4o", client=client))
    assert error.retryable
    assert "could not be reached" in error.message


async def test_the_timeout_counts_for_the_whole_request(stub: Stub, model: OpenAIModel) -> None:
    """A busy DeepSeek sends blank lines, which keep a timeout between bytes from ever firing."""
    stub.will(hang)
    error = await failure(model, {"timeout": 0.2})
    assert (error.retryable, error.status_code) == (True, None)
    assert error.message == "openai:gpt-4o gave no answer within 0.2 seconds"


@pytest.mark.parametrize("body", [b"garbage", b'{"choices": [', b"[]", b'{"choices": 7}', b"", b"\xff\xfe"])
async def test_broken_json_is_retryable(stub: Stub, model: OpenAIModel, body: bytes) -> None:
    stub.will(reply(body))
    error = await failure(model)
    assert (error.retryable, error.status_code) == (True, 200)


async def test_a_web_page_is_a_wrong_address(stub: Stub, model: OpenAIModel) -> None:
    stub.will(reply(b"<html>Welcome</html>", content_type="text/html"))
    error = await failure(model)
    assert not error.retryable
    assert "base_url" in error.message


@pytest.mark.parametrize("body", [{"choices": []}, {"choices": None}, {}])
async def test_an_answer_without_a_choice_is_retryable(stub: Stub, model: OpenAIModel, body: object) -> None:
    stub.will(reply(body))
    assert (await failure(model)).retryable


@pytest.mark.parametrize(("code", "retryable"), [(429, True), (502, True), (400, False), (None, True)])
async def test_an_error_behind_status_200_is_an_error(
    stub: Stub, model: OpenAIModel, code: int | None, retryable: bool
) -> None:
    """Gateways answer 200 and put what went wrong upstream into the body."""
    stub.will(reply({"error": {"message": "Upstream failed", "code": code}}))
    error = await failure(model)
    assert error.retryable is retryable
    assert "Upstream failed" in error.message


async def test_an_answer_that_ran_out_of_resources_is_retryable(stub: Stub, model: OpenAIModel) -> None:
    stub.will(reply(completion({"content": "Half an ans"}, finish_reason="insufficient_system_resource")))
    assert (await failure(model)).retryable


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 99 Oct 2015 07:28:00 GMT"}, None),
    ],
)
def test_how_long_to_wait_is_read_from_the_headers(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after_seconds(headers) == expected


def test_how_long_to_wait_may_be_a_date() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    seconds = retry_after_seconds({"retry-after": date})
    assert seconds is not None
    assert 50 < seconds <= 60


# --- set-up ------------------------------------------------------------------------------------------------------


async def test_a_missing_key_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "DEEPSEEK_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(UserError, match="OPENAI_API_KEY"):
        await ask(OpenAIModel("gpt-4o"))
    with pytest.raises(UserError, match="DEEPSEEK_API_KEY"):
        await ask(OpenAIModel("deepseek-chat", provider_name="deepseek"))


async def test_an_unknown_address_names_the_variable() -> None:
    with pytest.raises(UserError, match="MY_LAB_BASE_URL"):
        await ask(OpenAIModel("llama", provider_name="my-lab", api_key="x"))


def test_key_and_address_come_from_the_environment(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event loop gets connections of its own: `run_sync` makes a loop per run."""
    monkeypatch.setenv("DEEPSEEK_API_KEY", "key-of-deepseek\n")
    monkeypatch.setenv("DEEPSEEK_BASE_URL", stub.base_url)
    model = OpenAIModel("deepseek-chat", provider_name="deepseek")
    for _ in range(2):
        stub.will(reply(completion({"content": "ok"}), headers={"connection": "close"}))
        response = asyncio.run(ask(model, {"max_tokens": 5}))
        assert response.text == "ok"
    assert stub.headers[0]["authorization"] == "Bearer key-of-deepseek"
    assert stub.requests[0]["max_tokens"] == 5


def test_a_model_needs_no_package_until_it_is_asked() -> None:
    """An agent for `openai:…` can be defined, listed and tested where the extra is not installed."""
    program = """
        import asyncio, sys
        sys.modules["openai"] = None  # as if it were not installed
        from outlast.errors import UserError
        from outlast.models import ModelRequestParameters, infer_model
        model = infer_model("openai:gpt-4o")
        assert model.model_name == "gpt-4o" and model.system == "openai"
        try:
            asyncio.run(model.request([], None, ModelRequestParameters()))
        except UserError as error:
            print(error)
        assert not {"temporalio", "httpx", "httpx2"} & set(sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 'pip install "outlast[openai]"' in done.stdout


def test_a_request_is_plain_json() -> None:
    model = OpenAIModel("gpt-4o", api_key=KEY)
    body = model.request_body([ModelRequest.user_text_prompt("hi")], {}, ModelRequestParameters())
    assert json.loads(json.dumps(body)) == body
    assert repr(model) == "OpenAIModel('gpt-4o')"
