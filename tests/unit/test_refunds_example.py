"""The first file that people read, in this process and without a server."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outlast import Agent, DeferredToolRequests, DeferredToolResults, ModelResponse, ToolCallPart
from outlast.models.scripted import ScriptedModel

EXAMPLE = Path(__file__).parents[2] / "examples" / "refunds.py"
PROMPT = "Ada wants a refund of order 1042: the headphones are broken."


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    monkeypatch.setenv("REFUNDS_DB", str(tmp_path / "shop" / "refunds.db"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    return runpy.run_path(str(EXAMPLE))


@pytest.fixture
def support(example: dict[str, Any]) -> Agent[Any, Any]:
    return example["support"]


@pytest.fixture
def refunded(example: dict[str, Any]) -> Callable[[], dict[int, int]]:
    def read() -> dict[int, int]:
        with example["database"]() as db:
            return {order["order_id"]: order["refunded"] for order in db.execute(example["ORDERS"])}

    return read


def decide(support: Agent[Any, Any], approved: bool) -> Any:
    waiting = support.run_sync(PROMPT, output_type=[str, DeferredToolRequests])
    assert isinstance(waiting.output, DeferredToolRequests)
    [call] = waiting.output.approvals
    return support.run_sync(
        message_history=waiting.all_messages(),
        deferred_tool_results=DeferredToolResults(approvals={call.tool_call_id: approved}),
    )


def test_finding_orders_needs_nobody(support: Agent[Any, Any]) -> None:
    assert support.run_sync("Which orders of Ada are there?").output == "1041 (keyboard), 1042 (headphones)"


def test_a_refund_waits_for_an_approval_and_nothing_is_paid_before(
    support: Agent[Any, Any], refunded: Callable[[], dict[int, int]]
) -> None:
    waiting = support.run_sync(PROMPT, output_type=[str, DeferredToolRequests])
    assert isinstance(waiting.output, DeferredToolRequests)
    [call] = waiting.output.approvals
    assert (call.tool_name, call.args) == ("refund", {"order_id": 1042, "cents": 1999})
    assert refunded()[1042] == 0


def test_an_approved_refund_is_paid_once(support: Agent[Any, Any], refunded: Callable[[], dict[int, int]]) -> None:
    assert decide(support, True).output == "Sorry about the headphones, Ada. Refunded 1999 cents of order 1042."
    assert refunded() == {1041: 0, 1042: 1999, 1043: 0}


def test_a_denied_refund_is_not_paid(support: Agent[Any, Any], refunded: Callable[[], dict[int, int]]) -> None:
    assert decide(support, False).output.startswith("The headphones cannot be refunded: ")
    assert refunded()[1042] == 0


def test_no_more_is_refunded_than_was_paid(support: Agent[Any, Any], refunded: Callable[[], dict[int, int]]) -> None:
    decide(support, True)
    call = ModelResponse(
        parts=[ToolCallPart(tool_name="refund", args={"order_id": 1042, "cents": 1}, tool_call_id="c")]
    )
    waiting = support.run_sync("again", model=ScriptedModel([call, "I see."]), output_type=[str, DeferredToolRequests])
    again = support.run_sync(
        message_history=waiting.all_messages(),
        deferred_tool_results=DeferredToolResults(approvals={"c": True}),
        model=ScriptedModel([call, "I see."]),
    )
    assert "Order 1042 has no 1 cents left to refund" in str(again.all_messages())
    assert refunded()[1042] == 1999


def test_a_repeated_execution_of_one_call_pays_nothing_and_says_so(
    example: dict[str, Any], refunded: Callable[[], dict[int, int]]
) -> None:
    """A worker may die after the payment and before it was reported: the call is then made again, with the same key."""

    class Ctx:
        idempotency_key = "run:call"

    first = example["refund"](Ctx, 1042, 1999)
    again = example["refund"](Ctx, 1042, 1999)
    assert first == "Refunded 1999 cents of order 1042."
    assert again == "Refunded 1999 cents of order 1042, at an earlier attempt. Nothing was paid twice."
    assert refunded()[1042] == 1999


@pytest.mark.parametrize(("key", "name"), [("DEEPSEEK_API_KEY", "deepseek-chat"), ("OPENAI_API_KEY", "gpt-4o-mini")])
def test_with_a_key_a_real_model_answers(key: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in ("DEEPSEEK_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(key, "sk-test")
    support: Agent[Any, Any] = runpy.run_path(str(EXAMPLE))["support"]
    assert support.model is not None
    assert support.model.model_name == name
