"""What tools and tests share outside of every process: an SQLite file of effects, and a folder of gates.

A row is one execution of an effect. A gate is a file: whoever waits at it goes on when the file is there.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Effect:
    """One execution of an effect.

    Attributes:
        kind: What was done.
        key: The idempotency key of the call that did it.
        attempt: As the call saw it, from 1.
        pid: The process that did it.
        at: When, as the system's clock says.
    """

    kind: str
    key: str | None
    attempt: int
    pid: int
    at: float


class Outside:
    """Reads and writes what lives outside of every process.

    Args:
        folder: Where the files are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._database = folder / "effects.db"
        with self._connected() as database:
            database.execute(
                "create table if not exists effects (kind text, key text, attempt integer, pid integer, at real)"
            )

    @contextmanager
    def _connected(self) -> Generator[sqlite3.Connection]:
        database = sqlite3.connect(self._database, timeout=30)
        try:
            with database:
                yield database
        finally:
            database.close()

    def record(self, kind: str, *, key: str | None = None, attempt: int = 1) -> None:
        """Do the effect: it is there for good when this returns, whatever happens to this process."""
        with self._connected() as database:
            row = (kind, key, attempt, os.getpid(), time.time())
            database.execute("insert into effects values (?, ?, ?, ?, ?)", row)

    def effects(self, kind: str | None = None) -> list[Effect]:
        """The effects so far, of one kind or of all, in the order in which they happened."""
        with self._connected() as database:
            rows = database.execute("select kind, key, attempt, pid, at from effects order by rowid").fetchall()
        return [effect for row in rows if kind in (None, (effect := Effect(*row)).kind)]

    def open_gate(self, name: str) -> None:
        """Let everyone pass who waits at this gate, or comes to it later."""
        (self.folder / f"{name}.gate").touch()

    def is_open(self, name: str) -> bool:
        """Whether one may pass."""
        return (self.folder / f"{name}.gate").exists()

    async def pass_gate(self, name: str) -> None:
        """Wait until the gate is open."""
        while not self.is_open(name):
            await anyio.sleep(POLL_SECONDS)

    def pass_gate_sync(self, name: str) -> None:
        """The same in a thread."""
        while not self.is_open(name):
            time.sleep(POLL_SECONDS)
