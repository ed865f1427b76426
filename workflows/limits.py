"""What a run may use up: model requests, calls, tokens, and further tries of its tools and of its output."""

from __future__ import annotations

from outlast.workflows.state import Call, RunState


def exceeded(state: RunState) -> str | None:
    """Which limit the run is past, now that the calls of its step are known."""
    usage, limits = state.usage, state.facts.usage_limits
    new_calls = sum(call.plan.settled is None for call in state.calls.values())
    for what, count, limit in (
        ("input tokens", usage.input_tokens, limits.input_tokens),
        ("output tokens", usage.output_tokens, limits.output_tokens),
        ("tokens", usage.total_tokens, limits.total_tokens),
        ("tool calls", usage.tool_calls + new_calls, limits.tool_calls),
    ):
        if limit is not None and count > limit:
            return f"The run is at {count:,} {what}, and its limit is {limit:,}."
    return None


def requests_exceeded(state: RunState) -> str | None:
    """Why the run may make no further model request, if it may not."""
    made, limit = state.usage.requests, state.facts.usage_limits.requests
    if limit is None or made < limit:
        return None
    return f"The run has made {made:,} model requests, and its limit is {limit:,}."


def retries_exceeded(state: RunState, call: Call, problem: object) -> str | None:
    """Why the model may not try the call's tool again, if it may not."""
    name, most = call.plan.tool_name, call.plan.policy.max_retries
    if state.retries.get(name, 0) < most:
        return None
    return (
        f"The model tried the tool {name!r} again more often than its max_retries of {most} allows. The last problem "
        f"was: {problem}"
    )


def count_retries(state: RunState) -> None:
    """A tool's retries grow by one for a step whose calls the model must try again; a success starts them anew."""
    called = [call for call in state.calls.values() if not call.plan.output]
    again = dict.fromkeys(call.plan.tool_name for call in called if call.counted)
    for call in called:
        if call.succeeded and call.plan.tool_name not in again:
            state.retries.pop(call.plan.tool_name, None)
    for name in again:
        state.retries[name] = state.retries.get(name, 0) + 1


def output_exceeded(state: RunState, problem: object) -> str | None:
    """Count an output that is not valid, and say why the model may not give another one, if it may not.

    A step counts once, and not at all where another output of it is valid.
    """
    invalid = sum(call.plan.output and call.counted for call in state.calls.values())
    if state.output is not None or invalid + (state.output_retry is not None) > 1:
        return None
    state.output_retries += 1
    if state.output_retries <= state.features.output_retries:
        return None
    return (
        f"The model's output was invalid {state.output_retries} times, and output_retries is "
        f"{state.features.output_retries}. The last problem was: {problem}"
    )
