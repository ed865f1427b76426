"""Values checked against a JSON schema that came from somewhere else: a front end, an MCP server, a plan.

Such a schema is not trusted. Patterns run on an engine whose time is linear in the text, so that `^(a+)+$` cannot
freeze a worker, and nothing is ever fetched for a `$ref`. What is left is a schema made to unfold without end
(`allOf` of twice the same reference, thirty levels deep): its author could as well have written a slow tool.
Pure and deterministic: safe inside a workflow.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import jsonschema_rs

from outlast.errors import UserError
from outlast.messages import JsonObject

__all__ = ("RawSchema", "SchemaViolation", "check")

MOST_VIOLATIONS = 20
LONGEST_MESSAGE = 300


@dataclass(frozen=True)
class SchemaViolation:
    """One way in which a value does not fit.

    Attributes:
        path: Keys and indexes that lead to the place.
        message: What is wrong there.
        value: What is there.
    """

    path: tuple[str | int, ...]
    message: str
    value: Any = None

    def __str__(self) -> str:
        place = ".".join(str(step) for step in self.path)
        return f"{place}: {self.message}" if place else self.message


class RawSchema:
    """A compiled JSON schema.

    Args:
        schema: The schema; its draft is read from `$schema`, by default 2020-12.

    Raises:
        UserError: The schema is broken, refers to something outside of itself, or has a pattern that cannot be
            matched in linear time (lookaround, backreferences).
    """

    def __init__(self, schema: JsonObject) -> None:
        if not isinstance(schema, dict):  # pyright: ignore[reportUnnecessaryIsInstance] # comes from outside
            raise UserError(f"a JSON schema of arguments is an object such as {{'type': 'object'}}, got {schema!r}.")
        try:
            self._validator = jsonschema_rs.validator_for(
                schema, pattern_options=jsonschema_rs.RegexOptions(), offline=True
            )
        except jsonschema_rs.ValidationError as error:
            raise UserError(_broken(error)) from error
        except (ValueError, RecursionError) as error:
            raise UserError(f"the JSON schema cannot be used: {_cut(str(error))}") from error

    def violations(self, value: object) -> list[SchemaViolation]:
        """What does not fit, at most 20 violations; of a large value only the first."""
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as first:
            errors = islice(self._validator.iter_errors(value), MOST_VIOLATIONS) if _is_small(value) else [first]
            return [SchemaViolation(tuple(e.instance_path), _cut(e.message), e.instance) for e in errors]
        except (ValueError, RecursionError) as error:
            # Not JSON at all, or nested deeper than any schema can follow.
            return [SchemaViolation((), f"not a JSON value that can be checked: {_cut(str(error))}")]
        return []


def check(schema: JsonObject, value: object) -> list[str]:
    """What does not fit, for people to read; empty where the value fits.

    Args:
        schema: The JSON schema.
        value: Any JSON value.

    Returns:
        At most 20 messages, each with the path to its place: `items.0.cents: "x" is not of type "integer"`.

    Raises:
        UserError: The schema itself is broken.
    """
    return [str(violation) for violation in RawSchema(schema).violations(value)]


def _is_small(value: object) -> bool:
    # The library makes all errors before it gives the first, each with a copy of its value: of 2 MB of wrong items
    # that takes ten seconds, in which a workflow task would be given up as deadlocked.
    budget = 2_000
    rest = [value]
    while rest and budget > 0:
        each: Any = rest.pop()
        budget -= 1
        if isinstance(each, str):
            budget -= len(each) // 100
        elif isinstance(each, dict):
            rest.extend(cast("dict[str, Any]", each).values())
        elif isinstance(each, list):
            rest.extend(cast("list[Any]", each))
    return budget > 0


def _broken(error: jsonschema_rs.ValidationError) -> str:
    place = ".".join(str(step) for step in error.instance_path) or "its top"
    message = f"the JSON schema is broken at {place}: {_cut(error.message)}"
    if error.instance_path[-1:] == ["pattern"]:
        return f"{message}. Patterns are matched in linear time, so without lookaround and backreferences."
    if "Retrieval is disabled" in error.message:  # only worded differently for the reader; nothing depends on it
        return f"{message}. Nothing is fetched: put the schema that it refers to under `$defs`."
    return message


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"
