"""Hostile callers, models and tools on the real server: each ends somewhere, and no workflow task fails.

The host looks at every history when a test is over: that nothing hung or failed there is part of each test.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, Field
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WithStartWorkflowOperation, WorkflowUpdateFailedError
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Worker

from outlast import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    FatalToolError,
    FunctionModel,
    FunctionToolset,
    ModelResponse,
    ModelRetry,
    RunContext,
    ScriptedModel,
    TextPart,
    ToolCallPart,
    Usage,
    UserError,
)
from outlast.payloads import to_raw
from outlast.plugin import OutlastPlugin
from outlast.settings import Settings
from outlast.testing import call
from tests.asking import PATIENCE
from tests.integration.conftest import Host, parts

HALF_AN_EMOJI = "\ud83d"


def paying(*responses: Any, **options: Any) -> Agent[Any, Any]:
    """An agent with a tool that needs an approval."""
    agent = Agent(ScriptedModel([*responses, "Done.", "Done."]), name="support", **options)

    @agent.tool_plain(requires_approval=True)
    def pay(amount: Any = 1) -> str:
        return f"paid {amount}"

    return agent


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# --- callers -----------------------------------------------------------------------------------------------------


async def test_an_input_made_to_choke_a_workflow_task_fails_the_run_in_a_few_words(host: Host) -> None:
    many = b"1," * 250_000 + b"1"
    message = b'{"kind": "request", "parts": [%s]}' % many
    await host.serve(paying())
    for fields, says in (
        (b'"agent": "%s"' % (b"a" * 1_100), "at most 200 characters"),
        (b'"prompt": [%s]' % many, "`prompt.str`"),
        (b'"message_history": [%s]' % many, "`message_history.0`"),
        (b'"message_history": [%s]' % message, "`0.request.parts.0"),
        (b",".join(b'"field_%d": 1' % i for i in range(60_000)), "60,000 mistakes"),
        (b",".join(b'"field_%d": 1' % i for i in range(500)), "and 490 more mistakes"),
        (b'"%s": 1' % (b"k" * 1_500_000), "kkk…"),
        (b'"deps": %s1%s' % (b"[" * 150, b"]" * 150), "deeper than 100 levels"),
        (b'"deps": %s1%s' % (b"[" * 10_000, b"]" * 10_000), "not JSON"),
        (b'"metadata": {"x": 1e400}', "too large"),
        (b'"deps": %s' % (b"9" * 5_000), "not JSON"),
        (b'"prompt": "\\ud83d"', "not JSON"),
    ):
        data = b'{"agent": "support", "prompt": "Go.", %s}' % fields
        error = await host.failure(await host.start_with(to_raw(data)))
        assert error.type == "InvalidInput"
        assert says in error.message
        assert len(error.message) < 5_000


async def test_an_update_that_comes_with_an_invalid_start_is_refused_and_the_run_fails(host: Host) -> None:
    await host.serve(paying())
    for name, argument in (("steer", {"content": "Hurry."}), ("pause", {}), ("approve", {})):
        start = WithStartWorkflowOperation(
            "AgentRun",
            {"agnt": "support"},
            id=f"run-{uuid.uuid4().hex[:8]}",
            task_queue=host.task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        )
        with pytest.raises(WorkflowUpdateFailedError), anyio.fail_after(PATIENCE):
            await host.client.execute_update_with_start_workflow(name, argument, start_workflow_operation=start)
        run = await start.workflow_handle()
        host.runs.append(run)
        assert (await host.failure(run)).type == "InvalidInput"


async def test_a_message_made_to_choke_a_workflow_task_is_refused_and_the_call_waits(host: Host) -> None:
    await host.serve(paying([call("pay", "a")]))
    run = await host.start("support")
    await host.pending(run)
    messages = [
        ("resolve", b'{"tool_call_id": "a", "result": 1e400}'),
        ("resolve", b'{"tool_call_id": "a", "result": %s1%s}' % (b"[" * 150, b"]" * 150)),
        ("approve", b'{"tool_call_id": "a", "override_args": {"amount": 1e400}}'),
        ("approve", b'{"tool_call_id": "a", "by": "%s"}' % (b"b" * 1_500_000)),
        ("steer", b'{"content": [%s1]}' % (b"1," * 250_000)),
    ]
    for name, message in messages:
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await run.execute_update(name, to_raw(message))
        assert caught.value.cause.type == "InvalidDecision"  # type: ignore[union-attr]
        await run.signal(name, to_raw(message))
    status = await host.until(run, lambda status: len(status.get("rejected", [])) == len(messages))
    assert max(len(one["message"]) for one in status["rejected"]) < 5_000
    assert len(status["pending"]) == 1
    await run.signal("deny", {"tool_call_id": "a"})
    await host.result(run)


async def test_a_steering_update_that_is_too_large_is_refused(host: Host) -> None:
    await host.serve(paying([call("pay", "a")]))
    run = await host.start("support")
    await host.pending(run)
    with pytest.raises(WorkflowUpdateFailedError, match="update failed") as caught:
        await run.execute_update("steer", {"content": "x" * 1_500_000})
    assert "at most" in str(caught.value.cause)
    await run.signal("deny", {"tool_call_id": "a"})
    await host.result(run)


async def test_what_a_run_shows_of_itself_always_fits_into_an_answer(host: Host) -> None:
    """Metadata beside each of many calls, and long reasons: a query failed, and an update hung the run."""
    await host.serve(paying([call("pay", name) for name in "abcd"]))
    run = await host.start("support", metadata={"requester": "ana", "notes": "x" * 800_000})
    waiting = await host.pending(run, 4)
    assert [one["args"] for one in waiting] == [{"amount": 1}] * 4
    assert "omitted" in waiting[0]["metadata"]
    for name in "ab":
        await run.signal("approve", {"tool_call_id": name, "reason": "y" * 1_500_000})
    paused = await run.execute_update("pause", {"by": "ana"})
    assert (paused["paused"], paused["paused_by"]) == (True, "ana")
    await run.execute_update("resume", {})
    for name in "cd":
        await run.signal("deny", {"tool_call_id": name})
    await host.result(run)
    assert len((await run.query("status"))["decisions"]) == 4


async def test_calls_of_more_tools_than_a_search_attribute_can_name_wait(host: Host) -> None:
    agent = Agent(ScriptedModel([[call(f"tool_{i}_{'n' * 100}", f"c{i}") for i in range(60)], "Done."]), name="support")
    for i in range(60):
        agent.tool_plain(_nothing, name=f"tool_{i}_{'n' * 100}", requires_approval=True)  # type: ignore[call-overload]
    await host.serve(agent)
    run = await host.start("support")
    await host.pending(run, 60)
    for i in range(60):
        await run.signal("deny", {"tool_call_id": f"c{i}"})
    await host.result(run)


async def test_the_commands_on_a_runs_page_can_be_copied_whatever_its_id(host: Host) -> None:
    await host.serve(paying([call("pay", "a")]))
    run_id = f"it's; rm -rf ~ {uuid.uuid4().hex[:8]}"
    run = await host.client.start_workflow(
        "AgentRun", {"agent": "support", "prompt": "Go."}, id=run_id, task_queue=host.task_queue
    )
    host.runs.append(run)
    await host.pending(run)
    page = (await run.query("__temporal_workflow_metadata")).current_details
    assert f"""--name approve \\\n  --workflow-id 'it'"'"'s; rm -rf ~ {run_id[-8:]}' \\\n""" in page
    await run.signal("deny", {"tool_call_id": "a"})
    await host.result(run)


async def test_a_step_with_very_many_calls_fails_no_workflow_task(host: Host) -> None:
    """The server fails a workflow task during which more than 100 events arrive; so not all calls start at once."""
    agent = Agent(ScriptedModel([[call("look", f"c{i}", amount=i) for i in range(120)], "Done."]), name="support")

    @agent.tool_plain
    async def look(amount: int) -> int:
        return amount

    await host.serve(agent)
    run = await host.start("support", usage_limits={"requests": 2})
    await host.result(run)
    assert [part["content"] for part in parts(await host.messages(run), "tool-return")] == list(range(120))


async def test_of_an_approval_and_a_denial_at_once_exactly_one_stands(host: Host) -> None:
    ids = [f"c{i}" for i in range(8)]
    await host.serve(paying([call("pay", call_id) for call_id in [*ids, "last"]]))
    run = await host.start("support")
    await host.pending(run, len(ids) + 1)
    refused: list[str] = []

    async def decide(name: str, call_id: str) -> None:
        try:
            await run.execute_update(name, {"tool_call_id": call_id})
        except WorkflowUpdateFailedError as error:
            refused.append(error.cause.type)  # type: ignore[union-attr]

    async with asyncio.TaskGroup() as group:
        for call_id in ids:
            group.create_task(decide("approve", call_id))
            group.create_task(decide("deny", call_id))
            group.create_task(run.signal("pause"))
            group.create_task(run.signal("resume"))
    await run.signal("resume")
    await run.signal("deny", {"tool_call_id": "last"})
    await host.result(run)
    assert refused == ["AlreadyDecided"] * len(ids)
    outcomes = [part.get("outcome", "success") for part in parts(await host.messages(run), "tool-return")]
    decisions = [record["decision"] for record in (await run.query("status"))["decisions"]]
    assert sorted(outcomes) == sorted({"approve": "success", "deny": "denied"}[one] for one in decisions)


# --- models ------------------------------------------------------------------------------------------------------


async def test_arguments_that_no_history_can_hold_are_told_to_the_model(host: Host) -> None:
    hostile: list[Any] = [
        f'{{"amount": {"[" * 150}1{"]" * 150}}}',
        {"amount": nested(150)},
        {"amount": nested(300)},
        '{"amount": ' + "[" * 10_000,
        '{"amount": 1e400}',
        {"amount": float("inf")},
        {"amount": HALF_AN_EMOJI},
        f'{{"amount": "{HALF_AN_EMOJI}"}}',
        f'{{"amount": {"9" * 5_000}}}',
        '{"amount": 1}}',
    ]
    calls = [ToolCallPart(tool_name="pay", args=args, tool_call_id=f"c{i}") for i, args in enumerate(hostile)]
    await host.serve(paying(calls))
    run = await host.start("support")
    assert (await host.result(run))["output"] == "Done."
    told = [part["tool_call_id"] for part in parts(await host.messages(run), "retry-prompt")]
    assert told == [part.tool_call_id for part in calls]


async def test_an_answer_that_no_history_can_hold_fails_the_run_and_is_paid_for_once(host: Host) -> None:
    hostile = [
        ModelResponse(parts=[TextPart(content=HALF_AN_EMOJI)]),
        ModelResponse(parts=[TextPart.model_construct(content=None)]),
        ModelResponse(parts=[TextPart(content="Hi.")], usage=Usage.model_construct(input_tokens="many")),
    ]
    asked: list[str] = []

    def answer(messages: Any, info: Any) -> ModelResponse:
        which = messages[0].parts[0].content
        asked.append(which)
        return hostile[int(which)]

    await host.serve(Agent(FunctionModel(answer), name="support"))
    for which in range(len(hostile)):
        error = await host.failure(await host.start("support", str(which)))
        assert error.type == "UnexpectedModelBehavior"
    assert asked == ["0", "1", "2"]


# --- tools -------------------------------------------------------------------------------------------------------


class _Final(BaseException):
    pass


class _NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def test_whatever_a_tool_raises_is_told_to_the_model(host: Host) -> None:
    hostile: list[tuple[BaseException, str]] = [
        (asyncio.CancelledError(), "cancelled by its own code"),
        (BaseExceptionGroup("group", [asyncio.CancelledError()]), "cancelled by its own code"),
        (_Final("over"), "_Final: over"),
        (_NoText(), "_NoText: no message"),
        (ValueError(), "ValueError: no message"),
        (ValueError(HALF_AN_EMOJI), "ValueError: ?"),
        (FatalToolError(ValueError("gone")), "FatalToolError: gone"),  # type: ignore[arg-type]
        (ModelRetry(404), "404"),  # type: ignore[arg-type]
        (ModelRetry(HALF_AN_EMOJI), "?"),
        (ModelRetry("x" * 3_000_000), "3,000,"),
    ]
    calls = [call(name, which=which) for name in ("work", "work_in_a_thread") for which in range(len(hostile))]
    agent = Agent(ScriptedModel([calls, "Done."]), name="support", attempts=1)

    @agent.tool_plain
    async def work(which: int) -> None:
        raise hostile[which][0]

    @agent.tool_plain
    def work_in_a_thread(which: int) -> None:
        raise hostile[which][0]

    await host.serve(agent)
    run = await host.start("support")
    assert (await host.result(run))["output"] == "Done."
    [told] = [message["parts"] for message in (await host.messages(run))[1:] if message["kind"] == "request"]
    for part, (_, says) in zip(told, [*hostile, *hostile], strict=True):
        assert says in part["content"]


async def test_a_call_waits_whatever_metadata_its_tool_gives(host: Host) -> None:
    hostile: list[Any] = [{"x": object()}, {"x": HALF_AN_EMOJI}, {"x": nested(300)}, {"x": "y" * 3_000_000}, "text"]
    calls = [call(name, which=which) for name in ("approved", "deferred") for which in range(len(hostile))]
    agent = Agent(ScriptedModel([calls, "Done."]), name="support")

    @agent.tool_plain
    def approved(which: int) -> None:
        raise ApprovalRequired(hostile[which])

    @agent.tool_plain
    def deferred(which: int) -> None:
        raise CallDeferred(hostile[which])

    await host.serve(agent)
    run = await host.start("support")
    for waiting in await host.pending(run, len(calls)):
        assert list(waiting["metadata"]) == ["omitted"]
        await run.signal("resolve", {"tool_call_id": waiting["tool_call_id"], "result": "ok"})
    await host.result(run)


async def test_a_result_that_can_be_written_but_not_read_again_is_told_to_the_model(host: Host) -> None:
    hostile: list[Any] = [nested(150), nested(220), 10**5_000]
    agent = Agent(ScriptedModel([[call("work", which=which) for which in range(3)], "Done."]), name="support")
    made: list[int] = []

    @agent.tool_plain
    def work(which: int) -> Any:
        made.append(which)
        return hostile[which]

    await host.serve(agent)
    run = await host.start("support")
    await host.result(run)
    told = parts(await host.messages(run), "tool-return")
    assert [part["content"].startswith("UnserialisableResult: The tool ran") for part in told] == [True] * 3
    assert sorted(made) == [0, 1, 2]


class _Deps(BaseModel):
    items: list[Any] = []
    user_id: int = Field(default=0, alias="userId")


async def test_deps_that_cannot_be_carried_back_are_told_and_the_tool_is_not_repeated(host: Host) -> None:
    hostile: list[Any] = [object(), HALF_AN_EMOJI, nested(150)]
    calls = [call("work", which=which) for which in range(3)]
    agent = Agent(ScriptedModel([calls, "Done."]), name="support", deps_type=_Deps)
    made: list[int] = []

    @agent.tool(repeatable=False)
    def work(ctx: RunContext[_Deps], which: int) -> str:
        made.append(which)
        ctx.deps.items.append(hostile[which])
        return "ok"

    await host.serve(agent)
    run = await host.start("support", deps={})
    await host.result(run)
    told = parts(await host.messages(run), "tool-return")
    assert [part["content"].startswith("InvalidDeps: The tool ran, but its deps ") for part in told] == [True] * 3
    assert sorted(made) == [0, 1, 2]


async def test_changes_of_deps_with_aliases_and_of_plain_deps_reach_the_next_step(host: Host) -> None:
    aliased = Agent(ScriptedModel([[call("work")], [call("work")], "Done."]), name="aliased", deps_type=_Deps)
    plain = Agent(ScriptedModel([[call("work")], [call("work")], "Done."]), name="plain")
    listed = Agent(ScriptedModel([[call("work")], "Done."]), name="listed", deps_type=list[int])

    @aliased.tool(name="work")
    def count(ctx: RunContext[_Deps]) -> int:
        ctx.deps.user_id += 1
        return ctx.deps.user_id

    @plain.tool(name="work")
    def count_plain(ctx: RunContext[Any]) -> int:
        ctx.deps["n"] += 1
        return ctx.deps["n"]

    @listed.tool(name="work")
    def append(ctx: RunContext[list[int]]) -> None:
        ctx.deps.append(1)

    await host.serve(aliased, plain, listed)
    told: dict[str, Any] = {}
    for agent, deps in (("aliased", {"userId": 5}), ("plain", {"n": 5}), ("listed", [])):
        run = await host.start(agent, deps=deps)
        await host.result(run)
        told[agent] = [part["content"] for part in parts(await host.messages(run), "tool-return")]
    assert told["aliased"] == [6, 7]
    assert told["plain"] == [6, 7]
    assert "cannot be carried back" in told["listed"][0]


async def test_a_call_whose_arguments_and_deps_are_too_large_together_is_told_and_not_made(host: Host) -> None:
    """It was waited for, for ever."""
    eaten: list[int] = []
    agent = Agent(
        ScriptedModel([[call("grow"), call("eat", text="x" * 500_000)], "Done."]), name="support", deps_type=_Deps
    )

    @agent.tool(sequential=True)
    def grow(ctx: RunContext[_Deps]) -> None:
        ctx.deps.items.append("y" * 1_700_000)

    @agent.tool_plain(sequential=True, repeatable=False)
    def eat(text: str) -> None:
        eaten.append(len(text))

    await host.serve(agent)
    run = await host.start("support", deps={})
    await host.result(run)
    told = {part["tool_name"]: part for part in parts(await host.messages(run), "tool-return")}
    assert told["eat"]["content"].startswith("ArgumentsTooLarge: The call was not made")
    assert eaten == []


async def test_a_tool_that_changes_its_context_in_place_changes_nothing_for_the_run(host: Host) -> None:
    """The worker's cache holds the same objects for the next step."""
    seen: list[list[str]] = []

    def answer(messages: Any, info: Any) -> ModelResponse:
        seen.append([str(part) for message in messages for part in message.parts])
        return ModelResponse(parts=[call("work") if len(seen) < 3 else TextPart(content="Done.")])

    agent = Agent(FunctionModel(answer), name="support")

    @agent.tool
    def work(ctx: RunContext[Any]) -> Any:
        found = [len(ctx.messages[0].parts), dict(ctx.metadata), list(ctx.prompt or ())]
        ctx.messages[0].parts.clear()
        ctx.messages.clear()
        ctx.metadata.clear()
        assert isinstance(ctx.prompt, list)
        ctx.prompt.clear()
        ctx.usage_limits.requests = 1
        return found

    await host.serve(agent)
    run = await host.start("support", ["Go."], metadata={"a": 1})
    await host.result(run)
    assert [part["content"] for part in parts(await host.messages(run), "tool-return")] == [[1, {"a": 1}, ["Go."]]] * 2
    assert [one[0] for one in seen] == [seen[0][0]] * 3
    assert "Go." in seen[0][0]


