"""Which files of an app have changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from outlast.cli.loading import is_file
from outlast.errors import UserError
from outlast.settings import ENV_FILE

__all__ = ("changes", "check_watching")

DEBOUNCE_MS = 300
"""An editor that saves several files at once is one change."""


def check_watching() -> None:
    """Find out whether files can be watched.

    Raises:
        UserError: The library for this is not installed.
    """
    try:
        import watchfiles  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError:
        raise UserError(
            "Reloading needs the package `watchfiles`, which is not installed. Install it with: "
            'pip install "outlast[server]"'
        ) from None


async def changes(app: str, *, ignore: Path, polling: bool | None = None) -> AsyncIterator[set[str]]:
    """The Python files, and `.env`, that changed in the app's folder and below, each time some did.

    Args:
        app: A file, whose folder is watched, or a module, for which the current folder is.
        ignore: A folder that is none of the app's, as a whole path.
        polling: Look at all files again and again; by default only where nothing better is possible.

    Raises:
        OSError: The system watches no more files; with `polling` it need not.
    """
    from watchfiles import Change, DefaultFilter, awatch  # pyright: ignore[reportUnknownVariableType]

    folders = _folders(app)

    class Sources(DefaultFilter):
        def __call__(self, change: Change, path: str) -> bool:
            changed = Path(path)
            if changed.is_relative_to(ignore) or not (changed.suffix == ".py" or changed.name == ENV_FILE):
                return False
            # Within its folder: an app that itself lives below a folder such as `build` or `.venv` is no less an app.
            inside = next(
                (changed.relative_to(folder) for folder in folders if changed.is_relative_to(folder)), changed
            )
            return super().__call__(change, str(inside))

    watched = awatch(
        *folders,
        watch_filter=Sources(),
        debounce=DEBOUNCE_MS,
        step=50,
        force_polling=polling,
        raise_interrupt=False,
    )
    async for changed in watched:
        yield {path for _, path in changed}


def _folders(app: str) -> list[Path]:
    """Where the app is, and where its `.env` is read from."""
    path = Path(app)
    folder = path.resolve().parent if is_file(app) else Path.cwd()
    return [each for each in dict.fromkeys((folder, Path.cwd())) if each.is_dir()]
