"""Runs programs as their users do, each in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from signal import Signals

import anyio

from tests.asking import PATIENCE

# Workaround: https://github.com/temporalio/sdk-python/issues/300. A thread of the SDK that wants the GIL while the
# interpreter shuts down may crash a program that has done all it had to do.
_CRASHED_AT_EXIT = {-Signals.SIGSEGV, -Signals.SIGABRT}
_CRASH = "Fatal Python error: PyGILState_"


async def run_script(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, typed: str = ""
) -> str:
    """What a Python program prints on standard output, where it ends well.

    Args:
        arguments: Those of `python`.
        env: The program's environment.
        cwd: Where it runs.
        typed: What it reads on standard input.
    """
    with anyio.fail_after(PATIENCE):
        done = await anyio.run_process(
            [sys.executable, *arguments],
            env=None if env is None else dict(env),
            cwd=cwd,
            input=typed.encode(),
            check=False,
        )
    error = done.stderr.decode()
    crashed_at_exit = done.returncode in _CRASHED_AT_EXIT and (not error or error.startswith(_CRASH))
    assert done.returncode == 0 or crashed_at_exit, f"{done.returncode}\n{error}"
    return done.stdout.decode()
