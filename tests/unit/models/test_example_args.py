"""Arguments made up from a schema fit that schema."""

from __future__ import annotations

import json
from typing import Any, Literal
from uuid import UUID

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter

from outlast.models.example_args import example_args

Schema = dict[str, Any]

NAMES = st.sampled_from(["a", "b", "c", "city", "n"])
SEEDS = st.integers(0, 40)
JSON_VALUES = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text("xyz", max_size=3))


@st.composite
def strings(draw: st.DrawFn) -> Schema:
    schema: Schema = {"type": "string"}
    shortest = draw(st.none() | st.integers(0, 6))
    if shortest is not None:
        schema["minLength"] = shortest
    if draw(st.booleans()):
        schema["maxLength"] = (shortest or 0) + draw(st.integers(0, 4))
    return schema


FORMATS = st.sampled_from(["date", "date-time", "time", "duration", "email", "uri", "uuid", "ipv4", "ipv6", "hostname"])
formatted = st.builds(lambda name: {"type": "string", "format": name}, FORMATS)


@st.composite
def integers(draw: st.DrawFn) -> Schema:
    schema: Schema = {"type": "integer"}
    low = draw(st.none() | st.integers(-1000, 1000))
    step = draw(st.none() | st.integers(1, 12))
    if step is not None:
        schema["multipleOf"] = step
    if low is not None:
        schema[draw(st.sampled_from(["minimum", "exclusiveMinimum"]))] = low
    if draw(st.booleans()):
        # Wide enough for one multiple at least.
        schema[draw(st.sampled_from(["maximum", "exclusiveMaximum"]))] = (
            (low or 0) + 2 * (step or 1) + draw(st.integers(0, 5))
        )
    return schema


@st.composite
def numbers(draw: st.DrawFn) -> Schema:
    schema: Schema = {"type": "number"}
    low = draw(st.none() | st.floats(-100, 100, allow_nan=False).map(lambda value: round(value, 2)))
    if low is not None:
        schema[draw(st.sampled_from(["minimum", "exclusiveMinimum"]))] = low
    if draw(st.booleans()):
        schema[draw(st.sampled_from(["maximum", "exclusiveMaximum"]))] = (low or 0) + draw(
            st.sampled_from([0.5, 1, 50])
        )
    return schema


def nested(children: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    return st.one_of(objects(children), arrays(children), unions(children), merged(children))


@st.composite
def objects(draw: st.DrawFn, children: st.SearchStrategy[Schema]) -> Schema:
    properties = draw(st.dictionaries(NAMES, children, max_size=4))
    schema: Schema = {"type": "object", "properties": properties}
    if properties:
        schema["required"] = draw(st.lists(st.sampled_from(sorted(properties)), unique=True))
        schema["minProperties"] = draw(st.integers(0, len(properties)))
    if draw(st.booleans()):
        schema["additionalProperties"] = draw(st.just(False) | children)
    return schema


@st.composite
def arrays(draw: st.DrawFn, children: st.SearchStrategy[Schema]) -> Schema:
    schema: Schema = {"type": "array", "items": draw(children)}
    fewest = draw(st.integers(0, 3))
    if fewest:
        schema["minItems"] = fewest
    if draw(st.booleans()):
        schema["maxItems"] = fewest + draw(st.integers(0, 2))
    return schema


@st.composite
def unions(draw: st.DrawFn, children: st.SearchStrategy[Schema]) -> Schema:
    return {"anyOf": draw(st.lists(children, min_size=1, max_size=3))}


@st.composite
def merged(draw: st.DrawFn, children: st.SearchStrategy[Schema]) -> Schema:
    return {"allOf": [draw(children), {"description": "nothing more"}]}


leaves = st.one_of(
    strings(),
    formatted,
    integers(),
    numbers(),
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.just({}),
    st.builds(lambda value: {"const": value}, JSON_VALUES),
    st.builds(lambda values: {"enum": values}, st.lists(JSON_VALUES, min_size=1, max_size=4)),
    st.just({"type": ["string", "null"]}),
    st.just({"$ref": "#/$defs/Point"}),
    st.just({"$ref": "#/$defs/Tree"}),
)
schemas = st.recursive(leaves, nested, max_leaves=8)
DEFINITIONS: Schema = {
    "Point": {
        "type": "object",
        "properties": {"x": {"type": "integer", "minimum": 3}, "y": {"type": "integer"}},
        "required": ["x"],
        "additionalProperties": False,
    },
    "Tree": {
        "type": "object",
        "properties": {
            "left": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "null"}]},
            "leaf": {"type": "string"},
        },
        "required": ["left", "leaf"],
    },
}


