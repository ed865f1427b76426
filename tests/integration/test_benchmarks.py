"""The benchmarks work: each workload is measured once, as small as it can be. No figure is judged here."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import report
from benchmarks.__main__ import measure
from benchmarks.figures import Figure, Target, spread
from benchmarks.sizes import TINY
from benchmarks.workloads import NAMES


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_every_workload_gives_its_figures(tmp_path: Path) -> None:
    figures: list[Figure] = []
    await measure(NAMES, TINY, figures)
    for figure in figures:
        assert figure.ours, figure.what
        # Memory may well not grow by two runs.
        assert figure.unit == "KB" or min(figure.ours) > 0, figure.what
    written = json.loads(report.write(figures, os.getloadavg()[0], tmp_path).read_text())
    assert [figure["what"] for figure in written["figures"]] == [figure.what for figure in figures]
    assert len({figure.what for figure in figures}) == len(figures) >= len(NAMES)
    console = Console(width=report.WIDTH)
    with console.capture() as printed:
        console.print(report.table(figures))
    assert all(figure.what in printed.get() for figure in figures)


def test_a_figure_is_judged_by_the_median_of_its_pairs() -> None:
    target = Target(limit=1.1)
    assert Figure(what="", unit="ms", ours=[1, 1, 9], floor=[1, 1, 1], target=target).met is True
    assert Figure(what="", unit="ms", ours=[1, 2, 2], floor=[1, 1, 1], target=target).met is False
    assert Figure(what="", unit="KB", ours=[90], target=Target(limit=100, ratio=False)).met is True
    assert Figure(what="", unit="1/s", ours=[9], floor=[10], target=Target(limit=0.95, at="least")).met is False
    assert Figure(what="", unit="ms", ours=[1]).met is None


def test_the_spread_is_that_of_the_middle_half() -> None:
    assert spread([3, 1]) == (1, 3)
    assert spread([100, 1, 2, 3, 4]) == (2, 4)
