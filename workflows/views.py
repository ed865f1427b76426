"""What a run shows of itself: status, pending calls, its memo and the Markdown in the Temporal UI."""

from __future__ import annotations

import json
import re
import shlex
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
from outlast.messages import JsonObject
from outlast.workflows import parts
from outlast.workflows.state import Call, RunState, run_state

PAGE_BYTES = 1024 * 1024
"""Most JSON bytes of a page of messages, unless one message alone is larger."""

MEMO_BYTES = 1_900
"""Most JSON bytes of the memo: Temporal warns above 2 KiB."""

DETAILS_BYTES = 18_000
"""Most bytes of the Markdown on a run's page: Temporal takes 20,000."""

ARGS_BYTES = 4_000
"""Most bytes of one call's arguments on it."""

DETAIL_BYTES = 512 * 1024
"""Most JSON bytes that waiting calls may show besides their arguments, so that an answer always fits."""

RECORD_BYTES = 128 * 1024
"""Most JSON bytes of decisions, and of rejected messages, that a status shows: the newest of them."""

TOOLS_BYTES = 1_500
"""Most bytes of the search attribute with the tools that wait: Temporal takes 2 KiB."""

RecordT = TypeVar("RecordT", bound=Wire)


def pending(state: RunState) -> list[PendingCall]:
    """The calls that wait for a decision, in the order in which the model asked for them."""
    waiting = _waiting(state)
    room = DETAIL_BYTES
    for call in waiting:
        size = parts.size_bytes([call.metadata, call.json_schema])
        if size <= room:
            room -= size
        else:
            call.metadata = {"omitted": f"{size:,} bytes of metadata and schema, which do not fit here"}
            call.json_schema = None
    return waiting


def _waiting(state: RunState) -> list[PendingCall]:
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
    waiting = _waiting(state)
    memo = PendingSummary(agent=state.facts.agent, count=len(waiting), updated_at=at)
    room = MEMO_BYTES - len(memo.to_json()) - len(',"calls":[]')
    for call in waiting:
        named = {
            "tool_call_id": call.tool_call_id,
            "tool_name": cut(_one_line(call.tool_name), 64),
            "kind": call.kind,
            "requested_at": call.requested_at.isoformat(timespec="seconds"),
            "digest": call.digest,
            "summary": cut(_one_line(call.prompt or summary(call.args)), 80),
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


def cut(text: str, size_bytes: int) -> str:
    """The text, cut to so many bytes of UTF-8."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= size_bytes:
        return encoded.decode()
    return encoded[: size_bytes - 3].decode(errors="ignore") + "…"


def details(state: RunState, workflow_id: str) -> str:
    """Markdown for the run's page in the Temporal UI: what it does, what it waits for, and how to answer."""
    head = f"**{_one_line(state.facts.agent)}**: {run_state(state)}, step {state.step}"
    if state.paused:
        by = f" by {_one_line(state.paused_by)}" if state.paused_by else ""
        head += f". Paused{by}: send the signal `resume` with `{{}}`"
    text = head
    waiting = _waiting(state)
    for shown, call in enumerate(waiting):
        more = "\n".join(["", "", *_call_details(call, workflow_id)])
        if len((text + more).encode(errors="replace")) > DETAILS_BYTES:
            text += f"\n\n{len(waiting) - shown} more wait: the query `pending` shows them all."
            break
        text += more
    return text.encode(errors="replace").decode()


def _call_details(call: PendingCall, workflow_id: str) -> list[str]:
    since = call.requested_at.isoformat(timespec="seconds")
    # In one line each, whatever they hold: what a model or a tool wrote must not pass for what outlast says.
    what = _one_line(call.prompt or call.tool_name)
    lines = [f"### {what} waits: {call.kind.replace('_', ' ')}", f"Since {since}."]
    if reason := call.metadata.get("reason"):
        unknown = " It may or may not have taken effect." if call.metadata.get("effect") == "unknown" else ""
        lines.append(f"{_one_line(str(reason))}.{unknown}")
    args = _INVISIBLE.sub(_escape, json.dumps(call.args, indent=2, ensure_ascii=False))
    lines += ["", "```json", cut(args, ARGS_BYTES), "```", ""]
    if len(args.encode(errors="replace")) > ARGS_BYTES:
        lines += ["**These arguments are cut.** The query `pending` shows them in full.", ""]
    answer: JsonObject = {"tool_call_id": call.tool_call_id}
    if call.kind in ("approval", "unknown_outcome"):
        lines.append("To run it" + (" again" if call.kind == "unknown_outcome" else "") + ":")
        lines += _command(workflow_id, "approve", {**answer, "digest": call.digest})
    if call.kind != "approval":
        lines.append("To give its result:")
        lines += _command(workflow_id, "resolve", {**answer, "result": "…"})
    lines.append("To refuse it:")
    lines += _command(workflow_id, "deny", {**answer, "message": "…"})
    return lines


def _command(workflow_id: str, name: str, payload: JsonObject) -> list[str]:
    run, text = shlex.quote(_one_line(workflow_id)), shlex.quote(json.dumps(payload, ensure_ascii=False))
    return ["```sh", f"temporal workflow signal --workflow-id {run} --name {name} --input {text}", "```"]


def _one_line(text: str) -> str:
    return cut(_INVISIBLE.sub(_escape, " ".join(text.split())), 1_000)


# What a person cannot see, or sees in another order than it is, must not hide in what the person approves.
_INVISIBLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
