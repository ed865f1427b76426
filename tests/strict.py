"""`AgentRun` in Temporal's strict sandbox: nothing passed through but what Temporal and pydantic need themselves."""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.common import RawValue
from temporalio.worker import Replayer, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from outlast.payloads import takes_json
from outlast.workflows.ordering import ResultsFirstRunner
from outlast.workflows.run import AgentRun


@workflow.defn(name="AgentRun", sandboxed=True)
class SandboxedAgentRun(AgentRun):
    """The same workflow, which the sandbox may watch."""

    @workflow.init
    @takes_json
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)

    @workflow.run
    @takes_json
    async def run(self, *arguments: Any) -> RawValue:
        return await super().run(*arguments)


def strict_runner() -> WorkflowRunner:
    """A runner whose workflows may import jsonschema_rs, a compiled module, and nothing else from outside."""
    restrictions = SandboxRestrictions.default.with_passthrough_modules("jsonschema_rs")
    return ResultsFirstRunner(AgentRun, SandboxedWorkflowRunner(restrictions=restrictions))


async def assert_replays_in_sandbox(history: WorkflowHistory) -> None:
    """Check that a history replays where nothing but the workflow's own code may be used."""
    await Replayer(workflows=[SandboxedAgentRun], workflow_runner=strict_runner()).replay_workflow(history)