async def test_a_call_that_could_not_begin_is_made_again_also_where_it_must_not_be_repeated(host: Host) -> None:
    """Nothing happened: nobody is asked whether it took effect."""
    agent = Agent(ScriptedModel([[call("pay", "a")], "Done."]), name="support")
    listed: list[int] = []
    made: list[int] = []

    def pay() -> str:
        made.append(1)
        return "paid"

    @agent.toolset
    def shop(ctx: RunContext[Any]) -> FunctionToolset[Any]:
        listed.append(1)
        if len(listed) == 2:
            raise ConnectionError("the list of tools did not come: token=abcdefgh12345")
        toolset: FunctionToolset[Any] = FunctionToolset()
        toolset.add_function(pay, repeatable=False, backoff=0.01)
        return toolset

    await host.serve(agent, settings={"conversation_cache_mb": 0})
    run = await host.start("support")
    await host.result(run)
    [told] = parts(await host.messages(run), "tool-return")
    assert told["content"] == "paid"
    assert len(made) == 1
    assert "abcdefgh12345" not in (await run.fetch_history()).to_json()


# --- deploys, plugins, resets ------------------------------------------------------------------------------------


async def test_a_tool_that_was_renamed_while_its_call_waited_is_told_to_the_model(host: Host) -> None:
    async with host.serving(paying([call("pay", "a")])):
        run = await host.start("support")
        await host.pending(run)
    agent = Agent(ScriptedModel(["", "Done."]), name="support")
    agent.tool_plain(_nothing, name="pay_now")  # type: ignore[call-overload]
    await host.serve(agent)
    await run.signal("approve", {"tool_call_id": "a"})
    await host.result(run)
    [told] = parts(await host.messages(run), "retry-prompt")
    assert "Available tools: 'pay_now'" in told["content"]


