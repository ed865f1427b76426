"""Messages survive being stored, whoever wrote them."""

from __future__ import annotations

import base64
import json
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from outlast.contracts import RunInput
from outlast.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessagesTypeAdapter,
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
    Usage,
    UserPromptPart,
    dump_message,
    load_messages,
)

TEXT = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(TEXT, children, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=3)
OPTIONAL = st.none() | TEXT

content_items = st.one_of(
    TEXT,
    st.builds(ImageUrl, url=TEXT),
    st.builds(BinaryContent, data=st.binary(max_size=12), media_type=st.just("image/png")),
    st.builds(UnknownContent, kind=st.just("video-url"), url=TEXT),
)
request_parts = st.one_of(
    st.builds(SystemPromptPart, content=TEXT),
    st.builds(UserPromptPart, content=TEXT | st.lists(content_items, max_size=4)),
    st.builds(
        ToolReturnPart,
        tool_name=TEXT,
        content=JSON,
        tool_call_id=TEXT,
        metadata=JSON,
        outcome=st.sampled_from(["success", "failed", "denied"]),
    ),
    st.builds(RetryPromptPart, content=TEXT | st.lists(OBJECTS, max_size=2), tool_name=OPTIONAL, tool_call_id=TEXT),
    st.builds(UnknownPart, part_kind=st.just("unheard-of"), content=JSON),
)
response_parts = st.one_of(
    st.builds(TextPart, content=TEXT, id=OPTIONAL),
    st.builds(ThinkingPart, content=TEXT, id=OPTIONAL, signature=OPTIONAL, provider_name=OPTIONAL),
    st.builds(ToolCallPart, tool_name=TEXT, args=OPTIONAL | OBJECTS, tool_call_id=TEXT),
    st.builds(UnknownPart, part_kind=st.just("builtin-tool-call"), args=JSON),
)
usages = st.builds(
    Usage,
    requests=st.integers(0, 3),
    input_tokens=st.integers(0, 9),
    details=st.dictionaries(TEXT, st.integers(0, 9), max_size=2),
)
messages = st.one_of(
    st.builds(ModelRequest, parts=st.lists(request_parts, max_size=4)),
    st.builds(
        ModelResponse,
        parts=st.lists(response_parts, max_size=4),
        usage=usages,
        model_name=OPTIONAL,
        timestamp=st.none() | st.datetimes(timezones=st.just(UTC)),
        finish_reason=st.sampled_from([None, "stop", "length"]),
    ),
)


@given(st.lists(messages, max_size=4))
@settings(deadline=None)
def test_a_conversation_comes_back_as_it_was(conversation: list[Any]) -> None:
    dumped = [dump_message(message) for message in conversation]
    text = json.dumps(dumped, allow_nan=False)
    assert load_messages(json.loads(text)) == conversation
    assert [dump_message(message) for message in load_messages(json.loads(text))] == json.loads(text)


@given(st.lists(messages, max_size=3))
@settings(deadline=None)
def test_a_conversation_comes_back_through_the_type_adapter(conversation: list[Any]) -> None:
    """The way in which users of pydantic-ai store theirs."""
    as_json = ModelMessagesTypeAdapter.dump_json(conversation)
    assert ModelMessagesTypeAdapter.validate_json(as_json) == conversation
    as_python = ModelMessagesTypeAdapter.dump_python(conversation, mode="json")
    assert ModelMessagesTypeAdapter.validate_python(as_python) == conversation


def test_a_field_at_its_default_is_not_stored() -> None:
    message = ModelRequest(
        parts=[UserPromptPart("hi"), ToolReturnPart(tool_name="now", tool_call_id="c1")],
        instructions="rendered anew for each step",
    )
    assert dump_message(message) == {
        "kind": "request",
        "parts": [
            {"part_kind": "user-prompt", "content": "hi"},
            {"part_kind": "tool-return", "tool_name": "now", "tool_call_id": "c1"},
        ],
    }


@given(st.binary())
def test_bytes_are_base64_in_json(data: bytes) -> None:
    """Both alphabets and left-out padding are read: other programs write messages too."""
    content = BinaryContent(data=data, media_type="image/png")
    dumped = content.model_dump(mode="json")
    assert BinaryContent.model_validate(dumped) == content
    assert BinaryContent.model_validate_json(content.model_dump_json()) == content
    assert BinaryContent.model_validate(content.model_dump()) == content
    for text in (base64.b64encode(data), base64.urlsafe_b64encode(data), base64.b64encode(data).rstrip(b"=")):
        given = {"data": text.decode(), "media_type": "image/png"}
        assert BinaryContent.model_validate(given).data == data
        assert BinaryContent.model_validate_json(json.dumps(given)).data == data


