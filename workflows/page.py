"""The Markdown on a run's page in the Temporal UI: what the run is about, what it does, and what it waits for."""

# Replay: the page is no command, so it may say anything at any time, but it is made in workflow code: from the state,
# from the times that the engine hands in, and from nothing else.

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import assert_never

from pydantic import JsonValue

from outlast.contracts import DecisionRecord, PendingCall, PendingKind
from outlast.markdown import code, cut, escaped, moment, one_line, quoted, visible, wrapped
from outlast.messages import JsonObject
from outlast.workflows import views
from outlast.workflows.commands import EndCancelled, Fail, Finish
from outlast.workflows.state import Call, RunState, run_state

PAGE_BYTES = 18_000
"""Most bytes of the page: Temporal takes 20,000."""

ARGS_BYTES = 4_000
"""Most bytes of one call's arguments on it."""

OUTPUT_BYTES = 8_000
"""Most bytes of the output."""

PROMPT_BYTES = 600
METADATA_BYTES = 1_000
"""Most bytes of the metadata of a run, and of a call."""

NAME_BYTES = 80
LINE_BYTES = 160

UNDER_WAY = 8
"""Most activities that are listed as under way."""

DECISIONS = 5
"""Most decisions that are listed: the newest."""

REJECTED = 3
"""Most messages that are listed as rejected: the newest."""

End = Finish | Fail | EndCancelled


class Page:
    """The page of one run; keeps what seldom changes, since it is made anew with everything that happens."""

    def __init__(self, workflow_id: str) -> None:
        self._workflow_id = workflow_id
        self._about: str | None = None
        self._waiting: tuple[object, str] | None = None
        self._lines: tuple[int, dict[tuple[str, str, int], str]] = (0, {})

    def render(self, state: RunState, since: Mapping[str, datetime], end: End | None = None) -> str:
        """The whole page.

        Args:
            state: What the run is.
            since: When each activity that is under way was handed to the workers, by its ID.
            end: How the run ended, if it has.
        """
        if self._about is None:
            self._about = _about(state)
        sections = [_head(state), self._about, *_end(state, end), *self._under_way(state, since)]
        if state.paused and state.ended is None:
            sections.append("To let it go on:\n" + _command(self._workflow_id, "resume", {}))
        tail = [*_decisions(state), *_rejected(state)]
        # In thousands: what waits is written anew only where that makes a difference.
        room = (PAGE_BYTES - _size([*sections, *tail])) // 1_000 * 1_000
        text = "\n\n".join([*sections, *self._calls(state, room), *tail])
        return text.encode(errors="replace").decode()

    def _under_way(self, state: RunState, since: Mapping[str, datetime]) -> Iterable[str]:
        if self._lines[0] != state.step:
            self._lines = (state.step, {})
        calls = [(call_id, call) for call_id, call in state.calls.items() if call.status in ("running", "backoff")]
        lines = [f"- the model is asked{_since(since, f'model:{state.step}')}"] if state.asking else []
        lines += [self._line(call_id, call, since) for call_id, call in calls[:UNDER_WAY]]
        if lines:
            more = [f"- and {len(calls) - UNDER_WAY} more"] if len(calls) > UNDER_WAY else []
            yield "\n".join(["Under way:", "", *lines, *more])

    def _line(self, call_id: str, call: Call, since: Mapping[str, datetime]) -> str:
        """One call. Its arguments may be megabytes: the line is made once, not with everything that happens."""
        key = (call_id, call.status, call.execution)
        if key not in self._lines[1]:
            name, args = code(call.plan.tool_name, NAME_BYTES), views.summary(call.args)
            line = f"- {name}{_since(since, f'call:{call_id}')}{f': {code(args, LINE_BYTES)}' if args else ''}"
            if call.status == "backoff":
                line = f"- {name} is made again in a moment: nothing had happened"
            self._lines[1][key] = line
        return self._lines[1][key]

    def _calls(self, state: RunState, room: int) -> list[str]:
        held = [
            (call_id, call.held.digest, call.held.requested_at)
            for call_id, call in state.calls.items()
            if call.held is not None
        ]
        if not held:
            return []
        key = (held, room, state.paused)
        if self._waiting is None or self._waiting[0] != key:
            self._waiting = (key, "\n\n".join(_waiting(state, self._workflow_id, room)))
        return [self._waiting[1]]


def render(state: RunState, workflow_id: str) -> str:
    """The page of a run of which no times are known."""
    return Page(workflow_id).render(state, {})


