"""Starts runs, follows them and decides on their calls, over a Temporal client.

Nothing here is needed for that: any Temporal client in any language can do the same with JSON. This adds types,
and errors that say what to do.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json, to_jsonable_python
from temporalio.client import Client as TemporalClient
from temporalio.client import (
    RPCTimeoutOrCancelledError,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from outlast.connection import connect
from outlast.contracts import (
    CallState,
    MessagesPage,
    PendingCall,
    PendingKind,
    RunInput,
    RunResult,
    Status,
    UsageLimits,
)
from outlast.errors import (
    DecisionRejected,
    InvalidInput,
    RunCancelled,
    RunError,
    ServerUnreachable,
    UnknownRun,
    UserError,
)
from outlast.markdown import escaped
from outlast.messages import JsonObject, ModelMessage, UserContent, dump_message, load_messages
from outlast.payloads import PayloadTooLarge, json_bytes, to_raw
from outlast.settings import Settings
from outlast.workflows.page import about_run

if TYPE_CHECKING:
    from outlast.agent import Agent

WORKFLOW_TYPE = "AgentRun"
ANSWER_TIMEOUT = timedelta(seconds=10)
SUMMARY_BYTES = 200

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class WaitingCall:
    """A call that waits for a decision, as an inbox over many runs lists it; `Run.pending` has all of it.

    Attributes:
        run_id: The run's workflow ID.
        agent: Name of the run's agent.
        summary: The call in one line, cut.
        digest: What a decision can be bound to.
    """

    run_id: str
    agent: str
    tool_call_id: str
    tool_name: str
    kind: PendingKind
    requested_at: datetime
    summary: str
    digest: str


class Run:
    """A run, by its workflow ID.

    Args:
        handle: Handle of the workflow, without a run ID: the run may continue as new.
    """

    def __init__(self, handle: WorkflowHandle[Any, Any]) -> None:
        self._handle = handle

    @property
    def id(self) -> str:
        """The run's ID: its workflow ID."""
        return self._handle.id

    def __repr__(self) -> str:
        return f"Run({self.id!r})"

    @overload
    async def result(self) -> RunResult: ...
    @overload
    async def result(self, *, output_type: type[T]) -> T: ...
    async def result(self, *, output_type: Any = None) -> Any:
        """Wait for the run's end, however long that takes.

        Args:
            output_type: Gives the output as this type, instead of the whole `RunResult`.

        Raises:
            RunError: The run ended without an output; the subclass says how.
            UnknownRun: There is no such run.
        """
        try:
            raw: RawValue = await self._handle.result()
        except WorkflowFailureError as failure:
            raise _run_error(failure) from None
        except RPCError as error:
            raise self._explain(error) from None
        result = RunResult.model_validate_json(json_bytes(raw))
        return result if output_type is None else TypeAdapter(output_type).validate_python(result.output)

    async def status(self) -> Status:
        """What the run does, costs and waits for; needs a live worker."""
        return Status.model_validate(await self._query("status"))

    async def pending(self) -> list[PendingCall]:
        """The calls that wait for a decision; needs a live worker."""
        return TypeAdapter(list[PendingCall]).validate_python(await self._query("pending"))

    async def messages(self) -> list[ModelMessage]:
        """The conversation so far; needs a live worker."""
        messages: list[JsonObject] = []
        start: int | None = 0
        while start is not None:
            page = MessagesPage.model_validate(await self._query("messages", {"start": start}))
            messages += page.messages
            start = page.next
        return load_messages(messages)

    # --- decisions -----------------------------------------------------------------------------------------------

    async def approve(
        self,
        tool_call_id: str,
        *,
        override_args: JsonObject | None = None,
        by: str | None = None,
        reason: str | None = None,
        digest: str | None = None,
    ) -> CallState:
        """Run a call that waits for an approval.

        Args:
            tool_call_id: ID from `pending()`; unique within the run.
            override_args: Runs with these arguments instead; all of them, not only those that differ.
            by: Who decides.
            reason: Kept in the run's record.
            digest: Applies only where this is still the digest of what waits.

        Returns:
            What became of the call, once the decision is in history.

        Raises:
            DecisionRejected: The decision cannot apply; the subclass says why.
            UnknownRun: There is no such run, or it has ended.
        """
        return await self._decide(
            "approve", tool_call_id, override_args=override_args, by=by, reason=reason, digest=digest
        )

    async def deny(self, tool_call_id: str, *, message: str | None = None, by: str | None = None) -> CallState:
        """Never run a waiting call; the model sees the message. Errors as for `approve`."""
        return await self._decide("deny", tool_call_id, message=message, by=by)

    async def resolve(self, tool_call_id: str, result: Any, *, by: str | None = None) -> CallState:
        """Give a waiting call its result. Errors as for `approve`.

        Args:
            tool_call_id: ID from `pending()`.
            result: Anything that has JSON, at most about 1 MB.
            by: Who says so.
        """
        return await self._decide("resolve", tool_call_id, result=to_jsonable_python(result), by=by)

    async def retry(self, tool_call_id: str, message: str, *, by: str | None = None) -> CallState:
        """Tell the model to try a waiting call again. Errors as for `approve`."""
        return await self._decide("retry", tool_call_id, message=message, by=by)

    async def steer(self, content: str | Sequence[UserContent]) -> None:
        """Add a user message before the next step."""
        await self._signal("steer", {"content": to_jsonable_python(content)})

    async def pause(self, *, by: str | None = None) -> None:
        """Let what runs finish, and start no new step or call."""
        await self._signal("pause", {"by": by} if by else {})

    async def resume(self, *, by: str | None = None) -> None:
        """Start steps and calls again."""
        await self._signal("resume", {"by": by} if by else {})

    async def cancel(self) -> None:
        """Cancel the run and what it is running; `result` then raises `RunCancelled`."""
        try:
            await self._handle.cancel()
        except RPCError as error:
            raise self._explain(error) from None

    async def _decide(self, name: str, tool_call_id: str, **fields: Any) -> CallState:
        payload = {"tool_call_id": tool_call_id, **{key: value for key, value in fields.items() if value is not None}}
        if name == "resolve":
            payload["result"] = fields["result"]
        update = cast(Any, self._handle).execute_update(name, _raw(payload), result_type=RawValue)
        try:
            answer: RawValue = await asyncio.wait_for(update, ANSWER_TIMEOUT.total_seconds())
        except WorkflowUpdateFailedError as failure:
            raise _rejection(failure) from None
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError, RPCTimeoutOrCancelledError):
            # No worker is there to answer. As a signal the decision waits in the history; should the update have
            # come through after all, it is the same decision twice, which is no error.
            await self._signal(name, payload)
            return CallState(tool_call_id=tool_call_id, state="sent")
        except RPCError as error:
            raise self._explain(error) from None
        return CallState.model_validate_json(json_bytes(answer))

    async def _signal(self, name: str, payload: JsonObject) -> None:
        try:
            await self._handle.signal(name, _raw(payload))
        except RPCError as error:
            raise self._explain(error) from None

    async def _query(self, name: str, asked: JsonObject | None = None) -> Any:
        arguments = [] if asked is None else [_raw(asked)]
        try:
            answer: RawValue = await self._handle.query(
                name, args=arguments, result_type=RawValue, rpc_timeout=ANSWER_TIMEOUT
            )
        except WorkflowQueryFailedError as failure:
            raise UserError(str(failure)) from None
        except RPCError as error:
            raise self._explain(error) from None
        return from_json(json_bytes(answer))

    def _explain(self, error: RPCError) -> Exception:
        return explain_rpc(error, self.id)


