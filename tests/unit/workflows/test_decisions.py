"""Why a decision cannot apply, in the words that its sender reads."""

from __future__ import annotations

from typing import Any

import pytest
from inline_snapshot import snapshot

from outlast.contracts import DECISIONS, MAX_PAYLOAD_BYTES, Approve, Deny, Resolve, Retried, Retry, call_digest
from outlast.errors import (
    AlreadyDecided,
    DecisionRejected,
    DigestMismatch,
    InvalidArguments,
    InvalidDecision,
    UnknownCall,
)
from outlast.workflows import decisions
from outlast.workflows.parts import user_prompt
from outlast.workflows.state import STEP_BYTES
from tests.unit.workflows.driving import Driven, call

BIG = "x" * 2_000_000
SCHEMA = {
    "type": "object",
    "properties": {"cents": {"type": "integer", "minimum": 1}, "note": {"type": "string", "pattern": "^(a+)+$"}},
    "required": ["cents"],
    "additionalProperties": False,
}


def refused(run: Driven, kind: str, call_id: str, **fields: Any) -> DecisionRejected:
    """The rejection of this decision; nothing of it is left in the run."""
    before = run.state.model_dump_json()
    with pytest.raises(DecisionRejected) as caught:
        decisions.check(run.state, DECISIONS[kind](tool_call_id=call_id, **fields))
    assert run.state.model_dump_json() == before
    return caught.value


@pytest.fixture
def run() -> Driven:
    """One call that waits for an approval, one for a result, one that runs."""
    run = Driven()
    run.plans(
        call("a", "refund", args={"cents": 5}, wait_for="approval", json_schema=SCHEMA),
        call("b", "pick", wait_for="external"),
        call("c", "find"),
    )
    return run


@pytest.mark.parametrize("kind", [*DECISIONS])
def test_no_call_has_the_id(run: Driven, kind: str) -> None:
    fields = {"resolve": {"result": 1}, "retry": {"message": "m"}}.get(kind, {})
    rejection = refused(run, kind, "x", **fields)
    assert type(rejection) is UnknownCall
    assert rejection.message == snapshot("No call 'x' waits in this run. These wait: 'a', 'b'.")


def test_of_many_calls_that_wait_the_first_are_named() -> None:
    run = Driven()
    run.plans(*(call(f"c{i}", wait_for="approval") for i in range(1_000)))
    assert refused(run, "deny", "x").message == (
        "No call 'x' waits in this run. These wait: 'c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', 'c8', 'c9', "
        "and 990 more."
    )


def test_no_call_waits_at_all() -> None:
    rejection = refused(Driven(), "deny", "x")
    assert rejection.message == snapshot("No call 'x' waits in this run. No call waits for a decision.")


def test_the_call_is_under_way(run: Driven) -> None:
    rejection = refused(run, "deny", "c")
    assert type(rejection) is UnknownCall
    assert rejection.message == snapshot("Call 'c' of 'find' does not wait for a decision: it is running.")


def test_the_call_is_one_of_an_earlier_step() -> None:
    run = Driven()
    run.plans(call("a"))
    run.returns("a")
    rejection = refused(run, "deny", "a")
    assert type(rejection) is UnknownCall
    assert rejection.message == snapshot("Call 'a' does not wait for a decision: it has its result.")


def test_the_run_ends() -> None:
    run = Driven()
    run.plans(call("a", on_error="fail_run"), call("b", wait_for="approval"), call("c", repeatable=False))
    run.errs("a")
    rejection = refused(run, "approve", "b")
    assert type(rejection) is UnknownCall
    assert rejection.message == snapshot("No call waits any more: the run ends with ToolFailed.")


def test_an_earlier_decision_stands(run: Driven) -> None:
    run.updates("approve", "a", by="ann")
    rejection = refused(run, "deny", "a", by="bob")
    assert type(rejection) is AlreadyDecided
    assert rejection.message == snapshot(
        "Call 'a' of 'refund' was decided already: approve by ann at 2026-01-05T09:00:02+00:00. The "
        "first decision stands."
    )


