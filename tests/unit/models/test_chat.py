"""A conversation in the chat completions format."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.errors import UserError
from outlast.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UnknownContent,
    UnknownPart,
    UserPromptPart,
)
from outlast.models.chat import chat_messages, chat_name, chat_tool
from outlast.toolsets.definition import ToolDefinition


def chat(*messages: ModelMessage, instructions: str | None = None) -> list[dict[str, Any]]:
    return chat_messages(list(messages), instructions=instructions, provider_name="deepseek")


def test_every_part_has_its_place() -> None:
    messages = chat(
        ModelRequest(
            parts=[SystemPromptPart(content="You help."), UserPromptPart(content="Weather?")],
            instructions="never sent: the parameters carry them",
        ),
        ModelResponse(
            parts=[
                ThinkingPart(content="Let me ", id="reasoning_content", provider_name="deepseek"),
                ThinkingPart(content="see.", id="reasoning_content", provider_name="deepseek"),
                ThinkingPart(content="of another provider", id="reasoning_content", provider_name="other"),
                TextPart(content="I look it up."),
                ToolCallPart(tool_name="weather", args='{"city":  "Rome"}', tool_call_id="c1"),
                ToolCallPart(tool_name="weather", args={"city": "Oslo"}, tool_call_id="c2"),
                ToolCallPart(tool_name="now", args="", tool_call_id="c3"),
                UnknownPart(part_kind="builtin-tool-call"),
            ]
        ),
        ModelRequest(
            parts=[
                UserPromptPart(content="Hurry."),
                ToolReturnPart(tool_name="weather", content={"sky": "blau"}, tool_call_id="c1"),
                ToolReturnPart(tool_name="weather", content="rain", tool_call_id="c2"),
                RetryPromptPart(content="Which zone?", tool_name="now", tool_call_id="c3"),
                UnknownPart(part_kind="unheard-of"),
            ]
        ),
        ModelResponse(parts=[ThinkingPart(content="done", id="reasoning_content", provider_name="deepseek")]),
        ModelRequest(parts=[RetryPromptPart(content="Say something.")]),
        ModelResponse(parts=[TextPart(content="Sunny"), TextPart(content=".")]),
        instructions="Be brief.",
    )
    assert messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "I look it up.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":  "Rome"}'}},
                {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
                {"id": "c3", "type": "function", "function": {"name": "now", "arguments": "{}"}},
            ],
            "reasoning_content": "Let me see.",
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"sky":"blau"}'},
        {"role": "tool", "tool_call_id": "c2", "content": "rain"},
        {"role": "tool", "tool_call_id": "c3", "content": "Which zone?\n\nFix the errors and try again."},
        {"role": "user", "content": "Hurry."},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "Say something.\n\nFix the errors and try again."},
        {"role": "assistant", "content": "Sunny."},
    ]


def test_calls_without_text_have_no_content() -> None:
    (message,) = chat(ModelResponse(parts=[ToolCallPart(tool_name="now", tool_call_id="c1")]))
    assert message["content"] is None


@pytest.mark.parametrize("args", ['{"city": ', "[1]", '"text"'])
def test_arguments_that_are_no_object_are_sent_back_as_one(args: str) -> None:
    """Some servers parse the arguments of earlier calls, and would refuse all that follows."""
    (message,) = chat(ModelResponse(parts=[ToolCallPart(tool_name="now", args=args, tool_call_id="c1")]))
    arguments = message["tool_calls"][0]["function"]["arguments"]
    assert ToolCallPart(tool_name="now", args=arguments).args_as_dict() == {"invalid_json": args}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("text", {"type": "text", "text": "text"}),
        (
            ImageUrl(url="https://example.com/a.png"),
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        ),
        (
            BinaryContent(data=b"\xfb\xff", media_type="image/png"),
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,+/8="}},
        ),
        (BinaryContent(data=b"a,b", media_type="text/csv; charset=utf-8"), {"type": "text", "text": "a,b"}),
        (
            BinaryContent(data=b"\x00", media_type="audio/mpeg"),
            {"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}},
        ),
        (
            BinaryContent(data=b"\x00", media_type="application/pdf"),
            {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,AA=="}},
        ),
    ],
)
def test_content_of_a_prompt(item: Any, expected: object) -> None:
    (message,) = chat(ModelRequest(parts=[UserPromptPart(content=[item])]))
    assert message == {"role": "user", "content": [expected]}


@pytest.mark.parametrize(
    ("item", "named"),
    [
        (BinaryContent(data=b"\x00", media_type="video/mp4"), "video/mp4"),
        (UnknownContent(kind="video-url"), "video-url"),
    ],
)
def test_content_that_cannot_be_sent_is_named(item: Any, named: str) -> None:
    with pytest.raises(UserError, match=named):
        chat(ModelRequest(parts=[UserPromptPart(content=["look", item])]))


def test_a_tool_is_sent_with_what_is_known_of_it() -> None:
    schema = {"type": "object", "properties": {}}
    assert chat_tool(ToolDefinition(name="now", parameters_json_schema=schema, metadata={"secret": 1})) == {
        "type": "function",
        "function": {"name": "now", "parameters": schema},
    }
    assert chat_tool(ToolDefinition(name="now", description="Now.", strict=True))["function"] == {
        "name": "now",
        "description": "Now.",
        "parameters": {"type": "object", "properties": {}},
        "strict": True,
    }


@pytest.mark.parametrize("name", ["a.b", "functions.find orders", "x" * 65, "", "猫"])
def test_a_name_is_made_to_fit_the_format(name: str) -> None:
    assert chat_name("find_orders-2") == "find_orders-2"
    fitting = chat_name(name)
    assert chat_name(fitting) == fitting
    assert fitting == chat_name(name)
    assert fitting != name
