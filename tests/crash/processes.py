"""Worker processes for tests to kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio

from outlast import leash

ROOT = Path(__file__).parents[2]
APP = Path(__file__).parent / "apps" / "shop.py"


class WorkerProcess:
    """A worker in a process of its own, which ends with the test at the latest.

    Args:
        log: File for all that it prints.
        environment: Its settings.
    """

    def __init__(self, log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("OUTLAST_", "TEMPORAL_"))
        }
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                # The kernel ends it with the test process, however that ends.
                [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), sys.executable, str(APP)],
                cwd=log.parent,
                env={**inherited, "PYTHONPATH": str(ROOT), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        """Process ID of the worker itself."""
        return self._process.pid

    @property
    def log(self) -> str:
        """All that it printed so far."""
        return self._log.read_text(errors="replace")

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    async def ready(self) -> None:
        """Wait until it listens."""

        def listens() -> bool:
            assert self.is_running, f"The worker ended at its start:\n{self.log}"
            return "\nready\n" in f"\n{self.log}"

        await until(listens, "the worker listens")

    def kill(self) -> None:
        """`kill -9`, and wait until the kernel has cleared it away."""
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """SIGTERM, as a deployment sends it."""
        self._process.send_signal(signal.SIGTERM)

    async def ended(self, within_seconds: float) -> int:
        """Wait for its end.

        Returns:
            The exit code.
        """
        await until(lambda: not self.is_running, "the worker process ends", within_seconds=within_seconds)
        return self._process.wait()


async def until(condition: Callable[[], bool], what: str, *, within_seconds: float = 30) -> None:
    """Wait until a condition holds; fail where it does not within a generous time."""
    with anyio.move_on_after(within_seconds):
        while not condition():
            await anyio.sleep(0.02)
        return
    raise AssertionError(f"Waited {within_seconds:g} s until {what}, in vain.")
