"""Run a program that must not outlive the process that asked for it.

Called as `python -I -S leash.py PARENT_PID PROGRAM [ARGUMENT...]`. It becomes the program, so the process ID is the
program's own. Imports nothing of outlast: it is a fresh, single-threaded process for a few milliseconds, where
calling into the C library and forking are safe, which they are not between fork and exec of a threaded parent.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Tie this process to its parent, then become the program."""
    parent, command = int(arguments[0]), arguments[1:]
    if not tie_by_kernel():
        tie_by_watching(parent)
    if os.getppid() != parent:
        sys.exit("the process that asked for this program is gone")
    os.execv(command[0], command)  # noqa: S606 -- the command is the caller's own


def tie_by_kernel() -> bool:
    """On Linux the kernel kills this process when the thread that started it ends. Survives `exec`.

    The thread, not the process: whoever starts this does it from the thread that runs its event loop.
    """
    if sys.platform != "linux":
        return False
    return ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0


def tie_by_watching(parent: int) -> None:
    """Elsewhere a second process looks for the parent twice a second, and kills this one when it is gone."""
    program = os.getpid()
    if os.fork() != 0:
        return
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    # Not the program's: its log must end, and its lock be free, when the program is gone.
    os.closerange(0, 256)
    while os.getppid() == program:
        try:
            os.kill(parent, 0)
        except ProcessLookupError:
            os.kill(program, signal.SIGKILL)
            break
        time.sleep(0.5)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
