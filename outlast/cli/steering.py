"""`outlast steer`, `pause`, `resume` and `cancel`: what can be said to a run that is under way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rich.text import Text

from outlast.cli.looking import Seen, look_at
from outlast.cli.options import Options, Who, Words
from outlast.client import Run
from outlast.errors import UnknownRun

__all__ = ("cancel", "pause", "resume", "steer")


async def steer(run: str, content: Words, /, *, options: Options | None = None) -> None:
    """Say something to a run: the model reads it before its next step.

    Args:
        run: The run's ID.
        content: What the user says.
    """
    await _tell(run, options, lambda told: told.steer(content), "Sent. The model reads it before its next step.")


async def pause(run: str, /, *, by: Who = None, options: Options | None = None) -> None:
    """Let what runs finish, and start nothing new until `outlast resume`.

    Args:
        run: The run's ID.
        by: Who pauses it.
    """
    await _tell(
        run,
        options,
        lambda told: told.pause(by=by),
        f"Sent. What runs finishes, then it waits for: outlast resume {run}",
    )


async def resume(run: str, /, *, by: Who = None, options: Options | None = None) -> None:
    """Let a paused run go on.

    Args:
        run: The run's ID.
        by: Who resumes it.
    """
    await _tell(run, options, lambda told: told.resume(by=by), "Sent. It goes on.")


async def cancel(run: str, /, *, options: Options | None = None) -> None:
    """Cancel a run and the calls that it is running.

    Args:
        run: The run's ID.
    """
    await _tell(run, options, lambda told: told.cancel(), "Sent. It ends once its running calls have stopped.")


async def _tell(run_id: str, options: Options | None, say: Callable[[Run], Awaitable[None]], said: str) -> None:
    options = options or Options()
    client = await options.client()
    seen: Seen = await look_at(client, run_id, ask=False)
    if seen.state != "running":
        raise UnknownRun(f"The run {run_id!r} has ended ({seen.state}): nothing can be said to it any more.")
    await say(client.get(run_id))
    screen = options.screen
    screen.answer({"run_id": run_id, "state": "sent"}, Text(said, style="green"))
    if seen.advice:
        screen.note(seen.advice)
