"""`OfflineModel` follows rules, over any number of workers, and admits what it does not understand."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

import pytest

from outlast.errors import UserError
from outlast.messages import (
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from outlast.models import ModelRequestParameters, OfflineModel
from outlast.models.offline import Prompt, Result, Rule, call


def support() -> OfflineModel:
    model = OfflineModel()

    @model.rule(r"refund order (?P<order_id>\d+) for (?P<customer>\w+)")
    def refund(prompt: Prompt) -> Generator[ToolCallPart, Result, str]:
        found = yield call("find_orders", customer=prompt["customer"])
        order = next((each for each in found.content if each["order_id"] == int(prompt["order_id"])), None)
        if order is None:
            return f"{prompt['customer']} has no order {prompt['order_id']}."
        done = yield call("refund", order_id=order["order_id"], cents=order["cents"])
        return f"Refunded {order['cents']} cents." if done.ok else f"Not refunded: {done.content}"

    @model.rule(r"\bhello\b")
    def greet(prompt: Prompt) -> str:
        return "Hello. Which order is it about?"

    return model


ORDERS = [{"order_id": 1042, "cents": 1999}]


async def ask(model: OfflineModel, messages: list[ModelMessage]) -> ModelResponse:
    return await model.request(messages, None, ModelRequestParameters())


def result(call: ToolCallPart, content: Any, **more: Any) -> ModelRequest:
    return ModelRequest(
        parts=[ToolReturnPart(tool_name=call.tool_name, content=content, tool_call_id=call.tool_call_id, **more)]
    )


async def converse(prompt: str, *results: dict[str, Any]) -> list[ModelMessage]:
    """Goes through a run with a new model, and so a new worker, for each step."""
    messages: list[ModelMessage] = [ModelRequest.user_text_prompt(prompt)]
    for number, given in enumerate(results):
        response = await ask(support(), messages)
        (made,) = response.tool_calls
        made.tool_call_id = f"c{number}"
        messages += [response, result(made, **given)]
    messages.append(await ask(support(), messages))
    return messages


async def test_a_rule_calls_tools_and_answers_with_what_they_returned() -> None:
    messages = await converse(
        "Please REFUND order 1042 for Ada.", {"content": ORDERS}, {"content": {"refund_id": "r1"}}
    )
    responses = [message for message in messages if isinstance(message, ModelResponse)]
    assert [[(each.tool_name, each.args) for each in response.tool_calls] for response in responses] == [
        [("find_orders", {"customer": "Ada"})],
        [("refund", {"order_id": 1042, "cents": 1999})],
        [],
    ]
    assert responses[-1].text == "Refunded 1999 cents."
    assert responses[-1].model_name == "offline"


async def test_a_denied_call_is_not_reported_as_done() -> None:
    denied = {"content": "The tool call was denied.", "outcome": "denied"}
    messages = await converse("refund order 1042 for Ada", {"content": ORDERS}, denied)
    assert isinstance(messages[-1], ModelResponse)
    assert messages[-1].text == "Not refunded: The tool call was denied."


async def test_a_rule_may_answer_early() -> None:
    messages = await converse("refund order 7 for Ada", {"content": ORDERS})
    assert isinstance(messages[-1], ModelResponse)
    assert messages[-1].text == "Ada has no order 7."


async def test_a_rule_learns_that_a_call_should_be_tried_again() -> None:
    model = OfflineModel()

    @model.rule("now")
    def now(prompt: Prompt) -> Generator[ToolCallPart, Result, str]:
        first = yield call("now")
        return f"{first.outcome}: {first.content}"

    messages: list[ModelMessage] = [
        ModelRequest.user_text_prompt("now"),
        ModelResponse(parts=[ToolCallPart(tool_name="now", tool_call_id="c1")]),
        ModelRequest(parts=[RetryPromptPart(content="Not now.", tool_name="now", tool_call_id="c1")]),
    ]
    text = (await ask(model, messages)).text
    assert text is not None
    assert text.startswith("retry: Not now.")


async def test_a_rule_may_make_several_calls_at_once() -> None:
    def both(prompt: Prompt) -> Generator[list[ToolCallPart], list[Result], str]:
        results = yield [call("a"), call("b", n=1)]
        return ", ".join(str(each.content) for each in results)

    model = OfflineModel([Rule(lambda text: "both" in text, both)])
    start = ModelRequest.user_text_prompt("both")
    response = await ask(model, [start])
    first, second = response.tool_calls
    first.tool_call_id, second.tool_call_id = "c1", "c2"
    # Results may come in any order.
    results = ModelRequest(parts=[*result(second, 2).parts, *result(first, 1).parts])
    assert (await ask(model, [start, response, results])).text == "1, 2"


async def test_the_latest_prompt_counts() -> None:
    messages = await converse("refund order 7 for Ada", {"content": ORDERS})
    messages.append(ModelRequest.user_text_prompt("hello?"))
    assert (await ask(support(), messages)).text == "Hello. Which order is it about?"
    messages.append(ModelRequest.user_text_prompt("something else"))
    text = (await ask(support(), messages)).text
    assert text is not None
    assert text.startswith("This is the offline model")


async def test_what_a_tool_adds_for_the_model_does_not_end_the_rule() -> None:
    messages: list[ModelMessage] = [ModelRequest.user_text_prompt("refund order 1042 for Ada")]
    response = await ask(support(), messages)
    response.tool_calls[0].tool_call_id = "c1"
    beside = ModelRequest(
        parts=[*result(response.tool_calls[0], ORDERS).parts, UserPromptPart(content="An image of the order:")]
    )
    assert [each.tool_name for each in (await ask(support(), [*messages, response, beside])).tool_calls] == ["refund"]
    # Words of the user that arrive at this moment count where a rule knows them.
    beside.parts.append(UserPromptPart(content="hello"))
    assert (await ask(support(), [*messages, response, beside])).text == "Hello. Which order is it about?"


async def test_without_a_fitting_rule_it_says_what_it_knows() -> None:
    start = ModelRequest(parts=[UserPromptPart(content=["What is this?", ImageUrl(url="https://example.com/a.png")])])
    assert (await ask(OfflineModel([Rule(re.compile("refund"), lambda _: "no")]), [start])).text == (
        "This is the offline model, which follows fixed rules, and none fits what you said. It knows: refund."
    )
    assert "no rules yet" in ((await ask(OfflineModel(), [start])).text or "")
    assert (await ask(OfflineModel(otherwise="?"), [start])).text == "?"
    assert (await ask(OfflineModel(otherwise="?"), [])).text == "?"


async def test_a_rule_that_yields_no_call_is_a_mistake() -> None:
    def wrong(prompt: Prompt) -> Any:
        yield "text"

    with pytest.raises(UserError, match="The rule 'wrong' must yield call"):
        await ask(OfflineModel([Rule("x", wrong)]), [ModelRequest.user_text_prompt("x")])


async def test_a_rule_that_returns_no_text_is_a_mistake() -> None:
    def silent(prompt: Prompt) -> Any:
        return None

    def forgetful(prompt: Prompt) -> Any:
        return call("now")  # meant to be yielded: returned, it would be made again and again

    for wrong, returned in ((silent, "None"), (forgetful, "ToolCallPart")):
        with pytest.raises(UserError, match=f"The rule '{wrong.__name__}' must yield .* it returned {returned}"):
            await ask(OfflineModel([Rule("x", wrong)]), [ModelRequest.user_text_prompt("x")])
