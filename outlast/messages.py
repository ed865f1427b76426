"""The conversation: requests to the model and its responses, as they are stored and sent.

The JSON of a message is part of the public contract: `kind` is `request` or `response`, and each part has a
`part_kind`. Fields that outlast does not know are kept when a stored conversation is loaded, so that one written
by pydantic-ai loads, and is stored again as it was.
"""

# Wire: fields are added, never renamed or removed; a field at its default is left out.

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast

import pydantic_core
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    TypeAdapter,
    field_validator,
    model_serializer,
    model_validator,
)

__all__ = (
    "BinaryContent",
    "ImageUrl",
    "JsonObject",
    "ModelMessage",
    "ModelMessagesTypeAdapter",
    "ModelRequest",
    "ModelRequestPart",
    "ModelResponse",
    "ModelResponsePart",
    "RetryPromptPart",
    "SystemPromptPart",
    "TextPart",
    "ThinkingPart",
    "ToolCallPart",
    "ToolReturnPart",
    "UnknownContent",
    "UnknownPart",
    "Usage",
    "UserContent",
    "UserPromptPart",
    "dump_message",
    "load_messages",
)

JsonObject: TypeAlias = dict[str, Any]


class _Model(BaseModel):
    """A value that is compared by its fields and shows only those that differ from their defaults."""

    model_config = ConfigDict(extra="allow", ser_json_bytes="base64", val_json_bytes="base64")

    if not TYPE_CHECKING:  # What type checkers see is what pydantic makes of the fields, or what a class says itself.

        def __init__(self, *values: Any, **data: Any) -> None:
            if values:
                data = _named(type(self), values, data)
            self.__pydantic_validator__.validate_python(data, self_instance=self)

        # As pydantic's own RootModel says it: nested values are validated without going through this method.
        __init__.__pydantic_base_init__ = True

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            field = type(self).model_fields.get(name or "")
            if field is None or field.is_required() or value != field.default:
                yield name, value


def _named(cls: type[BaseModel], values: tuple[Any, ...], data: JsonObject) -> JsonObject:
    """The fields of positional arguments, in the order in which the class has them."""
    names = [name for name in cls.model_fields if name not in ("kind", "part_kind")]
    if len(values) > len(names):
        raise TypeError(f"{cls.__name__} takes at most {len(names)} positional arguments, got {len(values)}")
    given = dict(zip(names, values, strict=False))
    if twice := given.keys() & data.keys():
        raise TypeError(f"{cls.__name__} got several values for {', '.join(sorted(twice))}")
    return given | data


class Usage(_Model):
    """What requests to a model cost.

    Attributes:
        requests: Number of model requests.
        tool_calls: Number of calls that came to a result.
        input_tokens: Tokens sent, as the provider counts them.
        output_tokens: Tokens received, as the provider counts them.
        details: Further counts that the provider gives.
    """

    requests: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    details: dict[str, int] = {}

    @model_validator(mode="before")
    @classmethod
    def _from_older(cls, data: Any) -> Any:
        """Reads what older releases of pydantic-ai stored: other names, and null for what is not known."""
        if not isinstance(data, dict) or (None not in data.values() and "request_tokens" not in data):
            return cast(Any, data)
        known = {name: value for name, value in cast(JsonObject, data).items() if value is not None}
        for name, older in (("input_tokens", "request_tokens"), ("output_tokens", "response_tokens")):
            if older in known:
                known.setdefault(name, known.pop(older))
        return known

    @property
    def total_tokens(self) -> int:
        """Tokens sent and received."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        details = dict(self.details)
        for name, count in other.details.items():
            details[name] = details.get(name, 0) + count
        return Usage(
            requests=self.requests + other.requests,
            tool_calls=self.tool_calls + other.tool_calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            details=details,
        )


class _Content(_Model):
    # What tells the members of a union apart is sent even though it is a default.
    @model_serializer(mode="wrap")
    def _with_kind(self, write: SerializerFunctionWrapHandler) -> JsonObject:
        return {**write(self), "kind": type(self).model_fields["kind"].default}


class ImageUrl(_Content):
    """An image by its address."""

    url: str
    kind: Literal["image-url"] = "image-url"

    if TYPE_CHECKING:

        def __init__(self, url: str) -> None: ...


class BinaryContent(_Content):
    """Bytes with their media type; base64 in JSON.

    Attributes:
        data: The bytes themselves.
        media_type: For example `image/png`.
    """

    data: bytes
    media_type: str
    kind: Literal["binary"] = "binary"

    if TYPE_CHECKING:

        def __init__(self, data: bytes, media_type: str) -> None: ...

    @field_validator("data", mode="before")
    @classmethod
    def _from_base64(cls, data: Any) -> Any:
        # Messages come as JSON that was parsed already, where pydantic would take text for the bytes themselves.
        if not isinstance(data, str):
            return data
        plain = data.replace("-", "+").replace("_", "/").rstrip("=")
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)

    @property
    def data_uri(self) -> str:
        """The content as a `data:` address."""
        return f"data:{self.media_type};base64,{base64.b64encode(self.data).decode()}"


UserContent: TypeAlias = str | Annotated[ImageUrl | BinaryContent, Field(discriminator="kind")]


class UnknownContent(_Model):
    """Content of a kind that outlast does not know, in a stored conversation; kept, but no model is sent it."""

    kind: str


class UnknownPart(_Model):
    """A part of a kind that outlast does not know, in a stored conversation; kept, but no model is sent it."""

    part_kind: str


def _kind_of(field: str, *known: str) -> Callable[[Any], str]:
    """Tells the known kinds apart; everything else is `unknown`."""

    def kind_of(value: Any) -> str:
        kind: Any = cast(JsonObject, value).get(field) if isinstance(value, dict) else getattr(value, field, None)
        return kind if kind in known else "unknown"

    return kind_of


# Only what is stored may hold unknown kinds. A prompt that starts a run is checked strictly: `UserContent`.
StoredContent: TypeAlias = (
    str
    | Annotated[
        Annotated[ImageUrl, Tag("image-url")]
        | Annotated[BinaryContent, Tag("binary")]
        | Annotated[UnknownContent, Tag("unknown")],
        Discriminator(_kind_of("kind", "image-url", "binary")),
    ]
)


class SystemPromptPart(_Model):
    """A system prompt that was given as part of the conversation."""

    content: str
    part_kind: Literal["system-prompt"] = "system-prompt"

    if TYPE_CHECKING:

        def __init__(self, content: str) -> None: ...


class UserPromptPart(_Model):
    """What the user, or a tool on the user's side, says."""

    content: str | Annotated[list[StoredContent], Field(fail_fast=True)]
    part_kind: Literal["user-prompt"] = "user-prompt"

    if TYPE_CHECKING:

        def __init__(self, content: str | Sequence[StoredContent]) -> None: ...


