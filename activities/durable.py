"""The activities that a worker offers to Temporal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json, to_json
from temporalio import activity
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from outlast.activities.calling import AttemptFailed, Call, execute_call, jittered_backoff, mask
from outlast.activities.conversation import Conversation, ConversationMoved, Conversations
from outlast.activities.heartbeats import Heartbeats
from outlast.activities.planning import call_ids, plan_step
from outlast.activities.run_tools import RunTools, StepTools
from outlast.activities.spec import AgentSpec
from outlast.contracts import (
    CallInput,
    DepsVersion,
    Failed,
    Features,
    MessagesPage,
    Position,
    RunContextPage,
    RunFacts,
    StepInput,
    Transient,
    call_digest,
)
from outlast.errors import OutlastError, ProviderError, RunError, UserError
from outlast.messages import ModelMessage, UserPromptPart, load_messages
from outlast.payloads import PayloadTooLarge, json_bytes, to_raw
from outlast.toolsets.context import RunContext

UNKNOWN_AGENT_GRACE = timedelta(seconds=10)
"""How long a worker that does not know an agent hands the work back: another, being deployed, may know it."""

WORKER_SHUTDOWN = "WorkerShutdown"
MODEL_BACKOFF_SECONDS = 1.0

logger = logging.getLogger("outlast.worker")


class _RunSource:
    """Asks the run itself, by query, for what this worker does not know of it."""

    def __init__(self, client: Client, workflow_id: str) -> None:
        # By workflow ID alone: the run may have continued as new.
        self._run = client.get_workflow_handle(workflow_id)

    async def messages(self, start: int, end: int) -> MessagesPage:
        return MessagesPage.model_validate(await self._query("messages", {"start": start, "end": end}))

    async def context(self) -> RunContextPage:
        return RunContextPage.model_validate(await self._query("context", {}))

    async def _query(self, name: str, asked: dict[str, int]) -> Any:
        answer: RawValue = await self._run.query(name, to_raw(to_json(asked)), result_type=RawValue)
        return from_json(json_bytes(answer))


@dataclass
class Activities:
    """The activities of the agents that one worker hosts.

    Args:
        agents: By name.
        conversations: What this worker knows of the runs that it works for.
        features: What this worker tells a run about its surroundings.
        resources: Live things of this worker; reach tools as `ctx.resources`.
    """

    agents: Mapping[str, AgentSpec]
    conversations: Conversations = field(default_factory=Conversations)
    heartbeats: Heartbeats = field(default_factory=Heartbeats)
    features: Features = field(default_factory=Features)
    resources: Any = None

    def definitions(self) -> list[Callable[..., Any]]:
        """The activities with names that are known before any run; `dynamic` takes the rest."""
        return [_named(f"model:{name}", self.model) for name in self.agents]

    def handles(self, activity_type: str) -> bool:
        """Whether an activity of this type is one of outlast's."""
        return activity_type.startswith(("model:", "tool:", "output:"))

    async def dynamic(self, arguments: Sequence[RawValue]) -> RawValue:
        """Any activity of outlast: tools, and agents that this worker does not know."""
        activity_type = activity.info().activity_type
        if activity_type.startswith("model:"):
            return await self.model(arguments[0])
        if activity_type.startswith("tool:"):
            return await self.tool(arguments[0])
        raise ApplicationError(f"No activity {activity_type!r} is registered on this worker.", type="NotFoundError")

    # --- one model request ---------------------------------------------------------------------------------------

    async def model(self, argument: RawValue) -> RawValue:
        """The activity `model:<agent>`: one step."""
        data = StepInput.model_validate_json(json_bytes(argument))
        agent = self._agent(data.agent)
        with self.heartbeats.beating():
            return await _unless_shut_down(self._model(agent, data))

    async def _model(self, agent: AgentSpec, data: StepInput) -> RawValue:
        info = activity.info()
        conversation = await self._open(data.run_key, data.position)
        try:
            delta = load_messages(data.position.delta)
            ctx = self._context(agent, data, conversation, [*conversation.messages[: data.position.base], *delta])
            offered = await self._tools(agent, conversation, ctx)
            facts = _facts(conversation)
            plan = await plan_step(
                agent,
                ctx,
                offered.tools,
                used_ids=call_ids(ctx.messages),
                retries=data.retries,
                model_override=facts.model,
                settings_override=facts.model_settings,
            )
            plan.features = self.features.model_copy(update={"output_retries": plan.features.output_retries})
        except Exception as error:
            raise _model_failure(error, attempt=info.attempt, attempts=agent.model_attempts) from None
        # What an earlier attempt left here is not in the run's history; what this one adds will be, or be cut again.
        conversation.cut(data.position.base)
        conversation.extend(data.position.delta, delta)
        conversation.extend([plan.response])
        self.conversations.keep(data.run_key, conversation)
        return to_raw(plan.to_json())

    # --- one call ------------------------------------------------------------------------------------------------

    async def tool(self, argument: RawValue) -> RawValue:
        """The activity `tool:<tool_name>`: one attempt at a call."""
        data = CallInput.model_validate_json(json_bytes(argument))
        if data.agent not in self.agents and not data.repeatable:
            # Temporal gives the call one attempt, and nothing has happened yet.
            nobody = Transient(error_type="UnknownAgent", message=self._unknown(data.agent), retry_after=5)
            return to_raw(nobody.to_json())
        agent = self._agent(data.agent)
        with self.heartbeats.beating():
            return await _unless_shut_down(self._tool(agent, data))

    async def _tool(self, agent: AgentSpec, data: CallInput) -> RawValue:
        if data.approved_digest is not None and data.approved_digest != call_digest(data.tool_name, data.args):
            message = "These are not the arguments that were approved."
            return to_raw(Failed(error_type="DigestMismatch", message=message).to_json())
        conversation = await self._open(data.run_key, data.position)
        messages = conversation.messages[: data.position.base]
        ctx = self._context(agent, data, conversation, messages)
        info = activity.info()
        ctx.tool_call_id = data.tool_call_id
        ctx.tool_name = data.tool_name
        ctx.tool_call_approved = data.approved
        ctx.retry = data.retry
        ctx.max_retries = data.policy.max_retries
        ctx.attempt = info.attempt + data.losses
        ctx.idempotency_key = f"{data.run_key}:{data.tool_call_id}"
        call = Call(
            tool_name=data.tool_name,
            args=data.args,
            policy=data.policy,
            repeatable=data.repeatable,
            deps_adapter=agent.deps_adapter,
        )
        offered = await self._tools(agent, conversation, ctx)
        try:
            outcome = await execute_call(call, ctx, offered)
        except AttemptFailed as failure:
            raise ApplicationError(
                failure.message, type=failure.error_type, next_retry_delay=failure.retry_after
            ) from None
        try:
            return to_raw(outcome.to_json())
        except PayloadTooLarge as error:
            # The changes to `deps` come on top of a result that fits by itself.
            too_large = Failed(error_type="ResultTooLarge", message=f"The tool ran; its result and deps have {error}.")
            return to_raw(too_large.to_json())

    # --- what both need ------------------------------------------------------------------------------------------

    def _agent(self, name: str) -> AgentSpec:
        agent = self.agents.get(name)
        if agent is not None:
            return agent
        info = activity.info()
        waited = datetime.now(UTC) - info.scheduled_time
        raise ApplicationError(
            self._unknown(name),
            type="UnknownAgent",
            non_retryable=waited > UNKNOWN_AGENT_GRACE,
            next_retry_delay=timedelta(seconds=1),
        )

    def _unknown(self, name: str) -> str:
        hosted = ", ".join(map(repr, self.agents)) or "none"
        queue = activity.info().task_queue
        return f"No agent {name!r} on this worker of task queue {queue!r}. Its agents: {hosted}."

    async def _open(self, run_key: str, position: Position) -> Conversation:
        workflow_id = activity.info().workflow_id or ""
        try:
            return await self.conversations.open(run_key, position, _RunSource(activity.client(), workflow_id))
        except ConversationMoved as error:
            raise ApplicationError(str(error), type="ConversationMoved") from None

    async def _tools(self, agent: AgentSpec, conversation: Conversation, ctx: RunContext[Any]) -> StepTools:
        if conversation.tools is None or conversation.tools.agent is not agent:
            conversation.tools = RunTools(agent)
        return await conversation.tools.for_step(ctx)

    def _context(
        self, agent: AgentSpec, data: StepInput | CallInput, conversation: Conversation, messages: list[ModelMessage]
    ) -> RunContext[Any]:
        facts = _facts(conversation)
        return RunContext(
            deps=_deps(agent, conversation.deps or DepsVersion()),
            model=agent.model_for(facts.model),
            usage=data.usage,
            usage_limits=facts.usage_limits,
            prompt=_prompt(facts, messages),
            messages=messages,
            run_step=data.step,
            run_id=activity.info().workflow_id or "",
            metadata=facts.metadata,
            resources=self.resources,
        )


