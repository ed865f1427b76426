"""Whether a worker listens on a task queue: the server knows, no worker has to answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType, WorkerStatus
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, ListWorkersRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from outlast.client import explain_rpc

__all__ = ("Listening", "who_listens")

LONG_POLL = timedelta(seconds=75)
"""A worker asks for work at least once a minute. The server remembers it for five."""

_STOPPED = (WorkerStatus.WORKER_STATUS_SHUTTING_DOWN, WorkerStatus.WORKER_STATUS_SHUTDOWN)


@dataclass(frozen=True, kw_only=True)
class Listening:
    """Who asked for work on a task queue within the last minute, and did not say goodbye."""

    task_queue: str
    workers: list[str]

    def __bool__(self) -> bool:
        return bool(self.workers)

    @property
    def advice(self) -> str:
        """What to say where nobody listens."""
        return (
            f"No worker listens on the task queue {self.task_queue!r}: start one with `outlast worker APP`. Decisions "
            f"can be sent meanwhile, and apply once it is there."
        )


async def who_listens(temporal: TemporalClient, task_queue: str) -> Listening:
    """Ask the server who listens on a task queue."""
    request = DescribeTaskQueueRequest(
        namespace=temporal.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    try:
        pollers = (await temporal.workflow_service.describe_task_queue(request)).pollers
    except RPCError as error:
        raise explain_rpc(error, "") from None
    recent = datetime.now(UTC) - LONG_POLL
    seen = [poller.identity for poller in pollers if poller.last_access_time.ToDatetime(UTC) > recent]
    stopped = await _stopped(temporal, task_queue) if seen else set[str]()
    return Listening(task_queue=task_queue, workers=[identity for identity in seen if identity not in stopped])


async def _stopped(temporal: TemporalClient, task_queue: str) -> set[str]:
    """Workers that said goodbye. A server that keeps no list of workers knows of none."""
    try:
        answer = await temporal.workflow_service.list_workers(ListWorkersRequest(namespace=temporal.namespace))
    except RPCError:
        return set()
    return {
        worker.worker_identity
        for worker in answer.workers
        if worker.task_queue == task_queue and worker.status in _STOPPED
    }
