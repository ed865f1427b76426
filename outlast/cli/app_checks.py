"""What `outlast doctor` looks at in an app: does it load, can its agents be hosted, and can their models be asked."""

from __future__ import annotations

from collections.abc import Iterator

from temporalio import workflow
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from outlast.cli.finding import Finding, failure, ok, warning
from outlast.cli.inventory import AgentEntry, take_inventory
from outlast.cli.loading import load_agents
from outlast.errors import UserError
from outlast.workflows.run import AgentRun

__all__ = ("app_findings", "sandbox_finding")


async def app_findings(app: str) -> list[Finding]:
    """Everything that can be said of an app without a server.

    Args:
        app: A file (app.py) or a module (shop.agents).
    """
    try:
        agents = load_agents(app)
    except UserError as error:
        # Each line is a mistake of its own, and all are there.
        return [failure("app", error.message)]
    return list(_agents(app, await take_inventory(agents)))


def _agents(app: str, entries: list[AgentEntry]) -> Iterator[Finding]:
    for entry in entries:
        tools = {0: "no tools", 1: "1 tool"}.get(len(entry.tools), f"{len(entry.tools)} tools")
        unlisted = f", and toolsets that need a run: {len(entry.unlisted)}" if entry.unlisted else ""
        yield ok("app", f"{app} hosts {entry.name!r}, with {tools}{unlisted}")
        if entry.model is None:
            fix = f"Agent('openai:gpt-4o-mini', name={entry.name!r}, …)"
            yield warning("model", f"{entry.name!r} has no model, so each run must name one", fix)
        elif entry.problem:
            yield failure("model", f"{entry.name!r}: {entry.problem}")
        else:
            yield ok("model", f"{entry.name!r} asks the model {entry.model}")


def sandbox_finding() -> Finding:
    """Whether the workflow of outlast loads in Temporal's sandbox: what shares its process could have changed that."""
    restrictions = SandboxRestrictions.default.with_passthrough_modules("jsonschema_rs")
    definition = workflow._Definition.must_from_class(AgentRun)  # pyright: ignore[reportPrivateUsage]
    try:
        SandboxedWorkflowRunner(restrictions=restrictions).prepare_workflow(definition)
    except Exception as error:
        return failure("sandbox", f"AgentRun does not load in Temporal's sandbox: {type(error).__name__}: {error}")
    return ok("sandbox", "AgentRun loads in Temporal's sandbox")