def _named(name: str, method: Callable[[Any], Awaitable[RawValue]]) -> Callable[..., Any]:
    async def run(argument: RawValue) -> RawValue:
        return await method(argument)

    run.__annotations__ = {"argument": RawValue, "return": RawValue}
    return activity.defn(name=name)(run)


def _prompt(facts: RunFacts, messages: list[ModelMessage]) -> str | list[Any] | None:
    """What the run was started with."""
    if facts.prompt_at is None or facts.prompt_at >= len(messages):
        return None
    last = messages[facts.prompt_at].parts[-1]
    return last.content if isinstance(last, UserPromptPart) else None


def _facts(conversation: Conversation) -> RunFacts:
    assert conversation.facts is not None
    return conversation.facts


def _deps(agent: AgentSpec, deps: DepsVersion) -> Any:
    """The deps of this one activity: its own objects, so that calls that overlap share nothing by accident."""
    if agent.deps_adapter is None:
        return deps.value
    try:
        return agent.deps_adapter.validate_json(to_json(deps.value))
    except ValidationError as error:
        problems = "; ".join(
            f"`{'.'.join(map(str, one['loc'])) or 'deps'}`: {one['msg']}"
            for one in error.errors(include_url=False, include_context=False, include_input=False)
        )
        raise ApplicationError(
            f"The deps do not fit the deps_type of agent {agent.name!r}: {problems}.",
            type="InvalidDeps",
            non_retryable=True,
        ) from None


