"""Models whose answers are written by hand: a function, a script."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.errors import ProviderError, UserError
from outlast.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from outlast.models import AgentInfo, FunctionModel, Model, ModelRequestParameters, ScriptedModel
from outlast.toolsets.definition import ToolDefinition

START = ModelRequest.user_text_prompt("hi")
CALL = ToolCallPart(tool_name="now", args={}, tool_call_id="c1")
RESULT = ModelRequest(parts=[ToolReturnPart(tool_name="now", content="noon", tool_call_id="c1")])


async def ask(model: Model, *messages: ModelMessage, **parameters: Any) -> ModelResponse:
    return await model.request(list(messages), {"seed": 1}, ModelRequestParameters(**parameters))


async def test_a_function_sees_what_a_model_would() -> None:
    seen: list[object] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.extend([messages, info])
        return ModelResponse(parts=[TextPart(content="hello")])

    now = ToolDefinition(name="now")
    model = FunctionModel(answer)
    response = await ask(model, START, function_tools=[now], allow_text_output=False, instructions="Be brief.")
    assert response.text == "hello"
    assert (response.model_name, model.model_name, model.system) == ("function:answer", "function:answer", "function")
    messages, info = seen
    assert messages == [START]
    assert isinstance(info, AgentInfo)
    assert (info.function_tools, info.output_tools, info.allow_text_output) == ([now], [], False)
    assert (info.model_settings, info.instructions) == ({"seed": 1}, "Be brief.")


async def test_a_function_may_be_async_and_brief() -> None:
    async def answer(messages: list[ModelMessage], info: AgentInfo) -> str:
        return "hello"

    assert (await ask(FunctionModel(answer), START)).text == "hello"


async def test_an_answer_that_is_none_is_a_mistake() -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> Any:
        return None

    with pytest.raises(UserError, match=r"The function of FunctionModel\('function:answer'\) must give .*, got None"):
        await ask(FunctionModel(answer), START)


async def test_the_line_is_chosen_by_the_conversation() -> None:
    """An attempt that is made again, and another worker with an object of its own, get the same line."""
    model = ScriptedModel([CALL, "It is noon."])
    for _ in range(2):
        first = await ask(model, START)
        assert first.parts == [CALL]
        assert (await ask(model, START, first, RESULT)).text == "It is noon."


async def test_a_script_may_hold_everything_that_a_model_does() -> None:
    def by_function(messages: list[ModelMessage], info: AgentInfo) -> list[ToolCallPart | str]:
        return ["now", CALL]

    async def by_coroutine(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(content=str(len(messages)))])

    overloaded = ProviderError("overloaded", retryable=True)
    model = ScriptedModel([[CALL, CALL], ModelResponse(parts=[]), by_function, by_coroutine, overloaded])
    conversation: list[ModelMessage] = [START]
    for _ in range(4):
        conversation.append(await ask(model, *conversation))
    responses = [message for message in conversation if isinstance(message, ModelResponse)]
    assert [response.parts for response in responses] == [
        [CALL, CALL],
        [],
        [TextPart(content="now"), CALL],
        [TextPart(content="4")],
    ]
    for _ in range(2):
        with pytest.raises(ProviderError) as caught:
            await ask(model, *conversation)
        assert caught.value is overloaded


async def test_a_response_of_a_script_can_be_changed_without_changing_the_script() -> None:
    """The planner writes its own call IDs into a response."""
    model = ScriptedModel([ModelResponse(parts=[CALL])])
    response = await ask(model, START)
    response.tool_calls[0].tool_call_id = "other"
    assert (await ask(model, START)).tool_calls[0].tool_call_id == "c1"
    assert CALL.tool_call_id == "c1"


async def test_past_its_end_a_script_says_what_it_lacks() -> None:
    model = ScriptedModel(["one"])
    with pytest.raises(UserError, match=r"has 1 lines, and the run asks for line 2\. .*TextPart\(content='one'\)"):
        await ask(model, START, await ask(model, START))
    with pytest.raises(UserError, match="got the string 'one'"):
        ScriptedModel("one")