def test_an_earlier_decision_of_nobody_in_particular_stands_over_later_steps(run: Driven) -> None:
    run.updates("deny", "a")
    run.updates("resolve", "b", result=1)
    run.returns("c")
    rejection = refused(run, "resolve", "a", result=1)
    assert type(rejection) is AlreadyDecided
    assert rejection.message == snapshot(
        "Call 'a' of 'refund' was decided already: deny at 2026-01-05T09:00:02+00:00. The first decision stands."
    )


def test_the_same_decision_once_more_is_no_error(run: Driven) -> None:
    run.updates("approve", "a", by="ann", override_args={"cents": 3}, reason="ok")
    again = Approve(tool_call_id="a", override_args={"cents": 3}, by="bob", digest="0")
    assert decisions.check(run.state, again) == run.records[0]
    assert type(refused(run, "approve", "a", override_args={"cents": 4})) is AlreadyDecided


@pytest.mark.parametrize("digest", ["0" * 64, call_digest("refund", {"cents": 6}), ""])
def test_the_digest_is_another(run: Driven, digest: str) -> None:
    rejection = refused(run, "approve", "a", digest=digest)
    assert type(rejection) is DigestMismatch
    assert rejection.message.replace(digest or "\0", "<its digest>") == (
        f"Call 'a' of 'refund' waits with the digest {call_digest('refund', {'cents': 5})}, and this decision is for "
        f"{'<its digest>' if digest else ''}. Look at the call again, and decide on what waits now."
    )


def test_an_external_call_takes_no_approval(run: Driven) -> None:
    rejection = refused(run, "approve", "b")
    assert type(rejection) is InvalidDecision
    assert rejection.message == snapshot(
        "Call 'b' of 'pick' waits for a result from outside, not for an approval: send `resolve` with"
        " its result, `retry` with a message to the model, or `deny`."
    )


def test_a_call_of_unknown_outcome_that_was_approved_takes_no_approval_without_its_digest() -> None:
    run = Driven()
    run.plans(call("a", "refund", wait_for="approval"))
    run.updates("approve", "a")
    run.is_lost("a")
    held = run.call("a").held
    assert held is not None
    rejection = refused(run, "approve", "a")
    assert type(rejection) is DigestMismatch
    assert rejection.message.replace(held.digest, "<digest>") == snapshot(
        "Call 'a' of 'refund' was approved and started before, and may have taken effect. To run it "
        "again, approve it with the digest <digest>; to give its result, send `resolve`."
    )


def test_arguments_that_the_tool_refused_take_no_approval_without_their_digest() -> None:
    run = Driven()
    run.plans(call("a", "refund", wait_for="approval"))
    run.updates("approve", "a", override_args={"x": 9})
    run.ends("a", Retried(content="at most 5", reason="arguments"))
    held = run.call("a").held
    assert held is not None
    assert refused(run, "approve", "a").message.replace(held.digest, "<digest>") == snapshot(
        "Call 'a' of 'refund' was approved and started before. To run it again, approve it with the "
        "digest <digest>; to give its result, send `resolve`."
    )


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (
            {},
            snapshot(
                "The edited arguments do not fit the schema of 'refund': \"cents\" is a required property. "
                "The call still waits."
            ),
        ),
        (
            {"cents": "5"},
            snapshot(
                "The edited arguments do not fit the schema of 'refund': cents: \"5\" is not of type "
                '"integer". The call still waits.'
            ),
        ),
        (
            {"cents": 0, "more": 1},
            snapshot(
                "The edited arguments do not fit the schema of 'refund': cents: 0 is less than the "
                "minimum of 1; Additional properties are not allowed ('more' was unexpected). The call "
                "still waits."
            ),
        ),
        (
            {"cents": 5, "note": "a" * 50 + "!"},
            snapshot(
                "The edited arguments do not fit the schema of 'refund': note: "
                '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!" does not match "^(a+)+$". The call'
                " still waits."
            ),
        ),
    ],
)
def test_edited_arguments_do_not_fit_the_schema(run: Driven, args: Any, problem: str) -> None:
    """Also against a pattern that would keep a backtracking engine busy for years."""
    rejection = refused(run, "approve", "a", override_args=args)
    assert type(rejection) is InvalidArguments
    assert rejection.message == problem


