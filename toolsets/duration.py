"""Time spans as people write them."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

__all__ = ("Duration", "seconds")

Duration: TypeAlias = timedelta | int | float
"""A time span: a `timedelta`, or seconds."""


def seconds(duration: Duration) -> int | float:
    """The seconds of a time span; a number stays as it was given, since messages repeat what its author wrote."""
    if not isinstance(duration, timedelta):
        return duration
    total = duration.total_seconds()
    return int(total) if total.is_integer() else total
