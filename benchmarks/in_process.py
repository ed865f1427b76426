"""What outlast's tools cost without a server."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.figures import Figure, Target
from benchmarks.sizes import Sizes
from outlast import CombinedToolset, FunctionToolset, RunContext, TestModel, Tool, Usage


def ctx() -> RunContext[Any]:
    """The context of some call."""
    return RunContext(deps=None, model=TestModel(), usage=Usage())


async def look(page: int, query: str = "all") -> str:
    """Look something up.

    Args:
        page: Which page.
        query: What to look for.
    """
    return query


def combined(count: int) -> CombinedToolset[Any]:
    """Combined(Prefixed(Function)) with some tools."""
    functions: FunctionToolset[Any] = FunctionToolset()
    for number in range(count):
        functions.add_function(look, name=f"look_{number}")
    return CombinedToolset([functions.prefixed("shop")])


async def in_microseconds(sizes: Sizes, work: Callable[[], Awaitable[Any]], loops: int) -> list[float]:
    """Samples of what one round takes, after some that warm up."""
    samples: list[float] = []
    for sample in range(-1, sizes.samples):
        began = time.perf_counter()
        for _ in range(loops):
            await work()
        if sample >= 0:
            samples.append((time.perf_counter() - began) * 1e6 / loops)
    return samples


async def calling(sizes: Sizes) -> list[Figure]:
    """Validate arguments and call."""
    toolset, context = combined(1), ctx()
    tools = await toolset.get_tools(context)
    tool = tools["shop_look_0"]
    args: dict[str, Any] = {"page": 1, "query": "headphones"}

    async def work() -> None:
        await toolset.call_tool("shop_look_0", tool.args_validator.validate_python(args), context, tool)

    what = "validate and call through Combined(Prefixed(Function))"
    samples = await in_microseconds(sizes, work, sizes.loops)
    return [Figure(what=what, unit="µs", ours=samples, target=Target(limit=8, ratio=False))]


async def listing(sizes: Sizes) -> list[Figure]:
    """List the tools of a step."""
    toolset, context = combined(50), ctx()

    async def work() -> None:
        await toolset.get_tools(context)

    samples = await in_microseconds(sizes, work, max(1, sizes.loops // 20))
    return [Figure(what="get_tools of 50 tools", unit="µs", ours=samples, target=Target(limit=150, ratio=False))]


async def registering(sizes: Sizes) -> list[Figure]:
    """Make a tool of a function."""

    async def work() -> None:
        def search(query: str, pages: list[int], limit: int = 10, exact: bool = False, order: str = "newest") -> str:
            """Search the shop.

            Args:
                query: What to look for.
                pages: Which pages to look at.
                limit: Most results.
                exact: Whether the words must be as given.
                order: How to sort.
            """
            return query

        Tool(search)

    samples = await in_microseconds(sizes, work, max(1, sizes.loops // 50))
    what = "register a tool of 5 parameters with a docstring"
    return [Figure(what=what, unit="µs", ours=samples, target=Target(limit=650, ratio=False))]
