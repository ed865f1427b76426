"""The logs of a process: readable on a terminal, JSON Lines anywhere else, always on standard error."""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

__all__ = ("configure_logs", "logging_runtime")

# What the SDK logs with a traceback though nothing is broken: a tool raised, and the run is told. One line says so.
_EXPECTED = ("temporalio.activity", "temporalio.worker._activity")
# What the SDK adds to a message, as text, is already there as fields.
_FIELDS = {"activity_type": "activity", "workflow_id": "run", "attempt": "attempt"}


def configure_logs(level: str = "info", *, as_json: bool | None = None, stream: TextIO | None = None) -> None:
    """Send all logs of this process, of whichever library, through one handler.

    Args:
        level: Least level for outlast and the user's own code; other libraries say warnings and errors only.
        as_json: One JSON object per line; by default unless the stream is a terminal.
        stream: By default standard error.
    """
    target: TextIO = stream or sys.stderr
    as_json = not target.isatty() if as_json is None else as_json
    handler = logging.StreamHandler(target)
    handler.addFilter(_is_news)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.processors.TimeStamper(fmt="iso", utc=True) if as_json else _clock,
                _in_one_line,
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(as_json, target)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("temporalio", "httpx", "httpcore", "openai", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING if level != "debug" else logging.DEBUG)


def logging_runtime() -> Runtime:
    """A Temporal runtime whose own log goes where all others go, instead of raw to standard error."""
    forwarding = LogForwardingConfig(
        logger=logging.getLogger("temporalio.core"),
        append_target_to_name=False,
        prepend_target_on_message=False,
        append_log_fields_to_message=False,
    )
    # Errors only: a lost connection is a warning per poller and second there, and the SDK reconnects by itself.
    quiet = TelemetryFilter(core_level="ERROR", other_level="ERROR")
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=quiet, forwarding=forwarding)))


def _rendering(as_json: bool, stream: TextIO) -> list[Processor]:
    if as_json:
        return [
            structlog.processors.EventRenamer("message"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ]
    plain = structlog.dev.plain_traceback
    renderer = structlog.dev.ConsoleRenderer(
        colors=stream.isatty(), exception_formatter=plain, pad_event_to=0, pad_level=False
    )
    return [_short, renderer]


def _short(_logger: Any, _name: str, event: EventDict) -> EventDict:
    """Leaves out what a person at a terminal has read already."""
    for said in ("activity", "attempt", "error"):
        if str(event.get(said)) in str(event["event"]):
            event.pop(said, None)
    if event.get("logger", "").startswith(("outlast", "temporalio")):
        del event["logger"]
    return event


def _clock(_logger: Any, _name: str, event: EventDict) -> EventDict:
    return structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False)(_logger, _name, event)


def _is_news(record: logging.LogRecord) -> bool:
    """An agent that no worker knows is looked for again and again for some seconds: its name is told once."""
    known: dict[str, Any] = getattr(record, "temporal_activity", None) or {}
    error = record.exc_info[1] if record.exc_info else None
    return getattr(error, "type", None) != "UnknownAgent" or known.get("attempt", 1) == 1


def _in_one_line(_logger: Any, _name: str, event: EventDict) -> EventDict:
    """Turns the SDK's report of a failed attempt, a traceback and a dump of all it knows, into one line."""
    record: logging.LogRecord = event["_record"]
    if not record.name.startswith(_EXPECTED):
        return event
    known: dict[str, Any] = getattr(record, "temporal_activity", None) or {}
    event.update({ours: known[theirs] for theirs, ours in _FIELDS.items() if theirs in known})
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        event["error"] = f"{getattr(error, 'type', None) or type(error).__name__}: {getattr(error, 'message', error)}"
        if known:
            event["event"] = f"{event.get('activity')} failed at attempt {event.get('attempt')}: {event['error']}"
        event.pop("exc_info", None)
    elif known:
        event["event"] = str(record.msg).split(" ({'")[0]
    return event
