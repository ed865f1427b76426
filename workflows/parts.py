"""The parts of the conversation that a run itself writes."""

# Wire: these are messages of the public contract (outlast.messages), built as JSON because a workflow sends them on
# without ever needing them as objects.

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from outlast.contracts import PlannedCall
from outlast.messages import JsonObject, UserContent
from outlast.workflows.state import Held

MAX_TEXT_CHARS = 4_000
"""Most of a text that a run keeps for people, such as a reason."""


def request(parts: Sequence[JsonObject]) -> JsonObject:
    """A message to the model."""
    return {"kind": "request", "parts": list(parts)}


def user_prompt(content: str | Sequence[UserContent]) -> JsonObject:
    """What the user says."""
    if isinstance(content, str):
        return {"part_kind": "user-prompt", "content": content}
    items = [item if isinstance(item, str) else item.model_dump(mode="json") for item in content]
    return {"part_kind": "user-prompt", "content": items}


def tool_return(
    tool_name: str, tool_call_id: str, content: Any, *, outcome: str = "success", metadata: Any = None
) -> JsonObject:
    """The result of a call; `outcome` is `success`, `failed` or `denied`."""
    part: JsonObject = {
        "part_kind": "tool-return",
        "tool_name": tool_name,
        "tool_call_id": tool_call_id,
        "content": content,
    }
    if outcome != "success":
        part["outcome"] = outcome
    if metadata is not None:
        part["metadata"] = metadata
    return part


def failed_return(plan: PlannedCall, content: str) -> JsonObject:
    """The result of a call that failed, or that was never made."""
    return tool_return(plan.tool_name, plan.tool_call_id, content, outcome="failed")


def unknown_return(plan: PlannedCall, reason: str) -> JsonObject:
    """The result of a call of which nobody knows whether it took effect."""
    return failed_return(plan, _maybe(reason))


def overtaken_return(plan: PlannedCall, held: Held | None) -> JsonObject:
    """The result of a call that the end of the run overtook."""
    match held:
        case Held(kind="unknown_outcome"):
            content = _so_far(held)
        case Held(kind="external" | "deferred"):
            content = "The run ended before its result came."
        case _:
            content = "The call was not made: the run ended."
    return failed_return(plan, content)


def denied_return(plan: PlannedCall, held: Held, message: str | None) -> JsonObject:
    """The result of a call that a person refuses."""
    if held.kind == "unknown_outcome":
        # Refused is only another execution: the first may have taken effect, and was not denied.
        return failed_return(plan, message or f"{_so_far(held)} It was not made again.")
    content = message or "The tool call was denied."
    return tool_return(plan.tool_name, plan.tool_call_id, content, outcome="denied")


def _so_far(held: Held) -> str:
    reason = str(held.metadata.get("reason"))
    return f"{reason}." if held.metadata.get("effect") == "failed" else _maybe(reason)


def _maybe(reason: str) -> str:
    return f"{reason}. The call may or may not have taken effect."


def retry_prompt(content: str | list[JsonObject], *, tool_name: str | None, tool_call_id: str | None) -> JsonObject:
    """Tells the model what to do better."""
    part: JsonObject = {"part_kind": "retry-prompt", "content": content}
    if tool_name is not None:
        part["tool_name"] = tool_name
    if tool_call_id is not None:
        part["tool_call_id"] = tool_call_id
    return part


def cut(text: str) -> str:
    """A text that is kept for people, at a length that people read."""
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}…"


def size_bytes(value: Any) -> int:
    """Size of a value as JSON. Every text has one, also text that no UTF-8 can hold."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace"))


def text(response: JsonObject) -> str:
    """All the text of a response."""
    return "".join(part["content"] for part in response["parts"] if part["part_kind"] == "text")
