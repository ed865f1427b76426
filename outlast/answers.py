"""What a caller of an in-process run says about the calls that waited when an earlier run ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from outlast.activities.calling import returned
from outlast.contracts import Approve, Decision, Deny, Failed, PlannedCall, Retried, Returned
from outlast.errors import ModelRetry, UserError
from outlast.messages import ModelMessage, ModelResponse, RetryPromptPart, ToolCallPart, ToolReturnPart
from outlast.toolsets.deferred import DeferredToolResults, ToolApproved, ToolDenied


def unanswered_calls(history: Sequence[ModelMessage]) -> tuple[ModelResponse, list[ToolCallPart]]:
    """The last response, and those of its calls that have no result yet."""
    answered: set[str] = set()
    for message in reversed(history):
        if isinstance(message, ModelResponse):
            return message, [part for part in message.tool_calls if part.tool_call_id not in answered]
        answered |= {part.tool_call_id for part in message.parts if isinstance(part, ToolReturnPart | RetryPromptPart)}
    return ModelResponse(parts=[]), []


def check_answers(results: DeferredToolResults, unanswered: Sequence[ToolCallPart]) -> None:
    """Checks that each call that waits has one answer, and that each answer has a call.

    Raises:
        UserError: It is not so; the message names all that does not fit.
    """
    if not unanswered:
        raise UserError("deferred_tool_results was given, but the message_history ends without a call that waits.")
    waiting = {part.tool_call_id: part.tool_name for part in unanswered}
    given = {**results.calls, **results.approvals}
    problems = [
        _named("there is no answer for", (f"{one!r} ({name})" for one, name in waiting.items() if one not in given)),
        _named("no call waits with the ID", (repr(one) for one in given if one not in waiting)),
        _named("there are two answers for", (repr(one) for one in results.calls if one in results.approvals)),
    ]
    found = "; ".join(problem for problem in problems if problem)
    if found:
        raise UserError(f"deferred_tool_results needs one answer for each call that waits: {found}.")


def _named(what: str, names: Iterable[str]) -> str:
    listed = ", ".join(names)
    return f"{what} {listed}" if listed else ""


def answer(planned: PlannedCall, results: DeferredToolResults) -> None:
    """Let a call of the plan wait for the answer that there is.

    Raises:
        UserError: The answer approves a call that nothing here can run.
    """
    call_id = planned.tool_call_id
    approval = results.approvals.get(call_id)
    approves = approval is True or isinstance(approval, ToolApproved)
    if approves and planned.wait_for == "external":
        raise UserError(
            f"deferred_tool_results.approvals[{call_id!r}] approves a call of {planned.tool_name!r}, which runs "
            f"elsewhere: give its result in deferred_tool_results.calls[{call_id!r}]."
        )
    if not approves:
        # Whoever answers has the last word, also where the tool is gone by now, or would take other arguments.
        planned.settled = None
    if planned.settled is None:
        planned.wait_for = "approval" if call_id in results.approvals else "external"


def decision(call_id: str, approval: Any) -> Decision:
    """The decision that an answer among `approvals` stands for.

    Raises:
        UserError: It is none.
    """
    match approval:
        case True:
            return Approve(tool_call_id=call_id)
        case False:
            return Deny(tool_call_id=call_id)
        case ToolApproved(override_args=override_args):
            return Approve(tool_call_id=call_id, override_args=override_args)
        case ToolDenied(message=message):
            return Deny(tool_call_id=call_id, message=message)
        case _:
            raise UserError(
                f"deferred_tool_results.approvals[{call_id!r}] is True, False, ToolApproved or ToolDenied, "
                f"got {approval!r}."
            )


def outcome(call_id: str, result: Any) -> Returned | Retried:
    """What an answer among `calls` means for its call.

    Raises:
        UserError: It has no JSON.
    """
    if isinstance(result, ModelRetry):
        return Retried(content=result.message)
    given = returned(result)
    if isinstance(given, Failed):
        raise UserError(f"deferred_tool_results.calls[{call_id!r}] cannot be used. {given.message}")
    assert isinstance(given, Returned)
    return given