def summary_of_step(step: int, delta: list[JsonObject]) -> str:
    """A model request in one line: its number, and what the model is told that it did not know before."""
    told: list[JsonObject] = delta[-1].get("parts") or [] if delta else []
    results: dict[str, int] = {}
    said = ""
    for part in told:
        match part.get("part_kind"):
            case "user-prompt":
                said = _prompt_text(part.get("content"))
            case "tool-return":
                outcome = part.get("outcome", "success")
                result = f"{part.get('tool_name')}{'' if outcome == 'success' else f' ({outcome})'}"
                results[result] = results.get(result, 0) + 1
            case "retry-prompt":
                result = f"{part.get('tool_name') or 'its output'} (to be corrected)"
                results[result] = results.get(result, 0) + 1
            case _:
                pass
    known = [name if count == 1 else f"{count}x {name}" for name, count in results.items()]
    line = f"Step {step}" + (f" after {', '.join(known)}" if known else "")
    return one_line(f"{line}: {one_line(said, 120)}" if said else line, 300)


def about_run(agent: str, prompt: JsonValue, metadata: JsonObject) -> str:
    """What a run is about, for its list entry or page: who asked, and for what."""
    return _asked(_prompt_text(prompt), metadata, PROMPT_BYTES) or f"A run of {code(agent)} without a prompt."


# --- the sections ----------------------------------------------------------------------------------------------------


def _head(state: RunState) -> str:
    agent, step = f"**{escaped(state.facts.agent, 300)}**", f"step {state.step}"
    waits = sum(call.held is not None for call in state.calls.values())
    word = run_state(state)
    match word:
        case "completed":
            return f"{agent} is done, after {_count(state.step, 'step')}."
        case "failed":
            return f"{agent} failed in {step}."
        case "cancelled":
            return f"{agent} was cancelled in {step}."
        case _ if state.ending is not None:
            ends = "was cancelled" if state.ending.state == "cancelled" else "fails"
            return f"{agent} {ends} in {step}, and ends once nothing of it is under way any more."
        case "waiting":
            return f"{agent} waits for {_count(waits, 'decision')}, in {step}. Nothing else is under way."
        case "running" | "paused":
            by = f" by {code(state.paused_by, NAME_BYTES)}" if state.paused_by else ""
            paused = f"paused{by}: no new step or call starts." if state.paused else ""
            also = f" {_count(waits, 'call')} of it {'wait' if waits > 1 else 'waits'} for a decision." if waits else ""
            if word == "paused":
                return f"{agent} is in {step}, and {paused}{also}"
            return f"{agent} is running, in {step}{f', and {paused}' if paused else '.'}{also}"
        case _:
            assert_never(word)


def _about(state: RunState) -> str:
    facts = state.facts
    prompt = ""
    if facts.prompt_at is not None and facts.prompt_at < len(state.messages):
        prompt = _prompt_text(state.messages[facts.prompt_at]["parts"][-1].get("content"))
    return _asked(prompt, facts.metadata, PROMPT_BYTES) or "It was started without a prompt, from earlier messages."


def _asked(prompt: str, metadata: JsonObject, size_bytes: int) -> str:
    requester = metadata.get("requester")
    # A claim: whoever starts a run may write anything there.
    who = f"Asked, as the caller says, by {code(str(requester), NAME_BYTES)}:" if requester else "Asked:"
    asked = f"{who}\n{quoted(prompt, size_bytes)}" if prompt else ""
    rest = {name: value for name, value in metadata.items() if name != "requester"}
    return "\n\n".join(filter(None, [asked, _box("Metadata from the caller:", rest)]))


def _box(head: str, metadata: JsonObject) -> str:
    """What else somebody gave for the person who decides."""
    text = cut(visible(_json(metadata)), METADATA_BYTES)
    return f"{head}\n```json\n{wrapped(text)}\n```" if metadata else ""


