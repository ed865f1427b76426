"""What crosses a process boundary comes out as it went in, for this release and the next."""

from __future__ import annotations

import json
from typing import Any

import pydantic_core
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot
from pydantic import TypeAdapter, ValidationError

from outlast.contracts import (
    DECISIONS,
    CallInput,
    CallOutcome,
    CallPolicy,
    CallState,
    DecisionRecord,
    Deferred,
    DepsVersion,
    Failed,
    Features,
    MessagesPage,
    OutputRetry,
    Pause,
    PendingCall,
    PendingSummary,
    PlannedCall,
    PlannedOutput,
    Position,
    Rejection,
    Retried,
    Returned,
    RunContextPage,
    RunFacts,
    RunInput,
    Skipped,
    Status,
    Steer,
    StepInput,
    StepPlan,
    Strict,
    Transient,
    UsageLimits,
    Wire,
    call_digest,
    canonical_json,
    extend_digest,
)
from outlast.messages import BinaryContent, ImageUrl, Usage

OUTCOME: TypeAdapter[Any] = TypeAdapter(CallOutcome)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**30, 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(texts, json_values, max_size=3)
seconds = st.floats(0, 1e6)
contents = (
    st.none()
    | texts
    | st.lists(
        texts
        | st.builds(ImageUrl, url=texts)
        | st.builds(BinaryContent, data=st.binary(max_size=20), media_type=st.just("image/png")),
        max_size=3,
    )
)
outcomes = st.one_of(
    st.builds(Returned, content=json_values, user_content=contents, metadata=json_values, deps=json_objects),
    st.builds(
        Retried,
        content=texts | st.lists(json_objects, max_size=2),
        reason=st.sampled_from(["tool", "arguments", "unknown_tool", "timeout"]),
        deps=json_objects,
    ),
    st.builds(Failed, error_type=texts, message=texts, known=st.booleans(), deps=json_objects),
    st.builds(Transient, error_type=texts, message=texts, retry_after=st.none() | seconds),
    st.builds(
        Deferred,
        wait_for=st.sampled_from(["approval", "deferred"]),
        metadata=json_objects,
        json_schema=st.none() | json_objects,
        deps=json_objects,
    ),
    st.builds(Skipped, content=texts),
)
policies = st.builds(
    CallPolicy,
    timeout=st.integers(1, 10**6) | seconds,
    repeatable=st.none() | st.booleans(),
    attempts=st.integers(1, 9),
    backoff=seconds,
    max_retries=st.integers(0, 9),
    sequential=st.booleans(),
    task_queue=st.none() | texts,
    local=st.booleans(),
    on_error=st.sampled_from(["tell_model", "fail_run", "ask"]),
    on_unknown=st.sampled_from(["ask", "tell_model"]),
)
planned = st.builds(
    PlannedCall,
    tool_call_id=texts,
    tool_name=texts,
    args=st.none() | json_objects,
    policy=policies,
    settled=st.none() | outcomes,
    wait_for=st.sampled_from([None, "approval", "external"]),
    metadata=json_objects,
    prompt=st.none() | texts,
    json_schema=st.none() | json_objects,
    output=st.booleans(),
)
plans = st.builds(
    StepPlan,
    response=json_objects,
    calls=st.lists(planned, max_size=3),
    output=st.none() | st.builds(PlannedOutput, text=st.booleans(), value=json_values),
    retry=st.none() | st.builds(OutputRetry, content=texts | st.lists(json_objects, max_size=2)),
    features=st.builds(Features, search_attributes=st.booleans(), output_retries=st.integers(0, 9)),
)
positions = st.builds(
    Position,
    base=st.integers(0, 99),
    digest=texts,
    delta=st.lists(json_objects, max_size=3),
    facts=st.none() | st.builds(RunFacts, agent=texts, metadata=json_objects, model_settings=st.none() | json_objects),
    deps=st.none() | st.builds(DepsVersion, version=st.integers(0, 9), value=json_values),
)
call_inputs = st.builds(
    CallInput,
    agent=texts,
    run_key=texts,
    step=st.integers(1, 9),
    position=positions,
    tool_call_id=texts,
    tool_name=texts,
    args=json_objects,
    policy=policies,
    repeatable=st.booleans(),
    approved_digest=st.none() | texts,
    usage=st.builds(Usage, requests=st.integers(0, 9), details=st.dictionaries(texts, st.integers(), max_size=2)),
)
quick = settings(max_examples=60, deadline=None)


