"""What a model is told about a function, and how the function is called."""

from __future__ import annotations

import datetime
import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Required, Unpack

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from outlast.toolsets import FunctionToolset, RunContext, Tool


def schema(function: Callable[..., Any], **options: Any) -> Any:
    return Tool(function, **options).tool_def.parameters_json_schema


def temperature(city: str) -> float:
    return 21.0


class Order(BaseModel):
    """An order."""

    title: str
    cents: Annotated[int, Field(description="Price.")] = 0


class Node(BaseModel):
    value: int
    children: list[Node] = []


@dataclass
class Point:
    x: int
    y: int = 0


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Extras(TypedDict, total=False):
    key: Required[int]
    note: str


def test_a_function_gives_the_schema_of_the_seeds():
    assert schema(temperature) == {
        "additionalProperties": False,
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "type": "object",
    }


def test_a_function_without_parameters_gives_an_empty_object():
    assert schema(lambda: 1, name="now") == {"additionalProperties": False, "properties": {}, "type": "object"}


def test_descriptions_come_from_the_docstring():
    def search(query: str, limit: int = 10) -> list[str]:
        """Search for items.

        Args:
            query: The search query.
            limit: Maximum results to return.

        Returns:
            What was found.
        """
        return []

    definition = Tool(search).tool_def
    assert definition.description == snapshot("Search for items.\n\nReturns: What was found.")
    assert definition.parameters_json_schema["properties"] == snapshot(
        {
            "query": {"description": "The search query.", "type": "string"},
            "limit": {"description": "Maximum results to return.", "default": 10, "type": "integer"},
        }
    )


def test_a_field_description_wins_over_the_docstring():
    def pay(cents: Annotated[int, Field(description="From the field.", ge=1)]) -> None:
        """Pay.

        Args:
            cents: From the docstring.
        """

    assert schema(pay)["properties"]["cents"]["description"] == "From the field."


def test_an_alias_is_what_the_model_gives():
    def fetch(from_: str = Field(alias="from")) -> str:
        """Fetch.

        Args:
            from_: Where from.
        """
        return from_

    assert schema(fetch)["properties"] == {"from": {"description": "Where from.", "type": "string"}}


def test_types_of_all_kinds_have_a_schema_without_titles():
    def everything(
        order: Order,
        colour: Colour = Colour.RED,
        day: datetime.date | None = None,
        unit: Literal["c", "f"] = "c",
        title: str = "",
    ) -> None: ...

    assert schema(everything) == snapshot(
        {
            "$defs": {
                "Colour": {"enum": ["red", "blue"], "type": "string"},
                "Order": {
                    "description": "An order.",
                    "properties": {
                        "title": {"type": "string"},
                        "cents": {"default": 0, "description": "Price.", "type": "integer"},
                    },
                    "required": ["title"],
                    "type": "object",
                },
            },
            "additionalProperties": False,
            "properties": {
                "order": {"$ref": "#/$defs/Order"},
                "colour": {"$ref": "#/$defs/Colour", "default": "red"},
                "day": {"anyOf": [{"format": "date", "type": "string"}, {"type": "null"}], "default": None},
                "unit": {"default": "c", "enum": ["c", "f"], "type": "string"},
                "title": {"default": "", "type": "string"},
            },
            "required": ["order"],
            "type": "object",
        }
    )


def test_a_default_that_is_no_json_is_left_out():
    marker = object()

    def look(x: Any = marker) -> None: ...

    assert schema(look)["properties"] == {"x": {}}


def test_a_recursive_model_has_an_object_at_its_top():
    def plant(tree: Node) -> None: ...

    made = schema(plant)
    assert made["type"] == "object"
    assert made["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


def test_a_model_as_first_of_two_parameters_stays_nested():
    def place(order: Order, urgent: bool = False) -> None: ...

    assert set(schema(place)["properties"]) == {"order", "urgent"}


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (functools.partial(temperature), {"city"}),
        (functools.partial(lambda key, city: city, key="secret"), {"city"}),
        (functools.partial(lambda key, city: city, "secret"), {"city"}),
    ],
)
def test_what_a_partial_has_fixed_is_not_offered(function: Callable[..., Any], expected: set[str]):
    assert set(schema(function, name="tool")["properties"]) == expected