class ToolReturnPart(_Model):
    """The result of one call.

    Attributes:
        tool_name: Name as the model called it.
        content: Any JSON value.
        tool_call_id: The call's ID, unique within one run.
        metadata: For the application; never sent to the model.
        outcome: `success`, `failed` (the tool failed for good) or `denied` (a person said no).
    """

    tool_name: str
    content: Any = None
    tool_call_id: str = ""
    metadata: Any = None
    outcome: Literal["success", "failed", "denied"] = "success"
    part_kind: Literal["tool-return"] = "tool-return"

    if TYPE_CHECKING:

        def __init__(
            self,
            tool_name: str,
            content: Any = None,
            tool_call_id: str = "",
            *,
            metadata: Any = None,
            outcome: Literal["success", "failed", "denied"] = "success",
        ) -> None: ...

    def model_response_str(self) -> str:
        """The content as the text that a model reads: strings as they are, else JSON."""
        return self.content if isinstance(self.content, str) else pydantic_core.to_json(self.content).decode()


class RetryPromptPart(_Model):
    """Tells the model what was wrong, so that it tries again.

    Attributes:
        content: A message, or the errors that pydantic found.
        tool_name: The tool that was called, or None for the output.
        tool_call_id: The call's ID, unique within one run.
    """

    content: str | Annotated[list[JsonObject], Field(fail_fast=True)]
    tool_name: str | None = None
    tool_call_id: str = ""
    part_kind: Literal["retry-prompt"] = "retry-prompt"

    if TYPE_CHECKING:

        def __init__(
            self, content: str | Sequence[JsonObject], tool_name: str | None = None, tool_call_id: str = ""
        ) -> None: ...

    def model_response_str(self) -> str:
        """The text that a model reads."""
        if isinstance(self.content, str):
            problem = self.content
        else:
            lines = [f"{_path(error.get('loc', ()))}: {error.get('msg', 'invalid')}" for error in self.content]
            problem = "\n".join((f"{len(lines)} invalid argument{'' if len(lines) == 1 else 's'}:", *lines))
        return f"{problem}\n\nFix the errors and try again."


def _path(location: Iterable[Any]) -> str:
    return ".".join(str(step) for step in location) or "arguments"


class TextPart(_Model):
    """Text that the model wrote."""

    content: str
    id: str | None = None
    part_kind: Literal["text"] = "text"

    if TYPE_CHECKING:

        def __init__(self, content: str, id: str | None = None) -> None: ...


class ThinkingPart(_Model):
    """The model's reasoning, with what the provider needs to take it back."""

    content: str
    id: str | None = None
    signature: str | None = None
    provider_name: str | None = None
    part_kind: Literal["thinking"] = "thinking"

    if TYPE_CHECKING:

        def __init__(
            self,
            content: str,
            id: str | None = None,
            signature: str | None = None,
            provider_name: str | None = None,
        ) -> None: ...


