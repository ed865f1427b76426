"""What a verb ends with, and what an error means for it."""

from __future__ import annotations

from enum import IntEnum

from outlast.errors import OutlastError, RunError, ServerUnreachable

__all__ = ("ExitCode", "exit_code")


class ExitCode(IntEnum):
    """Exit codes of every verb."""

    DONE = 0
    RUN_FAILED = 1
    USAGE = 2
    WAITING = 3
    UNREACHABLE = 4
    BUG = 70
    INTERRUPTED = 130


def exit_code(error: BaseException) -> ExitCode:
    """The exit code of a verb that ended with this error."""
    match error:
        case ServerUnreachable():
            return ExitCode.UNREACHABLE
        case RunError():
            return ExitCode.RUN_FAILED
        case OutlastError():
            return ExitCode.USAGE
        case KeyboardInterrupt():
            return ExitCode.INTERRUPTED
        case _:
            return ExitCode.BUG
