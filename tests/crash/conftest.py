"""A stage for each test: real worker processes, and what is kept outside of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.crash.stage import Stage


@pytest.fixture
async def stage(client: Client, tmp_path: Path) -> AsyncIterator[Stage]:
    """A task queue, worker processes and runs of the test's own; every process is gone when it ends."""
    stage = Stage(client, tmp_path)
    try:
        yield stage
    finally:
        stage.close()
