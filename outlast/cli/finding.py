"""What a check of `outlast doctor` found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ("Finding", "failure", "ok", "warning")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check found.

    Attributes:
        check: What was looked at.
        state: `warning` is something that one can live without.
        message: What is there.
        fix: What to do; empty where nothing has to be done, or the message says it.
    """

    check: str
    state: Literal["ok", "warning", "failure"]
    message: str
    fix: str = ""


def ok(check: str, message: str) -> Finding:
    """All is well."""
    return Finding(check=check, state="ok", message=message)


def warning(check: str, message: str, fix: str = "") -> Finding:
    """Runs can live with that."""
    return Finding(check=check, state="warning", message=message, fix=fix)


def failure(check: str, message: str, fix: str = "") -> Finding:
    """Runs cannot live with that."""
    return Finding(check=check, state="failure", message=message, fix=fix)
