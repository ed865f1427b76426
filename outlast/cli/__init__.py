"""The command line `outlast`."""

from __future__ import annotations

import atexit
import os
import sys

__all__ = ("main",)


def main() -> None:
    """The program `outlast`: runs the verb that its arguments name, and exits with its code."""
    code = 0

    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    # Workaround: https://github.com/temporalio/sdk-python/issues/300. A thread of the SDK that wants the GIL while the
    # interpreter shuts down crashes the process (exit 134 or 139) after all is done. Exit handlers run last in, first
    # out: this one is the first, so it runs after those of everything that is imported from here on.
    atexit.register(leave)
    from outlast.cli.app import main as run

    code = int(run(sys.argv[1:]))
    sys.exit(code)
