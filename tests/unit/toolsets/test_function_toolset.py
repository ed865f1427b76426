"""How functions run."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from outlast.errors import ApprovalRequired, CallDeferred, ModelRetry
from outlast.toolsets import FunctionToolset, RunContext, Tool

TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("TENANT")


async def test_tools_are_registered_in_every_way(ctx: RunContext[Any]):
    def given() -> int:
        return 1

    toolset = FunctionToolset[Any]([given, Tool(lambda: 1, name="made")])

    @toolset.tool
    def bare() -> int:
        return 1

    @toolset.tool(name="named", timeout=3)
    def other(ctx: RunContext[Any]) -> int:
        return 1

    toolset.add_tool(Tool(given, name="added"))
    assert list(await toolset.get_tools(ctx)) == ["given", "made", "bare", "named", "added"]
    assert other(ctx) == 1


async def test_a_tool_that_is_added_during_a_run_is_offered_in_the_next_step(
    ctx: RunContext[Any], call: Callable[..., Any]
):
    toolset = FunctionToolset[Any]()

    @toolset.tool
    def learn() -> None:
        toolset.add_function(lambda: "learnt", name="new")

    await call(toolset, "learn")
    assert await call(toolset, "new") == "learnt"


async def test_a_sync_function_runs_in_a_thread_with_the_callers_context(call: Callable[..., Any]):
    toolset = FunctionToolset[Any]([])
    toolset.add_function(lambda: (threading.current_thread(), TENANT.get()), name="where")
    TENANT.set("acme")
    thread, tenant = await call(toolset, "where")
    assert thread is not threading.current_thread()
    assert tenant == "acme"


@pytest.mark.parametrize(
    "error", [CallDeferred({"a": 1}), ApprovalRequired({"b": 2}), ModelRetry("again"), KeyError(1)]
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_what_a_tool_raises_arrives_as_it_was(error: BaseException, is_async: bool, call: Callable[..., Any]):
    """The two that hold a call are no `Exception`, which threads and tools themselves like to swallow."""

    def fail() -> None:
        try:
            raise error
        except Exception:
            if isinstance(error, CallDeferred | ApprovalRequired):
                return
            raise

    async def fail_async() -> None:
        fail()

    toolset = FunctionToolset[Any]()
    toolset.add_function(fail_async if is_async else fail, name="fail")
    with pytest.raises(type(error)) as caught:
        await call(toolset, "fail")
    assert caught.value is error


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_tool_that_exits_does_not_end_the_worker(is_async: bool, call: Callable[..., Any]):
    async def leave() -> None:
        sys.exit(3)

    toolset = FunctionToolset[Any]()
    toolset.add_function(leave if is_async else lambda: sys.exit(3), name="leave")
    with pytest.raises(RuntimeError, match=r"sys\.exit\(3\)"):
        await call(toolset, "leave")


async def test_a_stop_iteration_from_a_thread_does_not_hang_the_call(call: Callable[..., Any]):
    toolset = FunctionToolset[Any]()
    toolset.add_function(lambda: next(iter(())), name="empty")
    with anyio.fail_after(5), pytest.raises(RuntimeError):
        await call(toolset, "empty")


async def test_a_sync_function_that_gives_something_to_await_is_awaited(call: Callable[..., Any]):
    async def fetch(x: int) -> int:
        return x

    toolset = FunctionToolset[Any]()
    toolset.add_function(lambda x: fetch(x), name="fetch")
    assert await call(toolset, "fetch", {"x": 1}) == 1


async def test_more_sync_calls_run_at_once_than_anyio_has_threads_by_default(call: Callable[..., Any]):
    """With the common limit of 40, call 41 would spend its timeout waiting for a thread."""
    count = 60
    barrier = threading.Barrier(count, timeout=20)
    toolset = FunctionToolset[Any]()
    toolset.add_function(lambda: barrier.wait(), name="meet")
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(call, toolset, "meet")


async def test_a_cancelled_call_does_not_wait_for_its_thread(call: Callable[..., Any]):
    release = threading.Event()
    toolset = FunctionToolset[Any]()
    toolset.add_function(lambda: release.wait(20), name="stuck")
    try:
        with anyio.move_on_after(0.05) as scope:
            await call(toolset, "stuck")
        assert scope.cancelled_caught
    finally:
        release.set()
