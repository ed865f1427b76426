"""How a run ended badly: what happened, where, how to fix it, and what will not run again."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from outlast.cli.rendering import call_line
from outlast.cli.screen import Labelled, printable
from outlast.cli.telling import cut, outcome_words
from outlast.cli.timeline import Call, Timeline

__all__ = ("advice_for", "ending_lines")

MOST_CALLS = 5

_ADVICE = {
    "ToolRetriesExceeded": (
        "The model called the tool again and again in a way that it refuses. Describe the tool and its arguments "
        "better, or allow more with the tool's `max_retries`."
    ),
    "ToolFailed": (
        "The tool failed at its last attempt, and its `on_error` is 'fail_run'. Mend the tool; or with "
        "on_error='tell_model' the model goes on without it, and with 'ask' a person decides."
    ),
    "UsageLimitExceeded": (
        "Give the next run more with `usage_limits`, in its input or at the agent; or find out why it needed so much."
    ),
    "UnexpectedModelBehavior": "Look at what the model answered last. Another model or clearer instructions may help.",
    "ModelRequestFailed": "Check on the worker: the provider's key, the model's name, and whether the provider is up.",
    "OutputValidationFailed": (
        "The model's last answers did not fit the agent's output type or its output validators. Loosen these, describe "
        "the output better, or allow more with `output_retries`."
    ),
    "InvalidInput": "Start it again with an input that fits; the error names each field that does not.",
    "InvalidDeps": "Start it again with `deps` that fit the agent's `deps_type`; the error names what does not.",
    "DepsConflict": "Mark the tools that change this field with `sequential=True`, so that their calls do not overlap.",
    "UnknownAgent": "Start a worker whose APP has this agent, or start the run again with a name that there is.",
    "terminated": "Somebody ended the workflow at the server. Its running calls were not told.",
    "timed out": "The run was started with a time limit for the workflow. outlast itself sets none.",
    "cancelled": "Somebody cancelled the run.",
}


def advice_for(error_type: str) -> str:
    """How to fix what ended a run; empty for an error that is not outlast's own."""
    return _ADVICE.get(error_type, "")


def ending_lines(timeline: Timeline) -> list[RenderableType]:
    """How a run ended that did not complete."""
    what = f"{timeline.error_type}: {timeline.error}" if timeline.error_type else timeline.error
    lines: list[RenderableType] = [
        Labelled(timeline.state, Text(printable(what or _ADVICE.get(timeline.state, ""))), style="bold red")
    ]
    if where := _where(timeline):
        lines.append(Labelled("where", Text(where)))
    if fix := advice_for(timeline.error_type or (timeline.state if what else "")):
        lines.append(Labelled("fix", Text(fix)))
    lines.append(Labelled("", *_no_more(timeline)))
    return lines


def _where(timeline: Timeline) -> str:
    if not timeline.steps:
        return "before the first step"
    step = timeline.steps[-1]
    bad = [call for call in step.calls if call.state in ("failed", "retried", "lost")]
    if not bad:
        return f"step {step.number}"
    call = bad[-1]
    last = call.executions[-1] if call.executions else None
    words = call_line(call.tool_name, call.args or {})
    return cut(f"step {step.number}, {words} → {outcome_words(call.outcome, last)}", 300)


def _no_more(timeline: Timeline) -> Iterator[Text]:
    """What will not run again."""
    yield Text("The run has ended: nothing of it runs again.", style="dim")
    done = [call for call in timeline.calls if call.state == "returned"]
    unsure = [call for call in timeline.calls if call.state in ("lost", "running") and call.executions]
    if done:
        yield Text(cut(f"Calls with a result: {_named(done)}. A new run does not know of them.", 300), style="dim")
    if unsure:
        yield Text(cut(f"May or may not have taken effect: {_named(unsure)}.", 300), style="yellow")


def _named(calls: list[Call]) -> str:
    names = [call_line(call.tool_name, call.args or {}) for call in calls[:MOST_CALLS]]
    return ", ".join(names) + (f" and {len(calls) - MOST_CALLS} more" if len(calls) > MOST_CALLS else "")
