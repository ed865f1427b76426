"""What tests let a model ask for, in one word."""

from __future__ import annotations

from typing import Any

from outlast import ToolCallPart


def call(tool_name: str, tool_call_id: str = "", /, **args: Any) -> ToolCallPart:
    """A call of a tool; without an ID, as some providers send it."""
    return ToolCallPart(tool_name, args, tool_call_id)
