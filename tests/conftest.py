"""Fixtures for all tests, and a guard at the exit of the test process."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client

from outlast.server import EmbeddedServer


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """One asyncio event loop for the whole session: Temporal's SDK knows no other, and clients belong to a loop."""
    return "asyncio"


@pytest.fixture(scope="session")
async def server(anyio_backend: str) -> AsyncIterator[EmbeddedServer]:
    """The real Temporal server, in memory, on free ports. Shared: give every workflow and queue an ID of its own."""
    async with EmbeddedServer(ui=False) as running:
        yield running


@pytest.fixture(scope="session")
async def client(server: EmbeddedServer) -> Client:
    """A plain Temporal client, as any program that knows nothing of outlast would make it."""
    return await Client.connect(server.address, namespace=server.namespace)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Leave by `os._exit` with pytest's own status, so that a green run is green and a red one red.

    Workaround: https://github.com/temporalio/sdk-python/issues/300. A thread of the SDK that wants the GIL while the
    interpreter shuts down crashes the process (exit 134 or 139) after its tests have passed. Remove it when that issue
    is closed. Exit handlers run last in, first out, so this one runs after those of everything that tests import.
    """

    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(session.exitstatus))

    atexit.register(leave)
