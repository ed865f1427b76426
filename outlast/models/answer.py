"""Short ways to write a response by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

from outlast.errors import UserError
from outlast.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart, Usage

__all__ = ("Answer", "AnswerPart", "to_response")

AnswerPart: TypeAlias = str | TextPart | ThinkingPart | ToolCallPart
Answer: TypeAlias = ModelResponse | AnswerPart | Sequence[AnswerPart]
"""A response, its text, one of its parts, or a list of these."""


def to_response(answer: object, *, model_name: str, where: str) -> ModelResponse:
    """The response that an answer stands for; always a new object.

    Args:
        answer: An `Answer`, not yet checked.
        model_name: Filled in where the answer names no model.
        where: What gave the answer, for the error.

    Raises:
        UserError: It is nothing that stands for a response.
    """
    if isinstance(answer, ModelResponse):
        response = answer.model_copy(deep=True)
        response.model_name = response.model_name or model_name
        response.usage.requests = response.usage.requests or 1
        return response
    parts = cast("Sequence[object]", answer) if isinstance(answer, list | tuple) else [answer]
    return ModelResponse(parts=[_part(part, where) for part in parts], model_name=model_name, usage=Usage(requests=1))


def _part(part: object, where: str) -> TextPart | ThinkingPart | ToolCallPart:
    if isinstance(part, str):
        return TextPart(content=part)
    if isinstance(part, TextPart | ThinkingPart | ToolCallPart):
        return part.model_copy(deep=True)
    raise UserError(
        f"{where[0].upper()}{where[1:]} must give a ModelResponse, a string, a ToolCallPart, a TextPart, a "
        f"ThinkingPart or a list of these, got {part!r}."
    )
