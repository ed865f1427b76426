"""`outlast pending`: what waits for a decision."""

from __future__ import annotations

from rich.text import Text

from outlast.cli.listening import who_listens
from outlast.cli.looking import WaitingCall, look_at
from outlast.cli.options import Options
from outlast.cli.rendering import waiting_calls
from outlast.client import Client

__all__ = ("pending",)


async def pending(run: str | None = None, /, *, options: Options | None = None) -> None:
    """List the calls that wait for a decision, over all runs or in one.

    Works without a worker: the server knows what waits. A worker adds the arguments and all details of a run.

    Args:
        run: The run's ID; by default all runs, those that wait longest first.
    """
    options = options or Options()
    client = await options.client()
    await (_pending_everywhere(client, options) if run is None else _pending_in(client, run, options))


async def _pending_everywhere(client: Client, options: Options) -> None:
    calls = [
        WaitingCall(
            run_id=call.run_id,
            agent=call.agent,
            tool_call_id=call.tool_call_id,
            tool_name=call.tool_name,
            kind=call.kind,
            requested_at=call.requested_at,
            digest=call.digest,
            sentence=call.summary,
        )
        for call in await client.list_pending()
    ]
    listening = await who_listens(client.temporal, client.task_queue)
    screen = options.screen
    screen.answer(
        {"calls": [call.to_json() for call in calls], "workers": listening.workers},
        waiting_calls(calls) if calls else Text("Nothing waits for a decision."),
    )
    if not listening:
        screen.note(listening.advice)


async def _pending_in(client: Client, run_id: str, options: Options) -> None:
    seen = await look_at(client, run_id)
    screen = options.screen
    nothing = "Nothing waits in this run." if seen.state == "running" else f"This run has ended: {seen.state}."
    screen.answer(
        {
            "run_id": run_id,
            "state": seen.state,
            "count": seen.count,
            "calls": [call.to_json() for call in seen.calls],
            "workers": seen.listening.workers,
            "answered": seen.answered,
        },
        waiting_calls(seen.calls) if seen.calls else Text(nothing),
    )
    if seen.count > len(seen.calls):
        screen.note(f"{seen.count - len(seen.calls)} more calls wait: a worker would list them.")
    if seen.advice:
        screen.note(seen.advice)
