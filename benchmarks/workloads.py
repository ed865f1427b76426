"""Everything that is measured, by the name that chooses it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from temporalio.client import Client

from benchmarks import durable, in_process
from benchmarks.figures import Figure
from benchmarks.sizes import Sizes

DURABLE: dict[str, Callable[[Client, Sizes], Awaitable[list[Figure]]]] = {
    "one-step": durable.one_step,
    "ten-steps": durable.ten_steps,
    "parallel-calls": durable.parallel_calls,
    "long-run": durable.long_run,
    "large-results": durable.large_results,
    "concurrent-runs": durable.concurrent_runs,
    "decision": durable.decision_to_start,
    "memory": durable.memory,
    "replay": durable.replay,
    "local-calls": durable.local_calls,
    "killed-worker": durable.killed_worker,
}
"""Need a server."""

IN_PROCESS: dict[str, Callable[[Sizes], Awaitable[list[Figure]]]] = {
    "calling": in_process.calling,
    "listing": in_process.listing,
    "registering": in_process.registering,
}
"""Need none."""

NAMES = (*DURABLE, *IN_PROCESS)
