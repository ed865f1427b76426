"""How programs and paths are written, so that they can be typed where the reader is."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from outlast.connection import DEFAULT_ADDRESS

__all__ = ("operator", "program", "short")


def program(name: str) -> str:
    """What to type to start a program of this environment."""
    beside = Path(sys.executable).parent / name
    return name if shutil.which(name) or not beside.exists() else short(beside)


def operator(target: str, *words: str) -> str:
    """A command of Temporal's own, `temporal operator`, for the server at this address."""
    where = [] if target.replace("127.0.0.1", "localhost") == DEFAULT_ADDRESS else ["--address", target]
    return shlex.join([program("temporal"), "operator", *words, *where])


def short(path: Path) -> str:
    """A path, from the current folder where it is in there."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
