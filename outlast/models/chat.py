"""The chat completions format of OpenAI and its likes: a conversation to JSON, and an answer back. Knows no SDK."""

# One message always gives the same JSON, whatever comes after it: providers cache the prompts of a conversation by
# their longest common prefix.

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, cast

import pydantic_core
from pydantic import BaseModel, ConfigDict

from outlast.errors import UserError
from outlast.messages import (
    BinaryContent,
    ImageUrl,
    JsonObject,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    Usage,
    UserPromptPart,
)
from outlast.toolsets.definition import ToolDefinition

__all__ = ("Completion", "chat_messages", "chat_name", "chat_tool", "to_model_response")

_REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Where providers put the model's reasoning: DeepSeek and vLLM; OpenRouter and newer vLLM."""

_FINISH_REASONS = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_call",
    "function_call": "tool_call",
    "content_filter": "content_filter",
}

_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


# --- to the provider ---------------------------------------------------------------------------------------------


def chat_messages(messages: list[ModelMessage], *, instructions: str | None, provider_name: str) -> list[JsonObject]:
    """The conversation as chat messages.

    Args:
        messages: The conversation.
        instructions: Sent first, as a system message.
        provider_name: Reasoning is given back only to the provider that it came from.

    Raises:
        UserError: A prompt holds content that this format cannot carry.
    """
    chat: list[JsonObject] = []
    if instructions:
        chat.append({"role": "system", "content": instructions})
    for are_requests, run in groupby(messages, lambda message: isinstance(message, ModelRequest)):
        if are_requests:
            # One after the other where the calls of one response were answered at different times.
            chat.extend(_request_messages([part for message in run for part in message.parts]))
        else:
            chat.extend(_assistant_message(message, provider_name) for message in cast("Iterator[ModelResponse]", run))
    return chat


def _request_messages(parts: list[Any]) -> Iterator[JsonObject]:
    # The format wants the results right behind the calls, and everything else after them.
    for part in parts:
        if isinstance(part, ToolReturnPart) or (isinstance(part, RetryPromptPart) and part.tool_name is not None):
            yield {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.model_response_str()}
    for part in parts:
        if isinstance(part, SystemPromptPart):
            yield {"role": "system", "content": part.content}
        elif isinstance(part, UserPromptPart):
            yield {"role": "user", "content": _user_content(part)}
        elif isinstance(part, RetryPromptPart) and part.tool_name is None:
            yield {"role": "user", "content": part.model_response_str()}


def _user_content(part: UserPromptPart) -> str | list[JsonObject]:
    return part.content if isinstance(part.content, str) else [_content_item(item) for item in part.content]


def _content_item(item: object) -> JsonObject:
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if isinstance(item, ImageUrl):
        return {"type": "image_url", "image_url": {"url": item.url}}
    if isinstance(item, BinaryContent):
        media_type = item.media_type.partition(";")[0].strip().lower()
        if media_type.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": item.data_uri}}
        if media_type.startswith("text/") or media_type == "application/json":
            return {"type": "text", "text": item.data.decode(errors="replace")}
        if media_type in _AUDIO_FORMATS:
            data = base64.b64encode(item.data).decode()
            return {"type": "input_audio", "input_audio": {"data": data, "format": _AUDIO_FORMATS[media_type]}}
        if media_type == "application/pdf":
            return {"type": "file", "file": {"filename": "document.pdf", "file_data": item.data_uri}}
        raise UserError(
            f"A prompt holds {len(item.data)} bytes of {item.media_type!r}, which chat completions cannot carry: "
            "expected an image, text, JSON, WAV, MP3 or PDF."
        )
    kind = getattr(item, "kind", type(item).__name__)
    raise UserError(
        f"A prompt holds content of kind {kind!r}, which chat completions cannot carry: expected text, 'image-url' or "
        "'binary'."
    )


def _assistant_message(response: ModelResponse, provider_name: str) -> JsonObject:
    calls = response.tool_calls
    message: JsonObject = {"role": "assistant", "content": response.text or (None if calls else "")}
    if calls:
        message["tool_calls"] = [_chat_call(call) for call in calls]
        # DeepSeek wants the reasoning back that led to calls, and refused it elsewhere.
        for part in response.parts:
            if isinstance(part, ThinkingPart) and part.provider_name == provider_name and part.id in _REASONING_FIELDS:
                message[part.id] = message.get(part.id, "") + part.content
    return message


def _chat_call(call: ToolCallPart) -> JsonObject:
    arguments = call.args_as_json_str()
    try:
        call.args_as_dict()
    except ValueError:
        # Some servers parse the arguments of earlier calls, and would refuse every further request of the run.
        arguments = pydantic_core.to_json({"invalid_json": call.args}).decode()
    function = {"name": chat_name(call.tool_name), "arguments": arguments}
    return {"id": call.tool_call_id, "type": "function", "function": function}


