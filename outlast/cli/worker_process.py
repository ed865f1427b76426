"""A worker in a process of its own, which never outlives this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import anyio.abc

from outlast import leash
from outlast.errors import OutlastError

__all__ = ("WorkerEnded", "WorkerProcess")

_START_SECONDS = 120
_STOP_SECONDS = 10


class WorkerEnded(OutlastError):
    """The worker's process ended though nobody told it to."""


class WorkerProcess:
    """`outlast worker APP` as a child process, for as long as the `async with` block around it.

    As the embedded server it is tied to the thread that starts it: `kill -9` of this process ends it, too.

    Args:
        app: File with the agents.
        env: Environment of the process.
        folder: Where it runs.
        log: File that its log is added to.
    """

    def __init__(self, app: Path, *, env: Mapping[str, str], folder: Path, log: Path) -> None:
        self._app = app
        self._env = dict(env)
        self._folder = folder
        self._log = log
        self._process: anyio.abc.Process | None = None
        self._told_to_end = False

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

    async def start(self) -> None:
        """Start the process, and wait until it listens.

        Raises:
            WorkerEnded: It ended before, or took too long. The message has its last lines.
        """
        with self._log.open("ab") as log:
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
        assert self._process.stdout is not None
        with anyio.move_on_after(_START_SECONDS):
            try:
                # The worker says one line on standard output, once it listens.
                await self._process.stdout.receive()
                return
            except anyio.EndOfStream:
                pass
        raise WorkerEnded(f"The worker did not start:\n{self._tail()}")

    def _command(self) -> Sequence[str]:
        program = [sys.executable, "-m", "outlast", "worker", "--json", str(self._app)]
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

    async def kill(self) -> None:
        """End it as a crash would, with SIGKILL."""
        await self._end(signal.SIGKILL if os.name == "posix" else signal.SIGTERM)

    async def stop(self) -> None:
        """End it, and wait for that: SIGTERM, and SIGKILL after 10 seconds."""
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_STOP_SECONDS):
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
        return "\n".join(self._log.read_text(errors="replace").strip().splitlines()[-10:]) or "It said nothing."
