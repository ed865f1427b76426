"""The command line: its verbs, and what every one of them does with an error."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Group
from temporalio.service import RPCError
from temporalio.service import __version__ as temporal_version

from outlast import __version__
from outlast.cli.deciding import approve, deny, resolve, retry
from outlast.cli.demo import demo
from outlast.cli.dev import dev
from outlast.cli.exit_code import ExitCode, exit_code
from outlast.cli.inbox import pending
from outlast.cli.running import run
from outlast.cli.screen import Screen
from outlast.cli.serving import worker
from outlast.cli.steering import cancel, pause, resume, steer
from outlast.cli.tools import tools
from outlast.client import explain_rpc
from outlast.errors import OutlastError

__all__ = ("command_line", "main")

_VERBS = {
    Group("Run agents", sort_key=1): (demo, dev, worker, run, tools),
    Group("Decide", sort_key=2): (pending, approve, deny, resolve, retry),
    Group("Control a run", sort_key=3): (steer, pause, resume, cancel),
}


def command_line() -> App:
    """The command line, freshly made."""
    app = App(
        name="outlast",
        help="Agent runs that outlast crashes, deploys and slow humans.",
        help_epilogue=(
            "Exit codes: 0 done, 1 the run failed, 2 usage, 3 waiting for a decision, 4 server unreachable."
        ),
        version=f"outlast {__version__} (temporalio {temporal_version}, Python {platform.python_version()})",
        default_parameter=None,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for group, verbs in _VERBS.items():
        for verb in verbs:
            app.command(verb, group=group, sort_key=verbs.index(verb))
    return app


def main(arguments: Sequence[str]) -> ExitCode:
    """Run one verb.

    Returns:
        Its exit code. Errors are told on the screen.
    """
    screen = Screen(as_json="--json" in arguments)
    try:
        code = command_line()(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        screen.error("Usage", f"{error} See `outlast --help`.")
        return ExitCode.USAGE
    except KeyboardInterrupt:
        screen.say("")
        return ExitCode.INTERRUPTED
    except OutlastError as error:
        screen.error(type(error).__name__, error.message)
        return exit_code(error)
    except RPCError as error:
        explained = explain_rpc(error, "")
        screen.error(type(explained).__name__, str(explained))
        return exit_code(explained)
    except Exception as error:
        screen.error(type(error).__name__, _our_bug(error))
        return ExitCode.BUG
    return code if isinstance(code, ExitCode) else ExitCode.DONE


def _our_bug(error: Exception) -> str:
    if os.environ.get("OUTLAST_LOG_LEVEL", "").lower() == "debug":
        logging.getLogger("outlast").error("What led to this:", exc_info=error)
        hint = ""
    else:
        hint = " With OUTLAST_LOG_LEVEL=debug it says where."
    return f"Something that outlast did not expect, which is a mistake in outlast: {error}.{hint}"
