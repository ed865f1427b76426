"""A Temporal client from Temporal's own settings, and a clear word when no server answers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta

import anyio
from temporalio.client import Client, Plugin
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.runtime import Runtime
from temporalio.service import RPCError

from outlast.errors import ServerUnreachable, UserError
from outlast.settings import read_env_file

__all__ = ("DEFAULT_ADDRESS", "connect", "connection_settings")

DEFAULT_ADDRESS = "localhost:7233"
"""Temporal's own default."""


async def connect(
    *,
    address: str | None = None,
    namespace: str | None = None,
    profile: str | None = None,
    plugins: Sequence[Plugin] = (),
    identity: str | None = None,
    runtime: Runtime | None = None,
    timeout: timedelta | float = 10,
) -> Client:
    """Connect to the Temporal server that the environment names.

    Args:
        address: `host:port`; by default as configured, else `localhost:7233`.
        namespace: By default as configured, else `default`.
        profile: Profile of `temporal.toml`; by default `TEMPORAL_PROFILE`, else `default`.
        plugins: Temporal plugins for the client, such as `OutlastPlugin`.
        identity: Who this client is in histories; by default process ID and host.
        runtime: Runtime of the SDK; by default the process's own.
        timeout: How long the server may take to answer.

    Raises:
        ServerUnreachable: No Temporal server answers there.
        UserError: The connection settings cannot be read.
    """
    config = connection_settings(address=address, namespace=namespace, profile=profile)
    target = config.get("target_host", DEFAULT_ADDRESS)
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    try:
        with anyio.fail_after(seconds):
            return await Client.connect(
                target,
                namespace=config.get("namespace", "default"),
                api_key=config.get("api_key"),
                # None: the SDK itself decides, which takes TLS where there is an API key.
                tls=config.get("tls"),
                rpc_metadata=config.get("rpc_metadata", {}),
                plugins=plugins,
                identity=identity,
                runtime=runtime,
            )
    # RuntimeError is what the SDK raises for every failed connection, with its transport's state as the text.
    except (RuntimeError, RPCError, TimeoutError) as error:
        raise ServerUnreachable(await _explain(target, seconds)) from error


def connection_settings(
    *, address: str | None = None, namespace: str | None = None, profile: str | None = None
) -> ClientConnectConfig:
    """Temporal's connection settings: arguments, then `TEMPORAL_*`, then `.env`, then the profile in `temporal.toml`.

    Args:
        address: Wins over the configured one.
        namespace: Wins over the configured one.
        profile: Profile of `temporal.toml`.

    Raises:
        UserError: The file or a variable cannot be read.
    """
    variables = {**read_env_file(), **os.environ}
    try:
        config = ClientConfig.load_client_connect_config(profile, override_env_vars=variables)
    except (RuntimeError, ValueError, OSError) as error:
        raise UserError(
            f"The connection settings of Temporal cannot be used: {error}. They come from TEMPORAL_* in the "
            "environment or .env, and from temporal.toml."
        ) from error
    if address is not None:
        config["target_host"] = address
    if namespace is not None:
        config["namespace"] = namespace
    return config


async def _explain(target: str, seconds: float) -> str:
    """Look for the reason on our own, since the SDK's text is its transport's inner state."""
    host, _, port = target.rpartition(":")
    if not host or not port.isdigit():
        return f"No Temporal server answers at {target!r}: an address is host:port, such as {DEFAULT_ADDRESS!r}."
    try:
        with anyio.fail_after(min(seconds, 3)):
            await (await anyio.connect_tcp(host.strip("[]"), int(port))).aclose()
    except (OSError, TimeoutError):
        return (
            f"No Temporal server answers at {target}. Start one with `outlast dev APP` "
            '(pip install "outlast[server]" brings it), or say where it is with TEMPORAL_ADDRESS.'
        )
    return (
        f"What answers at {target} is no Temporal server that takes this client. Check TEMPORAL_ADDRESS, TEMPORAL_TLS "
        "and TEMPORAL_API_KEY."
    )
