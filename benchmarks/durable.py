"""Workloads on a server: the same jobs on both systems, in pairs whose order alternates."""

from __future__ import annotations

import gc
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import anyio
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.worker import Replayer

from benchmarks.figures import Figure, Target
from benchmarks.floor import Floor
from benchmarks.job import Job
from benchmarks.sizes import Sizes
from benchmarks.system import PATIENCE_SECONDS, System, joining, running
from outlast.plugin import OutlastPlugin

Sample = dict[str, float]
Measure = Callable[[System], Awaitable[Sample]]


@asynccontextmanager
async def both(client: Client) -> AsyncGenerator[tuple[System, System]]:
    """The floor and ours, each in a process of its own."""
    async with running("floor", client) as floor, running("ours", client) as ours:
        # They start side by side.
        await floor.ready()
        await ours.ready()
        yield floor, ours


async def in_pairs(client: Client, pairs: int, measure: Measure, figures: dict[str, Figure]) -> list[Figure]:
    """Measure both systems in turn, after one round that warms up and does not count.

    Args:
        client: Of the server.
        pairs: How often.
        measure: Takes one sample of one system: a value for each figure.
        figures: What the values are of.
    """
    async with both(client) as systems:
        for pair in range(-1, pairs):
            for system in systems if pair % 2 else reversed(systems):
                sample = await measure(system)
                if pair >= 0:
                    for name, figure in figures.items():
                        (figure.ours if system.name == "ours" else figure.floor).append(sample[name])
    return list(figures.values())


async def costs(system: System, work: Callable[[], Awaitable[Any]], runs: int) -> Sample:
    """What some work takes of time, and of the worker's CPU, for each of its runs."""
    before, began = await system.usage(), time.perf_counter()
    await work()
    wall = time.perf_counter() - began
    cpu = (await system.usage()).cpu_seconds - before.cpu_seconds
    return {"wall": wall * 1000 / runs, "cpu": cpu * 1000 / runs, "rate": runs / wall}


def size_bytes(history: WorkflowHistory) -> int:
    """Bytes of a history."""
    return sum(event.ByteSize() for event in history.events)


async def sequential(
    client: Client, sizes: Sizes, what: str, job: Job, *, repeats: int, wall: float | None, cpu: float | None
) -> list[Figure]:
    """Runs one after the other: their time, CPU and history."""

    async def measure(system: System) -> Sample:
        last: list[WorkflowHandle[Any, Any]] = []

        async def work() -> None:
            for _ in range(repeats):
                last[:] = [await system.run(job)]

        sample = await costs(system, work, repeats)
        # The bytes as Temporal counts them do not differ between runs of one job by more than a few.
        return {**sample, "bytes": size_bytes(await last[0].fetch_history()) / 1000}

    figures = {
        "wall": Figure(what=f"{what}: wall", unit="ms", target=Target(limit=wall) if wall else None),
        "cpu": Figure(what=f"{what}: worker CPU", unit="ms", target=Target(limit=cpu) if cpu else None),
        "bytes": Figure(what=f"{what}: history", unit="KB"),
    }
    if job.steps == sizes.long_steps:
        figures["bytes"].target = Target(limit=500, ratio=False)
    return await in_pairs(client, sizes.pairs, measure, figures)


async def one_step(client: Client, sizes: Sizes) -> list[Figure]:
    """The shortest run."""
    return await sequential(client, sizes, "1 step", Job(steps=1), repeats=sizes.repeats, wall=None, cpu=None)


async def ten_steps(client: Client, sizes: Sizes) -> list[Figure]:
    """The ordinary run."""
    job = Job(steps=sizes.steps)
    return await sequential(
        client, sizes, f"{sizes.steps} steps of 1 call", job, repeats=sizes.repeats, wall=1.10, cpu=1.0
    )


async def parallel_calls(client: Client, sizes: Sizes) -> list[Figure]:
    """Several calls in each step."""
    job = Job(steps=sizes.steps, calls=4)
    what = f"{sizes.steps} steps of 4 parallel calls"
    return await sequential(client, sizes, what, job, repeats=sizes.repeats, wall=1.15, cpu=None)


async def large_results(client: Client, sizes: Sizes) -> list[Figure]:
    """Results of 50 KB."""
    job = Job(steps=sizes.steps, result_bytes=50_000)
    what = f"{sizes.steps} steps with results of 50 KB"
    return await sequential(client, sizes, what, job, repeats=sizes.repeats, wall=None, cpu=1.3)


async def long_run(client: Client, sizes: Sizes) -> list[Figure]:
    """A long conversation."""
    job = Job(steps=sizes.long_steps, result_bytes=1_000)
    what = f"{sizes.long_steps} steps with results of 1 KB"
    return await sequential(client, sizes, what, job, repeats=1, wall=1.10, cpu=1.15)


async def local_calls(client: Client, sizes: Sizes) -> list[Figure]:
    """Short, idempotent calls as Temporal's local activities, beside a floor that has none."""
    job = Job(steps=sizes.steps)

    async def measure(system: System) -> Sample:
        mine = replace(job, local=system.name == "ours")

        async def work() -> None:
            for _ in range(sizes.repeats):
                await system.run(mine)

        return await costs(system, work, sizes.repeats)

    what = f"{sizes.steps} steps of 1 local call"
    figures = {
        "wall": Figure(what=f"{what}: wall", unit="ms", target=Target(limit=0.70)),
        "cpu": Figure(what=f"{what}: worker CPU", unit="ms"),
    }
    return await in_pairs(client, sizes.pairs, measure, figures)


