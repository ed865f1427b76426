"""A tool's result in more than one part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from outlast.messages import UserContent

__all__ = ("ToolReturn",)


@dataclass
class ToolReturn:
    """What a tool returns when the model should see more than one JSON value.

    Attributes:
        return_value: The call's result, any JSON value.
        content: Shown to the model as a user prompt after the result: text, images, files.
        metadata: For the application; never sent to the model.
    """

    return_value: Any = None
    content: str | Sequence[UserContent] | None = None
    metadata: Any = None
    kind: Literal["tool-return"] = "tool-return"

    def __repr__(self) -> str:
        shown = [f"return_value={self.return_value!r}"]
        shown += [f"content={self.content!r}"] if self.content is not None else []
        shown += [f"metadata={self.metadata!r}"] if self.metadata is not None else []
        return f"ToolReturn({', '.join(shown)})"