class Client:
    """Runs of agents, over a Temporal client.

    Args:
        temporal: Any Temporal client of the namespace where the workers are; `Client.connect` makes one.
        task_queue: Where the agents' workers listen.
    """

    def __init__(self, temporal: TemporalClient, *, task_queue: str = "outlast") -> None:
        self.temporal = temporal
        self.task_queue = task_queue

    @classmethod
    async def connect(cls, address: str | None = None, *, namespace: str | None = None) -> Client:
        """Connect as the environment says: `TEMPORAL_*` for the server, `OUTLAST_TASK_QUEUE` for the queue.

        Raises:
            ServerUnreachable: No server answers there.
        """
        return cls(await connect(address=address, namespace=namespace), task_queue=Settings().task_queue)

    async def start(
        self,
        agent: str | Agent[Any, Any],
        prompt: str | Sequence[UserContent] | None = None,
        *,
        deps: Any = None,
        id: str | None = None,
        message_history: Sequence[ModelMessage] = (),
        model: str | None = None,
        model_settings: Mapping[str, Any] | None = None,
        usage_limits: UsageLimits | None = None,
        metadata: JsonObject | None = None,
    ) -> Run:
        """Start a run.

        Args:
            agent: The agent, or its name.
            prompt: What the user says; None to go on from `message_history`.
            deps: Anything that has JSON and fits the agent's `deps_type`.
            id: The run's ID; by default made from the agent's name. Starting an ID that is running is refused, so one
                made from your own data makes a start safe to repeat.
            message_history: Earlier messages to go on from.
            model: Instead of the agent's, by name.
            model_settings: Override single settings of the agent.
            usage_limits: Limits of this run.
            metadata: Shown to people who decide; `requester` says who asked.

        Raises:
            InvalidInput: The input does not fit, or is too large.
            UserError: A run with this ID is under way.
        """
        name = agent if isinstance(agent, str) else agent.name
        if name is None:
            raise UserError("A durable agent needs a name: write Agent(…, name='support').")
        run_input = _run_input(
            agent=name,
            prompt=prompt,
            deps=to_jsonable_python(deps),
            message_history=[dump_message(message) for message in message_history],
            model=model,
            model_settings=model_settings,
            usage_limits=usage_limits,
            metadata=metadata,
        )
        run_id = id or f"{name}-{uuid.uuid4().hex[:12]}"
        try:
            await self.temporal.start_workflow(
                WORKFLOW_TYPE,
                run_input,
                id=run_id,
                task_queue=self.task_queue,
                result_type=RawValue,
                static_summary=_summary(name, prompt),
                static_details=about_run(name, _shown(prompt), metadata or {}),
            )
        except WorkflowAlreadyStartedError:
            raise UserError(
                f"A run {run_id!r} is under way already: get it with `client.get({run_id!r})`, or start another ID."
            ) from None
        except RPCError as error:
            raise explain_rpc(error, run_id) from None
        return self.get(run_id)

    def get(self, run_id: str) -> Run:
        """A run by its ID; nothing is asked of the server yet."""
        return Run(self.temporal.get_workflow_handle(run_id, result_type=RawValue))

    async def list_pending(self, *, agent: str | None = None, limit: int = 1_000) -> list[WaitingCall]:
        """The calls that wait for a decision over all runs, those that wait longest first.

        One listing on the server, which asks no worker. It shows the runs' memos, which name at most 8 calls of a run.

        Args:
            agent: Only runs of this agent.
            limit: Most calls.
        """
        waiting: list[WaitingCall] = []
        query = f"WorkflowType = '{WORKFLOW_TYPE}' AND ExecutionStatus = 'Running'"
        try:
            async for execution in self.temporal.list_workflows(query, page_size=1_000):
                memo = (await execution.memo()).get("outlast")
                if memo and (agent is None or memo.get("agent") == agent):
                    calls = memo.get("calls", [])
                    waiting += [WaitingCall(run_id=execution.id, agent=memo["agent"], **_times(call)) for call in calls]
        except RPCError as error:
            raise explain_rpc(error, "") from None
        waiting.sort(key=lambda call: call.requested_at)
        return waiting[:limit]

    async def approve(self, run_id: str, tool_call_id: str, **fields: Any) -> CallState:
        """See `Run.approve`."""
        return await self.get(run_id).approve(tool_call_id, **fields)

    async def deny(self, run_id: str, tool_call_id: str, **fields: Any) -> CallState:
        """See `Run.deny`."""
        return await self.get(run_id).deny(tool_call_id, **fields)

    async def resolve(self, run_id: str, tool_call_id: str, result: Any, **fields: Any) -> CallState:
        """See `Run.resolve`."""
        return await self.get(run_id).resolve(tool_call_id, result, **fields)

    async def retry(self, run_id: str, tool_call_id: str, message: str, **fields: Any) -> CallState:
        """See `Run.retry`."""
        return await self.get(run_id).retry(tool_call_id, message, **fields)

    async def steer(self, run_id: str, content: str | Sequence[UserContent]) -> None:
        """See `Run.steer`."""
        await self.get(run_id).steer(content)

    async def result(self, run_id: str) -> RunResult:
        """See `Run.result`."""
        return await self.get(run_id).result()


