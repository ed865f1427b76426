"""The process whose cost is measured: `python -m benchmarks.worker_process floor|ours ADDRESS QUEUE`.

Says "ready", then answers each line on its standard input with what it has used so far, and ends when that is closed.
The line "memory" has it collect its garbage first, which costs CPU of its own.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def usage() -> dict[str, float]:
    """Seconds of CPU of this process and, apart, of its children; bytes that are resident now."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    statm = Path("/proc/self/statm")
    return {
        "cpu_seconds": own.ru_utime + own.ru_stime,
        "children_cpu_seconds": children.ru_utime + children.ru_stime,
        "resident_bytes": int(statm.read_text().split()[1]) * PAGE_BYTES if statm.exists() else 0,
    }


def worker(system: str, client: Client, queue: str) -> Worker:
    """A worker of one system, with the same options for both."""
    options: dict[str, Any] = {"task_queue": queue, "max_concurrent_workflow_tasks": 100}
    if system == "floor":
        from benchmarks.floor import Floor, floor_model, floor_tool

        return Worker(client, workflows=[Floor], activities=[floor_model, floor_tool], **options)
    from benchmarks.ours import agent, crashing
    from outlast import OutlastPlugin

    return Worker(client, plugins=[OutlastPlugin(agents=[agent, crashing])], **options)


async def main(system: str, address: str, queue: str) -> None:
    """Work until the standard input ends."""
    client = await Client.connect(address)
    async with worker(system, client, queue):
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line == "memory\n":
                gc.collect()
            print(json.dumps(usage()), flush=True)
    # Workaround: https://github.com/temporalio/sdk-python/issues/300, a crash at the exit of the interpreter.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
