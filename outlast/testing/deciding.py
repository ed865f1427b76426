"""Who decides about the calls of a tested run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeAlias

import anyio
from pydantic_core import to_json

from outlast.contracts import PendingCall
from outlast.testing.hosted_run import HostedRun
from outlast.testing.progress import PAUSE_SECONDS, NothingCame, has_ended, what_waits

__all__ = ("Decide", "approve_all", "decide_all", "deny_all")

Decide: TypeAlias = Callable[[HostedRun, PendingCall], Awaitable[object]]
"""Is given each call that comes to wait, once, and decides with the run's own methods."""


async def approve_all(run: HostedRun, call: PendingCall) -> None:
    """Approve whatever waits, bound to the very arguments that wait."""
    await run.approve(call.tool_call_id, digest=call.digest)


async def deny_all(run: HostedRun, call: PendingCall) -> None:
    """Deny whatever waits."""
    await run.deny(call.tool_call_id)


async def decide_all(run: HostedRun, decide: Decide | None) -> None:
    """Offer each call that comes to wait, until the run ends.

    Args:
        run: The run.
        decide: Who decides; None where nobody does.

    Raises:
        NothingCame: The run did not end in time, or waits for a person, and nobody decides.
    """
    offered: set[tuple[str, object, str]] = set()
    looked_at: datetime | None = None
    async with run.patiently("to end"):
        while True:
            described = await run.handle.describe()
            if has_ended(described):
                return
            memo = await what_waits(described)
            if memo is not None and memo.count and memo.updated_at != looked_at:
                looked_at = memo.updated_at
                for call in (await run.status()).pending:
                    which = (call.tool_call_id, call.requested_at, call.digest)
                    if which not in offered:
                        offered.add(which)
                        await _offer(run, call, decide)
            await anyio.sleep(PAUSE_SECONDS)


async def _offer(run: HostedRun, call: PendingCall, decide: Decide | None) -> None:
    if decide is not None:
        await decide(run, call)
    # Another system may send the result of a call that was handed to it, and a deadline may come.
    elif call.kind in ("approval", "unknown_outcome") and call.expires_at is None:
        raise NothingCame(
            f"The run {run.id!r} waits for a person to decide about {call.tool_name} {to_json(call.args).decode()} "
            f"(kind {call.kind}), and nobody does: give `decide=approve_all`, or a function of your own."
        )
