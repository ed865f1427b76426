"""What came from outside and did not apply: kept for a call that may wait later, or listed. Nothing vanishes."""

from __future__ import annotations

import json
from collections.abc import Container
from datetime import datetime

from outlast.contracts import DECISIONS, MAX_PAYLOAD_BYTES, Approve, Rejection
from outlast.errors import DecisionRejected, UnknownCall
from outlast.messages import JsonObject
from outlast.workflows import decisions, parts
from outlast.workflows.events import Decided
from outlast.workflows.state import Early, RunState

MAX_EARLY = 100
"""Most decisions that are kept for calls that do not wait yet."""

MAX_EARLY_BYTES = MAX_PAYLOAD_BYTES // 2
"""Most JSON bytes of them together."""

MAX_REJECTED = 100
"""Most rejected messages that a run keeps, the newest of them."""

CONTENT_CHARS = 400
"""Most of a rejected message's content that is kept."""


def keep_or_reject(state: RunState, event: Decided, rejection: DecisionRejected) -> None:
    """Take in a decision that does not apply now."""
    if isinstance(rejection, UnknownCall) and event.keep and _keep(state, event):
        return
    said = event.decision.model_dump(exclude_defaults=True)
    reject(state, event.decision.kind, type(rejection).__name__, rejection.message, shown(said), event.at)


def _keep(state: RunState, event: Decided) -> bool:
    """Keep a decision for a call that may wait later, if it may. An approval must say what it approves."""
    decision = event.decision
    if not decisions.may_wait_later(state, decision.tool_call_id):
        return False
    if isinstance(decision, Approve) and decision.digest is None:
        return False
    content = decision.model_dump(mode="json", exclude_defaults=True)
    kept = [content, *(early.decision for early in state.early)]
    if len(kept) > MAX_EARLY or parts.size_bytes(kept) > MAX_EARLY_BYTES:
        return False
    state.early.append(Early(name=decision.kind, decision=content, via=event.via, at=event.at))
    return True


def take_early(state: RunState, tool_call_id: str) -> list[Decided]:
    """The decisions that were kept for a call, in the order in which they came. They are not kept a second time."""
    return [
        Decided(decision=DECISIONS[early.name].model_validate(early.decision), via=early.via, keep=False, at=early.at)
        for early in _remove_early(state, {tool_call_id})
    ]


def reject_early(state: RunState) -> None:
    """List the decisions that were kept for calls of this step, which ended without ever waiting."""
    for early in _remove_early(state, state.calls.keys()):
        message = f"Call {early.decision['tool_call_id']!r} ended without waiting for a decision."
        reject(state, early.name, UnknownCall.__name__, message, shown(early.decision), early.at)


def _remove_early(state: RunState, ids: Container[str]) -> list[Early]:
    mine = [early for early in state.early if early.decision["tool_call_id"] in ids]
    if mine:
        state.early = [early for early in state.early if early.decision["tool_call_id"] not in ids]
    return mine


def reject(state: RunState, name: str, error: str, message: str, content: str, at: datetime) -> None:
    """List a message that nobody can apply."""
    listed = Rejection(name=name, error=error, message=parts.cut(message), content=content[:CONTENT_CHARS], at=at)
    state.rejected = [*state.rejected, listed][-MAX_REJECTED:]


def shown(said: JsonObject) -> str:
    """A message as its sender gave it, whatever it holds."""
    return json.dumps(said, ensure_ascii=False, default=str).encode(errors="replace").decode()
