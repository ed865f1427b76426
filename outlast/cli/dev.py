"""`outlast dev`: a Temporal server of one's own, and a worker that follows the code."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from outlast.cli.banner import Place
from outlast.cli.dev_session import DevSession
from outlast.cli.exit_code import ExitCode
from outlast.cli.loading import check_app
from outlast.cli.options import CONNECTION, Json, Options
from outlast.cli.rendering import command
from outlast.cli.screen import Screen
from outlast.cli.sources import check_watching
from outlast.connection import DEFAULT_ADDRESS, connection_settings
from outlast.errors import UserError
from outlast.logs import logging_runtime
from outlast.server import EmbeddedServer, FolderInUse, PortTaken, choose_ports
from outlast.settings import Settings

__all__ = ("dev",)

HIGHEST_PORT = 64_535
"""The UI takes the port 1000 above."""


async def dev(
    app: str,
    /,
    *,
    port: Annotated[int | None, Parameter(metavar="PORT", validator=Number(gte=0, lte=HIGHEST_PORT))] = None,
    address: Annotated[str | None, Parameter(group=CONNECTION, metavar="HOST:PORT")] = None,
    namespace: Annotated[str | None, Parameter(group=CONNECTION, metavar="NAME")] = None,
    json: Json = False,
) -> ExitCode:
    """Serve APP for development: a Temporal server with its UI, and a worker that reloads when the code changes.

    The server keeps its state in `.outlast/` (OUTLAST_STATE_DIR), so runs go on where they were after a restart. When a
    Python file or `.env` beside APP changes, a new worker takes over and the old one finishes its running calls. Code
    that cannot be loaded is told; runs then wait for the change that mends it. Ctrl-C lets running calls finish, then
    stops all.

    Args:
        app: A file (app.py) or a module (shop.agents).
        port: Of the server, by default 7233, or that of TEMPORAL_ADDRESS where it names this machine. HTTP API, metrics
            and UI take the port 10, 20 and 1000 above. 0 takes free ones.
        address: Use the Temporal server that runs there, and start none.
        namespace: Temporal namespace; by default TEMPORAL_NAMESPACE.
        json: Write one JSON value on standard output once all is ready; words go to standard error.
    """
    screen = Screen(as_json=json)
    settings = Settings.load()
    check_watching()
    check_app(app)
    if address is not None:
        if port is not None:
            raise UserError("--address uses a server that runs, and --port starts one: give one of them, not both.")
        temporal = await Options(address=address, namespace=namespace).connect()
        place = Place(address=address, namespace=temporal.namespace)
        return await DevSession(screen=screen, settings=settings, app=app, place=place).play()
    # What the other verbs use: so they find the runs without being told.
    config = connection_settings(namespace=namespace)
    target = config.get("target_host", DEFAULT_ADDRESS)
    server = EmbeddedServer(
        data_dir=settings.state_dir.resolve(),
        port=_port_here(target) if port is None else port,
        namespace=config.get("namespace", "default"),
    )
    try:
        await server.start()
    except PortTaken as error:
        raise await _port_taken(error, app) from None
    except FolderInUse as error:
        raise _folder_in_use(error, app, settings) from None
    try:
        place = Place(
            address=server.address, namespace=server.namespace, ui_url=server.ui_url, http_url=server.http_url
        )
        return await DevSession(screen=screen, settings=settings, app=app, place=place, server=server).play()
    finally:
        await server.stop()


def _port_here(target: str) -> int:
    """Where other verbs look for the server, if that is on this machine."""
    host, _, port = target.rpartition(":")
    here = host in ("localhost", "127.0.0.1", "[::1]") and port.isdigit() and 0 < int(port) <= HIGHEST_PORT
    return int((target if here else DEFAULT_ADDRESS).rpartition(":")[2])


async def _port_taken(error: PortTaken, app: str) -> UserError:
    """What to do about it: most often it is a Temporal server that has the port."""
    beside = f"To start one beside it: {command('dev', '--port', str(_free_port(error.port)), app)}"
    address = f"localhost:{error.port}"
    version = await _temporal_at(address) if error.purpose == "gRPC" else None
    if version is None:
        what = "by something that is no Temporal server" if error.purpose == "gRPC" else "by another program"
        return UserError(
            f"Port {error.port}, which the server's {error.purpose} needs, is in use {what}.\n"
            f"{beside.replace('beside it', 'on other ports')}"
        )
    return UserError(
        f"A Temporal server ({version}) runs at {address} already.\n"
        f"To use that one: {command('dev', '--address', address, app)}\n{beside}"
    )


async def _temporal_at(address: str) -> str | None:
    """The version of the Temporal server that answers there, if one does."""
    with suppress(RPCError, RuntimeError, TimeoutError, OSError):
        temporal = await TemporalClient.connect(address, runtime=logging_runtime(), lazy=True)
        request = GetSystemInfoRequest()
        about = await temporal.workflow_service.get_system_info(request, timeout=timedelta(seconds=3))
        return about.server_version
    return None


def _free_port(taken: int) -> int:
    """A port that a whole server may have, as one would choose it by hand; 0 where there is none."""
    for port in range(taken + 100, min(taken + 1000, HIGHEST_PORT), 100):
        with suppress(PortTaken):
            choose_ports({"gRPC": port, "HTTP API": port + 10, "metrics": port + 20, "UI": port + 1000})
            return port
    return 0


def _folder_in_use(error: FolderInUse, app: str, settings: Settings) -> UserError:
    """What to do about it: most often it is `outlast dev` in another terminal."""
    if error.address is None:
        return error
    port = _free_port(int(error.address.rpartition(":")[2]))
    there, beside = command("dev", "--address", error.address, app), command("dev", "--port", str(port), app)
    return UserError(
        f"It seems that `outlast dev` runs here already: process {error.pid} keeps its state in {str(error.folder)!r}, "
        f"and answers at {error.address}.\n"
        f"To add agents to it: OUTLAST_TASK_QUEUE={settings.task_queue}-2 {there}\n"
        f"To start one beside it: OUTLAST_STATE_DIR={settings.state_dir}-2 {beside}"
    )
