"""`outlast dev`: a Temporal server of one's own, and a worker that follows the code."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter
from rich.text import Text
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError
from temporalio.service import __version__ as temporal_version

from outlast import __version__
from outlast.cli.inventory import difference
from outlast.cli.options import Json
from outlast.cli.program import program, short
from outlast.cli.rendering import command
from outlast.cli.screen import Labelled, Screen, whole
from outlast.cli.sources import changes
from outlast.cli.tools import agent_lines
from outlast.cli.worker_process import WorkerEnded, WorkerProcess, worker_environment
from outlast.connection import DEFAULT_ADDRESS, connection_settings
from outlast.errors import UserError
from outlast.logs import logging_runtime
from outlast.messages import JsonObject
from outlast.server import EmbeddedServer
from outlast.settings import Settings

__all__ = ("dev",)

PORT = 7233
LONGEST_DELAY_SECONDS = 30
LIVED_LONG_SECONDS = 30
"""A worker that ends by itself after less than this is started again after a longer and longer wait."""


async def dev(
    app: str,
    /,
    *,
    port: Annotated[int, Parameter(metavar="PORT")] = PORT,
    json: Json = False,
) -> None:
    """Serve APP for development: a Temporal server with its UI, and a worker that reloads when the code changes.

    The server keeps its state in `.outlast/` (OUTLAST_STATE_DIR), so runs go on where they were after a restart. When a
    Python file or `.env` beside APP changes, a new worker takes over and the old one finishes its running calls; code
    that cannot be loaded is told, and the worker of before stays. Ctrl-C lets running calls finish, then stops all.

    Args:
        app: A file (app.py) or a module (shop.agents).
        port: Of the server; HTTP API, metrics and UI take the port 10, 20 and 1000 above. 0 takes free ones.
        json: Write one JSON value on standard output once all is ready; words go to standard error.
    """
    screen = Screen(as_json=json)
    settings = Settings.load()
    # That which the other verbs use: so they find the runs without being told.
    namespace = connection_settings().get("namespace", "default")
    server = EmbeddedServer(data_dir=settings.state_dir.resolve(), port=port, namespace=namespace)
    try:
        await server.start()
    except UserError as error:
        raise await _occupied(port, app, error) from None
    try:
        await _Session(screen=screen, settings=settings, server=server, app=app).play()
    finally:
        await server.stop()


@dataclass(frozen=True)
class _Changed:
    files: set[str]


@dataclass(frozen=True)
class _WorkerEnded:
    worker: WorkerProcess
    error: WorkerEnded


@dataclass(frozen=True)
class _ServerEnded:
    pass


@dataclass(frozen=True)
class _Stop:
    pass


_Event: TypeAlias = _Changed | _WorkerEnded | _ServerEnded | _Stop


@dataclass(kw_only=True)
class _Session:
    screen: Screen
    settings: Settings
    server: EmbeddedServer
    app: str
    worker: WorkerProcess | None = None
    draining: dict[WorkerProcess, asyncio.Task[None]] = field(default_factory=dict[WorkerProcess, asyncio.Task[None]])
    events: asyncio.Queue[_Event] = field(default_factory=asyncio.Queue[_Event])
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    stopping: bool = False
    delay_seconds: float = 1
    inventory: list[JsonObject] | None = None

    async def play(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._told_to_stop)
        self._in_background(self._watch_files())
        self._in_background(self._watch_server())
        try:
            await self._introduce()
            await self._start_first()
            while True:
                match await self.events.get():
                    case _Stop():
                        break
                    case _Changed(files=files):
                        await self._reload(files)
                    case _WorkerEnded(worker=worker, error=error):
                        await self._worker_ended(worker, error)
                    case _ServerEnded():
                        await self._restart_server()
        finally:
            for task in self.tasks:
                task.cancel()
            await self._stop_workers()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    # --- what is said --------------------------------------------------------------------------------------------

    def _say(self, label: str, *words: str | Text, style: str = "bold") -> None:
        self.screen.say(Labelled(label, *words, style=style))

    async def _introduce(self) -> None:
        temporal = await TemporalClient.connect(self.server.address, runtime=logging_runtime())
        about = await temporal.workflow_service.get_system_info(GetSystemInfoRequest())
        state = short(self.settings.state_dir.resolve())
        self._say(
            "outlast",
            f"{__version__}, temporalio {temporal_version}, Temporal server {about.server_version}, "
            f"Python {platform.python_version()}",
        )
        self._say("server", f"{self.server.address}, namespace {self.server.namespace}, state in {state}")
        self._say("UI", whole(self.server.ui_url or ""))
        self._say("HTTP API", whole(self.server.http_url))
        self._say("queue", self.settings.task_queue)

    def _present(self, ready: JsonObject) -> None:
        for entry in ready["inventory"]:
            self.screen.say(*agent_lines(entry))
        agent = ready["inventory"][0]["name"]
        lines = [whole(f"{program('outlast')} run {agent} 'Hello'"), *self._bare_start(agent)]
        elsewhere = connection_settings().get("target_host", DEFAULT_ADDRESS)
        if elsewhere not in (self.server.address, self._as_configured()):
            lines.insert(0, whole(f"export TEMPORAL_ADDRESS={self.server.address}"))
            lines.insert(0, Text(f"Other terminals would look for a server at {elsewhere}. So there, first:"))
        self._say("start", *lines)
        self._say("stop", "Ctrl-C lets running calls finish. What waits goes on at the next start.")
        self.screen.say("")
        if self.screen.as_json:
            self.screen.answer(
                {
                    "address": self.server.address,
                    "namespace": self.server.namespace,
                    "ui": self.server.ui_url,
                    "http": self.server.http_url,
                    "task_queue": self.settings.task_queue,
                    "pid": os.getpid(),
                    "server_pid": self.server.pid,
                    "worker": ready,
                }
            )

    def _as_configured(self) -> str:
        return self.server.address.replace("127.0.0.1", "localhost")

    def _bare_start(self, agent: str) -> list[Text]:
        where = "" if self._as_configured() == DEFAULT_ADDRESS else f" --address {self.server.address}"
        return [
            whole(
                f"{program('temporal')} workflow start{where} --type AgentRun --task-queue {self.settings.task_queue} "
                f"""--input '{{"agent": "{agent}", "prompt": "Hello"}}'"""
            )
        ]

    # --- the worker ----------------------------------------------------------------------------------------------

    async def _start_first(self) -> None:
        """The first worker; where the code cannot be loaded, a change of it is waited for."""
        worker = await self._started()
        if worker is not None:
            self._take_over(worker)
            self._present(worker.ready)

    async def _started(self) -> WorkerProcess | None:
        env = worker_environment(self.server) | {"OUTLAST_LOG_FORMAT": os.environ.get("OUTLAST_LOG_FORMAT", "text")}
        worker = WorkerProcess(self.app, env=env, folder=Path.cwd())
        try:
            await worker.start()
        except WorkerEnded as error:
            await worker.stop()
            runs_on = self.worker is not None
            then = "The worker of before goes on." if runs_on else "The server is up."
            self._say("error", error.message, f"{then} Save the file again, and it is tried again.", style="bold red")
            return None
        return worker

    def _take_over(self, worker: WorkerProcess) -> None:
        self.worker = worker
        self.inventory = worker.ready["inventory"]
        self._in_background(self._watch_worker(worker))

    async def _reload(self, files: set[str]) -> None:
        if files:
            names = ", ".join(sorted(short(Path(file)) for file in files)[:3]) + (" …" if len(files) > 3 else "")
            self._say("changed", names)
        old = self.worker
        new = await self._started()
        if new is None:
            return
        if old is not None:
            self.draining[old] = asyncio.create_task(self._drain(old))
        before = self.inventory
        self._take_over(new)
        if before is None:
            self._present(new.ready)
            return
        what = difference(before, new.ready["inventory"])
        self._say("worker", f"process {new.pid} has taken over", *what, style="bold green")

    async def _drain(self, worker: WorkerProcess) -> None:
        await worker.drain()
        self.draining.pop(worker, None)

    async def _worker_ended(self, worker: WorkerProcess, error: WorkerEnded) -> None:
        if worker is not self.worker:
            return
        self.worker = None
        lived = asyncio.get_running_loop().time() - worker.started_at
        self.delay_seconds = 1 if lived > LIVED_LONG_SECONDS else min(self.delay_seconds * 2, LONGEST_DELAY_SECONDS)
        self._say(
            "error",
            error.message.splitlines()[0],
            f"Another one starts in {self.delay_seconds:g} s. Runs lose nothing.",
            style="bold red",
        )
        self._in_background(self._restart_later(self.delay_seconds))

    async def _restart_later(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self.worker is None:
            await self.events.put(_Changed(set()))

    async def _restart_server(self) -> None:
        self._say("error", "The Temporal server ended by itself. It starts again; runs lose nothing.", style="bold red")
        await self.server.kill()
        await self.server.start()
        self._say("server", f"answers again at {self.server.address}", style="bold green")
        self._in_background(self._watch_server())

    # --- what is watched -----------------------------------------------------------------------------------------

    def _in_background(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _watch_files(self) -> None:
        async for files in changes(self.app, ignore=self.settings.state_dir.resolve()):
            await self.events.put(_Changed(files))

    async def _watch_worker(self, worker: WorkerProcess) -> None:
        try:
            await worker.watch()
        except WorkerEnded as error:
            await self.events.put(_WorkerEnded(worker, error))

    async def _watch_server(self) -> None:
        await self.server.ended()
        await self.events.put(_ServerEnded())

    # --- the end -------------------------------------------------------------------------------------------------

    def _told_to_stop(self) -> None:
        workers = [*self.draining, *([self.worker] if self.worker is not None else [])]
        if self.stopping:
            for worker in workers:
                self._in_background(worker.kill())
            return
        self.stopping = True
        self.events.put_nowait(_Stop())
        grace = self.settings.shutdown_grace.total_seconds()
        self.screen.say("")
        self._say("stopping", f"Running calls have {grace:g} s to finish. Ctrl-C again ends at once.")

    async def _stop_workers(self) -> None:
        if self.worker is not None:
            self.draining[self.worker] = asyncio.create_task(self._drain(self.worker))
        limit = self.settings.shutdown_grace.total_seconds() + 15
        done: set[asyncio.Task[None]] = set()
        if self.draining:
            done, _ = await asyncio.wait(self.draining.values(), timeout=limit)
        for worker in list(self.draining):
            await worker.kill()
        for task in done:
            task.result()


async def _occupied(port: int, app: str, error: UserError) -> UserError:
    """What to do where the port is taken: most often by a Temporal server."""
    if not port or "in use" not in error.message or "Port" not in error.message:
        return error
    address = f"localhost:{port}"
    with suppress(RPCError, RuntimeError, TimeoutError, OSError):
        async with asyncio.timeout(3):
            temporal = await TemporalClient.connect(address, runtime=logging_runtime())
            await temporal.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=timedelta(seconds=2))
        return UserError(
            f"A Temporal server answers at {address} already. To use that one: {command('worker', app)}\n"
            f"To start one beside it: {command('dev', '--port', str(port + 100), app)}"
        )
    return UserError(f"{error.message}\nAnother port: {command('dev', '--port', str(port + 100), app)}")
