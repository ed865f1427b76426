"""JSON in Temporal's payloads, written and read by outlast itself.

Everything of outlast crosses Temporal as a `RawValue`: one payload of JSON that no payload converter touches. So a
user's own converter, its type hints and its quirks never meet outlast's messages, and outlast's never meet the
user's workflows; a payload codec (encryption, compression) still applies to both.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import pydantic_core
from pydantic import JsonValue
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.converter import PayloadConverter

from outlast.contracts import MAX_PAYLOAD_BYTES

MAX_DEPTH = 100
"""How deep JSON from outside may be nested. Parsers stop at 200 levels, and outlast wraps it in a few of its own."""

_METADATA = {"encoding": b"json/plain"}
_CONTAINERS = (dict, list)
F = TypeVar("F", bound=Callable[..., Any])


class NotJson(ValueError):
    """What arrived is not one JSON value; the message says what it is."""


class PayloadTooLarge(ValueError):
    """The JSON is larger than what fits into one payload."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"{size_bytes:,} bytes of JSON, and at most {MAX_PAYLOAD_BYTES:,} fit into one payload")
        self.size_bytes = size_bytes


def to_raw(json: bytes) -> RawValue:
    """A payload of this JSON text.

    Raises:
        PayloadTooLarge: Temporal would refuse it; a workflow task would fail for good.
    """
    if len(json) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(len(json))
    return RawValue(Payload(metadata=_METADATA, data=json))


def json_bytes(value: RawValue) -> bytes:
    """The JSON text of a payload.

    Raises:
        NotJson: The payload is not JSON.
    """
    encoding = value.payload.metadata.get("encoding", b"").decode(errors="replace")
    if encoding == "json/plain":
        return value.payload.data
    if encoding == "binary/null":
        return b"null"
    raise NotJson(
        f"Expected one JSON object (encoding json/plain), got a payload with the encoding {encoding!r}. If a codec "
        f"encrypts or compresses it, give the worker's client the same codec."
    )


def read_arguments(arguments: tuple[Any, ...], *, default: JsonValue = None) -> JsonValue:
    """The one JSON value that a caller sent.

    Args:
        arguments: What Temporal handed over: a `RawValue`, or any number of values that it decoded by itself.
        default: What no argument at all means.

    Raises:
        NotJson: More than one argument, or something that is not JSON.
    """
    match arguments:
        case ():
            return default
        case (value,):
            pass
        case _:
            raise NotJson(f"Expected one JSON object as the only argument, got {len(arguments)} arguments.")
    if not isinstance(value, RawValue):
        return value
    try:
        data = pydantic_core.from_json(json_bytes(value), allow_inf_nan=False)
    except NotJson:
        raise
    except ValueError as error:
        raise NotJson(f"Expected one JSON object, got text that is not JSON: {error}") from None
    if (problem := json_problem(data)) is not None:
        raise NotJson(f"Expected one JSON object, got one that {problem}.")
    return data


def json_problem(value: JsonValue) -> str | None:
    """Why a JSON value, though it can be written, cannot travel on: None where it can."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        deeper: list[Any] = []
        for item in level:
            if isinstance(item, _CONTAINERS):
                deeper += cast("list[Any]", item.values() if isinstance(item, dict) else item)
            elif isinstance(item, float) and not math.isfinite(item):
                # JSON has no infinity, but parsers make one of 1e999, and nobody can write it again.
                return "holds a number that is too large"
        if not deeper:
            return None
        level = deeper
    return f"is nested deeper than {MAX_DEPTH} levels"


def lets_raw_values_pass(converter: PayloadConverter) -> bool:
    """Whether a payload converter hands a `RawValue` on as it is, as Temporal's own do."""
    raw = to_raw(b"null")
    try:
        [payload] = converter.to_payloads([raw])
        [value] = converter.from_payloads([payload], [RawValue])
    except Exception:  # whatever a converter that is not ours raises
        return False
    return payload == raw.payload and isinstance(value, RawValue)


def takes_json(function: F) -> F:
    """Let a handler declared with `*arguments` receive a single argument as it is on the wire.

    Temporal decodes by the type hints of the signature, and only where their number is that of the arguments.
    With this signature one argument is never decoded, so it can never fail to decode (which would fail the workflow
    task for good, or drop a signal silently), and none or too many still reach the handler, which can say so.
    """
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    data = inspect.Parameter("data", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=RawValue, default=None)
    function.__signature__ = inspect.Signature([own, data])  # type: ignore[attr-defined]
    function.__annotations__ = {"data": RawValue}
    return function
