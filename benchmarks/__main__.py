"""`make bench`: measures outlast against the floor, and prints a table."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from cyclopts import App
from temporalio.client import Client

from benchmarks import report
from benchmarks.figures import Figure
from benchmarks.sizes import TINY, Sizes
from benchmarks.workloads import DURABLE, IN_PROCESS, NAMES
from outlast.server import EmbeddedServer

app = App(name="make bench ARGS=…", help="Measures outlast against a hand-written Temporal workflow.")


async def measure(names: Sequence[str], sizes: Sizes, figures: list[Figure]) -> None:
    """Measure some workloads, one after the other, on one server.

    Args:
        names: Of the workloads.
        sizes: How much is measured.
        figures: Where they go, workload by workload, so that what was measured is there when a later one fails.
    """
    async with EmbeddedServer(ui=False) as server:
        client = await Client.connect(server.address, namespace=server.namespace)
        for name in names:
            print(f"{datetime.now():%H:%M:%S} {name}", file=sys.stderr, flush=True)
            figures += await (DURABLE[name](client, sizes) if name in DURABLE else IN_PROCESS[name](sizes))


@app.default
async def main(*workloads: str, pairs: int | None = None, tiny: bool = False, results: Path = report.RESULTS) -> None:
    """Measure, print a table with the targets, and write every sample to a file.

    Args:
        workloads: Which ones; by default all.
        pairs: How often each system is measured.
        tiny: As little as possible, to see whether everything still works.
        results: Folder for the file.
    """
    if unknown := [name for name in workloads if name not in NAMES]:
        sys.exit(f"There is no workload {', '.join(map(repr, unknown))}. These are: {', '.join(NAMES)}.")
    sizes = TINY if tiny else Sizes()
    if pairs is not None:
        if pairs < 1:
            sys.exit(f"--pairs {pairs}: at least one pair is needed.")
        sizes = replace(sizes, pairs=pairs)
    load_before = os.getloadavg()[0]
    figures: list[Figure] = []
    try:
        await measure(workloads or NAMES, sizes, figures)
    finally:
        if figures:
            report.show(figures)
            print(f"Every sample: {report.write(figures, load_before, results)}")


if __name__ == "__main__":
    app()
    # Workaround: https://github.com/temporalio/sdk-python/issues/300, a crash at the exit of the interpreter.
    sys.stdout.flush()
    os._exit(0)
