"""What is seen of a run before anybody decides about it: from its worker, else from its memo on the server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from outlast.cli.listening import Listening, who_listens
from outlast.client import WORKFLOW_TYPE, Client, explain_rpc
from outlast.contracts import DecisionRecord, PendingCall
from outlast.errors import AlreadyDecided, UnknownCall, UnknownRun, UserError
from outlast.messages import JsonObject

__all__ = ("Seen", "WaitingCall", "look_at")

ANSWER_SECONDS = 5


@dataclass(frozen=True, kw_only=True)
class WaitingCall:
    """A waiting call, as far as it is known: the memo has no arguments.

    Attributes:
        sentence: What a person is asked, or the arguments in one line; cut where it comes from the memo.
    """

    run_id: str
    agent: str
    tool_call_id: str
    tool_name: str
    kind: str
    requested_at: datetime
    digest: str
    sentence: str
    args: JsonObject | None = None
    expires_at: datetime | None = None
    metadata: JsonObject = field(default_factory=dict[str, Any])
    json_schema: JsonObject | None = None

    def to_json(self) -> JsonObject:
        """The fields that are known."""
        known = {name: value for name, value in vars(self).items() if value not in (None, {})}
        return known if self.args is None else {**known, "args": self.args}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What is known of a run.

    Attributes:
        state: `running`, or how it ended.
        calls: Those that wait.
        count: How many wait; the memo names the first few.
        decisions: What was decided so far; empty where no worker answered.
        listening: Who listens on the run's task queue.
        answered: A worker answered. Else all of this comes from the memo.
    """

    run_id: str
    state: str
    calls: list[WaitingCall] = field(default_factory=list[WaitingCall])
    count: int = 0
    decisions: list[DecisionRecord] = field(default_factory=list[DecisionRecord])
    listening: Listening
    answered: bool = True

    @property
    def advice(self) -> str | None:
        """What to say where no worker answered."""
        if self.answered:
            return None
        if not self.listening:
            return self.listening.advice
        return (
            f"No worker answered within {ANSWER_SECONDS} seconds, though {', '.join(self.listening.workers)} listened "
            f"on {self.listening.task_queue!r} within the last minute. It may be gone: `outlast worker APP` starts one."
        )

    def find(self, tool_call_id: str) -> WaitingCall:
        """A waiting call.

        Raises:
            AlreadyDecided: It was decided.
            UnknownCall: It does not wait in this run.
            UnknownRun: The run has ended.
        """
        for call in self.calls:
            if call.tool_call_id == tool_call_id:
                return call
        if self.state != "running":
            raise UnknownRun(f"The run {self.run_id!r} has ended ({self.state}): nothing of it waits any more.")
        for record in reversed(self.decisions):
            if record.tool_call_id == tool_call_id:
                raise AlreadyDecided(f"{self.decided(record)} It stands: a call is decided once.")
        waiting = ", ".join(f"{call.tool_call_id} ({call.tool_name})" for call in self.calls) or "nothing"
        more = f", and {self.count - len(self.calls)} more" if self.count > len(self.calls) else ""
        raise UnknownCall(
            f"No call {tool_call_id!r} waits in the run {self.run_id!r}. What waits there: {waiting}{more}."
        )

    def decided(self, record: DecisionRecord) -> str:
        """A decision as a sentence."""
        words = {
            "approve": "approved",
            "deny": "denied",
            "resolve": "given a result",
            "retry": "sent to be retried",
        }
        by = f" by {record.by}" if record.by else ""
        at = record.at.isoformat(sep=" ", timespec="seconds")
        return f"The call {record.tool_call_id!r} ({record.tool_name}) was {words[record.decision]}{by} at {at}."


async def look_at(client: Client, run_id: str, *, ask: bool = True) -> Seen:
    """See what a run waits for, with or without a worker.

    Args:
        client: Of the run's namespace.
        run_id: The run.
        ask: Ask a worker, where one listens. Else the server has to do.

    Raises:
        UnknownRun: There is no such run.
        UserError: The ID is that of another workflow.
    """
    handle = client.temporal.get_workflow_handle(run_id)
    try:
        described = await handle.describe()
        memo: JsonObject = (await described.memo()).get("outlast") or {}
    except RPCError as error:
        raise explain_rpc(error, run_id) from None
    if described.workflow_type != WORKFLOW_TYPE:
        raise UserError(f"{run_id!r} is no agent run, but a workflow of type {described.workflow_type!r}.")
    listening = await who_listens(client.temporal, described.task_queue)
    status = described.status or WorkflowExecutionStatus.RUNNING
    if status != WorkflowExecutionStatus.RUNNING:
        # As everywhere else in outlast: Temporal spells it with one l.
        state = status.name.lower().replace("_", " ").replace("canceled", "cancelled")
        return Seen(run_id=run_id, state=state, listening=listening)
    if listening and ask:
        try:
            answer = await asyncio.wait_for(client.get(run_id).status(), ANSWER_SECONDS)
        except (TimeoutError, UserError):
            pass  # the memo knows enough
        else:
            calls = [_from_worker(run_id, answer.agent, call) for call in answer.pending]
            return Seen(
                run_id=run_id,
                state="running",
                calls=calls,
                count=len(calls),
                decisions=answer.decisions,
                listening=listening,
            )
    calls = [_from_memo(run_id, memo, call) for call in memo.get("calls", [])]
    return Seen(
        run_id=run_id,
        state="running",
        calls=calls,
        count=memo.get("count", len(calls)),
        listening=listening,
        answered=bool(listening) and not ask,
    )


def _from_worker(run_id: str, agent: str, call: PendingCall) -> WaitingCall:
    return WaitingCall(
        run_id=run_id,
        agent=agent,
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        kind=call.kind,
        requested_at=call.requested_at,
        digest=call.digest,
        sentence=call.prompt or "",
        args=call.args,
        expires_at=call.expires_at,
        metadata=call.metadata,
        json_schema=call.json_schema,
    )


def _from_memo(run_id: str, memo: JsonObject, call: JsonObject) -> WaitingCall:
    return WaitingCall(
        run_id=run_id,
        agent=memo.get("agent", ""),
        tool_call_id=call["tool_call_id"],
        tool_name=call["tool_name"],
        kind=call["kind"],
        requested_at=datetime.fromisoformat(call["requested_at"]),
        digest=call["digest"],
        sentence=call.get("summary", ""),
    )