def _end(state: RunState, end: End | None) -> Iterable[str]:
    match end:
        case Finish(result=result):
            yield "Its output:"
            if isinstance(result.output, str) and "\n" not in result.output.strip():
                yield quoted(result.output, OUTPUT_BYTES // 2)
            else:
                text = result.output if isinstance(result.output, str) else _json(result.output)
                # Indented, as code that no line of it can end.
                lines = wrapped(cut(visible(text), OUTPUT_BYTES)).splitlines()
                yield "\n".join(f"    {line}" for line in lines)
        case _ if state.ending is not None:
            if state.ending.state == "failed":
                yield f"{code(state.ending.error_type)}:\n{quoted(state.ending.message, 2_000)}"
                if state.ended is not None:
                    yield "Nothing of it runs again by itself."
        case _:
            pass


def _since(since: Mapping[str, datetime], activity_id: str) -> str:
    at = since.get(activity_id)
    return f", since {moment(at)}" if at is not None else ""


def _decisions(state: RunState) -> Iterable[str]:
    if not state.decisions:
        return
    shown = state.decisions[-DECISIONS:]
    left_out = len(state.decisions) - len(shown)
    head = "Decisions:" if not left_out else f"The newest of {len(state.decisions):,} decisions:"
    yield "\n".join([head, "", *map(_decision, shown)])


_DECIDED = {"approve": "approved", "deny": "denied", "resolve": "given its result", "retry": "sent back to the model"}


def _decision(record: DecisionRecord) -> str:
    by = f" by {code(record.by, NAME_BYTES)}" if record.by else ""
    edited = " with other arguments" if record.edited else ""
    reason = f": {code(record.reason, LINE_BYTES)}" if record.reason else ""
    tool, decided = code(record.tool_name, NAME_BYTES), _DECIDED[record.decision]
    return f"- {tool} was {decided}{edited}{by}, {moment(record.at)}{reason}"


def _rejected(state: RunState) -> Iterable[str]:
    if not state.rejected:
        return
    lines = [f"- {code(one.name)}, {moment(one.at)}: {code(one.message, 400)}" for one in state.rejected[-REJECTED:]]
    head = f"{_count(len(state.rejected), 'message')} could not apply. The newest, of which `status` shows more:"
    yield "\n".join([head, "", *lines])


# --- the calls that wait ---------------------------------------------------------------------------------------------

_KINDS: dict[PendingKind, str] = {
    "approval": "waits for an approval",
    "external": "waits for a result from outside",
    "deferred": "waits for a result from outside",
    "unknown_outcome": "may or may not have taken effect, and waits for your word",
}


_SAID_OTHERWISE = ("reason", "effect", "executions", "run")
"""Metadata of a call that its words tell, or that is the run's."""


def _waiting(state: RunState, workflow_id: str, room: int) -> Iterable[str]:
    waiting = views.waiting(state)
    here = "To decide on this page instead: *More Actions*, *Send a Signal*, with the name and the JSON of a command."
    room -= _size([here])
    for shown, call in enumerate(waiting):
        text = _call(call, workflow_id, paused=state.paused)
        left = f"{len(waiting) - shown} more wait: the query `pending` shows them all."
        room -= _size([text])
        if room < _size([left]):
            yield left
            break
        yield text
    yield here


def _call(call: PendingCall, workflow_id: str, *, paused: bool) -> str:
    effect = call.metadata.get("effect")
    waits = "failed, and waits for your word" if effect == "failed" else _KINDS[call.kind]
    lines = [f"### {code(call.tool_name)} {waits}", ""]
    if call.prompt:
        lines += [quoted(call.prompt), ""]
    if reason := call.metadata.get("reason"):
        lines += [quoted(str(reason), 500), ""]
    told = {name: value for name, value in call.metadata.items() if name not in _SAID_OTHERWISE}
    if box := _box("Metadata from the tool:", told):
        lines += [box, ""]
    lines += [f"Since {moment(call.requested_at)}, with these arguments:", ""]
    args = visible(_json(call.args))
    lines += ["```json", wrapped(cut(args, ARGS_BYTES)), "```", ""]
    if len(args.encode(errors="replace")) > ARGS_BYTES:
        lines += ["**These arguments are cut.** The query `pending` shows them in full.", ""]
    answer: JsonObject = {"tool_call_id": call.tool_call_id}
    if call.kind in ("approval", "unknown_outcome"):
        once_more = " once more" if call.kind == "unknown_outcome" else ""
        lines.append(f"**Approve:** it runs{once_more}{', when the run is resumed' if paused else ''}.")
        lines.append(_command(workflow_id, "approve", {**answer, "digest": call.digest}))
    if call.kind != "approval":
        lines.append("**Resolve:** it gets this result" + (", and runs no more." if effect else "."))
        lines.append(_command(workflow_id, "resolve", {**answer, "result": "…"}))
    again = " again" if call.kind == "unknown_outcome" else ""
    lines.append(f"**Deny:** it does not run{again}; the model sees the message.")
    lines.append(_command(workflow_id, "deny", {**answer, "message": "…"}))
    return "\n".join(lines)


def _command(workflow_id: str, name: str, payload: JsonObject) -> str:
    """A command to copy, in lines that fit the width of the page: a line that does not is cut off there."""
    run = shlex.quote(one_line(workflow_id))
    text = shlex.quote(json.dumps(payload, indent=2 if payload else None, ensure_ascii=False))
    return "\n".join(
        ["```sh", f"temporal workflow signal --name {name} \\", f"  --workflow-id {run} \\", f"  --input {text}", "```"]
    )


# --- words -----------------------------------------------------------------------------------------------------------


def _prompt_text(prompt: JsonValue) -> str:
    """The text of a prompt; of other content, that there is some."""
    if prompt is None or isinstance(prompt, str):
        return prompt or ""
    parts = prompt if isinstance(prompt, list) else [prompt]
    return " ".join(part if isinstance(part, str) else _kind(part) for part in parts[:20])


def _kind(part: JsonValue) -> str:
    kind = part.get("kind") if isinstance(part, dict) else None
    return f"({kind if isinstance(kind, str) else 'other content'})"


def _json(value: JsonValue) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _size(sections: Iterable[str]) -> int:
    return sum(len(section.encode(errors="replace")) + 2 for section in sections)
