"""`outlast run`: start a run, see it through, and print its output."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import Parameter
from pydantic_core import from_json
from rich.text import Text

from outlast.cli.deciding import decide
from outlast.cli.exit_code import ExitCode
from outlast.cli.following import CallEnded, CallStarted, Waiting, follow
from outlast.cli.listening import who_listens
from outlast.cli.looking import Seen, WaitingCall, look_at
from outlast.cli.options import Options, Words
from outlast.cli.rendering import waiting_calls
from outlast.cli.screen import Labelled, Screen, printable
from outlast.cli.telling import call_ended, call_started
from outlast.client import Client, Run
from outlast.errors import DecisionRejected, RunCancelled, RunError, UserError

__all__ = ("ask_about", "run")


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

    On a terminal it asks when a call waits for an approval. Elsewhere it then ends with exit code 3, and the run waits
    on the server for `outlast approve`.

    Args:
        agent: Name of the agent, as its worker has it.
        prompt: What the user says.
        deps: What the agent's `deps_type` takes.
        id: The run's ID; by default made from the agent's name. An ID that is running is refused.
    """
    options = options or Options()
    screen = options.screen
    given = None if deps is None else _deps(deps)
    client = await options.client()
    started = await client.start(agent, prompt, deps=given, id=id)
    screen.say(Labelled("run", Text(started.id, style="bold")))
    listening = await who_listens(client.temporal, client.task_queue)
    if not listening:
        screen.note(
            f"No worker listens on the task queue {client.task_queue!r}: the run waits for `outlast worker APP`."
        )
    async for happening in follow(client.temporal, started.id):
        match happening:
            case CallStarted():
                screen.say(call_started(happening))
            case CallEnded():
                screen.say(call_ended(happening))
            case Waiting(calls=calls) if calls:
                seen = await look_at(client, started.id)
                if seen.calls and not screen.asks:
                    return _left_waiting(screen, seen)
                for call in seen.calls:
                    screen.say(Labelled("waits", waiting_text(call), style="bold yellow"))
                    await ask_about(client, screen, seen, call)
            case _:
                pass
    return await _ended(screen, started)


async def ask_about(client: Client, screen: Screen, seen: Seen, call: WaitingCall) -> str | None:
    """Ask the person at the terminal about a waiting call, and send what they say.

    Returns:
        What became of the call; None where there is no answer, or somebody else was faster.
    """
    if call.kind != "approval":
        screen.say(waiting_calls([call]))
        return None
    answer = await screen.ask(Labelled("you", "Approve? y runs it, n never does:", style="bold yellow"))
    while answer is not None and answer.lower() not in ("y", "yes", "n", "no"):
        answer = await screen.ask(Labelled("", "Please type y or n:"))
    if answer is None:
        screen.note("No answer. The run waits; `outlast pending` shows what for.")
        return None
    name = "approve" if answer.lower().startswith("y") else "deny"
    try:
        fields = {"digest": call.digest} if name == "approve" else {}
        return (await decide(client, seen, name, call.tool_call_id, **fields)).state
    except DecisionRejected as rejected:
        screen.note(rejected.message)
        return None


def waiting_text(call: WaitingCall) -> Text:
    """What is asked about a call: its sentence, else its arguments."""
    return Text(printable(call.sentence or f"{call.tool_name}({json.dumps(call.args, ensure_ascii=False)})"))


def _left_waiting(screen: Screen, seen: Seen) -> ExitCode:
    screen.answer(
        {"run_id": seen.run_id, "state": "waiting", "calls": [call.to_json() for call in seen.calls]},
        "",
        waiting_calls(seen.calls),
        Text("The run waits on the server, for as long as it takes.", style="dim"),
    )
    return ExitCode.WAITING


async def _ended(screen: Screen, started: Run) -> ExitCode:
    try:
        result = await started.result()
    except RunError as error:
        state = "cancelled" if isinstance(error, RunCancelled) else "failed"
        what = {"type": type(error).__name__, "message": error.message}
        screen.answer(
            {"run_id": started.id, "state": state, "error": what},
            Labelled(state, Text(f"{what['type']}: {printable(error.message)}"), style="bold red"),
        )
        return ExitCode.RUN_FAILED
    output = (
        result.output if isinstance(result.output, str) else json.dumps(result.output, ensure_ascii=False, indent=2)
    )
    screen.answer(
        {"run_id": started.id, "state": "completed", **result.model_dump(mode="json")},
        Labelled("output", Text(printable(output)), style="bold green"),
    )
    return ExitCode.DONE


def _deps(text: str) -> object:
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise UserError(f"--deps must be JSON, got {text!r} ({error}). A text needs its quotes: '\"{text}\"'") from None