def test_a_schema_that_cannot_be_checked_leaves_the_arguments_to_the_tool() -> None:
    run = Driven()
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": "(?=a)"}}}
    run.plans(call("a", wait_for="approval", json_schema=schema))
    run.updates("approve", "a", override_args={"x": "b"})
    assert run.started == ["a"]


def test_edited_arguments_are_too_large(run: Driven) -> None:
    rejection = refused(run, "approve", "a", override_args={"note": "x" * MAX_PAYLOAD_BYTES})
    assert type(rejection) is InvalidArguments
    assert rejection.message == snapshot("The edited arguments have 2,031,627 bytes of JSON, and at most 507,904 fit.")


@pytest.mark.parametrize(
    ("kind", "fields"),
    [("resolve", {"result": BIG}), ("deny", {"message": BIG}), ("retry", {"message": BIG})],
)
def test_what_it_carries_does_not_fit_into_the_step(run: Driven, kind: str, fields: Any) -> None:
    rejection = refused(run, kind, "b", **fields)
    assert type(rejection) is InvalidDecision
    assert rejection.message == snapshot("It carries 2,000,002 bytes of JSON, and at most 1,966,080 fit in this step.")


@pytest.mark.parametrize("result", [float("nan"), [float("inf")]])
def test_it_holds_what_json_cannot_write(run: Driven, result: Any) -> None:
    rejection = refused(run, "resolve", "b", result=result)
    assert type(rejection) is InvalidDecision
    assert rejection.message.startswith("It holds a value that JSON cannot write, such as 1e999: ")


def test_a_message_that_steers_is_too_large_or_too_late() -> None:
    run = Driven()
    with pytest.raises(InvalidDecision) as caught:
        decisions.check_steer(run.state, user_prompt("x" * 1_000_000))
    assert caught.value.message == snapshot(
        "The message has 1,000,040 bytes of JSON, and at most 983,040 fit in this step."
    )
    run.plans(call("a", on_error="fail_run"), call("b", repeatable=False))
    run.errs("a")
    with pytest.raises(InvalidDecision) as caught:
        decisions.check_steer(run.state, user_prompt("x"))
    assert caught.value.message == snapshot("There is no next step: the run ends with ToolFailed.")


def test_a_step_that_is_full_takes_no_message_that_steers() -> None:
    run = Driven()
    run.state.step_bytes = STEP_BYTES
    with pytest.raises(InvalidDecision) as caught:
        decisions.check_steer(run.state, user_prompt("x"))
    assert caught.value.message == snapshot("The message has 41 bytes of JSON, and at most 0 fit in this step.")


def test_every_kind_of_decision_applies_to_a_call_that_waits_for_an_approval() -> None:
    for decision in (
        Approve(tool_call_id="a"),
        Deny(tool_call_id="a"),
        Resolve(tool_call_id="a", result=None),
        Retry(tool_call_id="a", message="m"),
    ):
        run = Driven()
        run.plans(call("a", wait_for="approval"))
        assert decisions.check(run.state, decision) == (run.call("a"), run.call("a").held)


def test_decisions_that_say_the_same_have_one_fingerprint() -> None:
    """Whoever makes them and why; not where what they do differs, if only in the kind."""
    same = [
        Approve(tool_call_id="a", override_args={"x": 1, "y": 2}),
        Approve(tool_call_id="a", override_args={"y": 2, "x": 1}, by="ann", reason="r", digest="d"),
    ]
    assert len({decisions.fingerprint(decision) for decision in same}) == 1
    different = [
        *same[:1],
        Approve(tool_call_id="a"),
        Approve(tool_call_id="b", override_args={"x": 1, "y": 2}),
        Deny(tool_call_id="a"),
        Deny(tool_call_id="a", message="m"),
        Retry(tool_call_id="a", message="m"),
        Resolve(tool_call_id="a", result="m"),
    ]
    assert len({decisions.fingerprint(decision) for decision in different}) == len(different)
