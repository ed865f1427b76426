"""Logs: one line for each thing that happened, whoever says it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from inline_snapshot import snapshot
from temporalio.exceptions import ApplicationError

from outlast.logs import configure_logs


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in ("temporalio", "httpx", "httpcore", "openai", "asyncio"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def lines(stream: StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def fail(error: Exception, attempt: int = 2) -> None:
    """Log as the SDK does when a tool raises."""
    known = {"activity_type": "tool:refund", "workflow_id": "run-1", "attempt": attempt, "more": 1}
    extra = {"temporal_activity": known}
    try:
        raise error
    except Exception:
        logging.getLogger("temporalio.activity").warning(
            "Completing activity as failed ({'activity_type': …})", exc_info=True, extra=extra
        )


def test_a_failed_attempt_is_one_line_without_a_traceback() -> None:
    """A tool that fails is an event of the run, which handles it: three tracebacks say nothing more."""
    stream = StringIO()
    configure_logs(stream=stream)
    fail(ValueError("card declined"))
    [line] = lines(stream)
    del line["timestamp"]
    assert line == snapshot(
        {
            "level": "warning",
            "logger": "temporalio.activity",
            "activity": "tool:refund",
            "run": "run-1",
            "attempt": 2,
            "error": "ValueError: card declined",
            "message": "tool:refund failed at attempt 2: ValueError: card declined",
        }
    )


def test_on_a_terminal_the_same_is_readable() -> None:
    stream = StringIO()
    configure_logs(stream=stream, as_json=False)
    fail(ValueError("card declined"))
    [line] = stream.getvalue().splitlines()
    assert line[8:] == snapshot(" [warning] tool:refund failed at attempt 2: ValueError: card declined run=run-1")


def test_an_agent_that_no_worker_knows_is_told_once_however_often_it_is_looked_for() -> None:
    stream = StringIO()
    configure_logs(stream=stream)
    for attempt in (1, 2, 3):
        fail(ApplicationError("No agent 'x' here.", type="UnknownAgent"), attempt)
    assert [line["attempt"] for line in lines(stream)] == [1]


def test_the_users_own_errors_keep_their_traceback_in_one_json_object() -> None:
    stream = StringIO()
    configure_logs(stream=stream)
    try:
        raise KeyError("x")
    except KeyError:
        logging.getLogger("shop").exception("Reading failed for %s", "Zoë")
    [line] = lines(stream)
    assert line["message"] == "Reading failed for Zoë"
    assert line["level"] == "error"
    assert line["logger"] == "shop"
    assert "KeyError: 'x'" in line["exception"]


def test_the_level_is_for_outlast_and_the_users_code_and_others_only_warn() -> None:
    stream = StringIO()
    configure_logs("info", stream=stream)
    for name in ("outlast.worker", "shop", "httpx", "temporalio.worker"):
        logging.getLogger(name).info("info of %s", name)
    logging.getLogger("shop").debug("not this")
    assert [line["logger"] for line in lines(stream)] == ["outlast.worker", "shop"]
