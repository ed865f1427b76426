"""The one place where outlast is wired into a Temporal client or worker."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, cast

from temporalio import activity
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client, ClientConfig, WorkflowHistory
from temporalio.client import Plugin as ClientPlugin
from temporalio.common import RawValue
from temporalio.converter import DataConverter
from temporalio.service import ConnectConfig, RPCError, ServiceClient
from temporalio.worker import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    Interceptor,
    Replayer,
    ReplayerConfig,
    Worker,
    WorkerConfig,
    WorkflowReplayResult,
    WorkflowRunner,
)
from temporalio.worker import Plugin as WorkerPlugin
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from outlast.activities.conversation import Conversations
from outlast.activities.durable import Activities
from outlast.activities.spec import AgentSpec
from outlast.contracts import MAX_NAME_CHARS, Features
from outlast.errors import UserError
from outlast.payloads import lets_raw_values_pass
from outlast.settings import Settings
from outlast.workflows.ordering import ResultsFirstRunner
from outlast.workflows.run import AgentRun

SEARCH_ATTRIBUTES = {
    "OutlastAgent": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "OutlastState": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "OutlastPending": IndexedValueType.INDEXED_VALUE_TYPE_INT,
    "OutlastTools": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
}

STICKY_TIMEOUT = timedelta(seconds=2)
"""After a crash, the next workflow task waits this long for the dead worker before any other may have it."""

Resources = Callable[[], AbstractAsyncContextManager[Any]]


class Hostable(Protocol):
    """What can be hosted; `outlast.Agent` is."""

    @property
    def name(self) -> str | None:
        """What runs are started with."""
        ...

    def durable(self) -> AgentSpec:
        """The agent as a worker hosts it.

        Raises:
            UserError: It cannot be hosted.
        """
        ...


class OutlastPlugin(ClientPlugin, WorkerPlugin):
    """Hosts agents on a Temporal worker: `Worker(client, task_queue="outlast", plugins=[OutlastPlugin(agents=[…])])`.

    Adds the workflow `AgentRun` and the activities of the agents, and leaves everything else on the worker as it was.
    On a client it needs no agents, and is only checked: outlast reads and writes its own payloads.

    Args:
        agents: What to host. Each needs a name of its own.
        resources: Makes the live things of one worker (connections, clients) when it starts, as an async context
            manager; tools see what it yields as `ctx.resources`.
        settings: By default read from the environment and `.env`.

    Raises:
        UserError: An agent cannot be hosted; the message lists all reasons.
    """

    def __init__(
        self,
        agents: Sequence[Hostable] = (),
        *,
        resources: Resources | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._agents = _by_name(agents)
        self._resources = resources
        self.settings = settings or Settings.load()

    def name(self) -> str:
        """The plugin's name."""
        return "outlast"

    # --- client --------------------------------------------------------------------------------------------------

    def configure_client(self, config: ClientConfig) -> ClientConfig:
        """Refuses a payload converter that cannot let outlast's own payloads pass."""
        _check_converter(config.get("data_converter"))
        return config

    async def connect_service_client(
        self, config: ConnectConfig, next: Callable[[ConnectConfig], Awaitable[ServiceClient]]
    ) -> ServiceClient:
        """Changes nothing."""
        return await next(config)

    # --- worker --------------------------------------------------------------------------------------------------

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Adds the workflow and the activities."""
        options = cast("dict[str, Any]", config)
        client: Client = options["client"]
        _check_converter(client.config(active_config=True)["data_converter"])
        activities, dynamic = _without_dynamic(options.get("activities") or ())
        if isinstance(dynamic, _Dynamic):
            # A worker also has the plugins of its client: the one that hosts agents stands for both.
            if not self._agents:
                return config
            if dynamic.hosted.agents:
                raise UserError(
                    "This worker has two OutlastPlugins that host agents, and takes one: give all agents to one "
                    "plugin, and that to the worker. (The plugins of its client are the worker's, too.)"
                )
            dynamic = dynamic.users_own
        executor = options.get("activity_executor")
        hosted = Activities(
            agents=self._agents,
            conversations=Conversations(max_bytes=self.settings.conversation_cache_mb * 1024 * 1024),
            features=Features(heartbeat_seconds=self.settings.heartbeat_timeout.total_seconds()),
        )
        options["activities"] = [*activities, *hosted.definitions(), _Dynamic(hosted, dynamic, executor)]
        options["workflows"] = _with_agent_run(options.get("workflows") or ())
        options["workflow_runner"] = _passing_outlast(options.get("workflow_runner"))
        options["unsandboxed_workflow_runner"] = ResultsFirstRunner(
            AgentRun, options.get("unsandboxed_workflow_runner")
        )
        if dynamic is not None and not _is_async(dynamic):
            options["interceptors"] = [*(options.get("interceptors") or ()), _ThreadHeartbeats()]
        options["max_heartbeat_throttle_interval"] = min(
            options.get("max_heartbeat_throttle_interval") or timedelta(seconds=60), timedelta(seconds=1)
        )
        options["default_heartbeat_throttle_interval"] = min(
            options.get("default_heartbeat_throttle_interval") or timedelta(seconds=30), timedelta(seconds=1)
        )
        options["sticky_queue_schedule_to_start_timeout"] = min(
            options.get("sticky_queue_schedule_to_start_timeout") or timedelta(seconds=10), STICKY_TIMEOUT
        )
        if not options.get("graceful_shutdown_timeout"):
            options["graceful_shutdown_timeout"] = self.settings.shutdown_grace
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Enters toolsets and resources for as long as the worker runs."""
        options = cast("dict[str, Any]", worker.config(active_config=True))
        _, dynamic = _without_dynamic(options.get("activities") or ())
        if not isinstance(dynamic, _Dynamic) or dynamic.hosted.agents is not self._agents:
            # Another plugin hosts the agents of this worker.
            await next(worker)
            return
        async with self._serving(dynamic.hosted, worker.client):
            await next(worker)

    @asynccontextmanager
    async def _serving(self, hosted: Activities, client: Client) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            if self._resources is not None:
                hosted.resources = await stack.enter_async_context(self._resources())
            for agent in self._agents.values():
                await stack.enter_async_context(agent.toolset)
            stack.callback(hosted.heartbeats.stop)
            hosted.features.search_attributes = await _search_attributes_registered(client)
            yield

    # --- replayer ------------------------------------------------------------------------------------------------

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        """Adds the workflow."""
        options = cast("dict[str, Any]", config)
        options["workflows"] = _with_agent_run(options.get("workflows") or ())
        options["workflow_runner"] = _passing_outlast(options.get("workflow_runner"))
        options["unsandboxed_workflow_runner"] = ResultsFirstRunner(
            AgentRun, options.get("unsandboxed_workflow_runner")
        )
        return config

    @asynccontextmanager
    async def run_replayer(
        self,
        replayer: Replayer,
        histories: AsyncIterator[WorkflowHistory],
        next: Callable[
            [Replayer, AsyncIterator[WorkflowHistory]],
            AbstractAsyncContextManager[AsyncIterator[WorkflowReplayResult]],
        ],
    ) -> AsyncGenerator[AsyncIterator[WorkflowReplayResult]]:
        """Changes nothing."""
        async with next(replayer, histories) as results:
            yield results


