"""A worker in a process of its own, which never outlives this one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import anyio.abc

import outlast
from outlast import leash
from outlast.errors import OutlastError
from outlast.messages import JsonObject
from outlast.server import EmbeddedServer

__all__ = ("WorkerEnded", "WorkerProcess", "worker_environment")

_START_SECONDS = 120
_STOP_SECONDS = 10


def worker_environment(server: EmbeddedServer, *, without: tuple[str, ...] = ()) -> dict[str, str]:
    """This process's environment for a worker of an embedded server, whatever the environment, a profile or .env say.

    Args:
        server: Where the worker connects.
        without: Starts of the names of variables that it does not get.
    """
    names = ("TEMPORAL_", *without)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    return kept | {
        "TEMPORAL_ADDRESS": server.address,
        "TEMPORAL_NAMESPACE": server.namespace,
        "TEMPORAL_CONFIG_FILE": os.devnull,
        "TEMPORAL_TLS": "false",
        "PYTHONPATH": os.pathsep.join(_python_path()),
    }


def _python_path() -> list[str]:
    """Where the worker, which may run in another folder, finds outlast as this process did: even in a bare checkout."""
    given = [str(Path(entry).resolve()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    here = Path(outlast.__file__).resolve().parents[1]
    installed = here in (Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib"))
    return given if installed else [*given, str(here)]


class WorkerEnded(OutlastError):
    """The worker's process ended though nobody told it to."""


class WorkerProcess:
    """`outlast worker APP` as a child process, for as long as the `async with` block around it.

    As the embedded server it is tied to the thread that starts it: `kill -9` of this process ends it, too.

    Args:
        app: File or module with the agents.
        env: Environment of the process.
        folder: Where it runs.
        log: File that its log is added to; by default it goes where this process's standard error goes.
    """

    def __init__(self, app: str | Path, *, env: Mapping[str, str], folder: Path, log: Path | None = None) -> None:
        self._app = str(app)
        self._env = dict(env)
        self._folder = folder
        self._log = log
        self._process: anyio.abc.Process | None = None
        self._told_to_end = False
        self._ready: JsonObject = {}
        self.started_at = 0.0

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def pid(self) -> int:
        """Its process ID."""
        assert self._process is not None
        return self._process.pid

    @property
    def ready(self) -> JsonObject:
        """What it said once it listened: its agents and their tools, and where it is connected."""
        return self._ready

    async def start(self) -> None:
        """Start the process, and wait until it listens.

        Raises:
            WorkerEnded: It ended before, or took too long. The message says why, or has its last lines.
        """
        with self._log.open("ab") if self._log is not None else nullcontext() as log:
            self._process = await anyio.open_process(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._env,
                cwd=self._folder,
                # Ctrl-C is for this process, which then stops its worker.
                start_new_session=True,
            )
        self._told_to_end = False
        said: JsonObject | None = None
        with anyio.move_on_after(_START_SECONDS):
            said = await self._first_line()
        if said is None:
            raise WorkerEnded(f"The worker did not start:\n{self._tail()}")
        if "error" in said:
            raise WorkerEnded(said["error"]["message"])
        self._ready = said
        self.started_at = anyio.current_time()

    async def _first_line(self) -> JsonObject | None:
        """The one line that it says on standard output: that it listens, or why not. None where it just ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = b""
        while b"\n" not in line:
            try:
                line += await self._process.stdout.receive()
            except anyio.EndOfStream:
                return None
        return json.loads(line.partition(b"\n")[0])

    def _command(self) -> Sequence[str]:
        # -P: a user's `json.py` beside the app must not stand for the standard library's.
        program = [sys.executable, "-P", "-m", "outlast", "worker", "--json", self._app]
        if os.name != "posix":
            return program
        return [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), *program]

    async def watch(self) -> None:
        """Wait for as long as all is well.

        Raises:
            WorkerEnded: The process ended though nobody told it to.
        """
        while True:
            process = self._process
            if process is not None:
                code = await process.wait()
                if process is self._process and not self._told_to_end:
                    raise WorkerEnded(f"The worker ended by itself, with exit code {code}:\n{self._tail()}")
            await anyio.sleep(0.1)

    async def drain(self) -> None:
        """Tell it to stop, and wait until its running calls are finished or handed back, however long its grace is."""
        await self._end(signal.SIGTERM)

    async def kill(self) -> None:
        """End it as a crash would, with SIGKILL."""
        await self._end(signal.SIGKILL if os.name == "posix" else signal.SIGTERM)

    async def stop(self, *, patience: float = _STOP_SECONDS) -> None:
        """End it, and wait for that, whatever cancels the caller: SIGTERM, and SIGKILL after `patience` seconds."""
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(patience):
                await self._end(signal.SIGTERM)
            await self.kill()

    async def _end(self, number: signal.Signals) -> None:
        self._told_to_end = True
        if self._process is None:
            return
        if self._process.returncode is None:
            self._process.send_signal(number)
        await self._process.wait()

    def _tail(self) -> str:
        if self._log is None:
            return "Its own words are above."
        return "\n".join(self._log.read_text(errors="replace").strip().splitlines()[-10:]) or "It said nothing."
