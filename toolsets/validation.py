"""Arguments, from what a model wrote to what a tool is called with.

The outcome is data: `Valid`, or `Invalid` with what the model should be told. Nothing that a model writes makes
this raise. Of what the user's own functions raise, only `CallDeferred`, `ApprovalRequired` and cancellation pass;
a bug in one of them is logged and told as invalid arguments, since to fail here would repeat a model request that
has been paid for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import pydantic_core
from pydantic_core import ErrorDetails, PydanticSerializationError, ValidationError

from outlast.errors import ModelRetry
from outlast.messages import JsonObject
from outlast.toolsets.abstract import ToolsetTool
from outlast.toolsets.awaiting import settled
from outlast.toolsets.context import DepsT, RunContext

__all__ = ("Invalid", "Valid", "validate_args")

MOST_ERRORS = 20
LONGEST_INPUT = 200
LONGEST_MESSAGE = 500

logger = logging.getLogger("outlast.toolsets")

Errors: TypeAlias = str | list[JsonObject]


@dataclass(frozen=True, slots=True)
class Valid:
    """The arguments fit.

    Attributes:
        args: Python values, by parameter.
        json: The same as JSON: what an approval shows, a digest covers and a call runs with. Validating it gives
            `args` again. With defaults filled in where the values survive the way to JSON and back; else (a
            `SecretStr`, say, which is written as stars) as the model sent it.
    """

    args: dict[str, Any]
    json: JsonObject


@dataclass(frozen=True, slots=True)
class Invalid:
    """The arguments do not fit.

    Attributes:
        errors: For the model: a message, or at most 20 errors with `type`, `loc`, `msg` and `input` (cut).
    """

    errors: Errors


async def validate_args(
    tool: ToolsetTool[DepsT], raw: str | JsonObject | None, ctx: RunContext[DepsT]
) -> Valid | Invalid:
    """Validates the arguments of a call: by schema, then by the tool's `args_validator`, else by its `repair`.

    Args:
        tool: The tool, as its outermost toolset lists it.
        raw: The arguments as the model sent them: JSON text, an object, or nothing.
        ctx: Given to the tool's `args_validator`.
    """
    outcome = await _attempt(tool, raw, ctx)
    if isinstance(outcome, Valid):
        return outcome
    unwrapped = _unwrapped(raw)
    if isinstance(outcome.errors, list):
        for candidate in _candidates(raw, unwrapped, outcome.errors):
            better = await _attempt(tool, candidate, ctx)
            if isinstance(better, Valid):
                return better
    if tool.settings.repair is not None and isinstance(unwrapped, dict):
        repaired = _repaired(tool, tool.settings.repair, cast("JsonObject", unwrapped))
        return outcome if repaired is None else await _attempt(tool, repaired, ctx)
    return outcome


async def _attempt(tool: ToolsetTool[DepsT], raw: str | JsonObject | None, ctx: RunContext[DepsT]) -> Valid | Invalid:
    try:
        text = raw if isinstance(raw, str) else pydantic_core.to_json(raw or {}).decode()
        if not text or text == "null" or text.isspace():
            text = "{}"
        valid = _validated(tool, text)
        if tool.settings.args_validator is not None:
            await settled(tool.settings.args_validator(ctx, **valid.args))
    except ValidationError as error:
        return Invalid(_errors(error))
    except ModelRetry as retry:
        return Invalid(retry.message)
    except (ValueError, AssertionError, RecursionError, PydanticSerializationError) as error:
        return Invalid(_cut(str(error) or type(error).__name__, LONGEST_MESSAGE))
    except Exception as error:
        logger.exception("a validator of tool %r failed", tool.tool_def.name)
        return Invalid(_cut(f"The arguments could not be checked: {type(error).__name__}: {error}", LONGEST_MESSAGE))
    return valid


def _validated(tool: ToolsetTool[Any], text: str) -> Valid:
    # As JSON, and not as Python values: pydantic takes a date or a set from JSON even where it is strict.
    validate = tool.args_validator.validate_json
    args = validate(text)
    if tool.dump_args is not None:
        dumped = _survives(args, tool.dump_args, validate)
        if dumped is not None:
            return Valid(args, dumped)
    try:
        json = pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError:
        # The validator has parsed the same text, but takes NaN and Infinity.
        raise ValueError("The arguments are not JSON: it has neither NaN nor Infinity.") from None
    # Validated anew: dumping may have used up an iterator among the first ones.
    return Valid(args if tool.dump_args is None else validate(text), json)


def _survives(
    args: dict[str, Any], dump: Callable[[dict[str, Any]], JsonObject], validate: Callable[[str], dict[str, Any]]
) -> JsonObject | None:
    """The JSON of the arguments, if validating it gives them again."""
    try:
        dumped = dump(args)
        # Infinity is written as null, so that it does not survive: it is no JSON.
        again = validate(pydantic_core.to_json(dumped, inf_nan_mode="null").decode())
        return dumped if again == args else None
    except Exception:
        return None


def _unwrapped(raw: object) -> object:
    """The arguments out of the strings in which some models wrap them, twice at most."""
    value: Any = raw
    for _ in range(3):
        if not isinstance(value, str):
            break
        try:
            value = pydantic_core.from_json(value, allow_inf_nan=False) if value.strip() else {}
        except ValueError:
            return raw
    return {} if value is None else value


def _candidates(raw: object, unwrapped: object, errors: list[JsonObject]) -> list[JsonObject]:
    """What the model most likely meant: the same arguments with less wrapping, where the schema wants an object."""
    if not isinstance(unwrapped, dict):
        return []
    candidates: list[JsonObject] = []
    args = cast("JsonObject", unwrapped)
    if isinstance(raw, str) and raw.lstrip().startswith('"'):
        candidates.append(args)
    fields = {error["loc"][0] for error in errors if error.get("loc")}
    opened = {name: _unwrapped(value) for name, value in args.items() if name in fields and _looks_nested(value)}
    if opened:
        candidates.append({**args, **opened})
    return candidates


def _looks_nested(value: object) -> bool:
    return isinstance(value, str) and value.lstrip()[:1] in ("{", "[")


def _repaired(
    tool: ToolsetTool[Any], repair: Callable[[JsonObject], JsonObject], args: JsonObject
) -> JsonObject | None:
    try:
        return repair(pydantic_core.from_json(pydantic_core.to_json(args)))  # A copy, which it may change.
    except Exception:
        # The errors that called for a repair say more to the model than this one would.
        logger.exception("the repair function of tool %r failed", tool.tool_def.name)
        return None


def _errors(error: ValidationError) -> list[JsonObject]:
    details = error.errors(include_url=False, include_context=False)
    shown = [_error(each) for each in details[:MOST_ERRORS]]
    if len(details) > MOST_ERRORS:
        shown.append({"type": "more", "loc": [], "msg": f"and {len(details) - MOST_ERRORS} more errors"})
    return shown


def _error(details: ErrorDetails) -> JsonObject:
    return {
        "type": details["type"],
        "loc": list(details["loc"]),
        "msg": _cut(details["msg"], LONGEST_MESSAGE),
        "input": _input(details["input"]),
    }


def _input(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    try:
        text = pydantic_core.to_json(value, inf_nan_mode="null", serialize_unknown=True).decode()
    except (ValueError, RecursionError):
        return _cut(repr(value), LONGEST_INPUT)
    return pydantic_core.from_json(text) if len(text) <= LONGEST_INPUT else _cut(text, LONGEST_INPUT)


def _cut(text: str, length: int) -> str:
    # Lone surrogates, which no JSON text can carry, come in through Python strings alone.
    text = text.encode(errors="replace").decode()
    return text if len(text) <= length else f"{text[:length]}…"