async def test_a_reset_run_ends_again_and_its_calls_keep_their_keys(host: Host) -> None:
    keys: list[str | None] = []
    agent = Agent(ScriptedModel([[call("work", "a")], [call("work", "b")], "Done."]), name="support")

    @agent.tool
    def work(ctx: RunContext[Any]) -> None:
        keys.append(ctx.idempotency_key)

    await host.serve(agent)
    # Not among the runs of the host: a reset is written down as a failed workflow task.
    run = await host.client.start_workflow(
        "AgentRun",
        {"agent": "support", "prompt": "Go."},
        id=f"run-{uuid.uuid4().hex[:8]}",
        task_queue=host.task_queue,
    )
    await host.result(run)
    tasks = [
        event.event_id
        for event in (await run.fetch_history()).events
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    ]
    for event_id in tasks[:3]:
        reset = await host.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=host.client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=run.id, run_id=run.result_run_id or ""),
                reason="test",
                workflow_task_finish_event_id=event_id,
                request_id=uuid.uuid4().hex,
            )
        )
        again = host.client.get_workflow_handle(run.id, run_id=reset.run_id)
        assert (await host.result(again))["output"] == "Done."
    assert len(keys) > 2
    assert len(set(keys)) == 2


async def test_a_worker_takes_one_plugin_with_agents_beside_that_of_its_client(host: Host, client: Client) -> None:
    address = client.service_client.config.target_host
    with_plugin = await Client.connect(address, plugins=[OutlastPlugin()])
    with pytest.warns(UserWarning, match="present from both client and worker"):
        await host.serve(paying([call("pay", "a")]), client=with_plugin)
    run = await host.start("support")
    await host.pending(run)
    await run.signal("approve", {"tool_call_id": "a"})
    await host.result(run)
    plugins = [OutlastPlugin(agents=[Agent("test", name=name)]) for name in ("one", "two")]
    with pytest.raises(UserError, match="give all agents to one"):
        Worker(client, task_queue=host.task_queue, plugins=plugins)
    with pytest.raises(UserError, match="at most 200 characters"):
        OutlastPlugin(agents=[Agent("test", name="n" * 300)])


