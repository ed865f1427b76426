"""Follows a run by its history, or reads all of it at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from pydantic_core import from_json
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from outlast.cli.history import Change, Decode, HistoryReader
from outlast.cli.timeline import Timeline
from outlast.client import explain_rpc

__all__ = ("Follower", "read_timeline")


class Follower:
    """Reads a run's history as it is written.

    Args:
        temporal: Client of the run's namespace.
        run_id: The run.
    """

    def __init__(self, temporal: TemporalClient, run_id: str) -> None:
        self._temporal = temporal
        self._handle = temporal.get_workflow_handle(run_id)
        self._run_id = run_id
        self._reader = HistoryReader(run_id, decoder(temporal))

    @property
    def timeline(self) -> Timeline:
        """The run, as far as it was read."""
        return self._reader.timeline

    async def changes(self) -> AsyncIterator[Sequence[Change]]:
        """What each event changed, from the run's start to its end, as it happens.

        Raises:
            UnknownRun: There is no such run.
        """
        async for event in _events(self._temporal, self._run_id, self._reader, wait=True):
            if changed := await self._reader.apply(event):
                yield changed

    async def refresh(self) -> None:
        """Ask the server how far the attempts are which are under way.

        Raises:
            UnknownRun: There is no such run.
        """
        try:
            described = await self._handle.describe()
        except RPCError as error:
            raise explain_rpc(error, self._run_id) from None
        self._reader.refresh(described.raw_description.pending_activities)


async def read_timeline(temporal: TemporalClient, run_id: str) -> Timeline:
    """A run as it is now.

    Raises:
        UnknownRun: There is no such run.
    """
    reader = HistoryReader(run_id, decoder(temporal))
    async for event in _events(temporal, run_id, reader, wait=False):
        await reader.apply(event)
    if reader.timeline.ending is None:
        handle = temporal.get_workflow_handle(run_id)
        try:
            reader.refresh((await handle.describe()).raw_description.pending_activities)
        except RPCError as error:
            raise explain_rpc(error, run_id) from None
    return reader.timeline


async def _events(
    temporal: TemporalClient, run_id: str, reader: HistoryReader, *, wait: bool
) -> AsyncIterator[HistoryEvent]:
    """The events of all executions of a run, in their order: it has several where it continued as new."""
    timeline = reader.timeline
    try:
        described = await temporal.get_workflow_handle(run_id).describe()
        execution: str | None = described.raw_info.first_run_id or None
        while True:
            handle = temporal.get_workflow_handle(run_id, run_id=execution)
            try:
                async for event in handle.fetch_history_events(wait_new_event=wait, skip_archival=True):
                    yield event
            except RPCError as error:
                # Of a run that is older than what the server keeps, its latest execution may be all there is.
                if error.status != RPCStatusCode.NOT_FOUND or execution is None or timeline.events:
                    raise
                execution = None
                continue
            if timeline.ending != "continued as new":
                return
            execution = timeline.next_run_id
            timeline.ending, timeline.ended_at, timeline.next_run_id = None, None, ""
    except RPCError as error:
        raise explain_rpc(error, run_id) from None


def decoder(temporal: TemporalClient) -> Decode:
    """Reads payloads as a client does, through its codec where it has one."""
    codec = temporal.data_converter.payload_codec

    async def decode(payloads: Sequence[Payload]) -> Any:
        found = list(payloads)[:1]
        if codec is not None:
            found = await codec.decode(found)
        try:
            return from_json(found[0].data) if found and found[0].data else None
        except ValueError:
            return None

    return decode
