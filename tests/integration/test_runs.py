"""Runs on the real server, started and decided as any program would: by names and dicts."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import CancelledError

from outlast import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    FunctionModel,
    ModelResponse,
    RunContext,
    ScriptedModel,
    TextPart,
    ToolDefinition,
)
from outlast.testing import call
from outlast.toolsets.external import ExternalToolset
from tests.histories import activities_scheduled
from tests.integration.conftest import Host, parts


def refunding(*responses: Any) -> Agent[Any, Any]:
    """An agent with one tool that needs an approval, and one that does not."""
    agent = Agent(ScriptedModel([*responses, "Done."]), name="support")

    @agent.tool_plain(requires_approval=True)
    def refund(order_id: int, cents: int = 100) -> str:
        return f"refunded {cents} of {order_id}"

    @agent.tool_plain
    def find(order_id: int) -> str:
        return f"order {order_id}"

    return agent


async def test_a_run_takes_a_dict_and_gives_a_dict(host: Host) -> None:
    await host.serve(refunding([call("find", order_id=1)]))
    result = await host.run("support", "Where is order 1?")
    assert result["output"] == "Done."
    assert result["steps"] == 2
    assert result["messages"] == 4
    assert result["usage"]["requests"] == 2
    assert result["usage"]["tool_calls"] == 1


async def test_a_denied_call_schedules_no_activity(host: Host) -> None:
    """Denied means never executed, provably from history."""
    await host.serve(refunding([call("refund", order_id=1)]))
    run = await host.start("support")
    [waiting] = await host.pending(run)
    assert waiting["args"] == {"order_id": 1, "cents": 100}
    await run.signal("deny", {"tool_call_id": waiting["tool_call_id"], "message": "Not today.", "by": "ana"})
    await host.result(run)
    assert activities_scheduled(await run.fetch_history(), "tool:refund") == []
    [told] = parts(await host.messages(run), "tool-return")
    assert told["content"] == "Not today."
    assert told["outcome"] == "denied"


async def test_an_approved_call_runs_exactly_once(host: Host) -> None:
    await host.serve(refunding([call("refund", order_id=1)]))
    run = await host.start("support")
    [waiting] = await host.pending(run)
    for _ in range(3):
        await run.signal("approve", {"tool_call_id": waiting["tool_call_id"]})
    await host.result(run)
    assert len(activities_scheduled(await run.fetch_history(), "tool:refund")) == 1
    [told] = parts(await host.messages(run), "tool-return")
    assert told["content"] == "refunded 100 of 1"


async def test_an_approval_starts_its_call_while_a_sibling_still_waits(host: Host) -> None:
    await host.serve(
        refunding([call("refund", "a", order_id=1), call("find", "b", order_id=2), call("refund", "c", order_id=3)])
    )
    run = await host.start("support")
    await host.pending(run, 2)
    await host.until(run, lambda status: status["usage"]["tool_calls"] == 1)
    await run.signal("approve", {"tool_call_id": "c"})
    await host.until(run, lambda status: status["usage"]["tool_calls"] == 2)
    assert [waiting["tool_call_id"] for waiting in await host.pending(run)] == ["a"]
    await run.signal("approve", {"tool_call_id": "a"})
    await host.result(run)
    told = parts(await host.messages(run), "tool-return")
    assert [part["tool_call_id"] for part in told] == ["a", "b", "c"]


async def test_an_approval_may_edit_the_arguments(host: Host) -> None:
    await host.serve(refunding([call("refund", "a", order_id=1)]))
    run = await host.start("support")
    await host.pending(run)
    edited = {"tool_call_id": "a", "override_args": {"order_id": 1, "cents": 5}, "by": "ana", "reason": "too much"}
    answer = await run.execute_update("approve", edited)
    assert answer["state"] == "approved"
    assert answer["decision"]["edited"] is True
    await host.result(run)
    [told] = parts(await host.messages(run), "tool-return")
    assert told["content"] == "refunded 5 of 1"


async def test_an_update_that_cannot_apply_says_why_and_leaves_no_history(host: Host) -> None:
    await host.serve(refunding([call("refund", "a", order_id=1), call("refund", "b", order_id=2)]))
    run = await host.start("support")
    waiting, _ = await host.pending(run, 2)
    before = len((await run.fetch_history()).events)
    for name, payload, expected in (
        ("approve", {"tool_call_id": "c"}, "UnknownCall"),
        ("approve", {"tool_call_id": "a", "digest": "0" * 64}, "DigestMismatch"),
        ("approve", {"tool_call_id": "a", "override_args": {"order_id": "x"}}, "InvalidArguments"),
        ("approve", {"tool_call": "a"}, "InvalidDecision"),
        ("approve", "a", "InvalidDecision"),
    ):
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await run.execute_update(name, payload)
        assert caught.value.cause.type == expected  # type: ignore[union-attr]
    assert len((await run.fetch_history()).events) == before
    await run.execute_update("deny", {"tool_call_id": "a"})
    with pytest.raises(WorkflowUpdateFailedError) as caught:
        await run.execute_update("approve", {"tool_call_id": "a", "digest": waiting["digest"]})
    assert caught.value.cause.type == "AlreadyDecided"  # type: ignore[union-attr]
    await run.execute_update("deny", {"tool_call_id": "b"})
    await host.result(run)


async def test_a_malformed_signal_is_listed_as_rejected(host: Host) -> None:
    """A signal has no answer: it must leave a trace, and never fail a workflow task."""
    await host.serve(refunding([call("refund", "a", order_id=1)]))
    run = await host.start("support")
    await host.pending(run)
    await run.signal("approve", {"tool_call": "a"})
    await run.signal("approve", args=[{"tool_call_id": "a"}, 2])
    await run.signal("approve")
    await run.signal("deny", b"\x00\xff")
    await run.signal("approve", {"tool_call_id": "zzz"})
    status = await host.until(run, lambda status: len(status.get("rejected", [])) == 5)
    assert {one["error"] for one in status["rejected"]} == {"InvalidDecision", "UnknownCall"}
    assert len(status["pending"]) == 1
    await run.signal("deny", {"tool_call_id": "a"})
    await host.result(run)


async def test_edited_arguments_meet_a_hostile_pattern_and_nothing_freezes(host: Host) -> None:
    """A backtracking pattern once froze a whole worker; the check is linear in the text."""
    tool = ToolDefinition(
        name="label",
        parameters_json_schema={"type": "object", "properties": {"text": {"type": "string", "pattern": "^(a+)+$"}}},
        kind="unapproved",
    )

    class Labels(ExternalToolset[Any]):
        async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: Any) -> Any:
            return f"labelled {tool_args['text']}"

    model = ScriptedModel([[call("label", "a", text="aa")], "Done."])
    await host.serve(Agent(model, name="support", toolsets=[Labels([tool]).prepared(_unapproved)]))
    run = await host.start("support")
    [waiting] = await host.pending(run)
    assert waiting["kind"] == "approval"
    with pytest.raises(WorkflowUpdateFailedError) as caught:
        await run.execute_update("approve", {"tool_call_id": "a", "override_args": {"text": "a" * 5_000 + "!"}})
    assert caught.value.cause.type == "InvalidArguments"  # type: ignore[union-attr]
    await run.execute_update("approve", {"tool_call_id": "a", "override_args": {"text": "aaa"}})
    await host.result(run)


def _unapproved(ctx: RunContext[Any], tools: list[ToolDefinition]) -> list[ToolDefinition]:
    for tool in tools:
        tool.kind = "unapproved"
    return tools


async def test_external_and_deferred_calls_wait_for_their_results(host: Host) -> None:
    lookup = ToolDefinition(
        name="lookup", parameters_json_schema={"type": "object", "properties": {"q": {"type": "string"}}}
    )
    agent = Agent(
        ScriptedModel([[call("lookup", "a", q="x"), call("ship", "b")], "Done."]),
        name="support",
        toolsets=[ExternalToolset([lookup])],
    )

    @agent.tool_plain
    def ship() -> str:
        raise CallDeferred(metadata={"carrier": "post"})

    await host.serve(agent)
    run = await host.start("support")
    waiting = await host.pending(run, 2)
    assert {one["tool_call_id"]: one["kind"] for one in waiting} == {"a": "external", "b": "deferred"}
    assert waiting[1]["metadata"] == {"carrier": "post"}
    with pytest.raises(WorkflowUpdateFailedError):
        await run.execute_update("approve", {"tool_call_id": "a"})
    await run.execute_update("resolve", {"tool_call_id": "b", "result": {"parcel": 7}})
    await run.signal("resolve", {"tool_call_id": "a", "result": None})
    await host.result(run)
    assert [part["content"] for part in parts(await host.messages(run), "tool-return")] == [None, {"parcel": 7}]


async def test_a_tool_may_ask_for_an_approval_after_a_look_at_its_arguments(host: Host) -> None:
    """Its own `except Exception` must not swallow the request for an approval."""
    agent = Agent(ScriptedModel([[call("pay", "a", cents=5), call("pay", "b", cents=500)], "Done."]), name="support")

    @agent.tool
    def pay(ctx: RunContext[Any], cents: int) -> str:
        try:
            if cents > 100 and not ctx.tool_call_approved:
                raise ApprovalRequired(metadata={"limit": 100})
        except Exception:
            return "swallowed"
        return f"paid {cents}"

    await host.serve(agent)
    run = await host.start("support")
    [waiting] = await host.pending(run)
    assert waiting["tool_call_id"] == "b"
    assert waiting["metadata"] == {"limit": 100}
    await run.signal("approve", {"tool_call_id": "b"})
    await host.result(run)
    assert [part["content"] for part in parts(await host.messages(run), "tool-return")] == ["paid 5", "paid 500"]


async def test_calls_get_ids_of_their_own_whatever_the_provider_sends(host: Host) -> None:
    """Providers send "2", repeat an ID between steps or within a response, or send none: each once hung a run."""
    agent = refunding(
        [call("find", "2", order_id=1), call("find", "2", order_id=2), call("find", "", order_id=3)],
        [call("find", "2", order_id=4), call("find", "x y", order_id=5)],
    )
    await host.serve(agent)
    run = await host.start("support")
    await host.result(run)
    messages = await host.messages(run)
    calls = [part["tool_call_id"] for part in parts(messages, "tool-call")]
    assert calls == [part["tool_call_id"] for part in parts(messages, "tool-return")]
    assert len(set(calls)) == 5
    assert calls[0] == "2"


async def test_a_decision_for_an_earlier_call_never_hits_a_later_one(host: Host) -> None:
    await host.serve(refunding([call("refund", "same", order_id=1)], [call("refund", "same", order_id=2)]))
    run = await host.start("support")
    await host.pending(run)
    await run.signal("deny", {"tool_call_id": "same"})
    await host.until(run, lambda status: status["step"] == 2 and len(status["pending"]) == 1)
    await run.signal("approve", {"tool_call_id": "same"})
    status = await host.until(run, lambda status: len(status.get("rejected", [])) == 1)
    [waiting] = status["pending"]
    assert waiting["tool_call_id"] != "same"
    await run.signal("deny", {"tool_call_id": waiting["tool_call_id"]})
    await host.result(run)
    assert activities_scheduled(await run.fetch_history(), "tool:refund") == []


async def test_deps_reach_tools_and_changes_reach_the_next_step(host: Host) -> None:
    class Deps(BaseModel):
        user: str
        seen: int = 0

    agent = Agent(ScriptedModel([[call("look")], [call("look")], "Done."]), name="support", deps_type=Deps)

    @agent.tool
    def look(ctx: RunContext[Deps]) -> str:
        ctx.deps.seen += 1
        return f"{ctx.deps.user} {ctx.deps.seen}"

    await host.serve(agent)
    run = await host.start("support", deps={"user": "ana"})
    await host.result(run)
    assert [part["content"] for part in parts(await host.messages(run), "tool-return")] == ["ana 1", "ana 2"]


async def test_overlapping_changes_of_the_same_deps_fail_the_run(host: Host) -> None:
    class Deps(BaseModel):
        seen: int = 0

    agent = Agent(ScriptedModel([[call("look"), call("look")], "Done."]), name="support", deps_type=Deps)

    @agent.tool
    def look(ctx: RunContext[Deps]) -> None:
        ctx.deps.seen += 1

    await host.serve(agent)
    error = await host.failure(await host.start("support", deps={}))
    assert error.type == "DepsConflict"
    assert "sequential" in error.message


async def test_the_context_of_a_tool_is_complete(host: Host) -> None:
    agent = Agent(ScriptedModel([[call("find", order_id=1)], [call("look", "a")], "Done."]), name="support")
    seen: list[RunContext[Any]] = []

    @agent.tool_plain
    def find(order_id: int) -> int:
        return order_id

    @agent.tool
    def look(ctx: RunContext[Any]) -> None:
        seen.append(ctx)

    await host.serve(agent)
    run = await host.start("support", "Look.", metadata={"requester": "ana"})
    await host.result(run)
    [ctx] = seen
    assert [message.kind for message in ctx.messages] == ["request", "response", "request", "response"]
    assert ctx.prompt == "Look."
    assert ctx.model.model_name
    assert ctx.usage.requests == 2
    assert (ctx.run_step, ctx.run_id, ctx.tool_call_id, ctx.tool_name) == (2, run.id, "a", "look")
    assert (ctx.retry, ctx.max_retries, ctx.attempt, ctx.tool_call_approved) == (0, 1, 1, False)
    assert ctx.metadata == {"requester": "ana"}
    assert ctx.idempotency_key
    assert ctx.idempotency_key.endswith(":a")


async def test_instructions_and_settings_reach_the_model_and_not_the_history(host: Host) -> None:
    asked: list[Any] = []

    def answer(messages: Any, info: Any) -> ModelResponse:
        asked.append(info)
        return ModelResponse(parts=[TextPart(content="Hello.")])

    agent = Agent(
        FunctionModel(answer),
        name="support",
        instructions=["Be kind.", lambda ctx: f"Call them {ctx.metadata['name']}."],
    )
    await host.serve(agent)
    run = await host.start("support", metadata={"name": "Ana"}, model_settings={"temperature": 0.5})
    await host.result(run)
    assert asked[0].instructions == "Be kind.\n\nCall them Ana."
    assert asked[0].model_settings["temperature"] == 0.5
    assert "Be kind" not in (await run.fetch_history()).to_json()


async def test_an_output_type_is_validated_and_the_model_may_correct_itself(host: Host) -> None:
    class Answer(BaseModel):
        number: int

    agent = Agent(
        ScriptedModel([[call("final_result", number="many")], [call("final_result", number=7)]]),
        name="support",
        output_type=Answer,
    )
    await host.serve(agent)
    run = await host.start("support")
    result = await host.result(run)
    assert result["output"] == {"number": 7}
    assert len(parts(await host.messages(run), "retry-prompt")) == 1


async def test_pause_starts_nothing_new_and_steer_speaks_before_the_next_step(host: Host) -> None:
    await host.serve(refunding([call("refund", "a", order_id=1)]))
    run = await host.start("support")
    await host.pending(run)
    await run.execute_update("pause", {"by": "ana"})
    await run.signal("approve", {"tool_call_id": "a"})
    status = await host.until(run, lambda status: status["decisions"])
    assert status["state"] == "paused"
    assert status["paused_by"] == "ana"
    assert activities_scheduled(await run.fetch_history(), "tool:refund") == []
    await run.signal("steer", {"content": "And be brief."})
    await run.signal("resume", {})
    await host.result(run)
    prompts = [part["content"] for part in parts(await host.messages(run), "user-prompt")]
    assert prompts == ["Go.", "And be brief."]


async def test_a_cancelled_run_ends_cancelled_and_starts_nothing_more(host: Host) -> None:
    await host.serve(refunding([call("refund", "a", order_id=1)]))
    run = await host.start("support")
    await host.pending(run)
    await run.cancel()
    with pytest.raises(WorkflowFailureError) as caught:
        await run.result()
    assert isinstance(caught.value.cause, CancelledError)
    assert activities_scheduled(await run.fetch_history(), "tool:refund") == []


async def test_an_early_decision_is_kept_for_its_call(host: Host, tmp_path: Path) -> None:
    """A signal may overtake the call that it is for; an early approval counts only with the digest of what waits."""
    gate = tmp_path / "gate.db"
    sqlite3.connect(gate).execute("create table t (x)").connection.commit()

    async def answer(messages: Any, info: Any) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart(content="Done.")])
        import anyio

        while not sqlite3.connect(gate).execute("select * from t").fetchall():
            await anyio.sleep(0.02)
        return ModelResponse(parts=[call("refund", "a", order_id=1), call("refund", "b", order_id=2)])

    agent = Agent(FunctionModel(answer), name="support")

    @agent.tool_plain(requires_approval=True)
    def refund(order_id: int) -> str:
        return "refunded"

    await host.serve(agent)
    run = await host.start("support")
    await run.signal("deny", {"tool_call_id": "a", "message": "No."})
    await run.signal("approve", {"tool_call_id": "b"})
    await host.until(run, lambda status: status["early"] == 1 and len(status["rejected"]) == 1)
    connection = sqlite3.connect(gate)
    connection.execute("insert into t values (1)")
    connection.commit()
    [waiting] = await host.pending(run)
    assert waiting["tool_call_id"] == "b"
    await run.signal("deny", {"tool_call_id": "b"})
    await host.result(run)
    assert activities_scheduled(await run.fetch_history(), "tool:refund") == []


async def test_a_local_tool_runs_inside_the_workflows_own_worker(host: Host) -> None:
    """It schedules no activity; and where it asks for an approval, what was approved runs as an activity."""
    agent = Agent(ScriptedModel([[call("add", "a", x=1), call("ask", "b")], "Done."]), name="support")
    tries: list[int] = []

    @agent.tool_plain(local=True, backoff=0.01)
    def add(x: int) -> int:
        tries.append(x)
        if len(tries) < 2:
            raise ConnectionError("busy")
        return x + 1

    @agent.tool(local=True)
    def ask(ctx: RunContext[Any]) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return "asked"

    await host.serve(agent)
    run = await host.start("support")
    await host.pending(run)
    await run.signal("approve", {"tool_call_id": "b"})
    await host.result(run)
    assert [part["content"] for part in parts(await host.messages(run), "tool-return")] == [2, "asked"]
    history = await run.fetch_history()
    assert activities_scheduled(history, "tool:add") == []
    assert activities_scheduled(history, "tool:ask") == ["call:b"]
