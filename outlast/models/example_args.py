"""Arguments made up from a JSON schema: the simplest ones that fit."""

from __future__ import annotations

import math
from typing import Any, cast

import jsonschema_rs

from outlast.messages import JsonObject

__all__ = ("example_args",)

_DEPTHS = (2, 4, 8, 16, 32)
"""Tried one after the other, so that a type which holds itself is made as shallow as it can be."""

_FORMATS = {
    "date": "2024-01-01",
    "date-time": "2024-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "duration": "P1D",
    "email": "a@example.com",
    "idn-email": "a@example.com",
    "hostname": "example.com",
    "uri": "https://example.com/",
    "uri-reference": "https://example.com/",
    "url": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "ipvanyaddress": "192.0.2.1",
    "ipv4network": "192.0.2.0/24",
    "ipv6network": "2001:db8::/32",
    "ipvanynetwork": "192.0.2.0/24",
    "json-pointer": "/a",
    "regex": "a",
    "binary": "a",
    "byte": "YQ==",
    "base64url": "YQ==",
    "json-string": "null",
}


def example_args(schema: JsonObject, *, seed: int = 0) -> JsonObject:
    """An object that fits the schema of a tool's parameters, with only what is required in it.

    Strings are `a`, numbers 0, lists empty, as far as the schema allows; `const`, `enum`, `examples`, bounds, lengths,
    formats, unions and local references are followed. A `pattern` is met only by an example, a default or luck.

    Args:
        schema: JSON schema of an object.
        seed: Another seed gives other arguments.
    """
    for max_depth in _DEPTHS:
        try:
            value = _Examples(schema, max_depth).make(schema, seed, 0)
        except _TooDeep:
            continue
        return cast(JsonObject, value) if isinstance(value, dict) else {}
    return {}


class _TooDeep(Exception):
    """This branch never ends; another one may."""


class _Examples:
    def __init__(self, root: JsonObject, max_depth: int) -> None:
        self.root = root
        self.max_depth = max_depth

    def make(self, schema: Any, variant: int, depth: int) -> Any:
        if depth > self.max_depth:
            raise _TooDeep
        if schema is True or not isinstance(schema, dict) or not schema:
            return _text({}, variant)
        schema = self._resolved(cast(JsonObject, schema), depth)
        if "const" in schema:
            return schema["const"]
        if choices := self._fitting(schema, schema.get("enum") or schema.get("examples") or []):
            return choices[variant % len(choices)]
        for union in ("anyOf", "oneOf"):
            if branches := schema.get(union):
                return self._branch(schema, union, branches, variant, depth)
        match _type_of(schema, variant):
            case "object":
                return self._object(schema, variant, depth)
            case "array":
                return self._array(schema, variant, depth)
            case "integer":
                return _number(schema, variant, whole=True)
            case "number":
                return _number(schema, variant, whole=False)
            case "boolean":
                return variant % 2 == 1
            case "null":
                return None
            case _:
                return self._string(schema, variant)

    def _resolved(self, schema: JsonObject, depth: int) -> JsonObject:
        """The schema with its reference and its `allOf` merged into it."""
        merged = schema
        for _ in range(depth, self.max_depth):
            if isinstance(reference := merged.get("$ref"), str):
                merged = _merge(self._look_up(reference), _without(merged, "$ref"))
            elif branches := merged.get("allOf"):
                merged = _without(merged, "allOf")
                for branch in branches:
                    merged = _merge(merged, self._resolved(_as_schema(branch), depth + 1))
            else:
                return merged
        raise _TooDeep

    def _look_up(self, reference: str) -> JsonObject:
        found: Any = self.root
        if not reference.startswith("#"):
            return {}
        for step in reference[1:].split("/")[1:]:
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        return cast(JsonObject, found) if isinstance(found, dict) else {}

    def _branch(self, schema: JsonObject, union: str, branches: list[Any], variant: int, depth: int) -> Any:
        rest = _without(schema, union)
        last: Any = None
        for shift in range(len(branches)):
            branch = branches[(variant + shift) % len(branches)]
            try:
                last = self.make(_merge(rest, _as_schema(branch)), variant, depth + 1)
            except _TooDeep:
                continue
            if self._fits(schema, last):
                return last
        if last is None and not self._fits(schema, None):
            raise _TooDeep
        return last

    def _object(self, schema: JsonObject, variant: int, depth: int) -> JsonObject:
        properties: JsonObject = schema.get("properties") or {}
        required: list[str] = schema.get("required") or []
        made = {
            name: self.make(properties.get(name, _additional(schema)), variant, depth + 1)
            for name in (*(name for name in properties if name in required), *required)
        }
        fewest: int = schema.get("minProperties") or 0
        for name in properties:
            if len(made) >= fewest:
                break
            if name not in made:
                made[name] = self.make(properties[name], variant, depth + 1)
        while len(made) < fewest and _additional(schema) is not False:
            made[_letters(len(made))] = self.make(_additional(schema), variant, depth + 1)
        return made

    def _array(self, schema: JsonObject, variant: int, depth: int) -> list[Any]:
        firsts: list[Any] = schema.get("prefixItems") or []
        items: Any = schema.get("items", True)
        fewest: int = schema.get("minItems") or 0
        made: list[Any] = []
        # A list without repetitions may need some more tries than it has items.
        for shift in range(fewest * 2 + 8):
            if len(made) >= fewest:
                break
            each = firsts[len(made)] if len(made) < len(firsts) else items
            item = self.make(each, variant + shift if schema.get("uniqueItems") else variant, depth + 1)
            if not schema.get("uniqueItems") or not any(_same(item, other) for other in made):
                made.append(item)
        return made

    def _string(self, schema: JsonObject, variant: int) -> str:
        text = _FORMATS.get(str(schema.get("format", "")).lower())
        if text is not None:
            return text
        made = _text(schema, variant)
        if "pattern" in schema:
            tries = [made, schema.get("default"), *_FORMATS.values(), "0", "A"]
            return next((text for text in tries if isinstance(text, str) and self._fits(schema, text)), made)
        return made

    def _fitting(self, schema: JsonObject, values: list[Any]) -> list[Any]:
        return [value for value in values if self._fits(_without(schema, "examples"), value)]

    def _fits(self, schema: JsonObject, value: Any) -> bool:
        definitions = {name: self.root[name] for name in ("$defs", "definitions") if name in self.root}
        try:
            return jsonschema_rs.is_valid(
                {**definitions, **schema}, value, offline=True, pattern_options=jsonschema_rs.RegexOptions()
            )
        except ValueError:
            return True  # The schema itself is broken or refers to elsewhere: nothing can be said.


