"""Which files of an app have changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from outlast.errors import UserError

__all__ = ("changes",)

DEBOUNCE_MS = 300
"""An editor that saves several files at once is one change."""


async def changes(app: str, *, ignore: Path) -> AsyncIterator[set[str]]:
    """The Python files, and `.env`, that changed in the app's folder and below, each time some did.

    Args:
        app: A file, whose folder is watched, or a module, for which the current folder is.
        ignore: A folder that is none of the app's, as a whole path.

    Raises:
        UserError: The library for this is not installed.
    """
    try:
        from watchfiles import Change, DefaultFilter, awatch  # pyright: ignore[reportUnknownVariableType]
    except ImportError:
        raise UserError(
            'Reloading needs the package `watchfiles`. Install it with: pip install "outlast[server]"'
        ) from None

    class Sources(DefaultFilter):
        def __call__(self, change: Change, path: str) -> bool:
            is_source = path.endswith(".py") or Path(path).name == ".env"
            return is_source and super().__call__(change, path)

    watched = awatch(
        *_folders(app),
        watch_filter=Sources(ignore_paths=[str(ignore)]),
        debounce=DEBOUNCE_MS,
        step=50,
        raise_interrupt=False,
    )
    async for changed in watched:
        yield {path for _, path in changed}


def _folders(app: str) -> list[Path]:
    """Where the app is, and where its `.env` is read from."""
    path = Path(app)
    folder = path.resolve().parent if app.endswith(".py") else Path.cwd()
    return [each for each in dict.fromkeys((folder, Path.cwd())) if each.is_dir()]
