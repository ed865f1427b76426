"""What a run shows of itself: status, pending calls, its memo and the Markdown in the Temporal UI."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Literal

from outlast.contracts import CallState, MessagesPage, PendingCall, PendingSummary, RunContextPage, Status
from outlast.messages import JsonObject
from outlast.workflows.state import Call, RunState, run_state

PAGE_BYTES = 1024 * 1024
"""Most JSON bytes of a page of messages, unless one message alone is larger."""

MEMO_CALLS = 8
"""Most calls that the memo names: Temporal warns above 2 KiB."""


def pending(state: RunState) -> list[PendingCall]:
    """The calls that wait for a decision, in the order in which the model asked for them."""
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
        pending=pending(state),
        paused=state.paused,
        paused_by=state.paused_by,
        decisions=state.decisions,
        rejected=state.rejected,
        early=len(state.early),
        error={"type": ending.error_type, "message": ending.message} if ending is not None else None,
    )


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
    waiting = pending(state)
    calls = [
        {
            "tool_call_id": call.tool_call_id,
            "tool_name": call.tool_name,
            "kind": call.kind,
            "requested_at": call.requested_at.isoformat(timespec="seconds"),
            "digest": call.digest,
            "summary": cut(call.prompt or summary(call.args), 80),
        }
        for call in waiting[:MEMO_CALLS]
    ]
    return PendingSummary(agent=state.facts.agent, count=len(waiting), calls=calls, updated_at=at)


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
    head = f"**{state.facts.agent}**: {run_state(state)}, step {state.step}"
    if state.paused:
        head += f". Paused{f' by {state.paused_by}' if state.paused_by else ''}: send the signal `resume` with `{{}}`"
    lines = [head]
    for call in pending(state):
        lines += ["", *_call_details(call, workflow_id)]
    return cut("\n".join(lines), 18_000)


def _call_details(call: PendingCall, workflow_id: str) -> list[str]:
    since = call.requested_at.isoformat(timespec="seconds")
    lines = [f"### {call.prompt or call.tool_name} waits: {call.kind.replace('_', ' ')}", f"Since {since}."]
    if reason := call.metadata.get("reason"):
        lines.append(f"{reason}. It may or may not have taken effect.")
    args = json.dumps(call.args, indent=2, ensure_ascii=False)
    lines += ["", "```json", cut(args, 4_000), "```", ""]
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
    text = json.dumps(payload, ensure_ascii=False).replace("'", "'\\''")
    return ["```sh", f"temporal workflow signal --workflow-id '{workflow_id}' --name {name} --input '{text}'", "```"]
