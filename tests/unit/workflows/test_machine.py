"""The rules of the run's state machine, one example each."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from outlast.contracts import (
    MAX_PAYLOAD_BYTES,
    Deferred,
    Failed,
    Features,
    Retried,
    Returned,
    Transient,
    UsageLimits,
    call_digest,
)
from outlast.messages import Usage
from outlast.workflows import views
from outlast.workflows.commands import (
    CancelCall,
    CancelStep,
    CancelTimer,
    EndCancelled,
    Fail,
    RequestStep,
    StartCall,
    StartTimer,
)
from outlast.workflows.events import TimerFired
from outlast.workflows.machine import MAX_DELAY_SECONDS, MAX_MISPLACED
from outlast.workflows.state import STEP_BYTES, run_state
from tests.unit.workflows.driving import Driven, call

# --- the end of a run ------------------------------------------------------------------------------------------------


def test_a_failed_run_writes_down_what_came_of_each_call() -> None:
    """A conversation whose calls have no results can be continued with no provider, and hides what was done."""
    run = Driven()
    run.plans(call("a", on_error="fail_run"), call("b"), call("c", wait_for="approval"), call("d", wait_for="external"))
    run.errs("a")
    run.errs("b")
    assert run.state.ended == "failed"
    assert [(part["tool_call_id"], part["outcome"], part["content"]) for part in run.told] == [
        ("a", "failed", "card declined"),
        ("b", "failed", "ValueError: card declined"),
        ("c", "failed", "The call was not made: the run ended."),
        ("d", "failed", "The run ended before its result came."),
    ]


def test_an_unknown_outcome_is_not_glossed_over_when_the_run_ends() -> None:
    run = Driven()
    run.plans(call("a", repeatable=False))
    run.is_lost("a")
    run.cancels()
    assert run.last(EndCancelled)
    assert run.told_about("a")["content"] == (
        "The worker was lost while the call ran. The call may or may not have taken effect."
    )


def test_a_run_that_fails_waits_for_a_call_that_must_not_be_repeated_and_cancels_the_others() -> None:
    run = Driven()
    run.plans(call("a", on_error="fail_run"), call("b"), call("c", repeatable=False))
    run.errs("a")
    assert run.last(CancelCall) == [CancelCall(tool_call_id="b")]
    run.is_lost("b")
    assert run.commands == []
    run.returns("c", "sent")
    assert run.last(Fail)
    assert run.told_about("c")["content"] == "sent"


def test_a_cancellation_cancels_each_call_once() -> None:
    run = Driven()
    run.plans(call("a", on_error="fail_run"), call("b"), call("c", repeatable=False))
    run.errs("a")
    run.cancels()
    assert run.last(CancelCall) == [CancelCall(tool_call_id="c")]
    run.cancels()
    assert run.commands == []


def test_the_call_whose_result_ends_the_run_is_not_cancelled() -> None:
    """It is not under way any more: there is nothing to cancel."""
    run = Driven(deps={"n": 0})
    run.plans(call("a"), call("b"))
    run.returns("a", n=1)
    run.returns("b", n=2)
    assert run.failure is not None
    assert run.failure[0] == "DepsConflict"
    assert not run.last(CancelCall)


def test_a_cancelled_run_cancels_its_model_request_and_its_timers() -> None:
    run = Driven()
    run.cancels()
    assert run.last(CancelStep) == [CancelStep(step=1)]
    assert not run.last(EndCancelled)

    run = Driven()
    run.plans(call("a", repeatable=False))
    run.ends("a", Transient(error_type="Busy", message="later", retry_after=30))
    run.cancels()
    assert run.last(CancelTimer) == [CancelTimer(name="backoff:a")]
    assert run.last(EndCancelled)


def test_a_call_that_says_try_again_while_the_run_ends_is_not_tried_again() -> None:
    run = Driven()
    run.plans(call("a", on_error="fail_run"), call("b", repeatable=False))
    run.errs("a")
    run.ends("b", Transient(error_type="Busy", message="later", retry_after=30))
    assert not run.last(StartTimer)
    assert run.last(Fail)
    assert run.told_about("b")["content"] == "The call was not made: the run ended."


def test_a_cancellation_that_the_model_overtakes_makes_no_call() -> None:
    run = Driven()
    run.cancels()
    run.plans(call("a"), call("b", settled=Returned(content="known")))
    assert run.last(EndCancelled)
    assert run.started == []
    assert [part["content"] for part in run.told] == ["The call was not made: the run ended.", "known"]


# --- one approval, one execution -------------------------------------------------------------------------------------


def test_an_early_approval_needs_a_digest() -> None:
    """Without one nobody can say what it approves: the call that comes may be another than its sender meant."""
    run = Driven()
    run.signals("approve", "a")
    run.signals("approve", "a", digest=call_digest("find", {"x": 1}))
    assert [rejection.error for rejection in run.rejected] == ["UnknownCall"]
    run.plans(call("a", wait_for="approval"))
    assert run.started == ["a"]


def test_an_early_approval_of_other_arguments_is_rejected_and_the_call_waits() -> None:
    run = Driven()
    run.signals("approve", "a", digest=call_digest("find", {"x": 2}))
    run.plans(call("a", wait_for="approval"))
    assert run.started == []
    assert [rejection.error for rejection in run.rejected] == ["DigestMismatch"]


def test_of_two_early_decisions_the_first_applies_and_the_second_is_listed() -> None:
    run = Driven()
    run.signals("deny", "a", by="ann")
    run.signals("retry", "a", message="Other account.", by="bob")
    run.signals("deny", "a", by="cid")
    run.plans(call("a", wait_for="approval"), call("b"))
    assert [record.by for record in run.records] == ["ann"]
    assert [(rejection.name, rejection.error) for rejection in run.rejected] == [("retry", "AlreadyDecided")]
    assert run.state.early == []


def test_an_approval_that_comes_early_does_not_authorise_a_call_of_unknown_outcome() -> None:
    """It was given before anybody could know that the call may have taken effect."""
    run = Driven()
    run.plans(call("a", repeatable=False))
    run.signals("approve", "a", digest=call_digest("find", {"x": 1}))
    run.is_lost("a")
    assert run.started == []
    assert run.call("a").status == "held"
    assert [rejection.error for rejection in run.rejected] == ["DigestMismatch"]


def test_a_copy_of_an_approval_does_not_authorise_the_call_when_its_tool_asks_again() -> None:
    run = Driven()
    run.plans(call("a", wait_for="approval"))
    first = run.call("a").held
    assert first is not None
    run.signals("approve", "a", digest=first.digest)
    run.ends("a", Deferred(wait_for="approval", metadata={"reason": "more than 1,000"}))
    run.signals("approve", "a", digest=first.digest)
    run.signals("approve", "a")
    assert run.started == []
    second = run.call("a").held
    assert second is not None
    run.signals("approve", "a", digest=second.digest)
    assert run.started == ["a"]


def test_a_copy_of_an_approval_does_not_run_edited_arguments_a_second_time() -> None:
    run = Driven()
    run.plans(call("a", wait_for="approval"))
    run.signals("approve", "a", override_args={"x": 9})
    run.ends("a", Retried(content="x is at most 5", reason="arguments"))
    run.signals("approve", "a", override_args={"x": 9})
    assert run.started == []
    held = run.call("a").held
    assert held is not None
    assert held.metadata["invalid"] == "x is at most 5"
    run.signals("approve", "a", override_args={"x": 5}, digest=held.digest)
    assert run.started == ["a"]


def test_a_result_of_null_may_come_early() -> None:
    """It was once dropped with the fields that were not given, and the run could not read its own state."""
    run = Driven()
    run.signals("resolve", "a", result=None)
    run.plans(call("a", wait_for="external"))
    assert run.told_about("a")["content"] is None


# --- what becomes of a call ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [(None, 2), (0.0, 0), (2.5, 2.5), (-1.0, 0), (1e300, MAX_DELAY_SECONDS), (float("inf"), MAX_DELAY_SECONDS)],
)
def test_a_call_that_says_try_again_waits_as_long_as_it_asks_for(asked: float | None, seconds: float) -> None:
    """Not even an absurd time may fail a workflow task."""
    run = Driven()
    run.plans(call("a", repeatable=False, backoff=2.0))
    run.ends("a", Transient(error_type="TransientToolError", message="busy", retry_after=asked))
    assert run.last(StartTimer) == [StartTimer(name="backoff:a", delay=timedelta(seconds=seconds))]
    run.timer_fires("backoff:a")
    assert run.started == ["a"]


@pytest.mark.parametrize("on_error", ["tell_model", "ask", "fail_run"])
def test_what_a_tool_says_itself_about_its_failure_is_told_to_the_model(on_error: str) -> None:
    """`FatalToolError`, a result too large or without JSON: not what `on_error` is for, and no retry is used."""
    run = Driven()
    run.plans(call("a", on_error=on_error, max_retries=0))
    run.ends("a", Failed(error_type="FatalToolError", message="no such order"))
    assert run.asks
    assert run.told_about("a")["outcome"] == "failed"
    assert run.told_about("a")["content"] == "FatalToolError: no such order"
    assert run.state.retries == {}


@pytest.mark.parametrize("content", ["Unknown tool name: 'fnd'.", [{"loc": ["x"], "msg": "Field required"}]])
def test_what_never_starts_is_told_to_the_model_and_uses_a_retry(content: Any) -> None:
    run = Driven()
    run.plans(call("a", settled=Retried(content=content, reason="arguments")))
    assert run.asks
    assert run.told_about("a")["content"] == content
    assert run.state.retries == {"find": 1}


def test_an_error_after_the_last_attempt_is_told_to_the_model() -> None:
    run = Driven()
    run.plans(call("a", max_retries=0))
    run.errs("a")
    assert run.asks
    assert run.told_about("a")["content"] == "ValueError: card declined"
    assert run.state.retries == {}


def test_an_error_after_the_last_attempt_may_fail_the_run() -> None:
    run = Driven()
    run.plans(call("a", on_error="fail_run"))
    run.errs("a")
    assert run.failure == ("ToolFailed", "The tool 'find' failed, ValueError: card declined")


def test_an_error_after_the_last_attempt_may_ask() -> None:
    run = Driven()
    run.plans(call("a", on_error="ask"))
    run.errs("a")
    [pending] = views.pending(run.state)
    assert pending.kind == "unknown_outcome"
    assert pending.metadata == {"reason": "ValueError: card declined", "effect": "failed", "executions": 1}
    run.updates("approve", "a")
    assert run.started == ["a"]


def test_a_repeatable_call_that_times_out_is_told_to_the_model_and_uses_a_retry() -> None:
    run = Driven()
    run.plans(call("a", timeout=1))
    run.times_out("a")
    assert run.told_about("a") == {
        "part_kind": "retry-prompt",
        "content": "Timed out after 1 seconds.",
        "tool_name": "find",
        "tool_call_id": "a",
    }
    assert run.state.retries == {"find": 1}


def test_a_repeatable_call_whose_worker_is_lost_starts_again_up_to_five_times() -> None:
    run = Driven()
    run.plans(call("a", attempts=1))
    for _ in range(5):
        run.is_lost("a")
        assert run.started == ["a"]
    run.is_lost("a")
    assert run.told_about("a")["content"] == ("WorkerLost: The worker was lost while the call ran, 6 times in a row.")


@pytest.mark.parametrize("how", ["is_lost", "times_out", "errs"])
def test_a_call_that_must_not_be_repeated_never_starts_again_by_itself(how: str) -> None:
    run = Driven()
    run.plans(call("a", repeatable=False, timeout=1))
    getattr(run, how)("a")
    assert run.started == []
    [pending] = views.pending(run.state)
    assert (pending.kind, pending.metadata["effect"]) == ("unknown_outcome", "unknown")


def test_a_call_that_was_approved_must_not_be_repeated_unless_its_tool_says_so() -> None:
    for repeatable, started in ((None, []), (True, ["a"])):
        run = Driven()
        run.plans(call("a", wait_for="approval", repeatable=repeatable))
        run.updates("approve", "a")
        run.is_lost("a")
        assert run.started == started


def test_an_unknown_outcome_may_be_told_to_the_model() -> None:
    run = Driven()
    run.plans(call("a", repeatable=False, on_unknown="tell_model", timeout=1))
    run.times_out("a")
    assert run.told_about("a")["outcome"] == "failed"
    assert run.told_about("a")["content"] == ("Timed out after 1 seconds. The call may or may not have taken effect.")


def test_an_unknown_outcome_is_answered_with_its_result() -> None:
    run = Driven()
    run.plans(call("a", repeatable=False))
    run.is_lost("a")
    run.updates("resolve", "a", result={"refunded": True})
    assert run.told_about("a")["content"] == {"refunded": True}
    assert run.state.usage.tool_calls == 1


def test_a_call_that_no_worker_takes_is_scheduled_again_for_ever_even_one_that_must_not_be_repeated() -> None:
    run = Driven()
    run.plans(call("a", repeatable=False))
    for _ in range(20):
        run.is_unclaimed("a")
        assert run.started == ["a"]


def test_a_transient_error_is_tried_again_as_often_as_its_attempts_say() -> None:
    run = Driven()
    run.plans(call("a", repeatable=False, attempts=2))
    busy = Transient(error_type="TransientToolError", message="busy", retry_after=1)
    run.ends("a", busy)
    run.timer_fires("backoff:a")
    run.ends("a", busy)
    assert run.told_about("a")["content"] == "TransientToolError: busy"


def test_a_call_that_is_tried_again_in_a_moment_is_no_reason_to_call_anybody() -> None:
    run = Driven()
    run.plans(call("a", repeatable=False), call("b", wait_for="approval"))
    run.ends("a", Transient(error_type="TransientToolError", message="busy", retry_after=1))
    assert run_state(run.state) == "running"
    run.pauses()
    assert run_state(run.state) == "paused"
    run.resumes()
    run.timer_fires("backoff:a")
    run.returns("a")
    assert run_state(run.state) == "waiting"


@pytest.mark.parametrize("wait_for", ["approval", "deferred"])
def test_a_call_whose_tool_asks_somebody_waits_with_what_the_tool_says(wait_for: Any) -> None:
    run = Driven()
    run.plans(call("a", metadata={"team": "money"}), call("b"))
    run.ends("a", Deferred(wait_for=wait_for, metadata={"ticket": 7}, json_schema={"type": "object"}))
    [pending] = views.pending(run.state)
    assert pending.kind == wait_for
    assert pending.metadata == {"team": "money", "ticket": 7}
    run.returns("b")
    assert not run.asks
    run.updates("resolve", "a", result="ok")
    assert run.asks
    assert [part["tool_call_id"] for part in run.told] == ["a", "b"]


def test_a_denied_call_never_starts_and_the_model_sees_why() -> None:
    run = Driven()
    run.plans(call("a", wait_for="approval"), call("b", wait_for="approval"))
    run.updates("deny", "a", message="Not this customer.")
    run.updates("deny", "b")
    assert run.started == []
    assert [(part["outcome"], part["content"]) for part in run.told] == [
        ("denied", "Not this customer."),
        ("denied", "The tool call was denied."),
    ]


def test_a_decision_acts_on_its_own_call_at_once() -> None:
    run = Driven()
    run.plans(call("a", wait_for="approval"), call("b"), call("c", wait_for="approval"))
    assert run.started == ["b"]
    run.updates("approve", "c")
    assert run.started == ["c"]


def test_an_approved_call_runs_with_what_was_approved() -> None:
    run = Driven()
    run.plans(call("a", wait_for="approval"))
    run.updates("approve", "a", override_args={"x": 5})
    [start] = run.last(StartCall)
    assert start.input.args == {"x": 5}
    assert start.input.approved
    assert start.input.approved_digest == call_digest("find", {"x": 5})
    assert run.records[0].edited
    assert run.records[0].digest == call_digest("find", {"x": 1})


def test_a_lost_model_request_is_made_again_up_to_five_times() -> None:
    run = Driven()
    for _ in range(5):
        run.loses_step()
        [request] = run.last(RequestStep)
        assert request.input.step == 1
    run.loses_step()
    assert run.failure == ("ModelRequestFailed", "The worker was lost 6 times in step 1: the worker was lost")


# --- sequential calls, pausing, steering -----------------------------------------------------------------------------


def test_sequential_calls_run_alone_and_in_their_place() -> None:
    run = Driven()
    run.plans(call("a"), call("b", sequential=True), call("c"), call("d", sequential=True))
    assert run.started == ["a"]
    run.returns("a")
    assert run.started == ["b"]
    run.returns("b")
    assert run.started == ["c"]
    run.returns("c")
    assert run.started == ["d"]


def test_a_sequential_call_that_waits_for_a_person_does_not_hold_the_others() -> None:
    run = Driven()
    run.plans(call("a", sequential=True, wait_for="approval"), call("b"), call("c"))
    assert run.started == ["b", "c"]
    run.updates("approve", "a")
    assert run.started == []
    run.returns("b")
    run.returns("c")
    assert run.started == ["a"]


def test_at_most_40_calls_are_under_way() -> None:
    run = Driven()
    run.plans(*(call(f"c{i}") for i in range(42)))
    assert len(run.started) == 40
    run.returns("c7")
    assert run.started == ["c40"]


def test_nothing_starts_while_paused_and_decisions_apply() -> None:
    run = Driven()
    run.plans(call("a"), call("b", wait_for="approval"), call("c", repeatable=False))
    run.pauses()
    run.is_lost("a")
    run.updates("approve", "b")
    assert run.started == []
    run.returns("c")
    run.resumes()
    assert run.started == ["a", "b"]


def test_no_step_begins_while_paused() -> None:
    run = Driven()
    run.plans(call("a"))
    run.pauses()
    run.returns("a")
    assert not run.asks
    run.steers("Be brief.")
    assert not run.asks
    run.resumes()
    assert run.asks
    assert [part["part_kind"] for part in run.told] == ["tool-return", "user-prompt"]


def test_an_output_ends_a_paused_run() -> None:
    run = Driven()
    run.pauses()
    run.plans(output="done")
    assert run.output == "done"


def test_a_message_that_steers_comes_before_the_next_step_after_the_results() -> None:
    run = Driven()
    run.plans(call("a"))
    run.steers("Hurry.")
    run.ends("a", Returned(content=1, user_content="See the picture."))
    assert run.told == [
        {"part_kind": "tool-return", "tool_name": "find", "tool_call_id": "a", "content": 1},
        {"part_kind": "user-prompt", "content": "See the picture."},
        {"part_kind": "user-prompt", "content": "Hurry."},
    ]


@pytest.mark.parametrize("paused", [False, True])
def test_a_message_that_arrives_before_the_output_takes_the_run_on(paused: bool) -> None:
    """The user has more to say: an output that was made without it is not the last word."""
    run = Driven()
    run.steers("And the shipping?")
    if paused:
        run.pauses()
    run.plans(call("a", settled=Returned(content="Final result processed."), output=True), output="done")
    if paused:
        assert not run.asks
        run.resumes()
    assert run.asks
    assert [part["part_kind"] for part in run.told] == ["tool-return", "user-prompt"]
    run.plans(output="done, and shipped")
    assert run.output == "done, and shipped"


def test_a_message_that_steers_survives_a_lost_model_request() -> None:
    run = Driven()
    run.steers("Hurry.")
    run.loses_step()
    [request] = run.last(RequestStep)
    assert request.input.step == 1
    assert [message["parts"][-1]["content"] for message in request.input.position.delta] == ["hi", "Hurry."]


# --- deps ------------------------------------------------------------------------------------------------------------


def test_changes_of_deps_are_merged_field_by_field() -> None:
    run = Driven(deps={"a": 0, "b": 0, "c": 0})
    run.plans(call("x"), call("y"))
    run.returns("x", a=1)
    run.returns("y", b=2)
    assert run.state.deps.value == {"a": 1, "b": 2, "c": 0}
    [request] = run.last(RequestStep)
    assert request.input.position.deps == run.state.deps


def test_a_field_that_two_overlapping_calls_change_fails_the_run() -> None:
    run = Driven(deps={"a": 0})
    run.plans(call("x"), call("y"))
    run.returns("x", a=1)
    run.returns("y", a=1)
    assert run.failure is not None
    assert run.failure[0] == "DepsConflict"
    assert run.failure[1] == (
        "The call 'y' of 'find' changed 'a' of deps while another call that overlapped changed the same. Mark the "
        "tools `sequential`."
    )


def test_calls_that_do_not_overlap_may_change_the_same_field() -> None:
    run = Driven(deps={"a": 0})
    run.plans(call("x", sequential=True), call("y", sequential=True))
    run.returns("x", a=1)
    run.returns("y", a=2)
    run.plans(call("z"))
    run.returns("z", a=3)
    assert run.state.deps.value == {"a": 3}
    assert run.failure is None


# --- usage -----------------------------------------------------------------------------------------------------------


def test_a_run_stops_at_its_limit_of_requests() -> None:
    run = Driven(limits=UsageLimits(requests=1))
    run.plans(call("a"))
    run.returns("a")
    assert run.failure == ("UsageLimitExceeded", "The run has made 1 model requests, and its limit is 1.")
    assert run.last(Fail)
    assert run.told_about("a")["content"] == "found"


def test_calls_beyond_the_limit_are_not_made() -> None:
    run = Driven(limits=UsageLimits(tool_calls=2))
    run.plans(call("a"), call("b"))
    run.returns("a")
    run.returns("b")
    run.plans(call("c"))
    assert run.started == []
    assert run.failure == ("UsageLimitExceeded", "The run is at 3 tool calls, and its limit is 2.")


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (UsageLimits(input_tokens=9), "10 input tokens, and its limit is 9"),
        (UsageLimits(output_tokens=4), "5 output tokens, and its limit is 4"),
        (UsageLimits(total_tokens=14), "15 tokens, and its limit is 14"),
    ],
)
def test_a_run_stops_at_its_limits_of_tokens(limits: UsageLimits, what: str) -> None:
    run = Driven(limits=limits)
    run.plans(call("a"), usage={"input_tokens": 10, "output_tokens": 5})
    assert run.started == []
    assert run.failure == ("UsageLimitExceeded", f"The run is at {what}.")


def test_usage_counts_requests_results_and_tokens() -> None:
    run = Driven()
    run.plans(call("a"), call("b", wait_for="external"), call("c"), usage={"input_tokens": 7, "details": {"cached": 3}})
    run.returns("a")
    run.signals("resolve", "b", result=1)
    run.errs("c")
    run.plans(output="done", usage={"input_tokens": 1, "output_tokens": 2, "details": {"cached": 1}})
    assert run.state.usage == Usage(requests=2, tool_calls=2, input_tokens=8, output_tokens=2, details={"cached": 4})


# --- retries ---------------------------------------------------------------------------------------------------------

AGAIN = Retried(content="Try again.")


def test_a_tool_may_be_tried_again_as_often_as_its_max_retries_say() -> None:
    run = Driven()
    run.plans(call("a", max_retries=1))
    run.ends("a", AGAIN)
    assert run.asks
    assert run.told_about("a")["part_kind"] == "retry-prompt"
    run.plans(call("b", max_retries=1))
    run.ends("b", AGAIN)
    assert run.failure is not None
    assert run.failure[0] == "ToolRetriesExceeded"
    assert run.failure[1] == (
        "The model tried the tool 'find' again more often than its max_retries of 1 allows. The last problem was: "
        "Try again."
    )


def test_each_tool_has_retries_of_its_own() -> None:
    run = Driven()
    run.plans(call("a", "find"), call("b", "mail"))
    run.ends("a", AGAIN)
    run.ends("b", AGAIN)
    assert run.state.retries == {"find": 1, "mail": 1}


def test_two_calls_of_one_tool_that_must_be_tried_again_in_one_step_count_once() -> None:
    """The model hears of both at the same time: it had one chance, not two."""
    run = Driven()
    run.plans(call("a"), call("b"), call("c"))
    for call_id in "abc":
        run.ends(call_id, AGAIN)
    assert run.state.retries == {"find": 1}
    run.plans(call("d"))
    run.ends("d", AGAIN)
    assert run.failure is not None
    assert run.failure[0] == "ToolRetriesExceeded"


def test_retries_start_anew_after_a_success() -> None:
    run = Driven()
    for step in range(3):
        run.plans(call(f"a{step}"))
        run.ends(f"a{step}", AGAIN)
        run.plans(call(f"b{step}"))
        run.returns(f"b{step}")
        assert run.state.retries == {}
    assert run.failure is None


def test_a_success_beside_a_call_that_must_be_tried_again_does_not_start_anew() -> None:
    run = Driven()
    run.plans(call("a", max_retries=5))
    run.ends("a", AGAIN)
    run.plans(call("b", max_retries=5), call("c", max_retries=5))
    run.returns("b")
    run.ends("c", AGAIN)
    assert run.state.retries == {"find": 2}


def test_a_person_who_asks_for_another_try_uses_no_retry() -> None:
    run = Driven()
    run.plans(call("a", wait_for="approval", max_retries=0))
    run.updates("retry", "a", message="Take the other account.")
    assert run.asks
    assert run.told == [
        {
            "part_kind": "retry-prompt",
            "content": "Take the other account.",
            "tool_name": "find",
            "tool_call_id": "a",
        }
    ]
    assert run.state.retries == {}


def test_an_invalid_output_may_be_corrected_as_often_as_output_retries_say() -> None:
    run = Driven()
    run.plans(retry="Answer in JSON.", features=Features(output_retries=2))
    run.plans(retry="Answer in JSON.", features=Features(output_retries=2))
    assert run.asks
    run.plans(retry="In JSON!", features=Features(output_retries=2))
    assert run.failure == (
        "OutputValidationFailed",
        "The model's output was invalid 3 times, and output_retries is 2. The last problem was: In JSON!",
    )


def test_several_invalid_outputs_in_one_step_count_once() -> None:
    run = Driven()
    run.plans(call("a", settled=AGAIN, output=True), call("b", settled=AGAIN, output=True))
    assert run.asks
    assert run.state.output_retries == 1


def test_an_invalid_output_beside_a_valid_one_does_not_count() -> None:
    run = Driven()
    done = Returned(content="Final result processed.")
    bad = [call(f"bad{i}", settled=AGAIN, output=True) for i in range(3)]
    run.plans(*bad, call("good", settled=done, output=True), output=42)
    assert run.output == 42


# --- sizes -----------------------------------------------------------------------------------------------------------


def next_request(run: Driven) -> int:
    """JSON bytes of the next model request's argument."""
    [command] = run.last(RequestStep)
    return len(command.input.to_json())


