"""The part of the screen that moves leaves alone what stands above it."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

import anyio
from rich.console import Console

from outlast.cli.live import LiveView
from outlast.cli.timeline import Call, Step, Timeline

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


async def test_what_was_written_while_it_was_hidden_stays() -> None:
    """A question and its answer are part of the story: what moves must not be drawn over them."""
    calls = [Call(tool_call_id=f"c{n}", tool_name="pay", waits_for="approval", waits_since=AT) for n in range(3)]
    timeline = Timeline(run_id="run-1", steps=[Step(number=1, calls=calls)])
    written = StringIO()
    console = Console(file=written, width=80, force_terminal=True, soft_wrap=True)
    view = LiveView(cast(Any, SimpleNamespace(asks=True, words=console)), cast(Any, SimpleNamespace(timeline=timeline)))
    async with view.shown():
        while "pay" not in written.getvalue():
            await anyio.sleep(0.01)
        async with view.hidden():
            console.print("you said yes")
    _, after = written.getvalue().split("you said yes")
    drawn, _ = after.split("pay", 1)
    assert "\x1b[1A" not in drawn, "moved up, over what stands there"
