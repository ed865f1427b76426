"""What a model is: one request in, one response out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from outlast.errors import UserError
from outlast.messages import JsonObject, ModelMessage, ModelResponse
from outlast.toolsets.definition import ToolDefinition

__all__ = ("Model", "ModelRequestParameters", "ModelSettings", "load_settings", "merge_settings")


@with_config(ConfigDict(extra="forbid"))
class ModelSettings(TypedDict, total=False):
    """Settings of a request that most providers know; each is left to the provider where it is not given.

    Attributes:
        temperature: Randomness of the answer.
        top_p: Share of probability from which tokens are drawn.
        max_tokens: Most tokens to generate.
        timeout: Seconds for the whole request.
        parallel_tool_calls: Whether one response may hold several calls.
        tool_choice: `auto`, `required`, `none`, or the name of one tool.
        seed: Asks the provider to be repeatable.
        stop_sequences: Texts that end the answer.
        presence_penalty: Weight against tokens that occurred.
        frequency_penalty: Weight against tokens by how often they occurred.
        logit_bias: Weights by token ID.
        extra_headers: Further HTTP headers.
        extra_body: Further fields of the request, as the provider calls them.
    """

    temperature: float
    top_p: float
    max_tokens: int
    timeout: float
    parallel_tool_calls: bool
    tool_choice: str
    seed: int
    stop_sequences: list[str]
    presence_penalty: float
    frequency_penalty: float
    logit_bias: dict[str, int]
    extra_headers: dict[str, str]
    extra_body: dict[str, Any]


_settings_adapter = TypeAdapter(ModelSettings)


def load_settings(data: Mapping[str, Any] | None) -> ModelSettings:
    """Settings from JSON.

    Raises:
        UserError: A field is unknown or has the wrong type; the message names every one.
    """
    try:
        return _settings_adapter.validate_python(dict(data or {}))
    except ValidationError as error:
        found = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        known = ", ".join(sorted(ModelSettings.__annotations__))
        raise UserError(f"The model settings are not valid: {found}. Known settings: {known}.") from error


def merge_settings(*layers: ModelSettings | None) -> ModelSettings:
    """One set of settings, in which a later layer wins; `extra_headers` and `extra_body` are merged by their keys."""
    merged: JsonObject = {}
    for layer in layers:
        for name, value in (layer or {}).items():
            if name in ("extra_headers", "extra_body") and name in merged:
                merged[name] = {**merged[name], **value}  # pyright: ignore[reportGeneralTypeIssues]
            else:
                merged[name] = value
    return ModelSettings(**merged)


@dataclass(frozen=True, kw_only=True)
class ModelRequestParameters:
    """What a request carries besides the conversation.

    Attributes:
        function_tools: Tools that the model may call.
        output_tools: Tools by which the model gives its output.
        allow_text_output: Whether plain text is an output; if not, the model must call a tool.
        instructions: The agent's instructions for this step. They come first, and only from here: a model ignores
            `ModelRequest.instructions`.
    """

    function_tools: list[ToolDefinition] = field(default_factory=list[ToolDefinition])
    output_tools: list[ToolDefinition] = field(default_factory=list[ToolDefinition])
    allow_text_output: bool = True
    instructions: str | None = None

    def tool(self, name: str) -> ToolDefinition | None:
        """The function or output tool of this name."""
        return next((tool for tool in (*self.function_tools, *self.output_tools) if tool.name == name), None)


class Model(ABC):
    """Answers a conversation.

    A model keeps nothing between requests that its answer depends on: the next request of the same run may be made
    by another process. Subclasses implement `request`; whatever is added here later will have a default.
    """

    @property
    @abstractmethod
    def model_name(self) -> str:
        """The model as its provider calls it."""

    @property
    @abstractmethod
    def system(self) -> str:
        """The provider, for example `openai`."""

    @abstractmethod
    async def request(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Make one request; trying again is left to the caller.

        Args:
            messages: The conversation; it ends with a request.
            settings: Settings of this request.
            parameters: Tools, instructions and the kinds of output that are allowed.

        Returns:
            The response. Call IDs are as the provider gave them: they may be empty or repeated.

        Raises:
            ProviderError: The request failed; says whether it may pass later.
            UserError: The request cannot be made as the model is set up.
        """

    def check_setup(self) -> None:  # noqa: B027 -- most models need nothing
        """Find what would keep every request from being made, without making one. By default nothing does.

        Raises:
            UserError: A package, an address or a key is missing; says which, and how to get it.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model_name!r})"