async def test_one_plugin_on_two_workers_makes_resources_for_each(host: Host, client: Client) -> None:
    made: list[str] = []

    @asynccontextmanager
    async def resources() -> AsyncGenerator[str]:
        made.append(f"resource {len(made)}")
        yield made[-1]

    agent = Agent(ScriptedModel([[call("look")], "Done."]), name="support")

    @agent.tool
    def look(ctx: RunContext[Any]) -> Any:
        return ctx.resources

    settings = Settings.model_validate({"shutdown_grace": 1})
    plugin = OutlastPlugin(agents=[agent], resources=resources, settings=settings)
    queues = [host.task_queue, f"{host.task_queue}-other"]
    workers = [Worker(client, task_queue=queue, plugins=[plugin]) for queue in queues]
    looked: list[Any] = []
    async with workers[0], workers[1]:
        for queue in queues:
            run = await client.start_workflow(
                "AgentRun", {"agent": "support", "prompt": "Go."}, id=f"run-{uuid.uuid4().hex[:8]}", task_queue=queue
            )
            host.runs.append(run)
            await host.result(run)
            looked += [part["content"] for part in parts(await host.messages(run), "tool-return")]
    assert sorted(looked) == ["resource 0", "resource 1"]


def _nothing() -> None:
    """Does nothing."""
