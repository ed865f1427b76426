"""Fixtures for all tests."""

from __future__ import annotations

import pytest
from temporalio.client import Client

from outlast.server import EmbeddedServer

pytest_plugins = ["outlast.testing.fixtures"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """One asyncio event loop for the whole session: Temporal's SDK knows no other, and clients belong to a loop."""
    return "asyncio"


@pytest.fixture(scope="session")
def server(outlast_server: EmbeddedServer) -> EmbeddedServer:
    """The real Temporal server, in memory, on free ports. Shared: give every workflow and queue an ID of its own."""
    return outlast_server


@pytest.fixture(scope="session")
async def client(server: EmbeddedServer, anyio_backend: str) -> Client:
    """A plain Temporal client, as any program that knows nothing of outlast would make it."""
    return await Client.connect(server.address, namespace=server.namespace)