# --- there and back --------------------------------------------------------------------------------------------------


@given(outcome=outcomes)
@quick
def test_every_outcome_comes_back_as_it_was(outcome: Any) -> None:
    back = OUTCOME.validate_json(outcome.to_json())
    assert type(back) is type(outcome)
    assert back == outcome
    assert back.to_json() == outcome.to_json()


@given(plan=plans)
@quick
def test_every_plan_comes_back_as_it_was(plan: StepPlan) -> None:
    assert StepPlan.model_validate_json(plan.to_json()) == plan


@given(given_input=call_inputs)
@quick
def test_what_a_worker_is_told_comes_back_as_it_was(given_input: CallInput) -> None:
    assert CallInput.model_validate_json(given_input.to_json()) == given_input


def test_fields_at_their_defaults_are_not_sent() -> None:
    """A step sends one of these for each call: what says nothing costs nothing."""
    assert Returned(content="ok").to_json() == snapshot(b'{"kind":"returned","content":"ok"}')
    assert PlannedCall(tool_call_id="a", tool_name="find").to_json() == snapshot(
        b'{"tool_call_id":"a","tool_name":"find"}'
    )
    plan = StepPlan(response={"kind": "response", "parts": []}, calls=[PlannedCall(tool_call_id="a", tool_name="f")])
    assert plan.to_json() == snapshot(
        b'{"response":{"kind":"response","parts":[]},"calls":[{"tool_call_id":"a","tool_name":"f"}]}'
    )
    assert Returned().to_json() == snapshot(b'{"kind":"returned"}')


@pytest.mark.parametrize("kind", [*DECISIONS])
def test_the_kind_of_a_decision_is_its_name_and_is_never_sent(kind: str) -> None:
    fields: dict[str, Any] = {"resolve": {"result": None}, "retry": {"message": "m"}}.get(kind, {})
    decision = DECISIONS[kind](tool_call_id="a", **fields)
    assert decision.kind == kind
    assert "kind" not in json.loads(decision.model_dump_json())


# --- what other releases and other programs send ---------------------------------------------------------------------

WIRE: list[tuple[type[Wire], dict[str, Any]]] = [
    (Position, {}),
    (StepInput, {"agent": "a", "run_key": "r", "step": 1, "position": {"newer": 1}}),
    (
        CallInput,
        {
            "agent": "a",
            "run_key": "r",
            "step": 1,
            "position": {},
            "tool_call_id": "c",
            "tool_name": "t",
            "args": {},
            "policy": {"newer": 1},
        },
    ),
    (StepPlan, {"response": {}, "calls": [{"tool_call_id": "c", "tool_name": "t", "newer": 1}]}),
    (Returned, {"content": 1}),
    (Deferred, {"wait_for": "approval"}),
    (RunFacts, {"agent": "a"}),
    (RunContextPage, {"facts": {"agent": "a", "newer": 1}, "deps": {}}),
    (MessagesPage, {"messages": [], "start": 0, "total": 0}),
    (PendingCall, {"tool_call_id": "c", "tool_name": "t", "args": {}, "digest": "d", "kind": "approval"}),
    (PendingSummary, {"agent": "a", "count": 0}),
    (Status, {"state": "running", "agent": "a", "step": 1, "usage": {}, "messages": 1, "running": [], "pending": []}),
    (CallState, {"tool_call_id": "c", "state": "waiting"}),
    (DecisionRecord, {"tool_call_id": "c", "tool_name": "t", "decision": "deny", "via": "signal"}),
    (Rejection, {"name": "deny", "error": "UnknownCall", "message": "m"}),
]
TIMED: dict[type[Wire], str] = {PendingCall: "requested_at", DecisionRecord: "at", Rejection: "at"}


@pytest.mark.parametrize(("model", "fields"), WIRE, ids=[model.__name__ for model, _ in WIRE])
def test_a_field_of_a_newer_release_is_ignored(model: type[Wire], fields: dict[str, Any]) -> None:
    """Workers of two releases share a queue while one is deployed."""
    if model in TIMED:
        fields = {**fields, TIMED[model]: "2026-01-05T09:00:00Z"}
    read = model.model_validate({**fields, "newer": {"deep": 1}})
    assert read == model.model_validate(fields)
    assert not hasattr(read, "newer")