async def _unless_shut_down(work: Awaitable[RawValue]) -> RawValue:
    """Tell a worker's shutdown apart from a cancellation of the run, which looks the same to the code in it."""
    try:
        return await work
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        if details is not None and details.worker_shutdown:
            info = activity.info()
            logger.warning(
                "%s of run %s did not end within the grace period: it is handed back.",
                info.activity_type,
                info.workflow_id,
            )
            # Benign: nothing failed, so no stack trace is logged, and no failure counted.
            raise ApplicationError(
                "The worker shut down before this ended.",
                type=WORKER_SHUTDOWN,
                non_retryable=True,
                category=ApplicationErrorCategory.BENIGN,
            ) from None
        raise


def _model_failure(error: Exception, *, attempt: int, attempts: int) -> ApplicationError:
    """What a failed step means to Temporal: to try again, or what the run fails with."""
    if isinstance(error, ApplicationError):
        return error
    if isinstance(error, RunError):
        return ApplicationError(mask(error.message), type=type(error).__name__, non_retryable=True)
    if isinstance(error, UserError):
        return ApplicationError(mask(error.message), type="ModelRequestFailed", non_retryable=True)
    retryable = not isinstance(error, ProviderError) or error.retryable
    retry_after = jittered_backoff(MODEL_BACKOFF_SECONDS, attempt)
    if isinstance(error, ProviderError) and error.retry_after is not None:
        retry_after = timedelta(seconds=error.retry_after)
    name = "" if isinstance(error, OutlastError) else f"{type(error).__name__}: "
    given_up = f" (attempt {attempt} of {attempts})" if retryable else ""
    if retryable:
        logger.warning("The model request failed%s: %s%s", given_up, name, mask(str(error)))
    return ApplicationError(
        f"{name}{mask(str(error))}{given_up}",
        type="ModelRequestFailed",
        non_retryable=not retryable or attempt >= attempts,
        next_retry_delay=retry_after,
    )
