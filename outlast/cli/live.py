"""The part of the screen that moves: what a run does at this moment, below what it has done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from outlast.cli.following import Follower
from outlast.cli.rendering import ago, call_line, command, kind_words
from outlast.cli.screen import Screen, printable
from outlast.cli.telling import cut, duration_words
from outlast.cli.timeline import Call, Execution, Timeline
from outlast.errors import OutlastError

__all__ = ("LiveView", "in_motion")

ASK_SECONDS = 1
"""How often the server is asked about attempts that are under way: no event tells of them."""

LINES = 12


class LiveView:
    """Shows what is in motion on a terminal; elsewhere nothing.

    Args:
        screen: Where everything else is written, above this.
        follower: The run.
    """

    def __init__(self, screen: Screen, follower: Follower) -> None:
        self._screen = screen
        self._follower = follower
        self._live: Live | None = None

    @asynccontextmanager
    async def shown(self) -> AsyncGenerator[None]:
        """Shown for as long as the block."""
        if not self._screen.asks:
            yield
            return
        asking = asyncio.create_task(self._ask())
        self._start()
        try:
            yield
        finally:
            self._stop()
            asking.cancel()

    def _start(self) -> None:
        # A new one each time: one that is started again erases as many lines as it had, whatever stands there now.
        self._live = Live(
            console=self._screen.words,
            get_renderable=lambda: Group(*in_motion(self._follower.timeline)),
            refresh_per_second=8,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()

    @asynccontextmanager
    async def hidden(self) -> AsyncGenerator[None]:
        """Gone for as long as the block, so that a person can type."""
        self._stop()
        try:
            yield
        finally:
            if self._live is not None:
                self._start()

    async def _ask(self) -> None:
        while True:
            await asyncio.sleep(ASK_SECONDS)
            if any(self._follower.timeline.under_way()):
                # What cannot be asked now is asked again in a moment; the history says what really matters.
                with suppress(OutlastError):
                    await self._follower.refresh()


def in_motion(timeline: Timeline, now: datetime | None = None) -> Iterator[RenderableType]:
    """A line for each request and call that is under way, or waits."""
    now = now or datetime.now(UTC)
    lines = [*_obstacles(timeline), *_requests(timeline, now), *_calls(timeline, now)]
    yield from lines[:LINES]
    if len(lines) > LINES:
        yield _line(Text(f"… and {len(lines) - LINES} more", style="dim"))


def _obstacles(timeline: Timeline) -> Iterator[RenderableType]:
    """What keeps the run as a whole from going on."""
    if timeline.stuck:
        yield _line(Text(cut(f"! a worker cannot go on with it: {timeline.stuck}"), style="red"))
    if timeline.paused:
        yield _line(Text(f"‖ paused. To go on: {command('resume', timeline.run_id)}", style="yellow"))


def _requests(timeline: Timeline, now: datetime) -> Iterator[RenderableType]:
    for step in timeline.steps[-1:]:
        for request in step.requests:
            if request.ended_at is None:
                yield _moving(Text(f"step {step.number}  the model thinks"), request, now)


def _calls(timeline: Timeline, now: datetime) -> Iterator[RenderableType]:
    for call in timeline.calls:
        if call.waits_for is not None:
            yield _waiting(call, now)
        elif call.again_at is not None:
            words = f"{call_line(call.tool_name, call.args or {})} {again_words(call, now)}"
            yield _line(Text(cut(words), style="yellow"))
        elif call.executions and call.executions[-1].ended_at is None:
            yield _moving(Text(call_line(call.tool_name, call.args or {})), call.executions[-1], now)


def _waiting(call: Call, now: datetime) -> RenderableType:
    since = f", since {ago(call.waits_since, now)}" if call.waits_since is not None else ""
    line = Text("‖ ", style="bold yellow")
    line.append(cut(f"{call.tool_name} {kind_words(call.waits_for or '')}{since}"), style="not bold yellow")
    return _line(line)


def _moving(what: Text, execution: Execution, now: datetime) -> RenderableType:
    words, style = moving_words(execution, now)
    text = Text(printable(what.plain), no_wrap=True, overflow="ellipsis")
    row = Table.grid(padding=(0, 1, 0, 0))
    row.add_column(width=2)
    row.add_column(no_wrap=True, overflow="ellipsis")
    row.add_column(no_wrap=True, overflow="ellipsis")
    row.add_row(Spinner("dots", style="cyan"), text, Text(words, style=style, no_wrap=True, overflow="ellipsis"))
    return row


def again_words(call: Call, now: datetime) -> str:
    """When the run makes a call again, and why."""
    left = max(0.0, ((call.again_at or now) - now).total_seconds())
    return f"made again in {duration_words(left)}: {(call.outcome or {}).get('message', '')}"


def moving_words(execution: Execution, now: datetime) -> tuple[str, str]:
    """How far an activity is, and the style for it."""
    of = f" of {execution.max_attempts}" if execution.max_attempts else ""
    if execution.next_at is not None:
        wait = max(0.0, (execution.next_at - now).total_seconds())
        return cut(f"attempt {execution.attempt}{of} in {duration_words(wait)}: {execution.problem}"), "yellow"
    since = execution.started_at or execution.scheduled_at
    words = duration_words(max(0.0, (now - since).total_seconds()))
    if execution.attempt > 1:
        words += f", attempt {execution.attempt}{of}"
        return cut(f"{words} after {execution.problem}" if execution.problem else words), "yellow"
    return words, "dim"


def _line(text: Text) -> RenderableType:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