class ToolCallPart(_Model):
    """The model asks for a call.

    Attributes:
        tool_name: Name of the tool.
        args: The arguments as the provider sent them: JSON text, or an object.
        tool_call_id: The call's ID, unique within one run; empty only in a response that no run has taken yet.
    """

    tool_name: str
    args: str | JsonObject | None = None
    tool_call_id: str = ""
    part_kind: Literal["tool-call"] = "tool-call"

    if TYPE_CHECKING:

        def __init__(self, tool_name: str, args: str | JsonObject | None = None, tool_call_id: str = "") -> None: ...

    def args_as_dict(self) -> JsonObject:
        """The arguments as a dict.

        Raises:
            ValueError: The arguments are not the JSON of one object.
        """
        if not self.args:
            return {}
        if isinstance(self.args, dict):
            return self.args
        args = pydantic_core.from_json(self.args)
        if not isinstance(args, dict):
            raise ValueError(f"expected the arguments to be one JSON object, got {self.args!r}")
        return cast(JsonObject, args)

    def args_as_json_str(self) -> str:
        """The arguments as JSON text."""
        if not self.args:
            return "{}"
        return self.args if isinstance(self.args, str) else pydantic_core.to_json(self.args).decode()


ModelRequestPart: TypeAlias = Annotated[
    Annotated[SystemPromptPart, Tag("system-prompt")]
    | Annotated[UserPromptPart, Tag("user-prompt")]
    | Annotated[ToolReturnPart, Tag("tool-return")]
    | Annotated[RetryPromptPart, Tag("retry-prompt")]
    | Annotated[UnknownPart, Tag("unknown")],
    Discriminator(_kind_of("part_kind", "system-prompt", "user-prompt", "tool-return", "retry-prompt")),
]
ModelResponsePart: TypeAlias = Annotated[
    Annotated[TextPart, Tag("text")]
    | Annotated[ThinkingPart, Tag("thinking")]
    | Annotated[ToolCallPart, Tag("tool-call")]
    | Annotated[UnknownPart, Tag("unknown")],
    Discriminator(_kind_of("part_kind", "text", "thinking", "tool-call")),
]


class ModelRequest(_Model):
    """What goes to the model in one step.

    Attributes:
        parts: In the order in which the model reads them.
        instructions: The agent's instructions for this step; rendered anew for each step and not stored.
    """

    parts: Annotated[list[ModelRequestPart], Field(fail_fast=True)]
    instructions: str | None = None
    kind: Literal["request"] = "request"

    if TYPE_CHECKING:

        def __init__(self, parts: Sequence[ModelRequestPart], *, instructions: str | None = None) -> None: ...

    @classmethod
    def user_text_prompt(cls, text: str) -> ModelRequest:
        """A request of one user prompt."""
        return cls(parts=[UserPromptPart(content=text)])


class ModelResponse(_Model):
    """What the model answered in one step.

    Attributes:
        parts: In the order in which the model wrote them.
        usage: Cost of this one request.
        model_name: The model that answered, as the provider calls it.
        timestamp: When, as the provider says.
        finish_reason: `stop`, `length`, `content_filter`, `tool_call` or `error`, where the provider says it.
    """

    parts: Annotated[list[ModelResponsePart], Field(fail_fast=True)]
    usage: Usage = Usage()
    model_name: str | None = None
    timestamp: datetime | None = None
    finish_reason: str | None = None
    kind: Literal["response"] = "response"

    if TYPE_CHECKING:

        def __init__(
            self,
            parts: Sequence[ModelResponsePart],
            *,
            usage: Usage = ...,
            model_name: str | None = None,
            timestamp: datetime | None = None,
            finish_reason: str | None = None,
        ) -> None: ...

    @property
    def text(self) -> str | None:
        """All text parts together, or None where there is none."""
        texts = [part.content for part in self.parts if isinstance(part, TextPart)]
        return "".join(texts) if texts else None

    @property
    def tool_calls(self) -> list[ToolCallPart]:
        """The calls that the model asks for, in order."""
        return [part for part in self.parts if isinstance(part, ToolCallPart)]


ModelMessage: TypeAlias = Annotated[ModelRequest | ModelResponse, Field(discriminator="kind")]
ModelMessagesTypeAdapter: TypeAdapter[list[ModelMessage]] = TypeAdapter(
    Annotated[list[ModelMessage], Field(fail_fast=True)]
)


def dump_message(message: ModelMessage) -> JsonObject:
    """The message as JSON, without fields at their defaults (but always with its kind and its parts' kinds)."""
    dumped = message.model_dump(mode="json", exclude_defaults=True, exclude={"instructions"})
    dumped["kind"] = message.kind
    for part, dumped_part in zip(message.parts, dumped["parts"], strict=True):
        dumped_part["part_kind"] = part.part_kind
    return dumped


def load_messages(data: Sequence[JsonObject]) -> list[ModelMessage]:
    """Messages from their JSON.

    Raises:
        pydantic.ValidationError: The JSON does not fit; the error says where.
    """
    return ModelMessagesTypeAdapter.validate_python(list(data))