def chat_name(tool_name: str) -> str:
    """A tool's name as the format allows it: at most 64 letters, digits, `_` or `-`.

    Names that the model made up are changed too: the provider that sent one refuses to read it again.
    """
    if re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool_name):
        return tool_name
    allowed = re.sub(r"[^a-zA-Z0-9_-]", "_", tool_name)[:55]
    return f"{allowed}_{hashlib.sha256(tool_name.encode()).hexdigest()[:8]}"


def chat_tool(tool: ToolDefinition) -> JsonObject:
    """A tool's definition."""
    function: JsonObject = {"name": chat_name(tool.name), "parameters": tool.parameters_json_schema}
    if tool.description:
        function["description"] = tool.description
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


# --- from the provider -------------------------------------------------------------------------------------------


class _Lenient(BaseModel):
    """What providers send: nearly everything may be missing or null, and there is always more than is known."""

    model_config = ConfigDict(extra="ignore")


class ChatFunction(_Lenient):
    """The function of a call."""

    name: str | None = None
    arguments: str | JsonObject | None = None


class ChatCall(_Lenient):
    """A call."""

    id: str | int | None = None
    function: ChatFunction | None = None


class ChatMessage(_Lenient):
    """The answer."""

    content: str | list[JsonObject] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ChatCall] | None = None


class ChatChoice(_Lenient):
    """One of several answers."""

    message: ChatMessage | None = None
    finish_reason: str | None = None


class ChatUsage(_Lenient):
    """Token counts."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_cache_hit_tokens: int | None = None
    prompt_tokens_details: JsonObject | None = None
    completion_tokens_details: JsonObject | None = None


class Completion(_Lenient):
    """The body of an answer; with `error` and without choices where a gateway hides a failure behind status 200."""

    model: str | None = None
    created: float | None = None
    choices: list[ChatChoice] | None = None
    usage: ChatUsage | None = None
    error: Any = None


def to_model_response(
    completion: Completion, choice: ChatChoice, *, provider_name: str, tools: Iterable[ToolDefinition]
) -> ModelResponse:
    """The response; call IDs and arguments as they came.

    A refusal is a text with the finish reason `content_filter`.

    Args:
        completion: The body.
        choice: Its choice to take.
        provider_name: Noted on reasoning.
        tools: The tools that were sent: a name that had to be changed is changed back.
    """
    names = {chat_name(tool.name): tool.name for tool in tools}
    message = choice.message or ChatMessage()
    refused = bool(message.refusal)
    return ModelResponse(
        parts=list(_parts(message, provider_name, names)),
        usage=_usage(completion.usage),
        model_name=completion.model,
        timestamp=_timestamp(completion.created),
        finish_reason="content_filter" if refused else _FINISH_REASONS.get(choice.finish_reason or ""),
    )


def _parts(message: ChatMessage, provider_name: str, names: dict[str, str]) -> Iterator[ModelResponsePart]:
    for name, reasoning in zip(_REASONING_FIELDS, (message.reasoning_content, message.reasoning), strict=True):
        if reasoning:
            yield ThinkingPart(content=reasoning, id=name, provider_name=provider_name)
            break  # Some send both, with the same text.
    if text := _text(message.content):
        yield TextPart(content=text)
    if message.refusal:
        yield TextPart(content=message.refusal)
    for call in message.tool_calls or []:
        function = call.function or ChatFunction()
        name = function.name or ""
        yield ToolCallPart(
            tool_name=names.get(name, name),
            args=function.arguments,
            tool_call_id="" if call.id is None else str(call.id),
        )


def _text(content: str | list[JsonObject] | None) -> str:
    if isinstance(content, list):
        return "".join(text for item in content if isinstance(text := item.get("text"), str))
    return content or ""


def _timestamp(created: float | None) -> datetime | None:
    try:
        return datetime.fromtimestamp(created, UTC) if created else None
    except (ValueError, OverflowError, OSError):
        return None


def _usage(usage: ChatUsage | None) -> Usage:
    if usage is None:
        return Usage(requests=1)
    details: dict[str, int] = {}
    for side, counts in (("input", usage.prompt_tokens_details), ("output", usage.completion_tokens_details)):
        for name, count in (counts or {}).items():
            if isinstance(count, int) and count:
                details[f"{side}_{name}" if name == "audio_tokens" else name] = count
    if usage.prompt_cache_hit_tokens:
        details.setdefault("cached_tokens", usage.prompt_cache_hit_tokens)
    return Usage(
        requests=1,
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        details=details,
    )
