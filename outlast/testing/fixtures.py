"""Fixtures for pytest: `pytest_plugins = ["outlast.testing.fixtures"]` in the top `conftest.py` enables them.

They are enabled by hand, not by an entry point, so that installing outlast changes nobody's tests. They own no event
loop, so they serve anyio's plugin, pytest-asyncio and tests that call `asyncio.run` alike: the server runs beside the
tests, and each test connects from its own loop. They also see to it that the test process ends with pytest's status:
see `pytest_sessionstart`.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Generator

import pytest
from anyio.from_thread import start_blocking_portal

from outlast.errors import OutlastError
from outlast.server import EmbeddedServer
from outlast.testing.durable import Durable
from outlast.testing.host import SKIPS_TIME

__all__ = ("durable", "outlast_server", "pytest_sessionstart")


@pytest.fixture(scope="session")
def outlast_server() -> Generator[EmbeddedServer]:
    """A real Temporal server in memory, on free ports, for the whole session.

    Tests share it: give every workflow and task queue an ID of its own. A Temporal client belongs to the event loop of
    its test: `await Client.connect(outlast_server.address)`, or `host.temporal` inside a block of `durable`.
    """
    with start_blocking_portal() as portal:
        running = portal.wrap_async_context_manager(EmbeddedServer(ui=False, extra_args=SKIPS_TIME))
        try:
            server = running.__enter__()
        except OutlastError as error:
            pytest.fail(error.message, pytrace=False)
        try:
            yield server
        finally:
            running.__exit__(None, None, None)


@pytest.fixture
def durable(outlast_server: EmbeddedServer) -> Durable:
    """Runs agents durably: see `outlast.testing.Durable`."""
    return Durable(outlast_server)


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
