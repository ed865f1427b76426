"""The agents of an app: a file such as `app.py`, or a module such as `shop.agents`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from contextlib import redirect_stdout
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from outlast.agent import Agent
from outlast.errors import OutlastError, UserError
from outlast.plugin import OutlastPlugin

__all__ = ("check_app", "is_file", "load_agents")

EXAMPLE = """\
    from outlast import Agent

    support = Agent("openai:gpt-4o", name="support")"""


def load_agents(app: str) -> list[Agent[Any, Any]]:
    """Every agent that has a name, at module level of the app.

    Args:
        app: Path of a file, or dotted name of a module.

    Raises:
        UserError: It cannot be loaded, or its agents cannot be hosted. Says where, what and how to fix it.
    """
    module = _import(app)
    found: dict[int, tuple[str, Agent[Any, Any]]] = {}
    for variable, value in vars(module).items():
        if isinstance(value, Agent):
            agent = cast("Agent[Any, Any]", value)
            found.setdefault(id(agent), (variable, agent))
    agents = [agent for _, agent in found.values() if agent.name is not None]
    if not agents:
        nameless = [f"`{variable}`" for variable, agent in found.values() if agent.name is None]
        without = f" It has {', '.join(nameless)}, without a name." if nameless else ""
        raise UserError(
            f"{app} has no agent with a name, so there is nothing to host.{without} Write at module level:\n\n{EXAMPLE}"
        )
    # Says what is wrong with any of them, all at once, before a server is needed.
    OutlastPlugin(agents=agents)
    return agents


def is_file(app: str) -> bool:
    """Whether an app is named by its file, not as a module."""
    return app.endswith(".py") or os.sep in app


def check_app(app: str) -> None:
    """Find out whether there is such an app, without loading it.

    Raises:
        UserError: There is none.
    """
    path = Path(app)
    if path.is_dir() and (is_file(app) or app.startswith(".")):
        raise UserError(
            f"{app!r} is a folder. An app is a file (app.py) or a module (shop.agents).{_python_files(path)}"
        )
    if is_file(app):
        if not path.is_file():
            raise UserError(f"There is no file {app!r} (looked in {str(Path.cwd())!r}).{_python_files(path)}")
        return
    name, colon, variable = app.partition(":")
    if colon:
        raise UserError(
            f"{app!r} names an object. An app is a whole file or module, and every agent in it is hosted: {name!r} "
            f"without {':' + variable!r}."
        )
    top = name.partition(".")[0]
    if not top or not (top in sys.modules or PathFinder.find_spec(top, [str(Path.cwd()), *sys.path])):
        raise UserError(_no_module(top, path))


def _import(app: str) -> ModuleType:
    check_app(app)
    path = Path(app)
    folder = path.resolve().parent if is_file(app) else Path.cwd()
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        # Standard output is the verb's answer: what an app prints while it is loaded is no part of that.
        with redirect_stdout(sys.stderr):
            return _run_file(path.resolve()) if is_file(app) else importlib.import_module(app)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UserError(_explain(app, error)) from error


def _run_file(path: Path) -> ModuleType:
    # Pydantic and pickle find classes by the name of their module, so it must be one that can be imported.
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_app"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _no_module(name: str, path: Path) -> str:
    return (
        f"There is no module {name!r} here. An app is a file (app.py) or a module that can be imported from "
        f"{str(Path.cwd())!r}.{_python_files(path)}"
    )


def _explain(app: str, error: BaseException) -> str:
    where = _where(error, app)
    match error:
        case SyntaxError():
            line = f":\n\n    {error.text.strip()}" if error.text else "."
            return f"{where}: {error.msg}{line}"
        case ModuleNotFoundError() if not is_file(app) and error.name and f"{app}.".startswith(f"{error.name}."):
            return _no_module(error.name, Path(app))
        case ModuleNotFoundError():
            return (
                f"{where} imports {error.name!r}, which this Python does not have ({sys.executable}). Install it "
                f"there, or start outlast from the environment that has it."
            )
        case ImportError() if "relative import" in str(error):
            return (
                f"{where}: a file that is part of a package cannot be loaded by its path. Name it as a module "
                f"instead: package.{Path(app).stem}"
            )
        case OutlastError():
            return f"{where}: {error.message}"
        case SystemExit():
            return (
                f"{where} ends the program while it is imported. Put what it does as a script under "
                f"`if __name__ == '__main__':`."
            )
        case _:
            return f"{where}: {type(error).__name__}: {error}"


def _where(error: BaseException, app: str) -> str:
    """The line of the user's own code that the error comes from, as far down as it is the user's."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename)}, line {error.lineno}"
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and not _is_library(Path(frame.filename))
    ]
    return f"{_short(own[-1].filename)}, line {own[-1].lineno}" if own else app


def _is_library(path: Path) -> bool:
    ours = Path(__file__).resolve().parents[1]
    resolved = path.resolve()
    rooms = [ours, *((ours / room).resolve() for room in ("toolsets", "activities", "workflows", "worker.py"))]
    if any(resolved.is_relative_to(room) for room in rooms):
        return (ours / "examples").resolve() not in resolved.parents
    return "site-packages" in path.parts or path.is_relative_to(Path(os.__file__).parent)


def _short(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename


def _python_files(path: Path) -> str:
    folder = path if path.is_dir() else path.parent if path.parent.is_dir() else Path()
    there = sorted(file.name for file in folder.glob("*.py") if not file.name.startswith("_"))[:5]
    return f" There is: {', '.join(there)}." if there else ""
