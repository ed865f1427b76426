"""One step: ask the model, and plan what to do about its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from outlast.activities.output import NOT_EXECUTED, NOT_USED, PROCESSED, InvalidOutput
from outlast.activities.spec import AgentSpec
from outlast.contracts import (
    MAX_PAYLOAD_BYTES,
    CallPolicy,
    Features,
    OutputRetry,
    PlannedCall,
    PlannedOutput,
    Retried,
    Returned,
    Skipped,
    StepPlan,
)
from outlast.errors import ApprovalRequired, CallDeferred, UnexpectedModelBehavior
from outlast.messages import ModelMessage, ModelResponse, ToolCallPart, dump_message, load_messages
from outlast.models.model import ModelRequestParameters
from outlast.payloads import json_problem
from outlast.toolsets.abstract import ToolsetTool
from outlast.toolsets.context import RunContext
from outlast.toolsets.validation import Invalid, validate_args

ARGUMENT_BYTES = MAX_PAYLOAD_BYTES // 4
"""Most JSON bytes of one call's arguments: they travel in the plan and in the call, next to the conversation."""

MAX_ID_CHARS = 64


async def plan_step(
    agent: AgentSpec,
    ctx: RunContext[Any],
    tools: Mapping[str, ToolsetTool],
    *,
    used_ids: set[str],
    retries: Mapping[str, int],
    model_override: str | None = None,
    settings_override: Mapping[str, Any] | None = None,
) -> StepPlan:
    """Ask the model once, and plan its answer.

    Args:
        agent: Whose step this is.
        ctx: The run; `ctx.messages` ends in the request that is sent.
        tools: The tools of this step, by name.
        used_ids: The call IDs that the run used before.
        retries: Retries used, by tool name.
        model_override: Name of the model that the run asks for.
        settings_override: Model settings that the run asks for.

    Raises:
        ProviderError: The model provider failed.
        UnexpectedModelBehavior: The response cannot be stored.
    """
    model = agent.model_for(model_override)
    parameters = ModelRequestParameters(
        function_tools=[tool.tool_def for tool in tools.values()],
        output_tools=agent.output.definitions,
        allow_text_output=agent.output.allows_text,
        instructions=await agent.instructions_for(ctx),
    )
    response = await model.request(list(ctx.messages), agent.settings_for(settings_override), parameters)
    return await plan_response(agent, ctx, tools, response, used_ids=used_ids, retries=retries)


async def plan_response(
    agent: AgentSpec,
    ctx: RunContext[Any],
    tools: Mapping[str, ToolsetTool],
    response: ModelResponse,
    *,
    used_ids: set[str],
    retries: Mapping[str, int],
) -> StepPlan:
    """Plan what to do about a response: which calls to make, to hold or to answer at once, and whether the run ends."""
    response = with_unique_ids(response, used_ids=used_ids, step=ctx.run_step)
    response, unfit = _without_unfit_arguments(response)
    response = _readable(response)
    features = Features(output_retries=agent.output_retries)
    output: PlannedOutput | None = None
    retry: OutputRetry | None = None
    calls: list[PlannedCall] = []
    for part in response.tool_calls:
        if not agent.output.is_output_tool(part.tool_name):
            continue
        if output is not None:
            calls.append(_output_call(part, Skipped(content=NOT_USED)))
            continue
        try:
            output = await agent.output.from_call(ctx, part)
            calls.append(_output_call(part, Returned(content=PROCESSED)))
        except InvalidOutput as invalid:
            calls.append(_output_call(part, Retried(content=invalid.content, reason="arguments")))
    for part in response.tool_calls:
        if agent.output.is_output_tool(part.tool_name):
            continue
        if output is not None:
            calls.append(_settled(part, CallPolicy(), Skipped(content=NOT_EXECUTED)))
        elif part.tool_call_id in unfit:
            calls.append(_settled(part, CallPolicy(), unfit[part.tool_call_id]))
        else:
            calls.append(await _plan_call(agent, ctx, tools, part, retries))
    if not response.tool_calls:
        try:
            output = await agent.output.from_text(ctx, response)
        except InvalidOutput as invalid:
            retry = OutputRetry(content=invalid.content)
    order = {part.tool_call_id: index for index, part in enumerate(response.tool_calls)}
    calls.sort(key=lambda call: order[call.tool_call_id])
    plan = StepPlan(response=dump_message(response), calls=calls, output=output, retry=retry, features=features)
    _check_size(plan)
    return plan


