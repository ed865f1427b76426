"""Asks a run until it answers what a test waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
from temporalio.client import WorkflowHandle

from outlast.testing.progress import between_tasks

PATIENCE = 90
"""Seconds after which something that a test waits for will not come."""


async def query_until(
    run: WorkflowHandle[Any, Any], name: str, condition: Callable[[Any], Any], patience: float = PATIENCE
) -> Any:
    """The answer to a query, once it fulfils a condition; asked again whenever something has happened."""
    asked_at = -1
    with anyio.fail_after(patience):
        while True:
            asked_at = (await between_tasks(run, after=asked_at)).history_length
            if condition(answer := await run.query(name)):
                return answer
