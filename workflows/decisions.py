"""Whether a decision applies: every reason why not, in one place."""

from __future__ import annotations

import hashlib
import json

from pydantic import JsonValue

from outlast.contracts import (
    MAX_PAYLOAD_BYTES,
    Approve,
    Decision,
    DecisionRecord,
    Deny,
    PendingKind,
    Resolve,
    Retry,
    call_digest,
    canonical_json,
)
from outlast.errors import AlreadyDecided, DigestMismatch, InvalidArguments, InvalidDecision, UnknownCall, UserError
from outlast.messages import JsonObject
from outlast.toolsets.raw_schema import check as check_schema
from outlast.workflows import parts
from outlast.workflows.events import Decided
from outlast.workflows.state import STEP_BYTES, Call, Held, RunState

MAX_NAMED = 10
"""Most waiting calls that a rejection names."""

ARGUMENT_BYTES = MAX_PAYLOAD_BYTES // 4
"""Most JSON bytes of edited arguments: as many as the model may give."""


def fingerprint(decision: Decision) -> str:
    """The same for two decisions that say the same, whoever makes them and why."""
    said = decision.model_dump(mode="json", exclude={"by", "reason", "digest"})
    return hashlib.sha256(f"{decision.kind}{canonical_json(said)}".encode()).hexdigest()[:16]


def held_digest(call: Call, kind: PendingKind) -> str:
    """The digest that a decision on this call is bound to.

    An approval is good for one execution. Where another one is asked for, because the outcome of the last is unknown or
    the tool asks again, the digest is of that execution alone, so that no approval from before it can authorise it.
    """
    name, another = call.plan.tool_name, kind == "unknown_outcome" or call.approvals > 0
    return args_digest(f"{name}#{call.execution + 1}" if another else name, call.args)


def args_digest(name: str, args: JsonObject) -> str:
    """`call_digest`, also of arguments that JSON cannot write, as a run that sends nothing anywhere may have them."""
    try:
        return call_digest(name, args)
    except ValueError:
        return hashlib.sha256(json.dumps([name, args], sort_keys=True).encode()).hexdigest()


def find_held(state: RunState, decision: Decision) -> tuple[Call, Held] | DecisionRecord:
    """The waiting call that a decision is for, or the record of the same decision where it was made before.

    Raises:
        UnknownCall: No call with this ID waits, or ever did.
        AlreadyDecided: An earlier, different decision stands.
    """
    call_id = decision.tool_call_id
    call = state.calls.get(call_id)
    if call is not None and call.held is not None:
        return call, call.held
    earlier = next((record for record in reversed(state.decisions) if record.tool_call_id == call_id), None)
    if earlier is not None:
        if earlier.fingerprint == fingerprint(decision):
            return earlier
        by = f" by {earlier.by}" if earlier.by else ""
        raise AlreadyDecided(
            f"Call {call_id!r} of {earlier.tool_name!r} was decided already: {earlier.decision}{by} at "
            f"{earlier.at.isoformat(timespec='seconds')}. The first decision stands."
        )
    if state.ending is not None:
        raise UnknownCall(f"No call waits any more: the run ends with {state.ending.error_type}.")
    waiting = [repr(waiting_id) for waiting_id, other in state.calls.items() if other.held is not None]
    if len(waiting) > MAX_NAMED:
        waiting[MAX_NAMED:] = [f"and {len(waiting) - MAX_NAMED:,} more"]
    if call is not None:
        raise UnknownCall(
            f"Call {call_id!r} of {call.plan.tool_name!r} does not wait for a decision: it is {call.status}."
        )
    if _is_over(state, call_id):
        raise UnknownCall(f"Call {call_id!r} does not wait for a decision: it has its result.")
    raise UnknownCall(
        f"No call {call_id!r} waits in this run. "
        + (f"These wait: {', '.join(waiting)}." if waiting else "No call waits for a decision.")
    )


def may_wait_later(state: RunState, call_id: str) -> bool:
    """Whether a call with this ID may still come to wait: it is under way, or the model has not asked for it yet."""
    call = state.calls.get(call_id)
    over = _is_over(state, call_id) if call is None else call.status == "done"
    return state.ending is None and not over


def _is_over(state: RunState, call_id: str) -> bool:
    """The call is one of an earlier step."""
    return any(part.get("tool_call_id") == call_id for message in reversed(state.messages) for part in message["parts"])


