"""`outlast tools`: an app's tools, as the model sees them and with what applies to a call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import RenderableType
from rich.text import Text

from outlast.cli.inventory import take_inventory
from outlast.cli.loading import load_agents
from outlast.cli.options import Json
from outlast.cli.screen import Labelled, Screen, printable
from outlast.messages import JsonObject
from outlast.settings import load_env_file

__all__ = ("agent_lines", "policy_words", "tools")

WIDEST_COLUMN = 40
"""Longer signatures do not push aside what applies to the others."""


async def tools(
    app: str,
    /,
    *,
    schema: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    json: Json = False,
) -> None:
    """List the tools of APP, as the model sees them, and what applies to a call of each.

    Needs no server and no key. The nearest setting wins: of the tool, its toolset, its agent.

    Args:
        app: A file (app.py) or a module (shop.agents).
        schema: Show the JSON schema of the arguments, too.
        json: Write one JSON value on standard output.
    """
    screen = Screen(as_json=json)
    load_env_file()
    entries = [entry.to_json() for entry in await take_inventory(load_agents(app))]
    screen.answer({"agents": entries}, *[line for entry in entries for line in _whole(entry, schema=schema)])


def agent_lines(entry: JsonObject) -> list[RenderableType]:
    """An agent and its tools in a few lines."""
    lines: list[RenderableType] = [_head(entry)]
    signatures = [_signature(tool) for tool in entry["tools"]]
    column = max((len(each) for each in signatures if len(each) <= WIDEST_COLUMN), default=0)
    for tool, signature in zip(entry["tools"], signatures, strict=True):
        line = Text(f"{signature.ljust(column)}  ")
        line.append(policy_words(tool), style="dim")
        lines.append(Labelled("", line))
    lines += [Labelled("", line) for line in _unlisted(entry)]
    return lines


def _whole(entry: JsonObject, *, schema: bool) -> Iterator[RenderableType]:
    yield _head(entry)
    for tool in entry["tools"]:
        yield ""
        yield _indented(Text(_signature(tool), style="bold"))
        if tool["description"]:
            yield _indented(Text(printable(tool["description"])))
        yield _indented(Text(policy_words(tool), style="yellow" if tool["approval"] != "never" else ""))
        where = f", {tool['where']}" if tool["where"] else ""
        yield _indented(Text(f"from {tool['toolset']}{where}", style="dim"))
        if schema:
            yield _indented(Text(json.dumps(tool["json_schema"], indent=2, ensure_ascii=False), style="dim"))
    if not entry["tools"] and not entry["unlisted"]:
        yield _indented(Text("no tools", style="dim"))
    for line in _unlisted(entry):
        yield ""
        yield _indented(line)
    yield ""


def _head(entry: JsonObject) -> RenderableType:
    head = Text(printable(entry["name"]), style="bold")
    head.append(f"  {entry['model']}" if entry["model"] else "  no model: a run must name one", style="not bold dim")
    return Labelled("agent", head)


def _unlisted(entry: JsonObject) -> list[Text]:
    return [Text(printable(f"{each['toolset']} {each['reason']}"), style="dim") for each in entry["unlisted"]]


def _indented(words: Text) -> RenderableType:
    return Labelled("", words, indent=4)


def _signature(tool: JsonObject) -> str:
    schema: dict[str, Any] = tool["json_schema"]
    required = set(schema.get("required", ()))
    names = [name if name in required else f"{name}?" for name in schema.get("properties", {})]
    return printable(f"{tool['name']}({', '.join(names)})")


def policy_words(tool: JsonObject) -> str:
    """What applies to a call of a tool, in one line."""
    policy: dict[str, Any] = tool["policy"]
    if tool["external"]:
        return "waits for its result from outside"
    words = {
        "always": ["waits for an approval"],
        "sometimes": ["may wait for an approval"],
        "never": list[str](),
    }[tool["approval"]]
    if policy["repeatable"]:
        words.append("1 attempt" if policy["attempts"] == 1 else f"{policy['attempts']} attempts")
    else:
        words.append("never runs twice")
        if policy["on_unknown"] == "tell_model":
            words.append("the model hears of an unknown outcome")
    words.append(f"at most {_duration(policy['timeout'])}")
    if policy["on_error"] != "tell_model":
        words.append({"fail_run": "an error fails the run", "ask": "an error asks a person"}[policy["on_error"]])
    if policy["sequential"]:
        words.append("alone")
    if policy["local"]:
        words.append("local")
    if policy["task_queue"]:
        words.append(f"on the queue {policy['task_queue']}")
    return ", ".join(words)


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
