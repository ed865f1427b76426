"""`TestModel` calls each tool once, then gives an output, and decides by the conversation alone."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.errors import UserError
from outlast.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    Usage,
)
from outlast.models import ModelRequestParameters
from outlast.models.test import TestModel
from outlast.toolsets.definition import ToolDefinition

CITY = {
    "additionalProperties": False,
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "type": "object",
}
CELSIUS = ToolDefinition(name="temperature_celsius", parameters_json_schema=CITY)
FAHRENHEIT = ToolDefinition(name="temperature_fahrenheit", parameters_json_schema=CITY)
NOW = ToolDefinition(name="now")
FINAL = ToolDefinition(
    name="final_result",
    parameters_json_schema={
        "type": "object",
        "properties": {"response": {"type": "integer"}},
        "required": ["response"],
    },
)
START = ModelRequest.user_text_prompt("Call the temperature tools")


async def ask(model: TestModel, *messages: ModelMessage, **parameters: Any) -> ModelResponse:
    return await model.request(list(messages), None, ModelRequestParameters(**parameters))


def call(name: str, call_id: str | None = None, **args: Any) -> ToolCallPart:
    return ToolCallPart(tool_name=name, args=args, tool_call_id=call_id or f"pyd_ai_tool_call_id__{name}")


async def test_the_first_response_calls_every_tool() -> None:
    response = await ask(TestModel(), START, function_tools=[CELSIUS, FAHRENHEIT, NOW])
    assert response == ModelResponse(
        parts=[call("temperature_celsius", city="a"), call("temperature_fahrenheit", city="a"), call("now")],
        model_name="test",
        usage=Usage(requests=1),
    )


async def test_only_the_named_tools_are_called() -> None:
    model = TestModel(call_tools=["temperature_fahrenheit"])
    response = await ask(model, START, function_tools=[CELSIUS, FAHRENHEIT, NOW])
    assert response.parts == [call("temperature_fahrenheit", city="a")]


async def test_a_name_that_is_no_tool_is_a_mistake() -> None:
    with pytest.raises(UserError, match=r"names \['tomorrow'\], but the tools are \['now'\]"):
        await ask(TestModel(call_tools=["tomorrow"]), START, function_tools=[NOW])


async def test_the_answer_is_what_the_tools_returned() -> None:
    """The text that the documentation of deferred tools prints, denial included."""
    calls = ModelResponse(parts=[call("temperature_celsius", city="a"), call("temperature_fahrenheit", city="a")])
    results = ModelRequest(
        parts=[
            ToolReturnPart(tool_name="temperature_celsius", content=21.0, tool_call_id="c1"),
            ToolReturnPart(
                tool_name="temperature_fahrenheit",
                content="The tool call was denied.",
                tool_call_id="c2",
                outcome="denied",
            ),
        ]
    )
    response = await ask(TestModel(), START, calls, results, function_tools=[CELSIUS, FAHRENHEIT])
    assert response.text == '{"temperature_celsius":21.0,"temperature_fahrenheit":"The tool call was denied."}'


async def test_without_tools_the_answer_says_so() -> None:
    assert (await ask(TestModel(), START)).text == "success (no tool calls)"
    assert (await ask(TestModel(call_tools=[]), START, function_tools=[NOW])).text == "success (no tool calls)"


async def test_a_tool_that_asks_for_a_retry_is_called_again_and_no_other() -> None:
    calls = ModelResponse(parts=[call("temperature_celsius", city="a"), call("now")])
    results = ModelRequest(
        parts=[
            RetryPromptPart(content="Which city?", tool_name="temperature_celsius", tool_call_id="c1"),
            ToolReturnPart(tool_name="now", content="noon", tool_call_id="c2"),
        ]
    )
    again = await ask(TestModel(), START, calls, results, function_tools=[CELSIUS, NOW])
    assert again.parts == [call("temperature_celsius", "pyd_ai_tool_call_id__temperature_celsius__2", city="a")]

    answer = ModelRequest(parts=[ToolReturnPart(tool_name="temperature_celsius", content=21.0, tool_call_id="c3")])
    last = await ask(TestModel(), START, calls, results, again, answer, function_tools=[CELSIUS, NOW])
    assert last.text == '{"now":"noon","temperature_celsius":21.0}'


async def test_a_retry_for_a_tool_that_is_gone_does_not_end_in_silence() -> None:
    calls = ModelResponse(parts=[call("gone")])
    results = ModelRequest(parts=[RetryPromptPart(content="Unknown tool", tool_name="gone", tool_call_id="c1")])
    assert (await ask(TestModel(), START, calls, results, function_tools=[NOW])).text == "success (no tool calls)"


async def test_an_output_tool_is_called_where_text_is_no_output() -> None:
    response = await ask(TestModel(), START, output_tools=[FINAL], allow_text_output=False)
    assert response.parts == [call("final_result", response=0)]
    again = ModelRequest(parts=[RetryPromptPart(content="Too low", tool_name="final_result", tool_call_id="x")])
    response = await ask(TestModel(), START, response, again, output_tools=[FINAL], allow_text_output=False)
    assert response.parts == [call("final_result", "pyd_ai_tool_call_id__final_result__2", response=0)]


async def test_function_tools_come_before_the_output() -> None:
    first = await ask(TestModel(), START, function_tools=[NOW], output_tools=[FINAL], allow_text_output=False)
    assert [each.tool_name for each in first.tool_calls] == ["now"]


@pytest.mark.parametrize("given", [{"response": 7}, 7])
async def test_the_output_may_be_given_as_arguments(given: object) -> None:
    response = await ask(TestModel(custom_output_args=given), START, output_tools=[FINAL])
    assert response.parts == [call("final_result", response=7)]


async def test_the_output_may_be_given_as_text() -> None:
    response = await ask(TestModel(custom_output_text="done"), START, output_tools=[FINAL])
    assert response.parts == [TextPart(content="done")]


async def test_an_output_that_the_agent_cannot_take_is_a_mistake() -> None:
    with pytest.raises(UserError, match="does not allow text"):
        await ask(TestModel(custom_output_text="x"), START, output_tools=[FINAL], allow_text_output=False)
    with pytest.raises(UserError, match="no output tool"):
        await ask(TestModel(custom_output_args={}), START)
    with pytest.raises(UserError, match="not both"):
        TestModel(custom_output_text="x", custom_output_args={})


async def test_the_seed_chooses_the_output_tool_and_varies_the_arguments() -> None:
    other = ToolDefinition(name="other", parameters_json_schema=CITY)
    response = await ask(TestModel(seed=1), START, output_tools=[FINAL, other], allow_text_output=False)
    assert response.parts == [call("other", city="b")]


async def test_the_last_parameters_can_be_looked_at() -> None:
    model = TestModel()
    await ask(model, START, function_tools=[NOW])
    last = model.last_model_request_parameters
    assert last is not None
    assert [tool.name for tool in last.function_tools] == ["now"]