def _run_input(**fields: Any) -> RawValue:
    given = {name: value for name, value in fields.items() if value is not None and value != []}
    try:
        # What was not given is not written; what was, in full: the kind of a content part is a default of its class.
        return to_raw(RunInput.model_validate(given).model_dump_json(include=set(given)).encode())
    except ValidationError as error:
        problems = "; ".join(
            f"`{'.'.join(map(str, one['loc']))}`: {one['msg']}" for one in error.errors(include_url=False)
        )
        raise InvalidInput(f"The input of the run does not fit: {problems}.") from None
    except PayloadTooLarge as error:
        raise InvalidInput(
            f"The input of the run has {error}. Keep large content elsewhere, and give the run a reference to it."
        ) from None


def _raw(payload: JsonObject) -> RawValue:
    try:
        return to_raw(to_json(payload))
    except PayloadTooLarge as error:
        raise UserError(f"The message to the run has {error}.") from None


def _summary(name: str, prompt: Any) -> str:
    # The UI reads it as Markdown.
    return escaped(f"{name}: {prompt}" if isinstance(prompt, str) else name, SUMMARY_BYTES)


def _shown(prompt: str | Sequence[UserContent] | None) -> Any:
    """The prompt as its page shows it: of other content than text, only that there is some."""
    if prompt is None or isinstance(prompt, str):
        return prompt
    return [part if isinstance(part, str) else {"kind": getattr(part, "kind", None)} for part in prompt]


