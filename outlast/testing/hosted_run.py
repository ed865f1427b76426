"""A run under test: what it is asked, it answers once it can."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar, overload

import anyio
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHandle, WorkflowHistory
from temporalio.common import RawValue
from temporalio.testing import TimeSkipper
from typing_extensions import override

from outlast.client import Run
from outlast.contracts import PendingCall, RunResult, Status
from outlast.messages import JsonObject
from outlast.testing.histories import scheduled
from outlast.testing.progress import NothingCame, between_tasks, has_ended, where_it_stands

__all__ = ("HostedRun",)

T = TypeVar("T")


class HostedRun(Run):
    """A run that a test has started; `Host.start` makes it.

    Decides, steers and answers like any `outlast.client.Run`. What differs: waiting has an end, and says what the run
    was waiting for instead; and `pending` waits until something is.

    Args:
        temporal: Client of the server where it runs.
        run_id: The run's workflow ID.
        skipper: Lets time pass.
        patience: How long to wait for anything.

    Attributes:
        handle: The run as any Temporal client sees it: its signals, updates and queries, by name and in JSON.
    """

    def __init__(self, temporal: TemporalClient, run_id: str, *, skipper: TimeSkipper, patience: timedelta) -> None:
        super().__init__(temporal.get_workflow_handle(run_id, result_type=RawValue))
        self.handle: WorkflowHandle[Any, Any] = temporal.get_workflow_handle(run_id)
        self._skipper = skipper
        self._patience = patience

    @override
    async def pending(self, count: int = 1) -> list[PendingCall]:
        """The calls that wait for a decision, once there are exactly so many of them.

        Raises:
            NothingCame: There were not, or the run ended before.
        """
        status = await self._until(
            lambda status: len(status.pending) == count, f"to wait for {count} decision{'s' * (count != 1)}"
        )
        return status.pending

    async def until(self, condition: Callable[[Status], object]) -> Status:
        """The run's status, once it fulfils a condition, such as `lambda status: status.step == 3`.

        Raises:
            NothingCame: It did not, or the run ended before.
        """
        return await self._until(condition, "to fulfil the condition")

    @overload
    async def result(self) -> RunResult: ...
    @overload
    async def result(self, *, output_type: type[T]) -> T: ...
    @override
    async def result(self, *, output_type: Any = None) -> Any:
        """Wait for the run's end.

        Args:
            output_type: Gives the output as this type, instead of the whole `RunResult`.

        Raises:
            RunError: The run ended without an output; the subclass says how.
            NothingCame: It did not end in time.
        """
        async with self.patiently("to end"):
            return await super().result(output_type=output_type)

    async def fast_forward(self, duration: timedelta | float) -> None:
        """Let time pass for this run: its timers and its calls' back-offs that end by then are over.

        For a run that waits, not for one that works: while an activity runs, its time is real, and passes first.

        Args:
            duration: How much, as a `timedelta` or in seconds.

        Raises:
            NothingCame: An activity went on for too long.
        """
        async with self.patiently("to let time pass"):
            await self._skipper.fast_forward(self.handle, duration)

    async def history(self) -> WorkflowHistory:
        """All events of the run so far."""
        return await self.handle.fetch_history()

    async def scheduled(self, activity_type: str | None = None) -> list[str]:
        """The IDs of the activities that the run has scheduled, in their order.

        Args:
            activity_type: Only those of one type, such as `tool:refund`. What is not here was never executed.
        """
        return scheduled(await self.history(), activity_type)

    async def _until(self, condition: Callable[[Status], object], what: str) -> Status:
        asked_at = -1
        async with self.patiently(what):
            while True:
                described = await between_tasks(self.handle, after=asked_at)
                asked_at = described.history_length
                status = await self.status()
                if condition(status):
                    return status
                # It ended before it was asked, so that was its last word; one that has ended since is asked once more.
                if has_ended(described):
                    raise NothingCame(f"The run {self.id!r} ended; the test expected it {what}. {_shown(status)}")

    @override
    async def _query(self, name: str, asked: JsonObject | None = None) -> Any:
        await between_tasks(self.handle)
        return await super()._query(name, asked)

    @asynccontextmanager
    async def patiently(self, what: str) -> AsyncGenerator[None]:
        """Give something as long as the host is patient.

        Args:
            what: What the run is expected to do, to say when it did not.

        Raises:
            NothingCame: It took longer.
        """
        seconds = self._patience.total_seconds()
        with anyio.move_on_after(seconds) as scope:
            yield
        if scope.cancelled_caught:
            stands = await where_it_stands(self.handle)
            raise NothingCame(f"Waited {seconds:g} s for the run {self.id!r} {what}, in vain.\n{stands}")


def _shown(status: Status) -> str:
    error = f", with {status.error['type']}: {status.error['message']}" if status.error else ""
    return f"It {'was cancelled' if status.state == 'cancelled' else status.state} after {status.step} steps{error}."
