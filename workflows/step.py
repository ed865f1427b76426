"""The edges of a step: its calls as planned, what a worker is told of it, and what is written down at its end."""

from __future__ import annotations

from pydantic_core import from_json, to_json

from outlast.contracts import CallInput, Position, StepInput, StepPlan, extend_digest
from outlast.messages import JsonObject, ToolCallPart, Usage
from outlast.workflows import limits, parts
from outlast.workflows.state import Call, RunState


def take_response(state: RunState, response: JsonObject) -> None:
    """Put the model's response into the conversation: the worker that asked knows everything up to it."""
    state.digest = extend_digest(state.digest, [*state.messages[state.known :], response])
    state.messages.append(response)
    state.known = len(state.messages)
    state.step_losses = 0
    state.usage += Usage.model_validate({**response.get("usage", {}), "requests": 1})


def take_plan(state: RunState, plan: StepPlan) -> None:
    """Open the calls of a plan; nothing is said yet about whether they wait, start or are settled."""
    given = _arguments(plan)
    state.features = plan.features
    state.output = plan.output
    state.calls = {
        planned.tool_call_id: Call(
            plan=planned,
            args=planned.args if planned.args is not None else given.get(planned.tool_call_id, {}),
        )
        for planned in plan.calls
    }
    if plan.retry is not None:
        state.output_retry = parts.retry_prompt(
            plan.retry.content, tool_name=plan.retry.tool_name, tool_call_id=plan.retry.tool_call_id
        )
        state.step_bytes += parts.size_bytes(state.output_retry)


def _arguments(plan: StepPlan) -> dict[str, JsonObject]:
    """The arguments of the response's calls, by call ID, for calls that run with exactly these."""
    given: dict[str, JsonObject] = {}
    if all(planned.args is not None for planned in plan.calls):
        return given
    for part in plan.response["parts"]:
        if part["part_kind"] == "tool-call":
            try:
                # As they are sent: in a number such as 1e999 Python sees infinity, and JSON nothing.
                given[part["tool_call_id"]] = from_json(to_json(ToolCallPart.model_validate(part).args_as_dict()))
            except ValueError:
                # Arguments that are no object never start a call: the plan has settled it.
                given[part["tool_call_id"]] = {}
    return given


def close(state: RunState) -> None:
    """Every call has a result: write them into the conversation, in the order in which they were asked for."""
    limits.count_retries(state)
    request_parts = [part for call in state.calls.values() for part in call.parts]
    request_parts += [parts.user_prompt(call.user_content) for call in state.calls.values() if call.user_content]
    if state.output_retry is not None:
        request_parts.append(state.output_retry)
    request_parts += state.steers
    state.calls, state.output, state.output_retry, state.steers = {}, None, None, []
    state.step_bytes = 0
    if request_parts:
        state.messages.append(parts.request(request_parts))


def request_input(state: RunState) -> StepInput:
    """What a worker is told that asks the model."""
    return StepInput(
        agent=state.facts.agent,
        run_key=state.run_key,
        step=state.step,
        position=_position(state),
        usage=state.usage,
        retries={name: used for name, used in state.retries.items() if used},
    )


def call_input(state: RunState, call: Call) -> CallInput:
    """What a worker is told that makes a call."""
    plan = call.plan
    return CallInput(
        agent=state.facts.agent,
        run_key=state.run_key,
        step=state.step,
        position=_position(state),
        tool_call_id=plan.tool_call_id,
        tool_name=plan.tool_name,
        args=call.args,
        policy=plan.policy,
        repeatable=call.repeatable,
        execution=call.execution,
        losses=call.losses,
        retry=state.retries.get(plan.tool_name, 0),
        approved=call.approved,
        approved_digest=call.approved_digest,
        usage=state.usage,
    )


def _position(state: RunState) -> Position:
    """What a worker should know, what is new, and, once, what it cannot know yet."""
    position = Position(
        base=state.known,
        digest=state.digest,
        deps_version=state.deps.version,
        delta=state.messages[state.known :],
    )
    if not state.facts_sent:
        position.facts = state.facts
        state.facts_sent = True
    if state.deps_sent < state.deps.version:
        position.deps = state.deps
        state.deps_sent = state.deps.version
    return position
