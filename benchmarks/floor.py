"""The floor: a hand-written, sandboxed workflow that schedules the same activities with the smallest payloads.

It has none of what outlast promises. What outlast costs on top of it is the price of those promises.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow

TIMEOUT = timedelta(minutes=10)


@activity.defn
async def floor_model(asked: dict[str, Any]) -> list[int]:
    """One model request: takes what is new since the last one, and asks for calls."""
    return [] if asked["last"] else [asked["result_bytes"]] * asked["calls"]


@activity.defn
async def floor_tool(size: int) -> str:
    """One call."""
    return "x" * size


@workflow.defn(name="Floor")
class Floor:
    """A run that asks a model, makes the calls, and asks again."""

    def __init__(self) -> None:
        self._approved = False

    @workflow.run
    async def run(self, job: dict[str, Any]) -> str:
        """Do a job."""
        results: list[str] = []
        for step in range(1, job["steps"] + 1):
            calls: list[int] = await workflow.execute_activity(
                floor_model,
                {
                    "last": step == job["steps"],
                    "calls": job["calls"],
                    "result_bytes": job["result_bytes"],
                    "new": results,
                },
                start_to_close_timeout=TIMEOUT,
            )
            if job["held"]:
                await workflow.wait_condition(lambda: self._approved)
            results = list(
                await asyncio.gather(
                    *(workflow.execute_activity(floor_tool, size, start_to_close_timeout=TIMEOUT) for size in calls)
                )
            )
        return "Done."

    @workflow.signal
    def approve(self, decision: dict[str, Any]) -> None:
        """Let the held call go."""
        self._approved = True
