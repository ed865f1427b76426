"""What the settings of a call mean as options of a Temporal activity, and what the end of one means to the run."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeout
from temporalio.workflow import ActivityCancellationType, ActivityConfig

from outlast.workflows.commands import RequestStep, StartCall
from outlast.workflows.events import (
    CallCancelled,
    CallErrored,
    CallLost,
    CallTimedOut,
    CallUnclaimed,
    Event,
    StepCancelled,
    StepFailed,
    StepLost,
)

MODEL_TIMEOUT = timedelta(minutes=10)
MODEL_ATTEMPTS = 20
"""A bound that no agent's own number of attempts passes; the activity itself decides when to give up."""

GRACE = timedelta(seconds=5)
"""How much longer than its timeout a call may take before the server ends it: the worker ends it first if it can."""

MAX_BACKOFF = timedelta(seconds=60)

# These come to the run at once, apart from the attempts: the run decides what a loss means for each call. A shutdown
# is reported as not retryable by the worker itself, and time without a worker is never retried by the server.
_NON_RETRYABLE = ["TemporalTimeout:StartToClose", "TemporalTimeout:Heartbeat", "PayloadsTooLarge"]


def model_options(command: RequestStep) -> ActivityConfig:
    """Options of the activity `model:<agent>`."""
    return ActivityConfig(
        start_to_close_timeout=MODEL_TIMEOUT + GRACE,
        heartbeat_timeout=command.heartbeat,
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        retry_policy=RetryPolicy(
            maximum_attempts=MODEL_ATTEMPTS,
            maximum_interval=MAX_BACKOFF,
            non_retryable_error_types=_NON_RETRYABLE,
        ),
    )


def call_options(command: StartCall) -> ActivityConfig:
    """Options of the activity `tool:<tool_name>`."""
    policy = command.input.policy
    options = ActivityConfig(
        start_to_close_timeout=timedelta(seconds=policy.timeout) + GRACE,
        heartbeat_timeout=command.heartbeat,
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        retry_policy=RetryPolicy(
            # Temporal gives a call that must not be repeated one attempt, whatever goes wrong and wherever.
            maximum_attempts=policy.attempts if command.input.repeatable else 1,
            initial_interval=timedelta(seconds=policy.backoff),
            maximum_interval=max(MAX_BACKOFF, timedelta(seconds=policy.backoff)),
            non_retryable_error_types=_NON_RETRYABLE,
        ),
    )
    if policy.task_queue is not None:
        options["task_queue"] = policy.task_queue
    return options


def local_options(command: StartCall) -> dict[str, Any]:
    """Options of a call that runs as one of Temporal's local activities."""
    options = call_options(command)
    return {
        "start_to_close_timeout": options.get("start_to_close_timeout"),
        "retry_policy": options.get("retry_policy"),
        "cancellation_type": ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    }


def call_event(command: StartCall, error: BaseException, at: datetime) -> Event:
    """What the failure of a call's activity means to the run."""
    which: dict[str, Any] = {
        "tool_call_id": command.input.tool_call_id,
        "execution": command.input.execution,
        "at": at,
    }
    cause = error.cause if isinstance(error, ActivityError) else error
    match cause:
        case ActivityTimeout(type=TimeoutType.START_TO_CLOSE):
            return CallTimedOut(**which)
        case ActivityTimeout(type=TimeoutType.HEARTBEAT):
            return CallLost(reason="The worker was lost while the call ran", **which)
        case ActivityTimeout(type=TimeoutType.SCHEDULE_TO_START):
            return CallUnclaimed(**which)
        case ApplicationError(type="WorkerShutdown"):
            return CallLost(reason="The worker shut down before the call ended", **which)
        case CancelledError() | asyncio.CancelledError():
            return CallCancelled(**which)
        case ApplicationError():
            return CallErrored(error_type=cause.type or "Error", message=cause.message, **which)
        case _:
            return CallErrored(error_type=type(cause).__name__, message=str(cause), **which)


def step_event(command: RequestStep, error: BaseException, at: datetime) -> Event:
    """What the failure of a model request's activity means to the run."""
    step = command.input.step
    cause = error.cause if isinstance(error, ActivityError) else error
    match cause:
        case ActivityTimeout(type=TimeoutType.START_TO_CLOSE):
            minutes = int(MODEL_TIMEOUT.total_seconds() // 60)
            return StepFailed(
                step=step, error_type="ModelRequestFailed", message=f"No answer within {minutes} minutes.", at=at
            )
        case ActivityTimeout():
            return StepLost(step=step, reason="the worker was lost during the model request", at=at)
        case ApplicationError(type="WorkerShutdown"):
            return StepLost(step=step, reason="the worker shut down during the model request", at=at)
        case CancelledError() | asyncio.CancelledError():
            return StepCancelled(step=step, at=at)
        case ApplicationError():
            return StepFailed(step=step, error_type=cause.type or "ModelRequestFailed", message=cause.message, at=at)
        case _:
            return StepFailed(step=step, error_type="ModelRequestFailed", message=str(cause), at=at)
