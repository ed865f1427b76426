"""How programs and paths are written, so that they can be typed where the reader is."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

__all__ = ("program", "short")


def program(name: str) -> str:
    """What to type to start a program of this environment."""
    beside = Path(sys.executable).parent / name
    return name if shutil.which(name) or not beside.exists() else short(beside)


def short(path: Path) -> str:
    """A path, from the current folder where it is in there."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
