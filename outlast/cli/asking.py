"""Asks the person at the terminal about a call that waits."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json
from rich.text import Text

from outlast.cli.deciding import decide, edited
from outlast.cli.looking import Seen, WaitingCall
from outlast.cli.rendering import call_line, waiting_calls
from outlast.cli.screen import Labelled, Screen, printable
from outlast.client import Client
from outlast.errors import DecisionRejected, UnknownRun, UserError

__all__ = ("ask_about", "waiting_text")

_APPROVE = "Approve? y runs it, n [WHY] never does, e NAME=VALUE runs it changed, Enter leaves it:"
_UNKNOWN = "Run it again? y runs it, n [WHY] never does, r JSON says what came of it, Enter leaves it:"
_RESOLVE = "r JSON gives its result, n [WHY] never makes it, Enter leaves it:"


async def ask_about(client: Client, screen: Screen, seen: Seen, call: WaitingCall) -> str | None:
    """Ask about a waiting call, and send what the person says.

    Returns:
        What became of the call; None where it is left, or somebody else was faster.
    """
    question = {"approval": _APPROVE, "unknown_outcome": _UNKNOWN}.get(call.kind, _RESOLVE)
    if call.kind != "approval":
        screen.say(waiting_calls([call]))
    while True:
        answer = await screen.ask(Labelled("you", question, style="bold yellow"))
        if not answer:
            screen.note("It is left. The run waits; `outlast pending` shows what for.")
            return None
        try:
            decision, fields = read_answer(answer, call)
        except UserError as mistake:
            screen.say(Labelled("", Text(printable(mistake.message), style="yellow")))
            continue
        try:
            return (await decide(client, seen, decision, call.tool_call_id, **fields)).state
        except (DecisionRejected, UnknownRun) as rejected:
            screen.note(rejected.message)
            return None


def read_answer(answer: str, call: WaitingCall) -> tuple[str, dict[str, Any]]:
    """What a typed line decides, and with what.

    Raises:
        UserError: It cannot be read as a decision about this call.
    """
    word, _, rest = answer.strip().partition(" ")
    rest = rest.strip()
    can_run = call.kind in ("approval", "unknown_outcome")
    match word.lower():
        case "y" | "yes" if can_run and not rest:
            return "approve", {"digest": call.digest}
        case "e" | "edit" if call.kind == "approval" and rest:
            return "approve", {"digest": call.digest, "override_args": edited(call, [rest])}
        case "n" | "no":
            return "deny", {"message": rest or None}
        case "r" | "result" if call.kind != "approval" and rest:
            try:
                return "resolve", {"result": from_json(rest, allow_inf_nan=False)}
            except ValueError as error:
                raise UserError(f'The result must be JSON ({error}). A text needs its quotes: r "{rest}"') from None
        case _:
            choices = "y, n or e NAME=VALUE" if call.kind == "approval" else "r JSON or n"
            raise UserError(f"Please type {choices if call.kind != 'unknown_outcome' else 'y, n or r JSON'}.")


def waiting_text(call: WaitingCall) -> Text:
    """What is asked about a call: its sentence, else its arguments."""
    line = call_line(call.tool_name, call.args) if call.args is not None else call.tool_name
    return Text(printable(call.sentence or line))
