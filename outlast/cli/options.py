"""What every verb takes, and the client that it leads to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from outlast.cli.program import operator
from outlast.cli.screen import Screen
from outlast.client import Client
from outlast.connection import connect
from outlast.errors import ServerUnreachable, UserError
from outlast.logs import logging_runtime
from outlast.settings import Settings

__all__ = ("CONNECTION", "Json", "Options", "Who", "Words")

CONNECTION = Group("Connection", sort_key=90)

Json = Annotated[bool, Parameter("--json", negative=(), show_default=False)]
Who = Annotated[str | None, Parameter(metavar="WHO")]
Words = Annotated[str, Parameter(metavar="TEXT", allow_leading_hyphen=True)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of every verb that talks to a server.

    Attributes:
        json: Write one JSON value on standard output.
        address: host:port of the Temporal server; by default TEMPORAL_ADDRESS.
        namespace: Temporal namespace; by default TEMPORAL_NAMESPACE.
    """

    json: Json = False
    address: Annotated[str | None, Parameter(group=CONNECTION, metavar="HOST:PORT")] = None
    namespace: Annotated[str | None, Parameter(group=CONNECTION, metavar="NAME")] = None

    @property
    def screen(self) -> Screen:
        """Where the verb writes."""
        return Screen(as_json=self.json)

    async def connect(self) -> TemporalClient:
        """A Temporal client of a namespace that exists.

        Raises:
            ServerUnreachable: No server answers.
            UserError: It has no such namespace, or the settings cannot be used.
        """
        temporal = await connect(address=self.address, namespace=self.namespace, runtime=logging_runtime())
        request = DescribeNamespaceRequest(namespace=temporal.namespace)
        try:
            await temporal.workflow_service.describe_namespace(request)
        except RPCError as error:
            # Whoever may not look at the namespace may still use it.
            if error.status == RPCStatusCode.NOT_FOUND:
                raise UserError(_no_namespace(temporal)) from None
            if error.status == RPCStatusCode.UNAVAILABLE:
                raise ServerUnreachable(f"The server at {_target(temporal)} does not answer any more.") from None
        return temporal

    async def client(self) -> Client:
        """The client of the configured task queue. Raises as `connect`."""
        settings = Settings.load()
        return Client(await self.connect(), task_queue=settings.task_queue)


def _no_namespace(temporal: TemporalClient) -> str:
    name = temporal.namespace
    create = operator(_target(temporal), "namespace", "create", "--namespace", name)
    return (
        f"The Temporal server at {_target(temporal)} has no namespace {name!r}. Say which one with --namespace or "
        f"TEMPORAL_NAMESPACE, or make it: {create}"
    )


def _target(temporal: TemporalClient) -> str:
    return temporal.service_client.config.target_host