def _as_schema(branch: object) -> JsonObject:
    return cast(JsonObject, branch) if isinstance(branch, dict) else {}


def _merge(first: JsonObject, second: JsonObject) -> JsonObject:
    """One schema that asks for what both ask for, where that is simple to say."""
    merged = {**first, **second}
    for name in first.keys() & second.keys():
        one, other = first[name], second[name]
        match name:
            case "properties" | "$defs" | "definitions":
                merged[name] = {**one, **other}
                if name == "properties":
                    for shared in one.keys() & other.keys():
                        merged[name][shared] = {"allOf": [one[shared], other[shared]]}
            case "required":
                merged[name] = [*one, *(item for item in other if item not in one)]
            case "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties":
                merged[name] = max(one, other)
            case "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties":
                merged[name] = min(one, other)
            case "enum":
                merged[name] = [item for item in one if any(_same(item, wanted) for wanted in other)]
            case "type":
                merged[name] = _common_types(one, other)
            case "anyOf" | "oneOf":
                merged[name] = other
                merged["allOf"] = [*merged.get("allOf", []), {name: one}]
            case _:
                pass
    return merged


def _common_types(one: str | list[str], other: str | list[str]) -> str | list[str]:
    ones, others = ([types] if isinstance(types, str) else types for types in (one, other))
    if common := [name for name in ones if name in others]:
        return common
    return "integer" if {"integer", "number"} <= {*ones, *others} else other


def _same(one: Any, other: Any) -> bool:
    # JSON tells 1 from true, Python does not; and 1 equals 1.0 in both.
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _without(schema: JsonObject, *names: str) -> JsonObject:
    return {name: value for name, value in schema.items() if name not in names}


def _additional(schema: JsonObject) -> Any:
    return schema.get("additionalProperties", True)


def _type_of(schema: JsonObject, variant: int) -> str:
    declared: str | list[str] | None = schema.get("type")
    if isinstance(declared, list) and declared:
        return declared[variant % len(declared)]
    if isinstance(declared, str):
        return declared
    if "properties" in schema or "required" in schema or "minProperties" in schema:
        return "object"
    if "items" in schema or "prefixItems" in schema or "minItems" in schema:
        return "array"
    bounds = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    return "number" if bounds & schema.keys() else "string"


def _letters(variant: int) -> str:
    """`a`, `b`, … `z`, `ba`, …: the number in base 26."""
    text = ""
    while True:
        variant, digit = divmod(variant, 26)
        text = chr(ord("a") + digit) + text
        if not variant:
            return text


def _text(schema: JsonObject, variant: int) -> str:
    text = _letters(variant).rjust(schema.get("minLength") or 1, "a")
    longest: int | None = schema.get("maxLength")
    return text if longest is None else text[len(text) - min(longest, len(text)) :]


def _number(schema: JsonObject, variant: int, *, whole: bool) -> int | float:
    """The number nearest to 0 that is allowed, or for another variant one of those that follow."""
    low, high = _bound(schema, "minimum"), _bound(schema, "maximum")
    above, below = _bound(schema, "exclusiveMinimum"), _bound(schema, "exclusiveMaximum")
    floor = max((bound for bound in (low, above) if bound is not None), default=None)
    ceiling = min((bound for bound in (high, below) if bound is not None), default=None)

    def allowed(value: float) -> bool:
        return (
            (low is None or value >= low)
            and (high is None or value <= high)
            and (above is None or value > above)
            and (below is None or value < below)
        )

    step = _step(schema.get("multipleOf"), floor, ceiling, whole=whole)
    start: int | float = 0
    if not allowed(0):
        start = floor if floor is not None else ceiling if ceiling is not None else 0
    if whole:
        start = -(-math.ceil(start) // step) * step
    elif "multipleOf" in schema:
        start = math.ceil(start / step) * step
    found: list[int | float] = []
    for count in range(variant + 16):
        both = dict.fromkeys((start + count * step, start - count * step))
        found.extend(value if whole else float(value) for value in both if allowed(value))
    return found[variant % len(found)] if found else start


def _bound(schema: JsonObject, name: str) -> int | float | None:
    # Draft 4 wrote `exclusiveMinimum: true`.
    bound = schema.get(name)
    return bound if isinstance(bound, int | float) and not isinstance(bound, bool) else None


def _step(multiple: float | None, floor: float | None, ceiling: float | None, *, whole: bool) -> Any:
    if whole:
        if multiple is None:
            return 1
        return next((int(multiple * n) for n in range(1, 1000) if float(multiple * n).is_integer()), 1)
    if multiple is not None:
        return multiple
    return 1 if floor is None or ceiling is None or floor == ceiling else (ceiling - floor) / 64
