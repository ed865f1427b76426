"""`outlast tools APP`, and how two states of an app differ."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from outlast import Agent, Approval, FunctionToolset, RunContext, TestModel, ToolDefinition
from outlast.cli.app import main
from outlast.cli.inventory import difference, take_inventory
from outlast.cli.tools import policy_words
from outlast.toolsets.external import ExternalToolset

APP = '''
from outlast import Agent, FunctionToolset, RunContext, TestModel

slow = FunctionToolset(id="slow", timeout=90, attempts=5)
shop = Agent(TestModel(), name="shop", toolsets=[slow], on_error="ask")


@shop.tool_plain(requires_approval=True, on_unknown="tell_model")
def refund(order_id: int, cents: int = 100) -> str:
    """Pay a customer back."""
    return ""


@slow.tool
def search(ctx: RunContext[None], query: str) -> str:
    """Search the shop."""
    return ""


@shop.toolset
def later(ctx: RunContext[None]) -> FunctionToolset:
    return FunctionToolset()


idle = Agent(name="idle")
'''


def test_tools_are_listed_with_what_applies_to_a_call_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    Path("app.py").write_text(APP)
    assert main(["tools", "app.py"]) == 0
    assert capsys.readouterr().out == snapshot("""\
agent      shop  test

    refund(order_id, cents?)
    Pay a customer back.
    waits for an approval, never runs twice, the model hears of an unknown
    outcome, at most 1 h, an error asks a person
    from FunctionToolset 'shop', app.py:8

    search(query)
    Search the shop.
    5 attempts, at most 90 s, an error asks a person
    from FunctionToolset 'slow', app.py:14

    later makes its tools for each step

agent      idle  no model: a run must name one
    no tools

""")


def test_tools_as_json_have_whole_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    Path("app.py").write_text(APP)
    assert main(["tools", "app.py", "--json"]) == 0
    [shop, idle] = json.loads(capsys.readouterr().out)["agents"]
    assert [tool["name"] for tool in shop["tools"]] == ["refund", "search"]
    assert shop["tools"][0]["json_schema"]["required"] == ["order_id"]
    assert shop["tools"][1]["policy"]["timeout"] == 90
    assert (idle["name"], idle["model"], idle["tools"]) == ("idle", None, [])


async def described(**options: Any) -> str:
    agent = Agent(TestModel(), name="shop")

    @agent.tool_plain(**options)
    def pay(cents: int) -> str:
        """Pay."""
        return ""

    [entry] = await take_inventory([agent])
    return policy_words(entry.to_json()["tools"][0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "3 attempts, at most 1 h"),
        ({"attempts": 1, "timeout": 0.5}, "1 attempt, at most 0.5 s"),
        ({"repeatable": False}, "never runs twice, at most 1 h"),
        ({"requires_approval": True}, "waits for an approval, never runs twice, at most 1 h"),
        (
            {"approval": Approval(prompt="Pay {cents}?"), "repeatable": True},
            "waits for an approval, 3 attempts, at most 1 h",
        ),
        (
            {"on_error": "fail_run", "sequential": True},
            "3 attempts, at most 1 h, an error fails the run, alone",
        ),
        ({"local": True, "timeout": 120}, "3 attempts, at most 2 min, local"),
        ({"task_queue": "gpu"}, "3 attempts, at most 1 h, on the queue gpu"),
    ],
)
async def test_what_applies_is_told_in_one_line(options: dict[str, Any], words: str) -> None:
    assert await described(**options) == words


async def test_a_tool_of_another_system_waits_for_its_result() -> None:
    parcel = ToolDefinition("parcel", {"type": "object", "properties": {}})
    [entry] = await take_inventory([Agent(TestModel(), name="shop", toolsets=[ExternalToolset([parcel])])])
    assert policy_words(entry.to_json()["tools"][0]) == "waits for its result from outside"


async def test_a_tool_behind_wrappers_is_found_in_its_file() -> None:
    toolset: FunctionToolset[Any] = FunctionToolset()

    @toolset.tool
    def look(ctx: RunContext[Any]) -> str:
        """Look."""
        return ""

    wrapped = toolset.prefixed("a").renamed({"b": "a_look"})
    [entry] = await take_inventory([Agent(TestModel(), name="shop", toolsets=[wrapped])])
    [tool] = entry.tools
    assert (tool.name, tool.toolset) == ("b", toolset.label)
    assert tool.where is not None
    assert "test_tools.py:" in tool.where


async def test_what_keeps_a_model_from_being_asked_is_known_before_a_run_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent("openai:gpt-4o-mini", name="shop")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    [without] = await take_inventory([agent])
    assert without.problem is not None
    assert without.problem.startswith("No API key for openai:gpt-4o-mini: set the environment variable OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    [given] = await take_inventory([agent])
    assert given.problem is None
    monkeypatch.setitem(sys.modules, "openai", None)
    [bare] = await take_inventory([agent])
    assert bare.problem is not None
    assert bare.problem.endswith('Install it with: pip install "outlast[openai]"')


def entry(name: str, model: str, **tools: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "model": model, "tools": [{"name": tool, **fields} for tool, fields in tools.items()]}


def test_a_reload_tells_what_is_different() -> None:
    old = [entry("shop", "a", pay={"where": "app.py:1", "x": 1}, look={"x": 1}, gone={}), entry("idle", "a")]
    new = [entry("shop", "b", pay={"where": "app.py:9", "x": 1}, look={"x": 2}, more={}), entry("other", "a")]
    assert difference(old, new) == ["+ agent other", "- agent idle", "shop: + more, - gone, ~ look, model a → b"]
    assert difference(old, old) == []
