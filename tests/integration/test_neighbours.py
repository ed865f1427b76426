"""A user's own workflows and activities go on working beside outlast on the same worker."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import RawValue, RetryPolicy
from temporalio.converter import DataConverter, DefaultPayloadConverter, PayloadConverter
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from outlast import Agent, ScriptedModel, ToolCallPart
from outlast.errors import UserError
from outlast.plugin import OutlastPlugin
from tests.integration.conftest import Host


class OwnFailure(Exception):
    """Fails the workflow, because its author declared it so."""


@workflow.defn
class OwnWorkflow:
    """A user's workflow in the sandbox: calls activities that nobody declared, and starts an agent run."""

    @workflow.run
    async def run(self, what: str) -> dict[str, Any]:
        if what == "fail":
            raise OwnFailure("as declared")
        own = await workflow.execute_activity(
            "anything", what, start_to_close_timeout=timedelta(seconds=20), heartbeat_timeout=timedelta(seconds=10)
        )
        child = await workflow.execute_child_workflow(
            "AgentRun", {"agent": "support", "prompt": what}, id=f"{workflow.info().workflow_id}-child"
        )
        return {"own": own, "child": child["output"]}


@workflow.defn
class SandboxTest:
    """Must be watched by the sandbox as before: it does what no workflow may."""

    @workflow.run
    async def run(self) -> str:
        import random

        return str(random.random())


@activity.defn(dynamic=True)
async def own_dynamic(arguments: Sequence[RawValue]) -> str:
    """A user's own dynamic activity."""
    activity.heartbeat()
    return f"{activity.info().activity_type}({activity.payload_converter().from_payload(arguments[0].payload)})"


@activity.defn(dynamic=True)
def own_dynamic_in_thread(arguments: Sequence[RawValue]) -> str:
    """The same, not async."""
    activity.heartbeat("here")
    return f"{activity.info().activity_type}({activity.payload_converter().from_payload(arguments[0].payload)})"


def support() -> Agent[Any, Any]:
    agent = Agent(ScriptedModel([[ToolCallPart(tool_name="add", args={})], "Done."]), name="support")

    @agent.tool_plain
    def add() -> int:
        return 1

    return agent


@pytest.mark.parametrize("dynamic", [own_dynamic, own_dynamic_in_thread], ids=["async", "sync"])
async def test_own_workflow_dynamic_activity_and_failure_types_still_work(host: Host, dynamic: Any) -> None:
    with ThreadPoolExecutor() as executor:
        await host.serve(
            support(),
            workflows=[OwnWorkflow],
            activities=[dynamic],
            activity_executor=executor,
            workflow_failure_exception_types=[OwnFailure],
        )
        run = await host.client.start_workflow(
            OwnWorkflow.run, "hello", id=f"own-{uuid.uuid4().hex}", task_queue=host.task_queue
        )
        assert await host.result(run) == {"own": "anything(hello)", "child": "Done."}
        run = await host.client.start_workflow(
            OwnWorkflow.run, "fail", id=f"own-{uuid.uuid4().hex}", task_queue=host.task_queue
        )
        error = await host.failure(run)
        assert (error.type, error.message) == ("OwnFailure", "as declared")


async def test_an_activity_type_that_nobody_has_is_told_as_temporal_does(host: Host) -> None:
    await host.serve(support(), workflows=[Unregistered])
    run = await host.client.start_workflow(Unregistered.run, id=f"own-{uuid.uuid4().hex}", task_queue=host.task_queue)
    with pytest.raises(WorkflowFailureError) as caught:
        await run.result()
    cause = caught.value.cause.cause  # type: ignore[union-attr]
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.non_retryable) == ("NotFoundError", False)


@workflow.defn
class Unregistered:
    """Calls an activity that no worker has."""

    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity(
            "nothing",
            start_to_close_timeout=timedelta(seconds=5),
            retry_policy=RetryPolicy(maximum_attempts=2, initial_interval=timedelta(milliseconds=10)),
        )


class OddConverter(PayloadConverter):
    """Lets nothing pass that it did not make itself."""

    def to_payloads(self, values: Sequence[Any]) -> Any:
        raise NotImplementedError

    def from_payloads(self, payloads: Any, type_hints: Any = None) -> Any:
        raise NotImplementedError


class OwnConverter(DefaultPayloadConverter):
    """A converter that adds to Temporal's own."""


async def test_a_payload_converter_that_lets_nothing_pass_is_refused(client: Client) -> None:
    config = client.config()
    config["data_converter"] = DataConverter(payload_converter_class=OddConverter)
    odd = Client(**config)
    with pytest.raises(UserError, match="OddConverter"):
        Worker(odd, task_queue="any", plugins=[OutlastPlugin(agents=[support()])])


async def test_a_payload_converter_that_adds_to_temporals_own_works(host: Host) -> None:
    config = host.client.config()
    config["data_converter"] = DataConverter(payload_converter_class=OwnConverter)
    host.client = Client(**config)
    await host.serve(support())
    assert (await host.run("support"))["output"] == "Done."
