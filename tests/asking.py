"""Asks a run until it answers what a test waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
from temporalio.client import WorkflowHandle

PATIENCE = 90
"""Seconds after which something that a test waits for will not come."""


async def query_until(
    run: WorkflowHandle[Any, Any], name: str, condition: Callable[[Any], Any], patience: float = PATIENCE
) -> Any:
    """The answer to a query, once it fulfils a condition.

    Asks again whenever something has happened, and only between workflow tasks: a worker without a cache throws the run
    out after each task, and where two more have come by then, queries among them, the SDK drops one of them, and the
    server waits until that has timed out.
    """
    asked_at = -1
    with anyio.fail_after(patience):
        while True:
            seen = (await run.describe()).raw_description
            length = seen.workflow_execution_info.history_length
            if length != asked_at and not seen.HasField("pending_workflow_task"):
                asked_at = length
                if condition(answer := await run.query(name)):
                    return answer
            await anyio.sleep(0.02)