def _by_name(agents: Sequence[Hostable]) -> dict[str, AgentSpec]:
    """The agents as a worker hosts them. All that is wrong is said at once."""
    hosted: dict[str, AgentSpec] = {}
    problems: list[str] = []
    for agent in agents:
        try:
            durable = agent.durable()
        except UserError as error:
            problems.append(error.message)
            continue
        name = agent.name or ""
        if len(name) > MAX_NAME_CHARS:
            problems.append(f"An agent's name has at most {MAX_NAME_CHARS} characters: {name[:40]!r}… has {len(name)}.")
        if name in hosted:
            problems.append(f"Two agents have the name {name!r}: each needs one of its own.")
        hosted[name] = durable
    if problems:
        raise UserError("\n".join(problems))
    return hosted


def _check_converter(converter: DataConverter | None) -> None:
    if converter is None or lets_raw_values_pass(converter.payload_converter):
        return
    name = converter.payload_converter_class.__name__
    raise UserError(
        f"outlast writes its own JSON payloads, and the payload converter {name} would not let them pass: derive it "
        f"from temporalio.converter.CompositePayloadConverter, which hands a RawValue on as it is, and override its "
        f"converters only. A payload codec, for "
        f"encryption or compression, works as it is."
    )


def _with_agent_run(workflows: Sequence[type]) -> list[type]:
    # A subclass that a user or a test registered under the same name stands for it.
    known = [workflow for workflow in workflows if issubclass(workflow, AgentRun)]
    return [*workflows, *([] if known else [AgentRun])]