def check(state: RunState, decision: Decision) -> tuple[Call, Held] | DecisionRecord:
    """What a decision applies to.

    Returns:
        The waiting call, or the record of the same decision where it was made before.

    Raises:
        DecisionRejected: Why it cannot apply; the subclass says which rule.
    """
    try:
        json.dumps(decision.model_dump(), allow_nan=False, ensure_ascii=False, default=str).encode()
    except ValueError as error:
        raise InvalidDecision(f"It holds a value that JSON cannot write, such as 1e999: {error}.") from None
    found = find_held(state, decision)
    if isinstance(found, DecisionRecord):
        return found
    call, held = found
    match decision:
        case Approve():
            _check_approval(state, call, held, decision)
        case Resolve():
            check_room(state, decision.result)
        case Retry():
            check_room(state, decision.message)
        case Deny():
            check_room(state, decision.message)
    return found


def _check_approval(state: RunState, call: Call, held: Held, decision: Approve) -> None:
    name, call_id = call.plan.tool_name, decision.tool_call_id
    if held.kind in ("external", "deferred"):
        raise InvalidDecision(
            f"Call {call_id!r} of {name!r} waits for a result from outside, not for an approval: send `resolve` with "
            f"its result, `retry` with a message to the model, or `deny`."
        )
    if decision.digest is not None and decision.digest != held.digest:
        raise DigestMismatch(
            f"Call {call_id!r} of {name!r} waits with the digest {held.digest}, and this decision is for "
            f"{decision.digest}. Look at the call again, and decide on what waits now."
        )
    if decision.digest is None and call.approvals > 0:
        effect = ", and may have taken effect" if held.kind == "unknown_outcome" else ""
        raise DigestMismatch(
            f"Call {call_id!r} of {name!r} was approved and started before{effect}. To run it again, approve it with "
            f"the digest {held.digest}; to give its result, send `resolve`."
        )
    if decision.override_args is not None:
        size = parts.size_bytes(decision.override_args)
        if size > ARGUMENT_BYTES:
            raise InvalidArguments(
                f"The edited arguments have {size:,} bytes of JSON, and at most {ARGUMENT_BYTES:,} fit."
            )
        problems = _misfits(held.json_schema, decision.override_args)
        if problems:
            raise InvalidArguments(
                f"The edited arguments do not fit the schema of {name!r}: {'; '.join(problems)}. The call still waits."
            )


def _misfits(schema: JsonObject | None, args: JsonObject) -> list[str]:
    if schema is None:
        return []
    try:
        return check_schema(schema, args)
    except UserError:
        # A schema that cannot be checked safely, such as one with a lookaround: the tool's own validation decides,
        # and an edit that it refuses comes back here.
        return []


def check_steer(state: RunState, part: JsonObject) -> None:
    """Whether a message of the user can go to the model with the next step.

    Raises:
        InvalidDecision: There is no next step, or the message is too large: one takes at most half of a step's room.
    """
    if state.ending is not None:
        raise InvalidDecision(f"There is no next step: the run ends with {state.ending.error_type}.")
    size, room = parts.size_bytes(part), max(0, min(STEP_BYTES // 2, STEP_BYTES - state.step_bytes))
    if size > room:
        raise InvalidDecision(f"The message has {size:,} bytes of JSON, and at most {room:,} fit in this step.")


def check_room(state: RunState, value: JsonValue) -> None:
    """Whether the step that is under way can take this in.

    Raises:
        InvalidDecision: It is too large.
    """
    size = parts.size_bytes(value)
    if size > state.room_bytes:
        raise InvalidDecision(f"It carries {size:,} bytes of JSON, and at most {state.room_bytes:,} fit in this step.")


def record(event: Decided, call: Call, held: Held) -> DecisionRecord:
    """What is kept for good of a decision that applies."""
    decision = event.decision
    match decision:
        case Approve(reason=text) | Deny(message=text) | Retry(message=text):
            reason = None if text is None else parts.cut(text)
        case Resolve():
            reason = None
    return DecisionRecord(
        tool_call_id=decision.tool_call_id,
        tool_name=call.plan.tool_name,
        decision=decision.kind,
        at=event.at,
        via=event.via,
        by=decision.by,
        reason=reason,
        digest=held.digest,
        fingerprint=fingerprint(decision),
        edited=isinstance(decision, Approve) and decision.override_args not in (None, call.args),
    )
