"""What a run shows of itself, however hostile the values are that it was given."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from outlast.contracts import MessagesPage, RunFacts, UsageLimits
from outlast.workflows import views
from outlast.workflows.state import RunState
from tests.unit.workflows.driving import HOSTILE, START, Driven, call, hostile_run


@pytest.mark.parametrize("text", HOSTILE)
def test_the_memo_stays_below_2_kib_with_50_pending_calls(text: str) -> None:
    """Temporal warns above, and refuses the workflow task far above: 50 calls must not stop a run."""
    memo = views.pending_summary(hostile_run(text).state, START)
    assert memo.count == 50
    assert len(memo.calls) >= 3
    assert len(memo.to_json()) < 2_048
    assert json.loads(memo.to_json())["count"] == 50


def test_the_memo_names_the_first_calls_that_wait() -> None:
    run = Driven()
    run.plans(call("a", "refund", args={"cents": 1999}, wait_for="approval"))
    assert json.loads(views.pending_summary(run.state, START).to_json()) == snapshot(
        {
            "agent": "desk",
            "count": 1,
            "calls": [
                {
                    "tool_call_id": "a",
                    "tool_name": "refund",
                    "kind": "approval",
                    "requested_at": "2026-01-05T09:00:01+00:00",
                    "digest": "576a46343560fe143c48b57c1cd3da19d06e98f520a1c8028fcf21dfa4dfa2b6",
                    "summary": "cents=1999",
                }
            ],
            "updated_at": "2026-01-05T09:00:00Z",
        }
    )


def test_a_pending_call_shows_everything_that_a_decision_needs() -> None:
    run = Driven(metadata={"requester": "ann"})
    schema = {"type": "object"}
    run.plans(call("a", wait_for="approval", json_schema=schema, prompt="Find 1?", metadata={"team": "money"}))
    [pending] = views.pending(run.state)
    assert pending.model_dump(mode="json", exclude_none=True) == snapshot(
        {
            "tool_call_id": "a",
            "tool_name": "find",
            "args": {"x": 1},
            "digest": "cf26687471c7747219e50d0d09ab579397ef25be052ca9c50ec74c8711ae3901",
            "kind": "approval",
            "requested_at": "2026-01-05T09:00:01Z",
            "approvals": 0,
            "needed": 1,
            "metadata": {"team": "money", "run": {"requester": "ann"}},
            "prompt": "Find 1?",
            "json_schema": {"type": "object"},
        }
    )


def test_the_status_of_a_run() -> None:
    run = Driven()
    run.plans(call("a"), call("b", wait_for="approval"))
    run.signals("deny", "later")
    status = views.status(run.state)
    assert (status.state, status.step, status.running, status.early, status.messages) == (
        "running",
        1,
        ["call:a"],
        1,
        2,
    )
    run.returns("a")
    assert views.status(run.state).state == "waiting"
    run.pauses()
    assert views.status(run.state).state == "paused"
    run.cancels()
    assert views.status(run.state).state == "cancelled"
    assert views.status(run.state).error == {"type": "RunCancelled", "message": "The run was cancelled."}


def test_an_update_is_answered_with_what_became_of_its_call() -> None:
    run = Driven()
    run.plans(*(call(name, wait_for="approval") for name in "abcd"))
    assert views.call_state(run.state, "a").state == "waiting"
    run.updates("approve", "a")
    run.updates("deny", "b")
    run.updates("resolve", "c", result=1)
    run.updates("retry", "d", message="m")
    assert [views.call_state(run.state, name).state for name in "abcd"] == ["approved", "denied", "resolved", "retried"]


# --- the conversation, in pages --------------------------------------------------------------------------------------

messages = st.lists(
    st.integers(0, 3).flatmap(
        lambda big: st.builds(
            lambda text: {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": text}]},
            st.text(max_size=5) if big else st.sampled_from(["x" * 700_000, "ü" * 200_000, "y" * 1_500_000]),
        )
    ),
    max_size=8,
)


@given(messages=messages, start=st.integers(0, 10), end=st.none() | st.integers(0, 12))
@settings(max_examples=60, deadline=None)
def test_pages_of_any_bounds_make_up_the_whole(messages: list[Any], start: int, end: int | None) -> None:
    facts = RunFacts(agent="desk", usage_limits=UsageLimits())
    state = RunState(run_key="run", facts=facts, messages=messages)
    got: list[Any] = []
    following: int | None = start
    while following is not None:
        page = MessagesPage.model_validate_json(views.messages_page(state, following, end).model_dump_json())
        assert page.start == following
        assert page.total == len(messages)
        assert len(page.messages) <= 1 or len(page.to_json()) <= views.PAGE_BYTES
        assert page.next is None or page.next == following + len(page.messages) > following
        got += page.messages
        following = page.next
    assert got == messages[start:end]
