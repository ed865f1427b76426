"""Follows a run by its history, or reads all of it at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from pydantic_core import from_json
from temporalio.api.common.v1 import Payload
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

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
        history = self._handle.fetch_history_events(wait_new_event=True, skip_archival=True)
        try:
            async for event in history:
                if changed := await self._reader.apply(event):
                    yield changed
        except RPCError as error:
            raise explain_rpc(error, self._run_id) from None

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
    handle = temporal.get_workflow_handle(run_id)
    reader = HistoryReader(run_id, decoder(temporal))
    try:
        async for event in handle.fetch_history_events(skip_archival=True):
            await reader.apply(event)
        if reader.timeline.ending is None:
            reader.refresh((await handle.describe()).raw_description.pending_activities)
    except RPCError as error:
        raise explain_rpc(error, run_id) from None
    return reader.timeline


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