def assert_fits(schema: Schema, value: object) -> None:
    jsonschema_rs.validator_for(schema, validate_formats=True).validate(value)


@given(properties=st.dictionaries(NAMES, schemas, min_size=1, max_size=4), seed=SEEDS)
@settings(max_examples=300, deadline=None)
def test_example_arguments_fit_their_schema(properties: Schema, seed: int) -> None:
    schema = {"type": "object", "properties": properties, "required": sorted(properties), "$defs": DEFINITIONS}
    args = example_args(schema, seed=seed)
    assert_fits(schema, args)
    assert args == example_args(schema, seed=seed), "the same arguments every time, on every worker"


@given(
    item=st.one_of(strings_with_room := st.just({"type": "string"}), integers()), count=st.integers(1, 3), seed=SEEDS
)
@settings(deadline=None)
def test_items_that_must_differ_do(item: Schema, count: int, seed: int) -> None:
    schema = {"type": "array", "items": item, "minItems": count, "uniqueItems": True}
    args = example_args({"type": "object", "properties": {"items": schema}, "required": ["items"]}, seed=seed)
    assert len(args["items"]) <= count
    assert len(set(args["items"])) == len(args["items"])


class Address(BaseModel):
    street: str = Field(min_length=3)
    zip_code: str = Field(pattern=r"^\d+$")
    kind: Literal["home", "work"]


class Order(BaseModel):
    id: UUID
    cents: int = Field(gt=0, le=100_000)
    share: float = Field(ge=0, le=1)
    to: Address
    tags: set[str] = Field(min_length=2)
    pair: tuple[int, str]
    by_name: dict[str, int]
    note: str | None
    parent: Order | None = None
    optional: int = 3


@pytest.mark.parametrize("seed", range(6))
def test_what_pydantic_makes_of_python_types_is_understood(seed: int) -> None:
    args = example_args(Order.model_json_schema(), seed=seed)
    TypeAdapter(Order).validate_json(json.dumps(args))


def test_the_simplest_values_are_chosen() -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "share": {"type": "number"},
            "brief": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "unit": {"enum": ["C", "F"]},
            "version": {"const": 2},
            "when": {"type": "string", "examples": ["tomorrow"]},
            "optional": {"type": "string"},
        },
        "required": ["city", "days", "share", "brief", "tags", "unit", "version", "when"],
    }
    assert example_args(schema) == {
        "city": "a",
        "days": 0,
        "share": 0.0,
        "brief": False,
        "tags": [],
        "unit": "C",
        "version": 2,
        "when": "tomorrow",
    }
    assert example_args(schema, seed=1)["city"] == "b"
    assert example_args(schema, seed=1)["unit"] == "F"


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string"},
        {"$ref": "#/$defs/Nowhere"},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "#"},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"pattern": "("}}, "required": ["a"]},
        {"type": "object", "properties": {"a": True, "b": False}, "required": ["a", "b", "c"]},
        {"type": "object", "properties": {"a": {"type": "fish"}}, "required": ["a"]},
        {"allOf": [{"$ref": "#"}]},
    ],
)
def test_a_schema_that_nothing_can_fit_still_gives_an_object(schema: Schema) -> None:
    """The tool's own validation then tells the model what is wrong; a test model must not crash or hang on it."""
    assert isinstance(example_args(schema), dict)


def test_a_type_that_holds_itself_is_made_shallow() -> None:
    schema = {"type": "object", "properties": {"tree": {"$ref": "#/$defs/Tree"}}, "required": ["tree"]}
    assert example_args({**schema, "$defs": DEFINITIONS}) == {"tree": {"left": None, "leaf": "a"}}
