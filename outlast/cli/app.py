"""The command line: its verbs, and what every one of them does with an error."""

from __future__ import annotations

import importlib
import logging
import os
import platform
from collections.abc import Sequence
from typing import Any

from cyclopts import App, CycloptsError, Group
from temporalio.service import RPCError
from temporalio.service import __version__ as temporal_version

from outlast import __version__
from outlast.cli.exit_code import ExitCode, exit_code
from outlast.cli.screen import Screen
from outlast.client import explain_rpc
from outlast.errors import OutlastError

__all__ = ("command_line", "main")

# By name: a verb is loaded when it is used, and so are its libraries, which is most of the time that one takes.
_VERBS = {
    Group("Run agents", sort_key=1): {
        "demo": "demo:demo",
        "dev": "dev:dev",
        "worker": "serving:worker",
        "run": "running:run",
        "tools": "tools:tools",
        "doctor": "doctor:doctor",
    },
    Group("See runs", sort_key=2): {
        "runs": "listing:runs",
        "show": "showing:show",
        "watch": "running:watch",
    },
    Group("Decide", sort_key=3): {
        "pending": "inbox:pending",
        "approve": "deciding:approve",
        "deny": "deciding:deny",
        "resolve": "deciding:resolve",
        "retry": "deciding:retry",
    },
    Group("Control a run", sort_key=4): {
        "steer": "steering:steer",
        "pause": "steering:pause",
        "resume": "steering:resume",
        "cancel": "steering:cancel",
    },
}
_NAMES = {name for verbs in _VERBS.values() for name in verbs}


def command_line(verb: str | None = None) -> App:
    """The command line, freshly made.

    Args:
        verb: The only one that is needed; else all are loaded, for their descriptions.
    """
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
        for position, (name, where) in enumerate(verbs.items()):
            target = f"outlast.cli.{where}"
            app.command(target if verb is not None else _loaded(target), name=name, group=group, sort_key=position)
    return app


def main(arguments: Sequence[str]) -> ExitCode:
    """Run one verb.

    Returns:
        Its exit code. Errors are told on the screen.
    """
    screen = Screen(as_json="--json" in arguments)
    verb = next((word for word in arguments[:1] if word in _NAMES), None)
    try:
        code = command_line(verb)(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        screen.error("Usage", f"{error} See `{' '.join(['outlast', *([verb] if verb else [])])} --help`.")
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


def _loaded(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _our_bug(error: Exception) -> str:
    if os.environ.get("OUTLAST_LOG_LEVEL", "").lower() == "debug":
        logging.getLogger("outlast").error("What led to this:", exc_info=error)
        hint = ""
    else:
        hint = " With OUTLAST_LOG_LEVEL=debug it says where."
    return f"Something that outlast did not expect, which is a mistake in outlast: {error}.{hint}"
