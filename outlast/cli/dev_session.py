"""A session of `outlast dev`: keeps a worker of the current code beside a server, until somebody ends it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from rich.text import Text
from temporalio.client import Client as TemporalClient

from outlast.cli.banner import Place, agents_lines, head_lines, start_lines
from outlast.cli.exit_code import ExitCode
from outlast.cli.inventory import difference
from outlast.cli.listening import who_listens
from outlast.cli.options import Options
from outlast.cli.program import short
from outlast.cli.screen import Labelled, Screen, printable
from outlast.cli.sources import changes
from outlast.cli.worker_process import WorkerEnded, WorkerProcess, worker_environment
from outlast.logs import logging_runtime
from outlast.messages import JsonObject
from outlast.server import EmbeddedServer
from outlast.settings import Settings

__all__ = ("DevSession",)

LONGEST_DELAY_SECONDS = 30
LIVED_LONG_SECONDS = 30
"""A worker that ends by itself after less than this is started again after a longer and longer wait."""
HANDING_BACK_SECONDS = 15
"""What a worker may need beyond its grace, to hand back what has not finished."""


@dataclass(frozen=True)
class _Changed:
    files: set[str]


@dataclass(frozen=True)
class _Started:
    worker: WorkerProcess


@dataclass(frozen=True)
class _CannotStart:
    reason: str


@dataclass(frozen=True)
class _WorkerEnded:
    worker: WorkerProcess
    error: WorkerEnded


@dataclass(frozen=True)
class _StartAgain:
    pass


@dataclass(frozen=True)
class _ServerEnded:
    pass


@dataclass(frozen=True)
class _Broken:
    """Something in the background failed, which ends the session."""

    error: Exception


@dataclass(frozen=True)
class _Stop:
    pass


_Event: TypeAlias = _Changed | _Started | _CannotStart | _WorkerEnded | _StartAgain | _ServerEnded | _Broken | _Stop


@dataclass(kw_only=True)
class DevSession:
    """Everything between the start of the server and its end.

    Attributes:
        screen: Where it says what happens.
        settings: Those of this process. The worker reads its own, so that a change of `.env` reaches it.
        app: File or module with the agents.
        place: Where the server answers.
        server: The server, where it was started for this session.
    """

    screen: Screen
    settings: Settings
    app: str
    place: Place
    server: EmbeddedServer | None = None

    _worker: WorkerProcess | None = None
    _starting: asyncio.Task[None] | None = None
    _draining: dict[WorkerProcess, asyncio.Task[None]] = field(default_factory=dict[WorkerProcess, asyncio.Task[None]])
    _events: asyncio.Queue[_Event] = field(default_factory=asyncio.Queue[_Event])
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _interrupts: int = 0
    _delay_seconds: float = 1
    _ready: JsonObject | None = None

    async def play(self) -> ExitCode:
        """Serve until Ctrl-C or SIGTERM.

        Returns:
            Done; or interrupted, where the person did not wait for running calls.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._told_to_stop)
        try:
            await self._serve()
        finally:
            await self._stop_all()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
        return ExitCode.DONE if self._interrupts < 2 else ExitCode.INTERRUPTED

    async def _serve(self) -> None:
        temporal = await self._connect()
        self.screen.say(*await head_lines(temporal, self.place, self.settings, own=self.server is not None))
        await self._note_others(temporal)
        self._say("app", f"loads {self.app} …")
        self._in_background(self._watch_files())
        self._in_background(self._watch_server())
        self._start_worker()
        while True:
            match await self._events.get():
                case _Stop():
                    return
                case _Changed(files=files):
                    self._tell_changed(files)
                    self._start_worker()
                case _Started(worker=worker):
                    self._take_over(worker)
                case _CannotStart(reason=reason):
                    self._cannot_start(reason)
                case _WorkerEnded(worker=worker, error=error):
                    self._worker_ended(worker, error)
                case _StartAgain():
                    if self._worker is None and not self._is_starting():
                        self._start_worker()
                case _ServerEnded():
                    await self._restart_server()
                case _Broken(error=error):
                    raise error

    async def _connect(self) -> TemporalClient:
        if self.server is None:
            return await Options(address=self.place.address, namespace=self.place.namespace).connect()
        # TLS and keys that are configured are those of another server.
        return await TemporalClient.connect(
            self.place.address, namespace=self.place.namespace, runtime=logging_runtime()
        )

    def _say(self, label: str, *words: str | Text, style: str = "bold") -> None:
        self.screen.say(Labelled(label, *words, style=style))

    async def _note_others(self, temporal: TemporalClient) -> None:
        if self.server is not None:
            return
        if others := await who_listens(temporal, self.settings.task_queue):
            self._say(
                "note",
                f"Other workers listen on this queue: {', '.join(others.workers)}. They share its runs, so they must "
                "host the same agents. A queue of its own: OUTLAST_TASK_QUEUE=NAME.",
                style="yellow",
            )

    # --- the worker ----------------------------------------------------------------------------------------------

    def _start_worker(self) -> None:
        """Start a worker of the code as it is now; one that is only just starting has read what was there before."""
        if self._starting is not None:
            self._starting.cancel()
        self._starting = self._in_background(self._start())

    def _is_starting(self) -> bool:
        return self._starting is not None and not self._starting.done()

    async def _start(self) -> None:
        worker = WorkerProcess(self.app, env=self._environment(), folder=Path.cwd())
        try:
            await worker.start()
        except WorkerEnded as error:
            await worker.kill()
            self._events.put_nowait(_CannotStart(error.message))
        except BaseException:
            await worker.stop(patience=0)
            raise
        else:
            self._events.put_nowait(_Started(worker))

    def _environment(self) -> dict[str, str]:
        if self.server is not None:
            env = worker_environment(self.server)
        else:
            env = {**os.environ, "TEMPORAL_ADDRESS": self.place.address, "TEMPORAL_NAMESPACE": self.place.namespace}
        return env | {"OUTLAST_LOG_FORMAT": os.environ.get("OUTLAST_LOG_FORMAT", "text")}

    def _take_over(self, worker: WorkerProcess) -> None:
        old, self._worker = self._worker, worker
        if old is not None:
            self._drain(old)
        self._in_background(self._watch_worker(worker))
        before, self._ready = self._ready, worker.ready
        if before is None:
            self._present(worker.ready)
            return
        what = difference(before["inventory"], worker.ready["inventory"])
        if before["task_queue"] != worker.ready["task_queue"]:
            what.append(f"queue {before['task_queue']} → {worker.ready['task_queue']}")
        what = what or ["The agents and their tools are as before."]
        self._say("worker", f"process {worker.pid} has taken over", *map(printable, what), style="bold green")

    def _cannot_start(self, reason: str) -> None:
        if self._is_starting():
            # Newer code is being loaded, which may be better.
            return
        waits = "Nothing is served until then: runs wait, and lose nothing."
        if self._worker is not None:
            # What it would go on with is code that is no longer there.
            self._drain(self._worker)
            self._worker = None
            waits = "Until then runs wait, and lose nothing; calls that are running finish."
        self._say(
            "error", printable(reason), Text(f"Save the file again, and it is tried again. {waits}"), style="bold red"
        )

    def _worker_ended(self, worker: WorkerProcess, error: WorkerEnded) -> None:
        if worker is not self._worker:
            return
        self._worker = None
        lived = asyncio.get_running_loop().time() - worker.started_at
        self._delay_seconds = 1 if lived > LIVED_LONG_SECONDS else min(self._delay_seconds * 2, LONGEST_DELAY_SECONDS)
        self._say(
            "error",
            error.message.splitlines()[0].rstrip(":") + ".",
            f"Another one starts in {self._delay_seconds:g} s. Runs lose nothing.",
            style="bold red",
        )
        self._in_background(self._start_again_later(self._delay_seconds))

    async def _start_again_later(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._events.put_nowait(_StartAgain())

    def _drain(self, worker: WorkerProcess) -> None:
        self._draining[worker] = asyncio.create_task(self._drained(worker))

    async def _drained(self, worker: WorkerProcess) -> None:
        try:
            await worker.drain()
        finally:
            self._draining.pop(worker, None)

    # --- what is said --------------------------------------------------------------------------------------------

    def _present(self, ready: JsonObject) -> None:
        inventory = ready["inventory"]
        own = self.server is not None
        self.screen.say(*agents_lines(inventory), *start_lines(inventory, self.place, self.settings, own=own))
        if self.screen.as_json:
            self.screen.answer(
                {
                    "address": self.place.address,
                    "namespace": self.place.namespace,
                    "ui": self.place.ui_url,
                    "http": self.place.http_url,
                    "task_queue": ready["task_queue"],
                    "pid": os.getpid(),
                    "server_pid": self.server.pid if self.server is not None else None,
                    "worker": ready,
                }
            )

    def _tell_changed(self, files: set[str]) -> None:
        names = sorted(short(Path(file)) for file in files)
        self._say("changed", printable(", ".join(names[:3])) + (f" and {len(names) - 3} more" if names[3:] else ""))

    # --- what is watched -----------------------------------------------------------------------------------------

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._events.put_nowait(_Broken(error))

    async def _watch_files(self) -> None:
        ignore = self.settings.state_dir.resolve()
        try:
            async for files in changes(self.app, ignore=ignore):
                self._events.put_nowait(_Changed(files))
        except OSError as error:
            self._say("note", f"Files are looked at one by one from now on: {error}", style="yellow")
            async for files in changes(self.app, ignore=ignore, polling=True):
                self._events.put_nowait(_Changed(files))

    async def _watch_worker(self, worker: WorkerProcess) -> None:
        try:
            await worker.watch()
        except WorkerEnded as error:
            self._events.put_nowait(_WorkerEnded(worker, error))

    async def _watch_server(self) -> None:
        if self.server is not None:
            await self.server.ended()
            self._events.put_nowait(_ServerEnded())

    async def _restart_server(self) -> None:
        assert self.server is not None
        self._say("error", "The Temporal server ended by itself. It starts again; runs lose nothing.", style="bold red")
        await self.server.kill()
        await self.server.start()
        self._say("server", f"answers again at {self.server.address}", style="bold green")
        self._in_background(self._watch_server())
        # The worker may have given up meanwhile, or never have come up.
        self._events.put_nowait(_StartAgain())

    # --- the end -------------------------------------------------------------------------------------------------

    def _told_to_stop(self) -> None:
        self._interrupts += 1
        if self._interrupts == 1:
            self._events.put_nowait(_Stop())
            self.screen.say("")
            self._say("stopping", self._stopping_words())
            return
        if self._interrupts == 2:
            self.screen.say("")
            self._say("stopping", "at once. Calls that ran are made again, or a person says what came of them.")
        for worker in self._draining:
            self._in_background(worker.kill())
        if self.server is not None:
            self._in_background(self.server.kill())

    def _stopping_words(self) -> str:
        if self._worker is None and not self._draining:
            return "No worker runs, so this takes no time."
        grace = self.settings.shutdown_grace.total_seconds()
        return f"Running calls have at most {grace:g} s to finish. Ctrl-C again ends at once; no run loses anything."

    async def _stop_all(self) -> None:
        """End every worker and, where it is this session's own, the server."""
        for task in list(self._tasks):
            task.cancel()
        # What only just started cleans up after itself, unless it has handed its worker over.
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while not self._events.empty():
            if isinstance(event := self._events.get_nowait(), _Started):
                self._drain(event.worker)
        if self._worker is not None:
            self._drain(self._worker)
        limit = self.settings.shutdown_grace.total_seconds() + HANDING_BACK_SECONDS
        if self._interrupts > 1:
            self._told_to_stop()
        if self._draining:
            await asyncio.wait(self._draining.values(), timeout=limit)
        for worker in list(self._draining):
            await worker.kill()
        if self.server is not None:
            await self.server.stop()
        # A second Ctrl-C ends processes on its own, and must have done so.
        await asyncio.gather(*self._tasks, return_exceptions=True)