async def test_every_kind_of_callable_can_be_called(call: Callable[..., Any]):
    class Service:
        def __init__(self, name: str) -> None:
            self.name = name

        def greet(self, who: str) -> str:
            return f"{self.name} greets {who}"

        async def wave(self, ctx: RunContext[Any], who: str) -> str:
            return f"{self.name} waves to {who} of {ctx.model.model_name}"

        @classmethod
        def kind(cls) -> str:
            return cls.__name__

        @staticmethod
        def double(n: int) -> int:
            return n * 2

        def __call__(self, n: int) -> int:
            """Count."""
            return n + 1

    service = Service("Ada")
    toolset = FunctionToolset[Any]([service.greet, service.wave, Service.kind, service.double])
    toolset.add_function(service, name="count")
    toolset.add_function(functools.partial(service.greet, "Bo"), name="fixed")
    toolset.add_function(lambda ctx, x: (ctx.run_step, x), name="bare", takes_ctx=True)
    assert await call(toolset, "greet", '{"who": "Bo"}') == "Ada greets Bo"
    assert await call(toolset, "wave", '{"who": "Bo"}') == "Ada waves to Bo of some-model"
    assert await call(toolset, "kind") == "Service"
    assert await call(toolset, "double", {"n": 2}) == 4
    assert await call(toolset, "count", {"n": 2}) == 3
    assert await call(toolset, "fixed") == "Ada greets Bo"
    assert await call(toolset, "bare", {"x": 1}) == (0, 1)
    assert toolset.tools["count"].description == "Count."


async def test_every_kind_of_parameter_arrives_where_it_belongs(call: Callable[..., Any]):
    toolset = FunctionToolset[Any]()

    @toolset.tool
    def spread(a: int, /, b: int, *rest: float, c: int = 4, **more: str) -> Any:
        return a, b, rest, c, more

    @toolset.tool
    def unpacked(n: int, **extras: Unpack[Extras]) -> Any:
        return n, extras

    assert await call(toolset, "spread", {"a": 1, "b": 2, "rest": [1, 2.5], "z": "q"}) == (
        1,
        2,
        (1.0, 2.5),
        4,
        {"z": "q"},
    )
    assert await call(toolset, "spread", {"a": 1, "b": 2}) == (1, 2, (), 4, {})
    assert await call(toolset, "unpacked", {"n": 1, "key": 2}) == (1, {"key": 2})
    assert schema(unpacked)["required"] == ["n", "key"]
    assert schema(spread)["additionalProperties"] == {"type": "string"}


@pytest.mark.parametrize("kind", [Order, Point, Extras])
async def test_a_single_model_gives_its_fields_as_the_arguments(kind: type, call: Callable[..., Any]):
    toolset = FunctionToolset[Any]()

    async def take(value: Any) -> Any:
        return value

    take.__annotations__["value"] = kind
    toolset.add_function(take)
    raw = {Order: {"title": "t"}, Point: {"x": 1}, Extras: {"key": 1}}[kind]
    value = await call(toolset, "take", raw)
    assert value == {Order: Order(title="t"), Point: Point(x=1), Extras: {"key": 1}}[kind]
    assert "value" not in schema(take)["properties"]


def test_the_docstring_of_a_single_model_describes_the_tool_that_has_none():
    def place(order: Order) -> None: ...

    assert Tool(place).description == "An order."


def test_types_that_only_the_enclosing_function_knows_are_found():
    """With postponed annotations they are plain text; the function that defines them is still running."""

    class Local(BaseModel):
        n: int

    def use(local: Local, day: datetime.date) -> None: ...

    assert schema(use)["properties"]["local"] == {"$ref": "#/$defs/Local"}


def test_a_decorated_function_is_read_through_its_wrapper():
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @logged
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    assert Tool(add).name == "add"
    assert Tool(add).description == "Add."
    assert set(schema(add)["properties"]) == {"a", "b"}


def test_plain_functions_are_registered_before_their_schema_is_made():
    """Building a schema is most of the cost of a tool; types that cannot fail can wait until a run needs them."""
    assert "arguments" not in Tool(temperature).function_schema.__dict__

    def place(order: Order) -> None: ...

    assert "arguments" in Tool(place).function_schema.__dict__


def test_a_definition_shows_only_what_differs_from_the_defaults():
    assert repr(Tool(temperature, description="Get it").tool_def) == snapshot(
        "ToolDefinition(name='temperature', parameters_json_schema={'additionalProperties': False, 'properties': "
        "{'city': {'type': 'string'}}, 'required': ['city'], 'type': 'object'}, description='Get it')"
    )