async def _plan_call(
    agent: AgentSpec,
    ctx: RunContext[Any],
    tools: Mapping[str, ToolsetTool],
    part: ToolCallPart,
    retries: Mapping[str, int],
) -> PlannedCall:
    tool = tools.get(part.tool_name)
    if tool is None:
        policy = agent.tool_settings.policy()
        return _settled(part, policy, Retried(content=unknown_tool(part.tool_name, tools), reason="unknown_tool"))
    tool = tool.under(agent.tool_settings)
    policy = tool.policy()
    call_ctx = replace(
        ctx,
        tool_name=part.tool_name,
        tool_call_id=part.tool_call_id,
        retry=retries.get(part.tool_name, 0),
        max_retries=policy.max_retries,
    )
    try:
        checked = await validate_args(tool, part.args, call_ctx)
    except (CallDeferred, ApprovalRequired):
        # The tool's own validator asks for somebody: it will again when the call is made, which then waits.
        return PlannedCall(tool_call_id=part.tool_call_id, tool_name=part.tool_name, policy=policy)
    if isinstance(checked, Invalid):
        return _settled(part, policy, Retried(content=checked.errors, reason="arguments"))
    if (problem := json_problem(checked.json)) is not None:
        return _settled(part, policy, Retried(content=f"The JSON of the arguments {problem}.", reason="arguments"))
    planned = PlannedCall(
        tool_call_id=part.tool_call_id,
        tool_name=part.tool_name,
        args=None if checked.json == part.args else checked.json,
        policy=policy,
        metadata={**(tool.tool_def.metadata or {}), **(tool.settings.metadata or {})},
    )
    if tool.tool_def.kind == "external":
        planned.wait_for = "external"
    elif await tool.approval_needed(call_ctx, checked.args):
        planned.wait_for = "approval"
        planned.json_schema = tool.tool_def.parameters_json_schema
        if tool.settings.approval is not None:
            planned.prompt = tool.settings.approval.render(checked.json)
    return planned


def unknown_tool(name: str, tools: Mapping[str, ToolsetTool]) -> str:
    """What the model is told when it calls a tool that there is not."""
    known = ", ".join(repr(tool) for tool in tools) or "none"
    return f"Unknown tool name: {name!r}. Available tools: {known}."


def _output_call(part: ToolCallPart, settled: Returned | Retried | Skipped) -> PlannedCall:
    planned = _settled(part, CallPolicy(), settled)
    planned.output = True
    return planned


def _settled(part: ToolCallPart, policy: CallPolicy, settled: Returned | Retried | Skipped) -> PlannedCall:
    return PlannedCall(
        tool_call_id=part.tool_call_id, tool_name=part.tool_name, args={}, policy=policy, settled=settled
    )


def with_unique_ids(response: ModelResponse, *, used_ids: set[str], step: int) -> ModelResponse:
    """The response, with a call ID of its own for every call.

    Providers repeat IDs between steps, leave them out, or send one twice in a response. One that is good is kept.
    """
    if not response.tool_calls:
        return response
    used = set(used_ids)
    parts: list[Any] = []
    for index, part in enumerate(response.parts):
        if isinstance(part, ToolCallPart):
            call_id = part.tool_call_id
            if not _is_good_id(call_id) or call_id in used:
                call_id = f"call_{step}_{index}"
                while call_id in used:
                    call_id += "_"
            used.add(call_id)
            part = part.model_copy(update={"tool_call_id": call_id})
        parts.append(part)
    return response.model_copy(update={"parts": parts})


def _is_good_id(call_id: str) -> bool:
    return 0 < len(call_id) <= MAX_ID_CHARS and call_id.isascii() and call_id.isprintable() and " " not in call_id


def call_ids(messages: list[ModelMessage]) -> set[str]:
    """The IDs of all calls in these messages."""
    return {
        call.tool_call_id for message in messages if isinstance(message, ModelResponse) for call in message.tool_calls
    }


def _readable(response: ModelResponse) -> ModelResponse:
    """The response as it will be read from the history again.

    Raises:
        UnexpectedModelBehavior: It could not be. To ask the model again would cost as much, and give the same.
    """
    try:
        [readable] = load_messages([dump_message(response)])
    except (ValueError, TypeError, AttributeError) as error:
        raise UnexpectedModelBehavior(f"The model's answer is not a valid response: {error}") from None
    assert isinstance(readable, ModelResponse)
    return readable


def _without_unfit_arguments(response: ModelResponse) -> tuple[ModelResponse, dict[str, Retried]]:
    """The response without arguments that cannot travel, and what the model is told about each."""
    unfit: dict[str, Retried] = {}
    parts: list[Any] = []
    room = 2 * ARGUMENT_BYTES
    for part in response.parts:
        if isinstance(part, ToolCallPart):
            most = min(ARGUMENT_BYTES, room)
            problem, size = _unfit(part, most)
            if problem is not None:
                unfit[part.tool_call_id] = Retried(content=problem, reason="arguments")
                part = part.model_copy(update={"args": {}})
            else:
                room -= size
        parts.append(part)
    if not unfit:
        return response, unfit
    return response.model_copy(update={"parts": parts}), unfit


def _unfit(part: ToolCallPart, most: int) -> tuple[str | None, int]:
    """Why a call's arguments cannot travel, if they cannot, and how many bytes they have."""
    try:
        size = len(part.args_as_json_str().encode())
    except ValueError as error:
        # Text that no UTF-8 can hold, such as half an emoji.
        return f"The arguments cannot be written as JSON: {error}", 0
    if size > most:
        return f"The arguments have {size:,} bytes of JSON, and at most {most:,} fit. Send less at once.", size
    problem = json_problem(part.args) if isinstance(part.args, dict) else None
    return (None if problem is None else f"The JSON of the arguments {problem}."), size


def _check_size(plan: StepPlan) -> None:
    try:
        size = len(plan.to_json())
    except (ValueError, TypeError, RecursionError) as error:
        raise UnexpectedModelBehavior(f"The model's response cannot be stored as JSON: {error}") from None
    if size > MAX_PAYLOAD_BYTES:
        raise UnexpectedModelBehavior(
            f"The model's response has {size:,} bytes of JSON, and at most {MAX_PAYLOAD_BYTES:,} fit into a payload."
        )
