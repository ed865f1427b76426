"""The parts of the conversation that a run itself writes."""

# Wire: these are messages of the public contract (outlast.messages), built as JSON because a workflow sends them on
# without ever needing them as objects.

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from outlast.contracts import PlannedCall
from outlast.messages import JsonObject, UserContent


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


def retry_prompt(content: str | list[JsonObject], *, tool_name: str | None, tool_call_id: str | None) -> JsonObject:
    """Tells the model what to do better."""
    part: JsonObject = {"part_kind": "retry-prompt", "content": content}
    if tool_name is not None:
        part["tool_name"] = tool_name
    if tool_call_id is not None:
        part["tool_call_id"] = tool_call_id
    return part


def size_bytes(value: Any) -> int:
    """Size of a value as JSON. Every text has one, also text that no UTF-8 can hold."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace"))


def text(response: JsonObject) -> str:
    """All the text of a response."""
    return "".join(part["content"] for part in response["parts"] if part["part_kind"] == "text")
