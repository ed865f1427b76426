"""What one run has to do, whichever system does it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run.

    Attributes:
        steps: Model requests; all but the last ask for calls.
        calls: Calls of one step, made in parallel.
        result_bytes: Size of each call's result.
        local: Calls are Temporal's local activities.
        held: The call waits for a decision.
    """

    steps: int
    calls: int = 1
    result_bytes: int = 16
    local: bool = False
    held: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)
