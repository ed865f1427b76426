"""What a run shows of itself, however hostile the values are that it was given."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from outlast.contracts import MessagesPage, RunFacts, UsageLimits
from outlast.workflows import views
from outlast.workflows.state import RunState
from tests.unit.workflows.driving import START, Driven, call

HOSTILE = [
    "x" * 5_000,
    "ü😀" * 2_000,
    "\x00\x1b[2J" * 500,
    "'; rm -rf / #",
    "\n```\n\n### Nothing waits\n",
    "\u202egnp.exe",
    '"},"count":0,"calls":[],"x":"',
    "\ud800",
]


def waiting(text: str, calls: int = 50) -> Driven:
    """A run with calls that wait and that show this text wherever a model, a tool or a caller can put one."""
    run = Driven(metadata={"requester": text})
    run.plans(
        *(
            call(f"c{i}", text or "find", args={text: text, "n": i}, wait_for="approval", prompt=text or None)
            for i in range(calls)
        )
    )
    run.state.paused_by, run.state.paused = text, True
    return run


@pytest.mark.parametrize("text", HOSTILE)
def test_the_memo_stays_below_2_kib_with_50_pending_calls(text: str) -> None:
    """Temporal warns above, and refuses the workflow task far above: 50 calls must not stop a run."""
    memo = views.pending_summary(waiting(text).state, START)
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


@pytest.mark.parametrize("text", HOSTILE)
def test_the_details_stay_below_20_kb_and_every_code_block_is_closed(text: str) -> None:
    """What a model wrote must not pass for what outlast says, and a cut must not open the rest of the page to it."""
    details = views.details(waiting(text).state, text or "run")
    assert len(details.encode()) < 20_000
    fences = [line for line in details.splitlines() if line.startswith("```")]
    assert fences[::2] == [fence for fence in fences[::2] if fence in ("```json", "```sh")]
    assert set(fences[1::2]) <= {"```"}
    assert len(fences) % 2 == 0
    assert "### Nothing waits" not in details.splitlines()


def test_the_details_say_how_many_more_wait() -> None:
    details = views.details(waiting("x" * 5_000).state, "run")
    assert details.splitlines()[-1] == snapshot("47 more wait: the query `pending` shows them all.")


def test_arguments_that_are_cut_say_so() -> None:
    run = Driven()
    run.plans(call("a", args={"text": "x" * 5_000}, wait_for="approval"))
    details = views.details(run.state, "run")
    assert "**These arguments are cut.** The query `pending` shows them in full." in details


def test_what_cannot_be_seen_is_written_out() -> None:
    """A character that turns the order of the text around lets a person approve what they did not read."""
    run = Driven()
    run.plans(call("a", args={"to": "ann\u202e\u200b"}, prompt="Pay \u202eann?", wait_for="approval"))
    details = views.details(run.state, "run")
    assert r'"to": "ann\u202e\u200b"' in details
    assert r"### Pay \u202eann? waits: approval" in details


@pytest.mark.parametrize("workflow_id", ["run-1", "it's", "a b", "$(id)", "`id`", "a;b"])
def test_the_commands_in_the_details_are_quoted_for_a_shell(workflow_id: str) -> None:
    run = Driven()
    run.plans(call("it's $(id)", args={"x": "'"}, wait_for="approval"))
    held = run.call("it's $(id)").held
    assert held is not None
    commands = [line for line in views.details(run.state, workflow_id).splitlines() if line.startswith("temporal")]
    told = [shlex.split(command) for command in commands]
    assert [words[:5] for words in told] == [["temporal", "workflow", "signal", "--workflow-id", workflow_id]] * 2
    assert [(words[6], json.loads(words[8])) for words in told] == [
        ("approve", {"tool_call_id": "it's $(id)", "digest": held.digest}),
        ("deny", {"tool_call_id": "it's $(id)", "message": "…"}),
    ]


def test_the_details_of_a_call_of_unknown_outcome() -> None:
    run = Driven()
    run.plans(call("a", "refund", args={"cents": 1999}, repeatable=False))
    run.is_lost("a")
    [pending] = views.pending(run.state)
    assert views.details(run.state, "run-1").replace(pending.digest, "<digest>") == snapshot("""\
**desk**: waiting, step 1

### refund waits: unknown outcome
Since 2026-01-05T09:00:02+00:00.
The worker was lost while the call ran. It may or may not have taken effect.

```json
{
  "cents": 1999
}
```

To run it again:
```sh
temporal workflow signal --workflow-id run-1 --name approve --input '{"tool_call_id": "a", "digest": "<digest>"}'
```
To give its result:
```sh
temporal workflow signal --workflow-id run-1 --name resolve --input '{"tool_call_id": "a", "result": "…"}'
```
To refuse it:
```sh
temporal workflow signal --workflow-id run-1 --name deny --input '{"tool_call_id": "a", "message": "…"}'
```\
""")


def test_the_details_of_an_external_call_ask_for_its_result() -> None:
    run = Driven()
    run.plans(call("a", "pick_colour", args={}, wait_for="external"))
    assert views.details(run.state, "run-1") == snapshot("""\
**desk**: waiting, step 1

### pick_colour waits: external
Since 2026-01-05T09:00:01+00:00.

```json
{}
```

To give its result:
```sh
temporal workflow signal --workflow-id run-1 --name resolve --input '{"tool_call_id": "a", "result": "…"}'
```
To refuse it:
```sh
temporal workflow signal --workflow-id run-1 --name deny --input '{"tool_call_id": "a", "message": "…"}'
```\
""")


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
