"""Runs example files that import each other, and compares what they print with what they say that they print.

An example states its output as pages of documentation do: after a `print`, in comments that start with `#>`, or in
a block of triple quotes, which is compared as Python and not by its layout.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from outlast import FunctionModel, ModelMessage, ModelRequest, ToolCallPart, ToolReturnPart
from outlast.models.function import AgentInfo
from outlast.models.infer import infer_model
from outlast.models.model import Model

_STRING = re.compile(r'^[ ]*"""\n(.*?)^[ ]*"""', re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """One file of an example."""

    name: str
    source: str

    @property
    def module(self) -> str:
        return self.name.removesuffix(".py")


def run(example: Example, beside: Sequence[Example], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run an example, and check each of its prints.

    Args:
        example: What to run.
        beside: What it may import.
        folder: An empty one.
        monkeypatch: Takes everything back after the test.
    """
    for other in [*beside, example]:
        (folder / other.name).write_text(other.source)
    printed: dict[tuple[str, int], list[str]] = defaultdict(list)

    def record(*values: Any) -> None:
        frame = sys._getframe(1)
        printed[Path(frame.f_code.co_filename).name, frame.f_lineno].append(" ".join(map(str, values)))

    for other in beside:
        monkeypatch.delitem(sys.modules, other.module, raising=False)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(builtins, "print", record)
    before = set(sys.modules)
    try:
        importlib.import_module(example.module)
    finally:
        for module in set(sys.modules) - before:
            if str(getattr(sys.modules[module], "__file__", None) or "").startswith(str(folder)):
                del sys.modules[module]
    expected = expected_output(example.source)
    assert expected, f"{example.name} states no output"
    for line, text in expected.items():
        got = printed.pop((example.name, line), [])
        assert [normal(one) for one in got] == [normal(text)], f"{example.name}, line {line}"
    assert not [place for place in printed if place[0] == example.name], "a print states no output"


def expected_output(source: str) -> dict[int, str]:
    """What each `print` of a file should print, by its line."""
    lines = source.splitlines()
    expected: dict[int, str] = {}
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"):
            continue
        rest = lines[node.end_lineno :]
        comments = []
        for line in rest:
            if not line.lstrip().startswith("#>"):
                break
            comments.append(line.lstrip().removeprefix("#>").strip())
        if comments:
            expected[node.lineno] = "\n".join(comments)
        elif block := _STRING.match("\n".join(rest)):
            # As it stands in the file: escapes in it belong to what was printed.
            expected[node.lineno] = block[1]
    return expected


def normal(text: str) -> str:
    """The text without what differs from run to run or is a matter of layout."""
    text = re.sub(r"datetime\.datetime\([^()]*\)", "datetime.datetime(...)", text)
    try:
        return ast.dump(ast.parse(text.strip(), mode="eval"))
    except SyntaxError:
        return text.strip()


def greeter(messages: list[ModelMessage], info: AgentInfo) -> list[ToolCallPart]:
    """Stands in for a provider's model that greets somebody: asks for what it may ask for, then greets."""
    known = {
        part.tool_name: part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    }
    offered = [tool.name for tool in info.function_tools]
    first = [name for name in ("get_user_name", "get_default_language") if name not in known]
    if first:
        return [ToolCallPart(tool_name=name, tool_call_id=f"call_{name}") for name in first]
    language = known["get_default_language"]
    if "get_preferred_language" in offered:
        if "get_preferred_language" not in known:
            args = {"default_language": language}
            asked = ToolCallPart(tool_name="get_preferred_language", args=args, tool_call_id="pyd_ai_tool_call_id")
            return [asked]
        language = known["get_preferred_language"]
    name = known["get_user_name"]
    greetings = {"es-MX": f"Hola, {name}! Espero que tengas un gran día!", "en-US": f"Hello, {name}!"}
    answer = {"greeting": greetings[language], "language_code": language}
    return [ToolCallPart(tool_name="final_result", args=answer, tool_call_id=f"call_{language}")]


def without_a_provider(model: Model | str) -> Model:
    """The model of a name, as `infer_model` gives it, but for the one provider that the examples name."""
    return FunctionModel(greeter) if model == "openai:gpt-4o" else infer_model(model)
