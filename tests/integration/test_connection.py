"""Connecting as the environment says."""

from __future__ import annotations

import pytest

from outlast.connection import connect
from outlast.server import EmbeddedServer


async def test_the_environment_says_where_the_server_is(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", server.namespace)
    client = await connect(identity="someone")
    assert await client.service_client.check_health()
    assert (client.namespace, client.identity) == (server.namespace, "someone")


async def test_an_argument_says_it_too(server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    client = await connect(address=server.address)
    assert await client.service_client.check_health()
