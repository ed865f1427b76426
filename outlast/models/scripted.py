"""A model that follows a script."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TypeAlias

from typing_extensions import override

from outlast.errors import UserError
from outlast.messages import ModelMessage, ModelResponse
from outlast.models.answer import Answer, to_response
from outlast.models.function import AgentInfo, FunctionDef
from outlast.models.model import Model, ModelRequestParameters, ModelSettings

__all__ = ("ScriptLine", "ScriptedModel")

ScriptLine: TypeAlias = Answer | Exception | FunctionDef


class ScriptedModel(Model):
    """Answers step k of a run with line k of a script.

    The line is chosen by the number of responses that the conversation holds, not by counting requests. So one
    object serves many runs at once, an attempt that is made again gets the same line, and another worker goes on
    where the first one stopped. Responses in a `message_history` count too.

    Args:
        responses: For each step a `ModelResponse`, text, a part, a list of parts, an exception to raise on every
            attempt at this step, or a function like that of a `FunctionModel`.
        model_name: Name of the model.
    """

    def __init__(self, responses: Sequence[ScriptLine], *, model_name: str = "scripted") -> None:
        if isinstance(responses, str):
            raise UserError(f"A script is a list with one line for each step, got the string {responses!r}.")
        self.responses = list(responses)
        self._model_name = model_name

    @property
    @override
    def model_name(self) -> str:
        return self._model_name

    @property
    @override
    def system(self) -> str:
        return "scripted"

    @override
    async def request(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        index = sum(isinstance(message, ModelResponse) for message in messages)
        if index >= len(self.responses):
            raise UserError(
                f"The script of {self!r} has {len(self.responses)} lines, and the run asks for line {index + 1}. "
                f"Add a line, or end the run earlier. The last message: {repr(messages[-1:])[1:300]}"
            )
        line = self.responses[index]
        if isinstance(line, Exception):
            raise line
        if callable(line):
            line = line(messages, AgentInfo.of(settings, parameters))
            if inspect.isawaitable(line):
                line = await line
        return to_response(line, model_name=self._model_name, where=f"line {index + 1} of {self!r}")
