"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Numbers that a smoke test makes small.

    Attributes:
        pairs: How often each system is measured; the order alternates.
        repeats: Short runs in one sample.
        steps: Of a run of ordinary length.
        long_steps: Of a long run.
        concurrent: Runs that are under way at once.
        waiting: Runs that wait in the worker's cache.
        decisions: In one sample.
        loops: Of a micro-benchmark, in one sample.
        samples: Of a micro-benchmark.
        heartbeat_seconds: After which a lost worker is noticed.
    """

    pairs: int = 8
    repeats: int = 4
    steps: int = 10
    long_steps: int = 100
    concurrent: int = 100
    waiting: int = 300
    decisions: int = 15
    loops: int = 2_000
    samples: int = 15
    heartbeat_seconds: float = 10


TINY = Sizes(
    pairs=1,
    repeats=1,
    steps=2,
    long_steps=3,
    concurrent=3,
    waiting=2,
    decisions=1,
    loops=2,
    samples=1,
    heartbeat_seconds=1,
)
