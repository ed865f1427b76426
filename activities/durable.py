"""The activities that a worker offers to Temporal."""

from __future__ import annotations

import asyncio
import copy
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json
from temporalio import activity
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from outlast.activities.calling import MAX_WAIT, AttemptFailed, Call, execute_call, jittered_backoff, mask, said
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

_ANY_DEPS: TypeAdapter[Any] = TypeAdapter(Any)

_BETWEEN = ("outlast", "anyio", "asyncio", "concurrent")
"""Packages that call a tool's own code."""

MAX_PLACES = 5
"""Most places that a failure names: those nearest to where it was raised."""

logger = logging.getLogger("outlast.worker")


class _CallContext(RunContext[Any]):
    """The context of a call. Its messages are copies, made when the tool asks for them: few tools do."""

    @property
    def messages(self) -> list[ModelMessage]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The conversation so far."""
        if self._copied is None:
            self._copied = copy.deepcopy(self._shared)
        return self._copied

    @messages.setter
    def messages(self, messages: list[ModelMessage]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._shared, self._copied = messages, cast("list[ModelMessage] | None", None)


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
        agent = self.agents.get(data.agent)
        if agent is None:
            # By a value, since Temporal would count it as one of the tool's own attempts.
            message = self._unknown(data.agent)
            misplaced = Transient(error_type="UnknownAgent", message=message, retry_after=1, misplaced=True)
            return to_raw(misplaced.to_json())
        with self.heartbeats.beating():
            return await _unless_shut_down(self._tool(agent, data))

    async def _tool(self, agent: AgentSpec, data: CallInput) -> RawValue:
        if data.approved_digest is not None and data.approved_digest != call_digest(data.tool_name, data.args):
            message = "These are not the arguments that were approved."
            return to_raw(Failed(error_type="DigestMismatch", message=message).to_json())
        try:
            ctx, offered = await self._prepared(agent, data)
        except Exception as error:
            return self._not_begun(data, error)
        call = Call(
            tool_name=data.tool_name,
            args=data.args,
            policy=data.policy,
            repeatable=data.repeatable,
            deps_adapter=agent.deps_adapter or _ANY_DEPS,
        )
        try:
            outcome = await execute_call(call, ctx, offered)
        except AttemptFailed as failure:
            raise ApplicationError(
                failure.message,
                *_places(failure.__cause__),
                type=failure.error_type,
                next_retry_delay=failure.retry_after,
            ) from None
        try:
            return to_raw(outcome.to_json())
        except PayloadTooLarge as error:
            # The changes to `deps` come on top of a result that fits by itself.
            too_large = Failed(error_type="ResultTooLarge", message=f"The tool ran; its result and deps have {error}.")
            return to_raw(too_large.to_json())

    async def _prepared(self, agent: AgentSpec, data: CallInput) -> tuple[RunContext[Any], StepTools]:
        """What a call needs before it begins."""
        conversation = await self._open(data.run_key, data.position)
        messages = conversation.messages[: data.position.base]
        ctx = self._context(agent, data, conversation, messages, kind=_CallContext)
        ctx.tool_call_id = data.tool_call_id
        ctx.tool_name = data.tool_name
        ctx.tool_call_approved = data.approved
        ctx.retry = data.retry
        ctx.max_retries = data.policy.max_retries
        ctx.attempt = activity.info().attempt + data.losses
        ctx.idempotency_key = f"{data.run_key}:{data.tool_call_id}"
        return ctx, await self._tools(agent, conversation, ctx)

    def _not_begun(self, data: CallInput, error: Exception) -> RawValue:
        """What it means for a call that it could not even begin: nothing happened, and it may be made again.

        Raises:
            ApplicationError: The call is repeatable, so Temporal makes it again.
        """
        cause = error if isinstance(error, ApplicationError) else None
        error_type = (cause.type if cause is not None else None) or type(error).__name__
        message = mask(said(error))
        if not data.repeatable:
            wait = jittered_backoff(data.policy.backoff, 1).total_seconds()
            return to_raw(Transient(error_type=error_type, message=message, retry_after=wait).to_json())
        non_retryable = cause is not None and cause.non_retryable
        raise ApplicationError(message, type=error_type, non_retryable=non_retryable) from None

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
        self,
        agent: AgentSpec,
        data: StepInput | CallInput,
        conversation: Conversation,
        messages: list[ModelMessage],
        *,
        kind: type[RunContext[Any]] = RunContext,
    ) -> RunContext[Any]:
        facts = _facts(conversation)
        # Copies of all that may be changed in place: what is cached here is not the tool's.
        return kind(
            deps=agent.deps_for(lambda: _deps(agent, conversation.deps or DepsVersion())),
            model=agent.model_for(facts.model),
            usage=data.usage,
            usage_limits=facts.usage_limits.model_copy(),
            prompt=copy.deepcopy(_prompt(facts, messages)),
            messages=messages,
            run_step=data.step,
            run_id=activity.info().workflow_id or "",
            metadata=copy.deepcopy(facts.metadata),
            resources=self.resources,
        )


def _places(error: BaseException | None) -> list[str]:
    """Where in the tool's own code it was raised, for the failure's details in the Temporal UI.

    Not the trace itself: the lines of code in it may hold what is masked in the message.
    """
    trace = error.__traceback__ if error is not None else None
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        trace = trace.tb_next
    frames = traceback.StackSummary.extract(traceback.walk_tb(trace), lookup_lines=False)
    return [f"{frame.filename}:{frame.lineno}, in {frame.name}" for frame in frames[-MAX_PLACES:]]


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
        return copy.deepcopy(deps.value)
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
        retry_after = timedelta(seconds=min(error.retry_after, MAX_WAIT.total_seconds()))
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
