"""What is measured, and how a table says it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Samples = list[float]


@dataclass(frozen=True, kw_only=True)
class Target:
    """What DESIGN asks of a figure.

    Attributes:
        limit: The figure itself, or where there is a floor, its ratio to the floor.
        at: Whether the limit is the most or the least.
        ratio: The limit is a ratio to the floor.
    """

    limit: float
    at: Literal["most", "least"] = "most"
    ratio: bool = True


@dataclass(kw_only=True)
class Figure:
    """One line of the table: samples of ours, and of the floor where there is one, in pairs.

    Attributes:
        what: What was measured.
        unit: Of the samples.
        target: What it should be.
    """

    what: str
    unit: str
    ours: Samples = field(default_factory=list)
    floor: Samples = field(default_factory=list)
    target: Target | None = None

    @property
    def ratios(self) -> Samples:
        """Each sample of ours by the floor's of the same pair."""
        return [ours / floor for ours, floor in zip(self.ours, self.floor, strict=False) if floor]

    @property
    def met(self) -> bool | None:
        """Whether the median is where it should be; None where nothing is asked, or nothing was measured."""
        values = self.ratios if self.target is not None and self.target.ratio else self.ours
        if self.target is None or not values:
            return None
        value = statistics.median(values)
        return value <= self.target.limit if self.target.at == "most" else value >= self.target.limit


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Between which values the middle half of the samples lies; all of them where there are fewer than four."""
    if len(values) < 4:
        return min(values), max(values)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high
