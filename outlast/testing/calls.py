"""What a scripted model asks for, in one word."""

from __future__ import annotations

from typing import Any

from outlast.messages import ToolCallPart

__all__ = ("call",)


def call(tool_name: str, tool_call_id: str = "", /, **args: Any) -> ToolCallPart:
    """A call of a tool, as a line of a `ScriptedModel`.

    Args:
        tool_name: The tool.
        tool_call_id: The call's ID; without one, as some providers send it, the run makes one.
        **args: The arguments.
    """
    return ToolCallPart(tool_name, args, tool_call_id)
