"""What a run shows of itself: status, pending calls and its memo; its page in the Temporal UI is in `page`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal, TypeVar

from outlast.contracts import (
    CallState,
    MessagesPage,
    PendingCall,
    PendingSummary,
    RunContextPage,
    Status,
    Wire,
)
from outlast.markdown import cut, one_line
from outlast.messages import JsonObject
from outlast.workflows import parts
from outlast.workflows.state import Call, RunState, run_state

PAGE_BYTES = 1024 * 1024
"""Most JSON bytes of a page of messages, unless one message alone is larger."""

MEMO_BYTES = 1_900
"""Most JSON bytes of the memo: Temporal warns above 2 KiB."""

DETAIL_BYTES = 512 * 1024
"""Most JSON bytes that waiting calls may show besides their arguments, so that an answer always fits."""

RECORD_BYTES = 128 * 1024
"""Most JSON bytes of decisions, and of rejected messages, that a status shows: the newest of them."""

TOOLS_BYTES = 1_500
"""Most bytes of the search attribute with the tools that wait: Temporal takes 2 KiB."""

RecordT = TypeVar("RecordT", bound=Wire)


def pending(state: RunState) -> list[PendingCall]:
    """The calls that wait for a decision, in the order in which the model asked for them."""
    calls = waiting(state)
    room = DETAIL_BYTES
    for call in calls:
        size = parts.size_bytes([call.metadata, call.json_schema])
        if size <= room:
            room -= size
        else:
            call.metadata = {"omitted": f"{size:,} bytes of metadata and schema, which do not fit here"}
            call.json_schema = None
    return calls


def waiting(state: RunState) -> list[PendingCall]:
    """The calls that wait, with all that they show, however large."""
    return [_pending_call(state, call) for call in state.calls.values() if call.held is not None]


def _pending_call(state: RunState, call: Call) -> PendingCall:
    assert call.held is not None
    metadata = dict(call.held.metadata)
    if state.facts.metadata:
        metadata["run"] = state.facts.metadata
    return PendingCall(
        tool_call_id=call.plan.tool_call_id,
        tool_name=call.plan.tool_name,
        args=call.args,
        digest=call.held.digest,
        kind=call.held.kind,
        requested_at=call.held.requested_at,
        metadata=metadata,
        prompt=call.plan.prompt,
        json_schema=call.held.json_schema,
    )


def status(state: RunState) -> Status:
    """Answer to the query `status`."""
    answer = brief_status(state)
    answer.pending = pending(state)
    answer.decisions = _newest(state.decisions)
    answer.rejected = _newest(state.rejected)
    return answer


def brief_status(state: RunState) -> Status:
    """Answer to an update that is no decision: the status without its lists."""
    running = [f"call:{call_id}" for call_id, call in state.calls.items() if call.status == "running"]
    if state.asking:
        running.insert(0, f"model:{state.step}")
    ending = state.ending
    return Status(
        state=run_state(state),
        agent=state.facts.agent,
        step=state.step,
        usage=state.usage,
        messages=len(state.messages),
        running=running,
        pending=[],
        paused=state.paused,
        paused_by=state.paused_by,
        early=len(state.early),
        error={"type": ending.error_type, "message": ending.message} if ending is not None else None,
    )


def _newest(records: Sequence[RecordT]) -> list[RecordT]:
    """The newest records, as many as fit."""
    shown: list[RecordT] = []
    size = 0
    for record in reversed(records):
        size += len(record.to_json())
        if size > RECORD_BYTES:
            break
        shown.append(record)
    return shown[::-1]


def call_state(state: RunState, tool_call_id: str) -> CallState:
    """Answer to an update: what became of the call that it decided."""
    record = next((record for record in reversed(state.decisions) if record.tool_call_id == tool_call_id), None)
    call = state.calls.get(tool_call_id)
    waits = call is not None and call.held is not None
    return CallState(
        tool_call_id=tool_call_id,
        state="waiting" if waits or record is None else _DECIDED[record.decision],
        decision=record,
    )


_DECIDED: dict[str, Literal["approved", "denied", "resolved", "retried"]] = {
    "approve": "approved",
    "deny": "denied",
    "resolve": "resolved",
    "retry": "retried",
}


def messages_page(state: RunState, start: int, end: int | None) -> MessagesPage:
    """Messages from `start` up to `end`, as many as fit into one answer."""
    total = len(state.messages)
    end = total if end is None else min(end, total)
    page: list[JsonObject] = []
    size = 0
    for message in state.messages[start:end]:
        size += len(json.dumps(message))
        if page and size > PAGE_BYTES:
            break
        page.append(message)
    following = start + len(page)
    return MessagesPage(messages=page, start=start, total=total, next=following if following < end else None)


def context_page(state: RunState) -> RunContextPage:
    """Answer to the query `context`."""
    return RunContextPage(facts=state.facts, deps=state.deps)


def pending_summary(state: RunState, at: datetime) -> PendingSummary:
    """What the memo says: enough to list what waits over many runs without asking any of them."""
    calls = waiting(state)
    memo = PendingSummary(agent=state.facts.agent, count=len(calls), updated_at=at)
    room = MEMO_BYTES - len(memo.to_json()) - len(',"calls":[]')
    for call in calls:
        named = {
            "tool_call_id": call.tool_call_id,
            "tool_name": cut(one_line(call.tool_name), 64),
            "kind": call.kind,
            "requested_at": call.requested_at.isoformat(timespec="seconds"),
            "digest": call.digest,
            "summary": cut(one_line(call.prompt or summary(call.args)), 80),
        }
        room -= parts.size_bytes(named) + 1
        if room < 0:
            break
        memo.calls.append(named)
    return memo


def waiting_tools(state: RunState) -> list[str]:
    """The names of the tools that wait, each once, as many as fit into a search attribute."""
    names = dict.fromkeys(call.plan.tool_name for call in state.calls.values() if call.held is not None)
    return list(_fitting(names, TOOLS_BYTES))


def _fitting(names: Iterable[str], size_bytes: int) -> Iterable[str]:
    for name in names:
        size_bytes -= parts.size_bytes(name) + 1
        if size_bytes < 0:
            return
        yield name


def summary(args: JsonObject) -> str:
    """Arguments in one line for people: `order_id=1042, cents=1999`."""
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in args.items())
