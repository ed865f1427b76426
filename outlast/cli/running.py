"""`outlast run` and `outlast watch`: a run, as it happens."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from typing import Annotated, Any

from cyclopts import Parameter
from pydantic_core import from_json, to_json
from rich.text import Text

from outlast.cli.advice import ending_lines
from outlast.cli.asking import ask_about, waiting_text
from outlast.cli.exit_code import ExitCode
from outlast.cli.following import Follower
from outlast.cli.history import Change
from outlast.cli.listening import Listening, who_listens
from outlast.cli.live import LiveView
from outlast.cli.lookahead import Lookahead
from outlast.cli.looking import Seen, WaitingCall, look_at
from outlast.cli.options import Options, Words
from outlast.cli.rendering import answers, call_line, command, waiting_calls
from outlast.cli.screen import Labelled, Screen, printable, whole
from outlast.cli.telling import Teller
from outlast.cli.timeline import Call, Message, Step, Timeline
from outlast.client import Client
from outlast.errors import UserError

__all__ = ("run", "watch")

GRACE_SECONDS = 1


async def run(
    agent: str,
    prompt: Words,
    /,
    *,
    deps: Annotated[str | None, Parameter(metavar="JSON")] = None,
    id: Annotated[str | None, Parameter(metavar="ID")] = None,
    options: Options | None = None,
) -> ExitCode:
    """Start a run, show what it does, and print its output.

    On a terminal it asks when a call waits for somebody. Elsewhere it then ends with exit code 3, and the run waits on
    the server for `outlast approve`. Ctrl-C ends the view, not the run.

    Args:
        agent: Name of the agent, as its worker has it.
        prompt: What the user says.
        deps: What the agent's `deps_type` takes.
        id: The run's ID; by default made from the agent's name. An ID that is running is refused.
    """
    options = options or Options()
    given = None if deps is None else _deps(deps)
    client = await options.client()
    started = await client.start(agent, prompt, deps=given, id=id)
    screen = options.screen
    screen.say(Labelled("run", Text(started.id, style="bold")))
    if not (listening := await who_listens(client.temporal, client.task_queue)):
        screen.note(_unheard(listening))
    return await _Viewing(client, screen, started.id, leaves=True).follow()


async def watch(run: str, /, *, options: Options | None = None) -> ExitCode:
    """Show what a run has done and does, until it ends; on a terminal, ask when a call waits for somebody.

    Ctrl-C ends the view, not the run.

    With --json each happening is one JSON object in a line of its own, and so is the end.

    Args:
        run: The run's ID.
    """
    options = options or Options()
    client = await options.client()
    seen = await look_at(client, run, ask=False)
    screen = options.screen
    screen.say(Labelled("run", Text(run, style="bold")))
    if seen.state == "running" and not seen.listening:
        screen.note(_unheard(seen.listening))
    return await _Viewing(client, screen, run, as_lines=options.json).follow()


class _Viewing:
    """One run on one screen.

    Args:
        client: Of the run's namespace.
        screen: Where it is shown.
        run_id: The run.
        leaves: End where nothing but a decision can move the run, and nobody is there to ask, or the person leaves it.
        as_lines: Write each happening as a line of JSON.
    """

    def __init__(
        self,
        client: Client,
        screen: Screen,
        run_id: str,
        *,
        leaves: bool = False,
        as_lines: bool = False,
    ) -> None:
        self._client = client
        self._screen = screen
        self._follower = Follower(client.temporal, run_id)
        self._coming = Lookahead(self._follower.changes())
        self._teller = Teller()
        self._live = LiveView(screen, self._follower)
        self._leaves = leaves
        self._as_lines = as_lines
        self._asked: set[tuple[str, str]] = set()

    async def follow(self) -> ExitCode:
        """Show the run to its end, or as far as can be done without anybody."""
        try:
            return await self._follow()
        except asyncio.CancelledError:
            # A question stands in the line that the next words would go to.
            self._screen.say("")
            again = command("watch", self._follower.timeline.run_id)
            self._screen.note(f"The run goes on without this view. To see it again: {again}")
            raise

    async def _follow(self) -> ExitCode:
        timeline = self._follower.timeline
        async with self._live.shown():
            async for changes in self._coming:
                self._tell(changes)
                if timeline in changes and timeline.count and timeline.ending is None:
                    seen = await self._look_at_waiting()
                    if seen is not None:
                        return self._left_waiting(seen)
        return self._ended(timeline)

    def _tell(self, changes: Any) -> None:
        for change in changes:
            if self._as_lines:
                sys.stdout.write(to_json(_happening(change)).decode() + "\n")
                sys.stdout.flush()
            else:
                self._screen.say(*self._teller.tell(change))

    async def _look_at_waiting(self) -> Seen | None:
        """Ask about what waits, and tell; what is left where nobody is there, or the person leaves it."""
        if not self._screen.asks and not self._leaves:
            self._tell_waiting()
            return None
        seen = await look_at(self._client, self._follower.timeline.run_id)
        if not seen.calls:
            return None
        if not self._screen.asks:
            return seen
        left = 0
        for_systems = sum(call.kind in ("external", "deferred") for call in seen.calls)
        async with self._live.hidden():
            for call in seen.calls:
                if (call.tool_call_id, call.digest) in self._asked:
                    left += call.kind not in ("external", "deferred")
                    continue
                self._asked.add((call.tool_call_id, call.digest))
                shown = [waiting_text(call)]
                if call.sentence and call.args is not None:
                    shown.append(Text(call_line(call.tool_name, call.args), style="dim"))
                if call.kind in ("external", "deferred"):
                    # Another system has its result, and nobody here: the run is followed until it comes.
                    shown += [whole(line) for line in answers(call)]
                self._screen.say(Labelled("waits", *shown, style="bold yellow"))
                if call.kind in ("external", "deferred"):
                    continue
                if await self._ask_while_it_waits(seen, call):
                    left += 1
        stands = left > 0 and left + for_systems == len(seen.calls) and not any(self._follower.timeline.under_way())
        return await self._still_waiting() if stands and self._leaves else None

    async def _ask_while_it_waits(self, seen: Seen, call: WaitingCall) -> bool:
        """Ask about a call, and take the question back where it is decided elsewhere meanwhile.

        Returns:
            Whether the call still waits.
        """
        asked = self._follower.timeline.find(call.tool_call_id)
        question = asyncio.create_task(ask_about(self._client, self._screen, seen, call))
        try:
            async for _ in self._coming.until(question):
                if asked is not None and (asked.waits_for is None or self._follower.timeline.ending is not None):
                    # It may be this very answer that decided it: that is said to its end.
                    await asyncio.wait({question}, timeout=GRACE_SECONDS)
                    break
            if not question.done():
                self._screen.say("", Labelled("", Text("It was decided elsewhere.", style="dim")))
                return False
            return await question is None
        finally:
            question.cancel()

    async def _still_waiting(self) -> Seen | None:
        seen = await look_at(self._client, self._follower.timeline.run_id)
        return seen if seen.calls else None

    def _tell_waiting(self) -> None:
        for entry in self._follower.timeline.waiting:
            key = (str(entry.get("tool_call_id")), str(entry.get("digest")))
            if key not in self._asked and not self._as_lines:
                self._asked.add(key)
                result = " RESULT" if entry.get("kind") in ("external", "deferred") else ""
                answer = command("resolve" if result else "approve", self._follower.timeline.run_id, key[0]) + result
                words = printable(f"{entry.get('tool_name')}: {entry.get('summary')}")
                self._screen.say(Labelled("waits", Text(words), Text(answer, style="cyan"), style="bold yellow"))

    def _left_waiting(self, seen: Seen) -> ExitCode:
        self._screen.answer(
            {"run_id": seen.run_id, "state": "waiting", "calls": [call.to_json() for call in seen.calls]},
            "",
            waiting_calls(seen.calls),
            Text("The run waits on the server, for as long as it takes.", style="dim"),
        )
        return ExitCode.WAITING

    def _ended(self, timeline: Timeline) -> ExitCode:
        answer: dict[str, Any] = {"run_id": timeline.run_id, "state": timeline.state}
        if timeline.ending == "completed":
            answer |= {"output": timeline.output, "usage": timeline.usage, "steps": len(timeline.steps)}
            shown = timeline.output
            text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, indent=2)
            words = [Labelled("output", Text(printable(text)), style="bold green")]
        else:
            answer["error"] = {"type": timeline.error_type or timeline.state, "message": timeline.error}
            words = ending_lines(timeline)
        if self._as_lines:
            sys.stdout.write(to_json({"kind": "end", **answer}).decode() + "\n")
            sys.stdout.flush()
        else:
            self._screen.answer(answer, *words)
        return ExitCode.DONE if timeline.ending == "completed" else ExitCode.RUN_FAILED


def _unheard(listening: Listening) -> str:
    return (
        f"No worker listens on the task queue {listening.task_queue!r}: the run waits for `outlast worker APP` or "
        "`outlast dev APP`."
    )


def _happening(change: Change) -> dict[str, Any]:
    match change:
        case Call():
            return {"kind": "call", "state": change.state, **asdict(change)}
        case Step():
            return {"kind": "step", **{name: value for name, value in asdict(change).items() if name != "calls"}}
        case Message():
            return {"kind": "message", **asdict(change)}
        case Timeline():
            return {"kind": "run", "run_id": change.run_id, "state": change.state, "waiting": change.waiting}


def _deps(text: str) -> object:
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise UserError(f"--deps must be JSON, got {text!r} ({error}). A text needs its quotes: '\"{text}\"'") from None