def _passing_outlast(runner: WorkflowRunner | None) -> WorkflowRunner:
    runner = runner or SandboxedWorkflowRunner()
    if not isinstance(runner, SandboxedWorkflowRunner):
        return runner
    # A user's own workflow that starts agent runs as children imports outlast, and should not pay for it each time.
    restrictions = runner.restrictions.with_passthrough_modules("outlast", "pydantic", "pydantic_core", "jsonschema_rs")
    return dataclasses.replace(runner, restrictions=restrictions)


def _without_dynamic(
    activities: Sequence[Callable[..., Any]],
) -> tuple[list[Callable[..., Any]], Callable[..., Any] | None]:
    """The activities, and apart from them the user's own dynamic one: a worker may have only one."""
    named: list[Callable[..., Any]] = []
    dynamic: Callable[..., Any] | None = None
    for function in activities:
        definition = cast(Any, activity)._Definition.from_callable(function)
        if definition is not None and definition.name is None:
            dynamic = function
        else:
            named.append(function)
    return named, dynamic


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


@activity.defn(dynamic=True)
class _Dynamic:
    """Outlast's dynamic activity, which hands everything that is not outlast's on to the user's own."""

    def __init__(self, hosted: Activities, users_own: Callable[..., Any] | None, executor: Any) -> None:
        self.hosted = hosted
        self.users_own = users_own
        self._executor = executor

    async def __call__(self, arguments: Sequence[RawValue]) -> Any:
        users_own = self.users_own
        if users_own is None or self.hosted.handles(activity.info().activity_type):
            return await self.hosted.dynamic(arguments)
        if _is_async(users_own):
            return await users_own(arguments)
        run = partial(contextvars.copy_context().run, users_own, arguments)
        return await asyncio.get_running_loop().run_in_executor(self._executor, run)


class _ThreadHeartbeats(Interceptor):
    """Lets a user's synchronous dynamic activity heartbeat from its thread, though an async one called it."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Inbound(next)


class _Inbound(ActivityInboundInterceptor):
    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self.next.init(_Outbound(outbound))


class _Outbound(ActivityOutboundInterceptor):
    def __init__(self, next: ActivityOutboundInterceptor) -> None:
        super().__init__(next)
        self._loop = asyncio.get_running_loop()

    def heartbeat(self, *details: Any) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._loop.call_soon_threadsafe(self.next.heartbeat, *details)
        else:
            self.next.heartbeat(*details)


async def _search_attributes_registered(client: Client) -> bool:
    """Whether a run may set search attributes: one that is not registered would block it for good."""
    try:
        answer = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace)
        )
    except RPCError:
        return False
    return all(answer.custom_attributes.get(name) == kind for name, kind in SEARCH_ATTRIBUTES.items())