def test_results_that_fit_alone_but_not_together_are_told_to_the_model() -> None:
    run = Driven()
    run.plans(call("a"), call("b"), call("c"))
    run.returns("a", "x" * 1_500_000)
    run.returns("b", "y" * 1_500_000)
    run.returns("c", "z" * 300_000)
    assert run.asks
    assert run.told_about("b")["outcome"] == "failed"
    assert run.told_about("b")["content"] == (
        "The result has 1,500,032 bytes, and 466,048 bytes are left for this step's results. Ask for less: a filter, "
        "a page, or fewer calls at once."
    )
    assert run.told_about("c")["content"].startswith("zzz")
    assert next_request(run) < MAX_PAYLOAD_BYTES


def test_what_people_send_counts_like_results() -> None:
    """Ten answers of 900 kB each once went into one payload, which Temporal refuses for good."""
    run = Driven()
    run.plans(call("a", wait_for="external"), call("b", wait_for="external"), call("c", wait_for="external"))
    run.signals("resolve", "a", result="ü" * 450_000)
    run.signals("resolve", "b", result="x" * 900_000)
    run.signals("resolve", "c", result="x" * 900_000)
    assert [rejection.error for rejection in run.rejected] == ["InvalidDecision"]
    run.signals("retry", "c", message="x" * 900_000)
    run.signals("deny", "c", message="x" * 900_000)
    assert len(run.rejected) == 3
    run.signals("deny", "c", message="x" * 60_000)
    assert next_request(run) < MAX_PAYLOAD_BYTES


