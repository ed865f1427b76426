"""`outlast show`: the whole story of one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import RenderableType
from rich.text import Text

from outlast.cli.advice import ending_lines
from outlast.cli.following import read_timeline
from outlast.cli.live import again_words, moving_words
from outlast.cli.looking import Seen, look_at
from outlast.cli.options import Options
from outlast.cli.rendering import call_line, clock, command, kind_words, waiting_calls
from outlast.cli.screen import Labelled, in_one_line, printable, whole
from outlast.cli.telling import cut, duration_words, message_words, outcome_words, spent_words
from outlast.cli.timeline import Call, Execution, Message, Step, Timeline

__all__ = ("show", "story")

FIRST_STEPS = 5
LAST_STEPS = 10
"""How many steps of a long run are shown where not all are."""

_STYLES = {
    "completed": "bold green",
    "failed": "bold red",
    "terminated": "bold red",
    "timed out": "bold red",
    "cancelled": "bold red",
    "waiting": "bold yellow",
    "paused": "bold yellow",
}


async def show(
    run: str,
    /,
    *,
    full: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    options: Options | None = None,
) -> None:
    """Show what a run did, step by step, what it waits for, and how it ended.

    Read from the server: no worker has to be there.

    Args:
        run: The run's ID.
        full: Show every step of a long run.
    """
    options = options or Options()
    client = await options.client()
    seen = await look_at(client, run)
    timeline = await read_timeline(client.temporal, run)
    screen = options.screen
    screen.answer(_as_json(timeline, seen), *story(timeline, seen, full=full))
    if timeline.ending is None and seen.advice:
        screen.note(seen.advice)


def story(timeline: Timeline, seen: Seen, *, full: bool = False, now: datetime | None = None) -> list[RenderableType]:
    """A run on a screen."""
    now = now or datetime.now(UTC)
    lines: list[RenderableType] = [*_head(timeline, now)]
    lines += _steps(timeline, now, full=full)
    lines += [_said(message) for message in timeline.messages if message.tool_call_id is None]
    if timeline.ending is None:
        lines += _obstacles(timeline)
        if seen.calls:
            lines += ["", waiting_calls(seen.calls, now=now)]
        return lines
    if timeline.ending == "completed":
        text = timeline.output if isinstance(timeline.output, str) else cut(str(timeline.output), 2_000)
        lines.append(Labelled("output", Text(printable(text)), style="bold green"))
    elif timeline.ending == "continued as new":
        lines.append(Labelled("goes on", Text(f"as the execution {timeline.next_run_id}")))
    else:
        lines += ending_lines(timeline)
    return lines


def _obstacles(timeline: Timeline) -> Iterator[RenderableType]:
    if timeline.stuck:
        words = (
            "A worker cannot go on with this run. Nothing is lost: it goes on with a worker that has the code of "
            "before, or the mistake mended."
        )
        yield Labelled("stuck", Text(cut(timeline.stuck), style="red"), words, style="bold red")
    if timeline.paused:
        yield Labelled("paused", Text("Nothing new starts. To go on:"), whole(command("resume", timeline.run_id)))


def _head(timeline: Timeline, now: datetime) -> Iterator[RenderableType]:
    title = Text(printable(timeline.run_id), style="bold")
    title.append("  ")
    title.append(timeline.state, style=_STYLES.get(timeline.state, "bold cyan"))
    yield Labelled("run", title)
    if timeline.prompt:
        yield Labelled("", Text(cut(timeline.prompt, 500)))
    yield Labelled("agent", Text(printable(timeline.agent)))
    if timeline.started_at is not None:
        took = ((timeline.ended_at or now) - timeline.started_at).total_seconds()
        words = "took" if timeline.ended_at is not None else "for"
        started = clock(timeline.started_at)
        yield Labelled("started", Text(f"{started}, {words} {duration_words(max(0.0, took))}"))
    if timeline.steps:
        tokens_in, tokens_out = (
            sum(getattr(step, name) for step in timeline.steps) for name in ("input_tokens", "output_tokens")
        )
        tokens = f", tokens {tokens_in} in {tokens_out} out" if tokens_in or tokens_out else ""
        yield Labelled("steps", Text(f"{len(timeline.steps)}, {len(timeline.calls)} calls{tokens}"))


def _steps(timeline: Timeline, now: datetime, *, full: bool) -> Iterator[RenderableType]:
    steps = timeline.steps
    folded = 0 if full else max(0, len(steps) - FIRST_STEPS - LAST_STEPS)
    for index, step in enumerate(steps):
        if folded and index == FIRST_STEPS:
            hidden = steps[FIRST_STEPS : FIRST_STEPS + folded]
            calls = sum(len(each.calls) for each in hidden)
            words = f"… {folded} steps with {calls} calls: `outlast show {timeline.run_id} --full`"
            yield Labelled("", Text(words, style="dim", no_wrap=True))
        if folded and FIRST_STEPS <= index < FIRST_STEPS + folded:
            continue
        yield from _step(step, now)


def _step(step: Step, now: datetime) -> Iterator[RenderableType]:
    request = step.requests[-1] if step.requests else None
    words = "the model"
    if request is not None and request.ended_at is None:
        words += f"  {moving_words(request, now)[0]}"
    elif request is not None:
        spent = ", again after a lost worker" if len(step.requests) > 1 else ""
        words += f"  {spent_words(request)}{spent}"
    if request is not None and request.problem and request.ended_at is not None:
        words += f"  {request.problem}"
    yield Labelled(f"step {step.number}", Text(printable(words), style="dim"))
    if step.text and step.calls:
        yield Labelled("", Text(cut(step.text, 300), style="italic"))
    if step.retry:
        yield Labelled("", Text(cut(f"no valid output, so the model tries again: {step.retry}"), style="yellow"))
    for call in step.calls:
        yield from _call(call, now)


def _call(call: Call, now: datetime) -> Iterator[RenderableType]:
    yield Labelled("", Text(cut(call_line(call.tool_name, call.args or {}), 300)))
    words, style = _call_words(call, now)
    yield Labelled("", in_one_line(words, style), indent=13)
    for number, execution in enumerate(call.executions[:-1], 1):
        again = cut(f"execution {number}: {execution.problem or 'had to wait'}")
        yield Labelled("", Text(again, style="yellow" if execution.problem else "dim"), indent=13)
    if call.decision is not None:
        yield Labelled("", Text(_decision_words(call.decision), style="yellow"), indent=13)


def _call_words(call: Call, now: datetime) -> tuple[str, str]:
    last: Execution | None = call.executions[-1] if call.executions else None
    match call.state:
        case "waiting":
            since = f", since {duration_words((now - call.waits_since).total_seconds())}" if call.waits_since else ""
            return f"{call.tool_call_id} {kind_words(call.waits_for or '')}{since}", "yellow"
        case "backing off":
            return again_words(call, now), "yellow"
        case "running" if last is not None:
            return f"runs  {moving_words(last, now)[0]}", "cyan"
        case "planned":
            return "not started", "dim"
        case "denied" | "resolved" | "approved" | "retried" if call.outcome is None:
            return {"denied": "never ran", "approved": "about to run"}.get(call.state, "did not run"), "dim"
        case state:
            spent = spent_words(last) if last is not None else ""
            style = "red" if state in ("failed", "lost") else "yellow" if state == "retried" else "dim"
            return f"{f'{spent}  ' if spent else ''}→ {outcome_words(call.outcome, last)}", style


def _decision_words(message: Message) -> str:
    done = {"approve": "approved", "deny": "denied", "resolve": "given its result", "retry": "sent back"}
    at = clock(message.at)
    details = message_words(message).removeprefix(message.tool_call_id or "").removeprefix(":").strip()
    return printable(f"{done.get(message.name, message.name)} at {at}{f', {details}' if details else ''}")


def _said(message: Message) -> RenderableType:
    at = clock(message.at)
    return Labelled(message.name, Text(f"{at}  {message_words(message)}"), style="bold yellow")


def _as_json(timeline: Timeline, seen: Seen) -> dict[str, Any]:
    hidden = ("executions", "waiting", "events")
    told = {name: value for name, value in asdict(timeline).items() if name not in hidden}
    for step, shown in zip(timeline.steps, told["steps"], strict=True):
        for call, entry in zip(step.calls, shown["calls"], strict=True):
            entry["state"] = call.state
    workers: Sequence[str] = seen.listening.workers
    return {"state": timeline.state, **told, "pending": [call.to_json() for call in seen.calls], "workers": workers}
