"""`outlast approve`, `deny`, `resolve` and `retry`: what a person says about a waiting call."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter
from pydantic_core import from_json, to_json
from rich.text import Text
from temporalio.service import RPCError

from outlast.cli.looking import Seen, WaitingCall, look_at
from outlast.cli.options import Options, Who, Words
from outlast.cli.rendering import call_line
from outlast.cli.screen import Screen, printable
from outlast.client import Client, explain_rpc
from outlast.contracts import CallState
from outlast.errors import AlreadyDecided, UserError
from outlast.messages import JsonObject
from outlast.payloads import PayloadTooLarge, to_raw

__all__ = ("approve", "decide", "deny", "edited", "resolve", "retry")

_DONE = {
    "approved": "Approved, and running",
    "denied": "Denied, and will never run",
    "resolved": "Given its result",
    "retried": "Sent back to the model",
    "waiting": "Counted; the call waits for more votes",
    "sent": "Sent, and applies once a worker is there",
}


async def approve(
    run: str,
    call: str,
    /,
    *,
    edit: Annotated[list[str] | None, Parameter(negative=(), metavar="NAME=VALUE")] = None,
    by: Who = None,
    reason: Words | None = None,
    digest: Annotated[str | None, Parameter(metavar="DIGEST")] = None,
    options: Options | None = None,
) -> None:
    """Run a call that waits for an approval.

    What is approved is what was looked at: the decision carries the digest of the call's arguments, and is refused
    where these have changed.

    Args:
        run: The run's ID.
        call: The call's ID, as `outlast pending` lists it.
        edit: Run with this argument instead; VALUE is JSON where it can be read as JSON, else text. May be repeated.
        by: Who decides.
        reason: Kept in the run's record.
        digest: The digest of what you looked at, where that was not here.
    """
    options = options or Options()
    client = await options.client()
    seen = await look_at(client, run)
    waiting = _find(seen, call, "approve", repeatable=edit is None and digest is None)
    if waiting is None:
        return _already(options.screen, seen, call)
    fields: dict[str, Any] = {"by": by, "reason": reason, "digest": digest or waiting.digest}
    if edit:
        fields["override_args"] = edited(waiting, edit)
    state = await decide(client, seen, "approve", call, **fields)
    _report(options.screen, seen, waiting, state, fields.get("override_args"))


async def deny(
    run: str,
    call: str,
    /,
    *,
    message: Words | None = None,
    by: Who = None,
    options: Options | None = None,
) -> None:
    """Refuse a waiting call: it never runs, and the model is told.

    Args:
        run: The run's ID.
        call: The call's ID, as `outlast pending` lists it.
        message: What the model is told.
        by: Who decides.
    """
    await _decided("deny", run, call, options, message=message, by=by)


async def resolve(
    run: str,
    call: str,
    result: Annotated[str, Parameter(allow_leading_hyphen=True, metavar="JSON")],
    /,
    *,
    by: Who = None,
    options: Options | None = None,
) -> None:
    """Give a waiting call its result, instead of running it.

    Args:
        run: The run's ID.
        call: The call's ID, as `outlast pending` lists it.
        result: The result, as JSON: '"shipped"' with its quotes is a text.
        by: Who says so.
    """
    try:
        value = from_json(result, allow_inf_nan=False)
    except ValueError as error:
        raise UserError(
            f"The result must be JSON, got {result!r} ({error}). A text needs its quotes: '\"{result}\"'"
        ) from None
    await _decided("resolve", run, call, options, result=value, by=by)


async def retry(run: str, call: str, message: Words, /, *, by: Who = None, options: Options | None = None) -> None:
    """Tell the model to try a waiting call again.

    Args:
        run: The run's ID.
        call: The call's ID, as `outlast pending` lists it.
        message: What the model should do better.
        by: Who says so.
    """
    await _decided("retry", run, call, options, message=message, by=by)


async def _decided(name: str, run: str, call: str, options: Options | None, **fields: Any) -> None:
    options = options or Options()
    client = await options.client()
    seen = await look_at(client, run)
    waiting = _find(seen, call, name, repeatable=name == "deny")
    if waiting is None:
        return _already(options.screen, seen, call)
    state = await decide(client, seen, name, call, **fields)
    _report(options.screen, seen, waiting, state, None)


async def decide(client: Client, seen: Seen, name: str, tool_call_id: str, **fields: Any) -> CallState:
    """Send a decision: as an update to a worker that answers, as a signal where none does.

    Raises:
        DecisionRejected: It cannot apply.
        UnknownRun: The run has ended meanwhile.
    """
    if seen.answered:
        given = {field: value for field, value in fields.items() if value is not None or field == "result"}
        return await getattr(client.get(seen.run_id), name)(tool_call_id, **given)
    payload = {"tool_call_id": tool_call_id, **{field: value for field, value in fields.items() if value is not None}}
    if name == "resolve":
        payload["result"] = fields["result"]
    try:
        await client.temporal.get_workflow_handle(seen.run_id).signal(name, to_raw(to_json(payload)))
    except PayloadTooLarge as error:
        raise UserError(f"The decision has {error}.") from None
    except RPCError as error:
        raise explain_rpc(error, seen.run_id) from None
    return CallState(tool_call_id=tool_call_id, state="sent")


def edited(call: WaitingCall, edits: list[str]) -> JsonObject:
    """All arguments of a call, with some changed.

    Raises:
        UserError: An edit cannot be read, or names no argument; or the arguments are not known.
    """
    if call.args is None:
        raise UserError(
            "To edit arguments, all of them must be known, and only a worker knows them: start one with "
            "`outlast worker APP`, then approve again. Without edits the approval can be sent now."
        )
    args = dict(call.args)
    known = set(args) | set((call.json_schema or {}).get("properties", {}))
    mistakes: list[str] = []
    for edit in edits:
        name, equals, value = edit.partition("=")
        if not equals:
            mistakes.append(f"--edit takes NAME=VALUE, such as {next(iter(args), 'cents')}=500, got {edit!r}.")
        elif name not in known and (call.json_schema or {}).get("additionalProperties") is False:
            mistakes.append(f"{call.tool_name} has no argument {name!r}. It has: {', '.join(sorted(known)) or 'none'}.")
        else:
            args[name] = _value(value)
    if mistakes:
        raise UserError("\n".join(mistakes))
    return args


def _value(text: str) -> Any:
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        return text


def _find(seen: Seen, tool_call_id: str, name: str, *, repeatable: bool) -> WaitingCall | None:
    """The call, or None where this very decision was taken already: saying it twice is no mistake."""
    try:
        return seen.find(tool_call_id)
    except AlreadyDecided:
        record = next(record for record in reversed(seen.decisions) if record.tool_call_id == tool_call_id)
        if repeatable and record.decision == name and not record.edited:
            return None
        raise


def _already(screen: Screen, seen: Seen, tool_call_id: str) -> None:
    record = next(record for record in reversed(seen.decisions) if record.tool_call_id == tool_call_id)
    states = {"approve": "approved", "deny": "denied"}
    screen.answer(
        {"run_id": seen.run_id, "tool_call_id": tool_call_id, "state": states[record.decision], "repeated": True},
        Text(printable(seen.decided(record))),
    )


def _report(screen: Screen, seen: Seen, call: WaitingCall, state: CallState, args: JsonObject | None) -> None:
    arguments = args or call.args
    what = call.sentence if arguments is None else call_line(call.tool_name, arguments)
    line = Text(_DONE[state.state], style="green")
    line.append(f": {printable(what)}", style="default")
    screen.answer(
        {"run_id": seen.run_id, "tool_call_id": call.tool_call_id, "state": state.state, "digest": call.digest}
        | ({"args": args} if args else {}),
        line,
    )
    if seen.advice:
        screen.note(seen.advice)
