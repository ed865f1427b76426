"""What the example with several tools teaches, in this process and without a server."""

from __future__ import annotations

import random
import runpy
from pathlib import Path
from typing import Any

import pytest

from outlast import Agent, FunctionModel, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from outlast.models.scripted import ScriptedModel

EXAMPLE = Path(__file__).parents[2] / "examples" / "multi_tool.py"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    return runpy.run_path(str(EXAMPLE))


@pytest.fixture
def assistant(example: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Agent[Any, Any]:
    monkeypatch.setattr(random, "random", lambda: 1.0)
    return example["assistant"]


def result_of(assistant: Agent[Any, Any], tool_name: str, args: dict[str, Any]) -> Any:
    """The first answer to a call with these arguments."""
    call = ModelResponse(parts=[ToolCallPart(tool_name=tool_name, args=args, tool_call_id="c")])
    done = assistant.run_sync("Go.", model=ScriptedModel([call, "Done."]))
    return done.all_messages()[2].parts[0]


@pytest.mark.parametrize("top_k", ["10", 99, "many", -1, None, "nan", [1]])
def test_a_number_of_results_that_does_not_fit_is_mended(assistant: Agent[Any, Any], top_k: Any) -> None:
    part = result_of(assistant, "search", {"query": "agents", "top_k": top_k})
    assert isinstance(part, ToolReturnPart)
    assert part.content == ["Several agents share a task by taking different roles."]


def test_what_no_rule_can_mend_goes_back_to_the_model(assistant: Agent[Any, Any]) -> None:
    part = result_of(assistant, "search", {"query": "", "top_k": "10"})
    assert part.part_kind == "retry-prompt"


def test_text_that_is_a_number_is_added(assistant: Agent[Any, Any]) -> None:
    assert result_of(assistant, "add", {"a": 1.2, "b": "3"}).content == 4.2


def test_a_search_that_fails_at_first_is_made_again_unseen(
    assistant: Agent[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "random", lambda: 0.0)
    part = result_of(assistant, "search", {"query": "MCP"})
    assert part.content == ["MCP is one way to offer tools and resources to any model."]


def test_after_so_many_rounds_no_tool_is_left_and_the_model_answers(
    example: dict[str, Any], assistant: Agent[Any, Any]
) -> None:
    def model(messages: Any, info: Any) -> ModelResponse:
        if not info.function_tools:
            return ModelResponse(parts=[TextPart("That is all I found.")])
        return ModelResponse(parts=[ToolCallPart(tool_name="search", args={"query": "MCP"})])

    done = assistant.run_sync("Search for ever.", model=FunctionModel(model))
    assert done.output == "That is all I found."
    assert done.usage.requests == example["MAX_ROUNDS"] + 1