@pytest.mark.parametrize("data", ["not base64!", "ä", "a"])
def test_text_that_is_no_base64_is_refused(data: str) -> None:
    with pytest.raises(ValidationError):
        BinaryContent.model_validate({"data": data, "media_type": "image/png"})


def test_a_prompt_is_not_taken_for_stored_content() -> None:
    """A misspelt kind in what a caller sends is an error, not content that no model is ever sent."""
    with pytest.raises(ValidationError, match="image_url"):
        RunInput.model_validate({"agent": "a", "prompt": [{"kind": "image_url", "url": "https://example.com"}]})
    loaded = RunInput.model_validate(
        {"agent": "a", "prompt": ["look", {"kind": "binary", "data": "AA==", "media_type": "image/png"}]}
    )
    assert loaded.prompt == ["look", BinaryContent(data=b"\x00", media_type="image/png")]


# In the shape in which pydantic-ai stores a conversation, written by hand: timestamps and IDs that outlast does not
# use, usage with further counters, and parts of kinds that it does not have.
STORED: list[dict[str, Any]] = [
    {
        "parts": [
            {
                "content": "You help.",
                "timestamp": "2025-10-01T09:00:00.123456Z",
                "dynamic_ref": None,
                "part_kind": "system-prompt",
            },
            {
                "content": [
                    "What is on it?",
                    {
                        "url": "https://example.com/a.png",
                        "force_download": False,
                        "vendor_metadata": None,
                        "kind": "image-url",
                        "media_type": "image/png",
                        "identifier": "a1",
                    },
                    {"data": "-_8=", "media_type": "image/png", "vendor_metadata": None, "kind": "binary"},
                    {"url": "https://example.com/a.mp4", "kind": "video-url", "media_type": "video/mp4"},
                ],
                "timestamp": "2025-10-01T09:00:00.123456Z",
                "part_kind": "user-prompt",
            },
        ],
        "instructions": "Be brief.",
        "timestamp": "2025-10-01T09:00:00.123456Z",
        "run_id": "5f0c",
        "metadata": None,
        "kind": "request",
    },
    {
        "parts": [
            {
                "content": "Let me see.",
                "id": "rs_1",
                "signature": "abc",
                "provider_name": "openai",
                "provider_details": None,
                "part_kind": "thinking",
            },
            {
                "tool_name": "web_search",
                "args": {"query": "x"},
                "tool_call_id": "ws_1",
                "id": None,
                "provider_name": "openai",
                "part_kind": "builtin-tool-call",
            },
            {
                "tool_name": "web_search",
                "content": {"status": "completed"},
                "tool_call_id": "ws_1",
                "provider_name": "openai",
                "part_kind": "builtin-tool-return",
            },
            {"content": "I ask.", "id": None, "provider_details": None, "part_kind": "text"},
            {
                "tool_name": "weather",
                "args": '{"city":"Rome"}',
                "tool_call_id": "call_1",
                "id": None,
                "part_kind": "tool-call",
            },
            {"tool_name": "now", "args": {}, "tool_call_id": "call_2", "id": None, "part_kind": "tool-call"},
        ],
        "usage": {
            "input_tokens": 51,
            "cache_write_tokens": 0,
            "cache_read_tokens": 8,
            "output_tokens": 5,
            "input_audio_tokens": 0,
            "cache_audio_read_tokens": 0,
            "output_audio_tokens": 0,
            "details": {"reasoning_tokens": 3},
        },
        "model_name": "gpt-4o",
        "timestamp": "2025-10-01T09:00:01Z",
        "provider_name": "openai",
        "provider_details": {"finish_reason": "tool_calls"},
        "provider_response_id": "resp_1",
        "finish_reason": "tool_call",
        "run_id": "5f0c",
        "metadata": None,
        "kind": "response",
    },
    {
        "parts": [
            {
                "tool_name": "weather",
                "content": {"sky": "blue"},
                "tool_call_id": "call_1",
                "metadata": None,
                "timestamp": "2025-10-01T09:00:02Z",
                "part_kind": "tool-return",
            },
            {
                "content": [{"type": "missing", "loc": ["zone"], "msg": "Field required", "input": {}}],
                "tool_name": "now",
                "tool_call_id": "call_2",
                "timestamp": "2025-10-01T09:00:02Z",
                "part_kind": "retry-prompt",
            },
        ],
        "instructions": None,
        "kind": "request",
    },
    {
        "parts": [{"content": "Blue.", "part_kind": "text"}],
        "usage": {
            "requests": 1,
            "request_tokens": 60,
            "response_tokens": None,
            "total_tokens": 60,
            "details": None,
        },
        "model_name": "gpt-4o",
        "timestamp": "2025-10-01T09:00:03Z",
        "kind": "response",
        "vendor_details": None,
        "vendor_id": None,
    },
]