def test_a_call_can_be_answered_however_full_the_step_is() -> None:
    """A step full of results once refused every decision, the plainest "no" too: the run waited for ever."""
    run = Driven()
    run.plans(call("a"), call("b", wait_for="approval"), call("c", wait_for="external"))
    run.ends("a", Returned(content="x"), size_bytes=STEP_BYTES)
    run.signals("deny", "b")
    run.signals("resolve", "c", result={"status": "paid"})
    assert run.asks
    assert run.told_about("c")["content"] == {"status": "paid"}


def test_errors_count_too() -> None:
    run = Driven()
    run.plans(*(call(f"c{i}", on_error="tell_model") for i in range(3)))
    for i in range(3):
        run.ends(f"c{i}", Failed(error_type="Big", message="x" * 900_000))
    assert next_request(run) < MAX_PAYLOAD_BYTES


def test_edited_arguments_may_be_as_large_as_those_of_a_model() -> None:
    run = Driven()
    run.plans(call("a", wait_for="approval"))
    run.updates("approve", "a", override_args={"x": "y" * MAX_PAYLOAD_BYTES})
    assert [rejection.error for rejection in run.rejected] == ["InvalidArguments"]
    run.updates("approve", "a", override_args={"x": "y" * (MAX_PAYLOAD_BYTES // 5)})
    assert run.started == ["a"]


def test_a_message_that_steers_counts_in_bytes() -> None:
    run = Driven()
    run.steers("😀" * 300_000)
    assert run.rejected[0].message == ("The message has 1,200,040 bytes of JSON, and at most 983,040 fit in this step.")
    run.steers("😀" * 200_000)
    run.steers("😀" * 200_000)
    run.steers("😀" * 200_000)
    assert len(run.state.steers) == 2
    run.plans(call("a"))
    run.returns("a")
    assert next_request(run) < MAX_PAYLOAD_BYTES
    assert run.state.step_bytes == 0


# --- decisions that cannot apply, and what is kept of them -----------------------------------------------------------


def test_at_most_100_decisions_are_kept_for_calls_that_do_not_wait_yet() -> None:
    run = Driven()
    for i in range(101):
        run.signals("deny", f"c{i}")
    assert len(run.state.early) == 100
    [rejection] = run.rejected
    assert rejection.content == '{"tool_call_id": "c100"}'


def test_decisions_that_are_kept_are_bounded_in_bytes() -> None:
    run = Driven()
    for i in range(3):
        run.signals("resolve", f"c{i}", result="x" * 400_000)
    assert [early.decision["tool_call_id"] for early in run.state.early] == ["c0", "c1"]
    assert len(run.rejected) == 1
    assert len(run.rejected[0].content) == 400


def test_an_update_for_a_call_that_does_not_wait_is_not_kept() -> None:
    run = Driven()
    run.updates("deny", "a")
    assert run.state.early == []
    assert [rejection.error for rejection in run.rejected] == ["UnknownCall"]


def test_a_decision_on_a_call_of_an_earlier_step_is_listed_and_not_kept() -> None:
    """No call has its ID again: it would be kept for ever, in the place of one that is needed."""
    run = Driven()
    run.plans(call("a"))
    run.returns("a")
    run.signals("deny", "a")
    assert run.state.early == []
    assert [rejection.message for rejection in run.rejected] == [
        "Call 'a' does not wait for a decision: it has its result."
    ]


def test_decisions_kept_for_a_call_that_never_waited_are_listed_when_its_step_ends() -> None:
    run = Driven()
    run.signals("deny", "a")
    run.plans(call("a"))
    run.returns("a")
    assert run.state.early == []
    assert [rejection.message for rejection in run.rejected] == ["Call 'a' ended without waiting for a decision."]


def test_nothing_is_taken_in_while_a_run_ends() -> None:
    run = Driven()
    run.plans(call("a", on_error="fail_run"), call("b", repeatable=False))
    run.errs("a")
    run.signals("deny", "b")
    run.signals("approve", "later", digest="0")
    run.steers("Do go on.")
    assert [rejection.message for rejection in run.rejected] == [
        "No call waits any more: the run ends with ToolFailed.",
        "No call waits any more: the run ends with ToolFailed.",
        "There is no next step: the run ends with ToolFailed.",
    ]
    assert run.state.early == []


@pytest.mark.parametrize("value", [float("inf"), float("nan"), {"deep": [float("-inf")]}, "\ud800"])
def test_a_value_that_json_cannot_write_is_refused(value: Any) -> None:
    """`1e999` is good JSON, and infinity to Python: hashing it once failed the workflow task for good."""
    run = Driven()
    run.plans(call("a", wait_for="approval"), call("b", wait_for="external"))
    run.signals("approve", "a", override_args={"x": value})
    run.signals("resolve", "b", result=value)
    run.signals("resolve", "later", result=value)
    assert [rejection.error for rejection in run.rejected] == ["InvalidDecision"] * 3


def test_arguments_that_json_cannot_write_can_wait_in_a_run_without_a_wire() -> None:
    run = Driven()
    run.plans(call("a", args={"x": float("inf")}, wait_for="approval"))
    run.updates("approve", "a")
    assert run.started == ["a"]


def test_texts_that_a_run_keeps_for_people_are_cut() -> None:
    run = Driven()
    run.plans(call("a", wait_for="approval"), call("b"))
    run.signals("deny", "a", message="no " * 10_000)
    assert len(run.records[0].reason or "") == 4_001
    run.ends("b", Retried(content="x" * 100_000))
    run.plans(call("c"))
    run.ends("c", Retried(content="x" * 100_000))
    assert run.failure is not None
    assert len(run.failure[1]) == 4_001


def test_refusing_to_run_a_call_of_unknown_outcome_again_says_nothing_of_its_first_execution() -> None:
    run = Driven()
    run.plans(call("a", repeatable=False))
    run.is_lost("a")
    run.updates("deny", "a")
    assert run.told_about("a")["outcome"] == "failed"
    assert run.told_about("a")["content"] == (
        "The worker was lost while the call ran. The call may or may not have taken effect. It was not made again."
    )


def test_an_in_process_caller_settles_only_what_waits() -> None:
    run = Driven()
    run.plans(call("a", settled=Retried(content="No such tool.")), call("b", wait_for="external"))
    assert run.machine.settle("a", Returned(content=1), run.now) == []
    assert run.machine.settle("nobody", Returned(content=1), run.now) == []
    commands = run.machine.settle("b", Returned(content=1), run.now)
    assert any(isinstance(command, RequestStep) for command in commands)
    assert [part["content"] for part in run.told] == ["No such tool.", 1]
    assert run.machine.settle("b", Returned(content=2), run.now) == []


# --- workers without the agent ---------------------------------------------------------------------------------------

MISPLACED = Transient(error_type="UnknownAgent", message="No agent 'desk'.", retry_after=1, misplaced=True)


def test_a_worker_without_the_agent_uses_none_of_the_tools_attempts() -> None:
    """While a release is rolled out, a call may land on a worker that does not host its agent."""
    run = Driven()
    run.plans(call("a", repeatable=False, attempts=1))
    for _ in range(MAX_MISPLACED):
        run.ends("a", MISPLACED)
        [timer] = run.last(StartTimer)
        run.apply(TimerFired(name=timer.name, at=run.now))
        assert run.last(StartCall)
    run.returns("a")
    assert run.told_about("a")["content"] == "found"


def test_an_agent_that_no_worker_hosts_any_more_fails_the_run() -> None:
    run = Driven()
    run.plans(call("a"))
    for _ in range(MAX_MISPLACED):
        run.ends("a", MISPLACED)
        [timer] = run.last(StartTimer)
        run.apply(TimerFired(name=timer.name, at=run.now))
    run.ends("a", MISPLACED)
    assert run.last(Fail) == [Fail(error_type="UnknownAgent", message="No agent 'desk'.")]
