"""What `outlast doctor` looks at on the Temporal server."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence

import anyio.to_thread
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    GetClusterInfoRequest,
    GetSystemInfoRequest,
)
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from outlast.cli.finding import Finding, failure, ok, warning
from outlast.cli.listening import who_listens
from outlast.cli.options import Options
from outlast.cli.program import operator
from outlast.connection import connect
from outlast.contracts import MAX_PAYLOAD_BYTES
from outlast.errors import OutlastError, ServerUnreachable, UserError
from outlast.logs import logging_runtime
from outlast.plugin import SEARCH_ATTRIBUTES
from outlast.settings import Settings

__all__ = ("server_findings",)

LEAST_DAYS = 3
HTTP_SECONDS = 2
MIB = 1024 * 1024


async def server_findings(options: Options) -> AsyncIterator[Finding]:
    """Everything that the server itself says.

    Args:
        options: Where it is.
    """
    try:
        temporal = await connect(address=options.address, namespace=options.namespace, runtime=logging_runtime())
        about = await temporal.workflow_service.get_system_info(GetSystemInfoRequest())
    except ServerUnreachable as error:
        yield failure("server", error.message)
        return
    except UserError as error:
        yield failure("connection", error.message)
        return
    except RPCError as error:
        yield failure("server", f"The server refused to say what it is: {error.message}")
        return
    yield ok("server", f"Temporal {about.server_version} answers at {_target(temporal)}")
    async for finding in _http_api(temporal):
        yield finding
    try:
        request = DescribeNamespaceRequest(namespace=temporal.namespace)
        described = await temporal.workflow_service.describe_namespace(request)
    except RPCError as error:
        yield _no_namespace(temporal, error)
        if error.status == RPCStatusCode.NOT_FOUND:
            return
    else:
        yield _retention(temporal, described)
        yield _limits(described)
    async for finding in _search_attributes(temporal):
        yield finding
    yield await _workers(temporal)


def _target(temporal: TemporalClient) -> str:
    return temporal.service_client.config.target_host


async def _http_api(temporal: TemporalClient) -> AsyncIterator[Finding]:
    """Whether the HTTP API is where `outlast dev` puts it: where else it may be, no server says."""
    host, _, port = _target(temporal).rpartition(":")
    if host not in ("localhost", "127.0.0.1"):
        return
    url = f"http://{host}:{int(port) + 10}"
    if await anyio.to_thread.run_sync(_cluster_at, url) == await _cluster(temporal):
        yield ok("HTTP API", f"{url}/api/v1/namespaces/{temporal.namespace}")
    else:
        yield warning(
            "HTTP API",
            f"not at {url}; where the server has it, if at all, only its own settings say",
            f"temporal server start-dev --http-port {int(port) + 10}",
        )


async def _cluster(temporal: TemporalClient) -> str | None:
    try:
        return (await temporal.workflow_service.get_cluster_info(GetClusterInfoRequest())).cluster_id
    except RPCError:
        return None


def _cluster_at(url: str) -> str:
    try:
        with urllib.request.urlopen(f"{url}/api/v1/cluster-info", timeout=HTTP_SECONDS) as answer:  # noqa: S310 -- http
            return str(json.load(answer)["clusterId"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _no_namespace(temporal: TemporalClient, error: RPCError) -> Finding:
    name = temporal.namespace
    if error.status == RPCStatusCode.NOT_FOUND:
        fix = operator(_target(temporal), "namespace", "create", "--namespace", name, "--retention", "720h")
        return failure("namespace", f"the server has no namespace {name!r}", fix)
    return warning("namespace", f"{name} may not be looked at: {error.message}")


def _retention(temporal: TemporalClient, described: DescribeNamespaceResponse) -> Finding:
    name = temporal.namespace
    days = described.config.workflow_execution_retention_ttl.ToTimedelta().total_seconds() / 86_400
    kept = "a day" if days == 1 else f"{days:g} days"
    if days < LEAST_DAYS:
        fix = operator(_target(temporal), "namespace", "update", "--namespace", name, "--retention", "720h")
        message = f"{name} keeps ended runs for {kept} only: after that nobody can see what they did"
        return warning("namespace", message, fix)
    return ok("namespace", f"{name}, which keeps ended runs for {kept}")


def _limits(described: DescribeNamespaceResponse) -> Finding:
    largest = described.namespace_info.limits.blob_size_limit_error
    if not largest:
        return ok("limits", "the server does not say how large a payload may be")
    if largest < MAX_PAYLOAD_BYTES:
        return failure(
            "limits",
            f"the server takes payloads up to {largest / MIB:.2g} MiB, and outlast writes up to "
            f"{MAX_PAYLOAD_BYTES / MIB:.2g} MiB: a larger one would stop its run",
            "Raise limit.blobSize.error in the server's dynamic configuration to 2097152",
        )
    return ok("limits", f"payloads up to {largest / MIB:.3g} MiB")


async def _search_attributes(temporal: TemporalClient) -> AsyncIterator[Finding]:
    try:
        request = ListSearchAttributesRequest(namespace=temporal.namespace)
        there = (await temporal.operator_service.list_search_attributes(request)).custom_attributes
    except RPCError as error:
        yield warning("search", f"search attributes may not be listed: {error.message}")
        return
    missing = [name for name in SEARCH_ATTRIBUTES if name not in there]
    wrong = [name for name, kind in SEARCH_ATTRIBUTES.items() if name in there and there[name] != kind]
    for name in wrong:
        remove = operator(
            _target(temporal), "search-attribute", "remove", "--namespace", temporal.namespace, "--name", name
        )
        yield warning(
            "search",
            f"{name} is registered as {_kind(there[name])} and not as {_kind(SEARCH_ATTRIBUTES[name])}, so runs do not "
            "set it",
            f"{remove} --yes && {_create(temporal, [name])}",
        )
    if missing:
        message = f"not registered: {', '.join(missing)}. Runs cannot be searched by them in the Temporal UI"
        yield warning("search", message, _create(temporal, missing))
    if not wrong and not missing:
        yield ok("search", f"{', '.join(SEARCH_ATTRIBUTES)} are registered")


def _create(temporal: TemporalClient, names: Sequence[str]) -> str:
    pairs = [word for name in names for word in ("--name", name, "--type", _kind(SEARCH_ATTRIBUTES[name]))]
    return operator(_target(temporal), "search-attribute", "create", "--namespace", temporal.namespace, *pairs)


def _kind(kind: IndexedValueType.ValueType) -> str:
    return "".join(_capitalized(IndexedValueType.Name(kind).removeprefix("INDEXED_VALUE_TYPE_")))


def _capitalized(name: str) -> Iterator[str]:
    return (word.capitalize() for word in name.split("_"))


async def _workers(temporal: TemporalClient) -> Finding:
    try:
        queue = Settings.load().task_queue
        listening = await who_listens(temporal, queue)
    except OutlastError as error:
        return warning("workers", f"not looked for: {error.message}")
    if not listening:
        return warning("workers", f"none listens on the task queue {queue!r}, so runs there wait", "outlast worker APP")
    return ok("workers", f"{', '.join(listening.workers)} on the task queue {queue!r}")