def test_a_conversation_stored_by_pydantic_ai_loads() -> None:
    first, second, third, fourth = load_messages(STORED)
    assert isinstance(first, ModelRequest)
    assert isinstance(first.parts[1], UserPromptPart)
    assert first.parts[1].content[0] == "What is on it?"
    assert first.parts[1].content[2].data == b"\xfb\xff"  # type: ignore[union-attr]
    assert isinstance(first.parts[1].content[3], UnknownContent)

    assert isinstance(second, ModelResponse)
    assert second.text == "I ask."
    assert [call.args_as_dict() for call in second.tool_calls] == [{"city": "Rome"}, {}]
    assert (second.usage.input_tokens, second.usage.output_tokens) == (51, 5)
    assert second.usage.details == {"reasoning_tokens": 3}
    assert [part.part_kind for part in second.parts if isinstance(part, UnknownPart)] == [
        "builtin-tool-call",
        "builtin-tool-return",
    ]

    assert isinstance(third, ModelRequest)
    assert isinstance(third.parts[1], RetryPromptPart)
    assert third.parts[1].model_response_str() == (
        "1 invalid argument:\nzone: Field required\n\nFix the errors and try again."
    )

    assert isinstance(fourth, ModelResponse)
    assert (fourth.usage.requests, fourth.usage.input_tokens, fourth.usage.output_tokens) == (1, 60, 0)
    assert fourth.usage.total_tokens == 60


def test_what_outlast_does_not_know_is_stored_again() -> None:
    dumped = [dump_message(message) for message in load_messages(STORED)]
    assert dumped[0]["parts"][0]["timestamp"] == "2025-10-01T09:00:00.123456Z"
    assert dumped[0]["parts"][1]["content"][3] == STORED[0]["parts"][1]["content"][3]
    assert dumped[1]["parts"][1] == STORED[1]["parts"][1]
    assert dumped[1]["provider_response_id"] == "resp_1"
    assert load_messages(json.loads(json.dumps(dumped))) == [
        message.model_copy(update={"instructions": None}) if isinstance(message, ModelRequest) else message
        for message in load_messages(STORED)
    ]


@pytest.mark.parametrize(
    "message",
    [
        {"kind": "request", "parts": [{"part_kind": "text"}, {"content": "no kind"}]},
        {"kind": "response", "parts": [{"part_kind": "tool-call"}]},
        {"kind": "other", "parts": []},
        {"parts": []},
        {"kind": "request"},
        {"kind": "request", "parts": [{"part_kind": ["list"]}]},
        {"kind": "request", "parts": ["text"]},
    ],
)
def test_what_is_no_message_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        load_messages([message])


@pytest.mark.parametrize(
    ("args", "expected"),
    [(None, {}), ("", {}), ({}, {}), ("{}", {}), ('{"a": 1}', {"a": 1}), ({"a": 1}, {"a": 1})],
)
def test_arguments_are_one_object(args: Any, expected: dict[str, Any]) -> None:
    assert ToolCallPart(tool_name="now", args=args).args_as_dict() == expected


@pytest.mark.parametrize("args", ["{", "[]", "null", '"{}"', "7"])
def test_arguments_that_are_no_object_raise_value_error(args: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        ToolCallPart(tool_name="now", args=args).args_as_dict()


def test_usage_adds_up() -> None:
    total = Usage(requests=1, input_tokens=2, details={"a": 1}) + Usage(
        requests=1, output_tokens=3, tool_calls=1, details={"a": 1, "b": 2}
    )
    assert total == Usage(requests=2, tool_calls=1, input_tokens=2, output_tokens=3, details={"a": 2, "b": 2})
    assert total.total_tokens == 5


def test_a_message_shows_only_what_differs_from_the_defaults() -> None:
    assert repr(ToolCallPart(tool_name="now", args={"city": "a"}, tool_call_id="c1")) == (
        "ToolCallPart(tool_name='now', args={'city': 'a'}, tool_call_id='c1')"
    )
