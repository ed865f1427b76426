"""`outlast runs`: the runs that there are."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from rich.table import Table
from rich.text import Text
from temporalio.client import WorkflowExecution
from temporalio.service import RPCError

from outlast.cli.listening import who_listens
from outlast.cli.options import Options
from outlast.cli.rendering import ago, command
from outlast.cli.screen import printable
from outlast.cli.telling import duration_words
from outlast.client import WORKFLOW_TYPE, Client, explain_rpc

__all__ = ("RunEntry", "runs", "runs_table")

LISTED = 1_000
"""Most runs that are looked at, in one listing. The server lists what runs before what has ended, whenever it started:
the newest of all are picked from these."""

State = Literal["running", "waiting", "paused", "completed", "failed", "cancelled", "terminated"]
_STATUSES = {
    "running": "Running",
    "waiting": "Running",
    "paused": "Running",
    "completed": "Completed",
    "failed": "Failed",
    "cancelled": "Canceled",
    "terminated": "Terminated",
}
_STATES = {"canceled": "cancelled", "timed_out": "timed out", "continued_as_new": "continued as new"}
_STYLES = {"waiting": "yellow", "paused": "yellow", "completed": "green", "running": "cyan"}


@dataclass(frozen=True, kw_only=True)
class RunEntry:
    """A run in a list; `pending` is how many of its calls wait."""

    run_id: str
    agent: str
    state: str
    pending: int
    started_at: datetime
    ended_at: datetime | None


async def runs(
    *,
    agent: str | None = None,
    state: State | None = None,
    limit: int = 20,
    options: Options | None = None,
) -> None:
    """List runs, the newest first.

    Args:
        agent: Only runs of this agent.
        state: Only runs in this state; `waiting` are those that wait for a decision. A pause is seen where the search
            attributes of outlast are registered.
        limit: Most runs.
    """
    options = options or Options()
    client = await options.client()
    entries = await _list(client, agent, state, limit)
    listening = await who_listens(client.temporal, client.task_queue)
    screen = options.screen
    nothing = "There are no runs yet." if agent is None and state is None else "There are no such runs."
    start = f" Start one: {command('run', agent or 'AGENT', 'PROMPT')}"
    words = runs_table(entries) if entries else Text(nothing + start)
    screen.answer({"runs": [asdict(entry) for entry in entries], "workers": listening.workers}, words)
    if not listening and any(entry.ended_at is None for entry in entries):
        screen.note(listening.advice)


async def _list(client: Client, agent: str | None, state: State | None, limit: int) -> list[RunEntry]:
    query = f"WorkflowType = '{WORKFLOW_TYPE}' AND ExecutionStatus != 'ContinuedAsNew'"
    if state is not None:
        query += f" AND ExecutionStatus = '{_STATUSES[state]}'"
    try:
        listed = client.temporal.list_workflows(query, page_size=LISTED, limit=LISTED)
        entries = [await _entry(execution) async for execution in listed]
    except RPCError as error:
        raise explain_rpc(error, "") from None
    found = [entry for entry in entries if agent in (None, entry.agent) and state in (None, entry.state)]
    return sorted(found, key=lambda entry: entry.started_at, reverse=True)[: max(limit, 0)]


async def _entry(execution: WorkflowExecution) -> RunEntry:
    memo: dict[str, Any] = (await execution.memo()).get("outlast") or {}
    pending = int(memo.get("count") or 0)
    status = execution.status.name.lower() if execution.status is not None else "running"
    named = _STATES.get(status, status)
    agent = execution.search_attributes.get("OutlastAgent") or [memo.get("agent") or ""]
    if named == "running":
        # Only the search attribute tells of a pause.
        paused = execution.search_attributes.get("OutlastState") == ["paused"]
        named = "paused" if paused else "waiting" if pending else named
    return RunEntry(
        run_id=execution.id,
        agent=str(agent[0]),
        state=named,
        pending=pending if execution.close_time is None else 0,
        started_at=execution.start_time,
        ended_at=execution.close_time,
    )


def runs_table(entries: list[RunEntry], now: datetime | None = None) -> Table:
    """Runs under each other."""
    now = now or datetime.now(UTC)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in ("run", "agent", "state", "started", "took"):
        table.add_column(name, no_wrap=name == "run", overflow="fold")
    for entry in entries:
        waits = f" for {entry.pending}" if entry.state == "waiting" else f", {entry.pending} waiting"
        took = ((entry.ended_at or now) - entry.started_at).total_seconds()
        table.add_row(
            printable(entry.run_id),
            printable(entry.agent),
            Text(f"{entry.state}{waits if entry.pending else ''}", style=_STYLES.get(entry.state, "red")),
            ago(entry.started_at, now),
            duration_words(max(0.0, took)),
        )
    return table
