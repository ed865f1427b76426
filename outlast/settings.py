"""What an operator sets for outlast: `OUTLAST_*` in the environment, or in `.env`.

Where the Temporal server is, is Temporal's own to say: see `outlast.connection`.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from dotenv import dotenv_values
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from outlast.errors import UserError

__all__ = ("ENV_FILE", "Seconds", "Settings", "load_env_file", "read_env_file")

ENV_FILE = ".env"
"""In the current folder. The environment wins over it."""


def read_env_file() -> dict[str, str]:
    """What `.env` sets; nothing where there is no such file.

    Raises:
        UserError: It cannot be read.
    """
    try:
        return {name: value for name, value in dotenv_values(ENV_FILE).items() if value is not None}
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(error) from error


def load_env_file() -> None:
    """Put what `.env` sets into this process's environment, where that does not set it itself. Raises as above."""
    for name, value in read_env_file().items():
        os.environ.setdefault(name, value)


def _unreadable(error: Exception) -> UserError:
    reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", error)
    return UserError(
        f"The file {str(Path(ENV_FILE).resolve())!r} cannot be read: {reason}. It holds a line NAME=value for each "
        "setting; mend it, or move it away."
    )


def _from_seconds(value: Any) -> Any:
    # The environment holds text only: "10" is ten seconds, as 10 is.
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _above_zero(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("must be longer than 0 seconds")
    return value


Seconds = Annotated[timedelta, BeforeValidator(_from_seconds), AfterValidator(_above_zero)]
"""A duration above zero: a `timedelta`, plain seconds, or ISO 8601 such as `PT10S`."""


class Settings(BaseSettings):
    """outlast's own settings. An argument wins over the environment, and the environment over `.env`.

    No setting here changes what a workflow does: two workers that differ may serve the same runs.
    """

    model_config = SettingsConfigDict(
        env_prefix="OUTLAST_", env_file=ENV_FILE, env_file_encoding="utf-8", extra="ignore", frozen=True
    )

    task_queue: str = Field(default="outlast", min_length=1)
    """Where workers listen and runs start. Two apps with different agents need two queues."""

    state_dir: Path = Path(".outlast")
    """What the embedded server keeps: its database and its log."""

    heartbeat_timeout: Seconds = timedelta(seconds=10)
    """Silence after which a worker counts as lost and its call is scheduled again."""

    shutdown_grace: Seconds = timedelta(seconds=30)
    """How long a worker that was told to stop lets running calls finish."""

    conversation_cache_mb: int = Field(default=256, ge=0)
    """Memory for conversations on one worker. 0 switches the cache off: each step then asks the run."""

    log_format: Literal["auto", "text", "json"] = "auto"
    """`auto` is readable on a terminal and JSON Lines elsewhere."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @classmethod
    def load(cls, **overrides: Any) -> Self:
        """Read the settings, and report every mistake at once.

        Args:
            overrides: Values that win over the environment; those that are `None` are left out.

        Raises:
            UserError: A setting has a value that it cannot have. Names each variable.
        """
        try:
            return cls(**{name: value for name, value in overrides.items() if value is not None})
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable(error) from error
        except ValidationError as error:
            mistakes = [
                f"  OUTLAST_{str(mistake['loc'][0]).upper()}={mistake['input']}: {_expected(mistake)}"
                for mistake in error.errors(include_url=False)
            ]
            raise UserError("\n".join(["These settings cannot be used:", *mistakes])) from error


def _expected(mistake: ErrorDetails) -> str:
    if mistake["type"].startswith("time_delta"):
        return "expected seconds, such as 10, or ISO 8601, such as PT10S"
    return mistake["msg"].replace("Input should be", "expected").removeprefix("Value error, ")