def _times(call: JsonObject) -> dict[str, Any]:
    return {**call, "requested_at": datetime.fromisoformat(call["requested_at"])}


def _run_error(failure: WorkflowFailureError) -> RunError:
    match failure.cause:
        case ApplicationError() as error:
            return RunError.by_name.get(error.type or "", RunError)(error.message)
        case CancelledError():
            return RunCancelled("The run was cancelled.")
        case TerminatedError() as error:
            return RunError(f"The run was terminated: {error.message}")
        case error:
            return RunError(f"The run failed: {error}")


def _rejection(failure: WorkflowUpdateFailedError) -> Exception:
    if isinstance(failure.cause, ApplicationError):
        rejection = DecisionRejected.by_name.get(failure.cause.type or "")
        if rejection is not None:
            return rejection(failure.cause.message)
        return UserError(failure.cause.message)
    return UserError(str(failure.cause))


def explain_rpc(error: RPCError, run_id: str) -> Exception:
    """What a refusal of the server means, in outlast's own errors."""
    match error.status:
        # The server has no other sign for it; the second is of an update that was on its way when the run ended.
        case RPCStatusCode.NOT_FOUND if "already completed" in error.message or "closing workflow" in error.message:
            return UnknownRun(f"The run {run_id!r} has ended: nothing of it waits any more.")
        case RPCStatusCode.NOT_FOUND:
            return UnknownRun(
                f"There is no run {run_id!r} in this namespace. `outlast runs` lists those that there are."
            )
        case RPCStatusCode.DEADLINE_EXCEEDED | RPCStatusCode.CANCELLED:
            return UserError(
                f"No worker answered for the run {run_id!r}: start one with `outlast worker APP`. Decisions can be "
                f"sent without one, and apply once it is back."
            )
        case RPCStatusCode.UNAVAILABLE:
            return ServerUnreachable(
                "The Temporal server does not answer any more. Runs lose nothing by that, and go on once it is back."
            )
        case _:
            return UserError(f"The Temporal server refused: {error.message}")


__all__ = ("Client", "Run", "WaitingCall", "explain_rpc")