STRICT: list[tuple[type[Strict], dict[str, Any]]] = [
    (RunInput, {"agent": "desk", "prompt": "hi"}),
    (UsageLimits, {}),
    (DECISIONS["approve"], {"tool_call_id": "a"}),
    (DECISIONS["deny"], {"tool_call_id": "a"}),
    (DECISIONS["resolve"], {"tool_call_id": "a", "result": None}),
    (DECISIONS["retry"], {"tool_call_id": "a", "message": "m"}),
    (Steer, {"content": "c"}),
    (Pause, {}),
]


@pytest.mark.parametrize(("model", "fields"), STRICT, ids=[model.__name__ for model, _ in STRICT])
def test_a_misspelt_field_of_a_caller_is_an_error(model: type[Strict], fields: dict[str, Any]) -> None:
    """Ignored, it would be a silent default: an approval without the digest that it was meant for."""
    model.model_validate(fields)
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        model.model_validate({**fields, "digset": "d"})


@pytest.mark.parametrize(
    "fields",
    [{"tool_call_id": ""}, {"tool_call_id": "x" * 257}, {"tool_call_id": "a", "by": "x" * 257}, {"tool_call_id": 1}],
)
def test_names_in_a_decision_have_a_length(fields: dict[str, Any]) -> None:
    """They are kept in the run's record for good."""
    with pytest.raises(ValidationError):
        DECISIONS["deny"].model_validate(fields)


# --- digests ---------------------------------------------------------------------------------------------------------


def shuffled(value: Any) -> Any:
    """The same JSON, with its keys in another order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(value)}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@given(args=json_objects)
@quick
def test_a_digest_does_not_depend_on_the_order_of_keys(args: dict[str, Any]) -> None:
    assert canonical_json(shuffled(args)) == canonical_json(args)
    assert call_digest("refund", shuffled(args)) == call_digest("refund", args)


@given(args=json_objects)
@quick
def test_a_digest_survives_the_wire(args: dict[str, Any]) -> None:
    """The worker computes it anew from what it was sent, and refuses to run anything else."""
    sent = pydantic_core.from_json(pydantic_core.to_json(args))
    assert call_digest("refund", sent) == call_digest("refund", args)
    assert call_digest("refund", json.loads(json.dumps(args))) == call_digest("refund", args)


@given(one=json_objects, other=json_objects)
@quick
def test_other_arguments_have_another_digest(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert (call_digest("t", one) == call_digest("t", other)) == (canonical_json(one) == canonical_json(other))


def test_the_digest_as_another_program_would_compute_it() -> None:
    """Part of the contract: SHA-256 over the tool's name, a zero byte and the canonical arguments."""
    args = {"order_id": 1042, "cents": 1999, "note": "für Ann"}
    assert canonical_json(args) == '{"cents":1999,"note":"für Ann","order_id":1042}'
    assert call_digest("refund", args) == snapshot("585bf7eaa51eb70dbd9217f5744b87b1ed961694521d1d503fb5930a40d1c562")
    assert call_digest("refund", {}) != call_digest("refun", {"d": 1})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_cannot_write_has_no_digest(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        call_digest("t", {"x": value})


@given(messages=st.lists(json_objects, max_size=5), cut=st.integers(0, 5))
@quick
def test_the_digest_of_a_conversation_survives_the_wire_and_grows_piece_by_piece(
    messages: list[dict[str, Any]], cut: int
) -> None:
    """Run and worker compute it apart from each other: where they differ, the conversation is fetched again."""
    whole = extend_digest("", messages)
    assert extend_digest("", pydantic_core.from_json(pydantic_core.to_json(messages))) == whole
    assert extend_digest("", Position.model_validate_json(Position(delta=messages).to_json()).delta) == whole
    assert extend_digest("", json.loads(json.dumps(messages))) == whole
    assert extend_digest(extend_digest("", messages[:cut]), messages[cut:]) == whole
    assert (whole == "") == (messages == [])


@given(messages=st.lists(json_objects, min_size=2, max_size=4, unique_by=canonical_json))
@quick
def test_the_digest_of_a_conversation_depends_on_its_order(messages: list[dict[str, Any]]) -> None:
    assert extend_digest("", messages[::-1]) != extend_digest("", messages)
    assert extend_digest("", messages[:-1]) != extend_digest("", messages)