async def concurrent_runs(client: Client, sizes: Sizes) -> list[Figure]:
    """Many runs at once."""
    job = Job(steps=sizes.steps)

    async def measure(system: System) -> Sample:
        async def work() -> None:
            async with anyio.create_task_group() as group:
                for _ in range(sizes.concurrent):
                    group.start_soon(system.run, job)

        return await costs(system, work, sizes.concurrent)

    what = f"{sizes.concurrent} runs of {sizes.steps} steps at once"
    figures = {
        "rate": Figure(what=f"{what}: rate", unit="runs/s", target=Target(limit=0.95, at="least")),
        "cpu": Figure(what=f"{what}: worker CPU", unit="ms"),
    }
    return await in_pairs(client, max(1, sizes.pairs // 2), measure, figures)


async def decision_to_start(client: Client, sizes: Sizes) -> list[Figure]:
    """From the signal in the history to the start of the call, by the server's own clock."""

    async def measure(system: System) -> Sample:
        taken: list[float] = []
        for _ in range(sizes.decisions):
            run = await system.start_held()
            await system.approve(run)
            await system.finish(run)
            events = (await run.fetch_history()).events
            signalled = _time(events, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED)
            # The first start is the model request's, the second the call's.
            started = _time(events, EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED, 1)
            taken.append((started - signalled).total_seconds() * 1000)
        return {"ms": sorted(taken)[len(taken) // 2]}

    figure = Figure(what="decision to start of the tool", unit="ms", target=Target(limit=1.2))
    return await in_pairs(client, sizes.pairs, measure, {"ms": figure})


def _time(events: Any, kind: EventType.ValueType, nth: int = 0) -> datetime:
    found: list[HistoryEvent] = [event for event in events if event.event_type == kind]
    return found[nth].event_time.ToDatetime(tzinfo=UTC)


async def memory(client: Client, sizes: Sizes) -> list[Figure]:
    """What a run that waits holds in the worker's cache."""
    # Fresh processes for each sample: what one has freed, the next would use again.
    figure = Figure(what="memory of a run that waits", unit="KB", target=Target(limit=100, ratio=False))
    for _ in range(min(3, sizes.pairs)):
        async with both(client) as systems:
            for system in systems:
                # The first ones fill what is made once, such as caches and the threads of an executor.
                runs = [await system.start_held() for _ in range(max(1, sizes.waiting // 10))]
                before = (await system.usage("memory")).resident_bytes
                runs += [await system.start_held() for _ in range(sizes.waiting)]
                grown = (await system.usage("memory")).resident_bytes - before
                samples = figure.ours if system.name == "ours" else figure.floor
                samples.append(grown / 1000 / sizes.waiting)
                for run in runs:
                    await run.terminate()
    return [figure]


async def replay(client: Client, sizes: Sizes) -> list[Figure]:
    """A worker that takes up a long run."""
    job = Job(steps=sizes.long_steps, result_bytes=1_000)
    async with both(client) as (floor, ours):
        histories = {system.name: await (await system.run(job)).fetch_history() for system in (floor, ours)}
    replayers = {"floor": Replayer(workflows=[Floor]), "ours": Replayer(workflows=[], plugins=[OutlastPlugin()])}
    figure = Figure(what=f"replay of {sizes.long_steps} steps", unit="ms", target=Target(limit=1.0))
    for pair in range(-1, sizes.pairs):
        for name in ("floor", "ours") if pair % 2 else ("ours", "floor"):
            gc.collect()
            began = time.perf_counter()
            await replayers[name].replay_workflow(histories[name])
            taken = (time.perf_counter() - began) * 1000
            if pair >= 0:
                (figure.ours if name == "ours" else figure.floor).append(taken)
    return [figure]


async def killed_worker(client: Client, sizes: Sizes) -> list[Figure]:
    """From `kill -9` of a worker in the middle of a call to the call's start on another worker."""
    seconds = sizes.heartbeat_seconds
    figure = Figure(
        what=f"resume after kill -9, heartbeat timeout {seconds:g} s",
        unit="s",
        target=Target(limit=seconds + 3, ratio=False),
    )
    environment = {"OUTLAST_HEARTBEAT_TIMEOUT": str(seconds)}
    for _ in range(min(3, sizes.pairs)):
        async with running("ours", client, **environment) as first:
            await first.ready()
            run = await client.start_workflow(
                "AgentRun", {"agent": "crashing", "prompt": "Go."}, id=f"killed-{first.queue}", task_queue=first.queue
            )
            with anyio.fail_after(PATIENCE_SECONDS):
                while not await _call_has_started(run):  # noqa: ASYNC110 -- the server tells no one
                    await anyio.sleep(0.02)
            async with joining("ours", client, first.queue, **environment) as second:
                await second.ready()
                killed_at = datetime.now(UTC)
                first.process.kill()
                await second.finish(run)
        starts = _time((await run.fetch_history()).events, EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED, 2)
        figure.ours.append((starts - killed_at).total_seconds())
    return [figure]


async def _call_has_started(run: WorkflowHandle[Any, Any]) -> bool:
    pending = (await run.describe()).raw_description.pending_activities
    # A heartbeat has come: the tool's own code is running.
    return any(one.activity_type.name == "tool:hang" and one.HasField("last_heartbeat_time") for one in pending)
