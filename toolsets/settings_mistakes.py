"""Values of settings that make no sense."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from outlast.toolsets.approval import Approval
from outlast.toolsets.duration import seconds

if TYPE_CHECKING:
    from outlast.toolsets.settings import ToolSettings

__all__ = ("settings_problems", "unknown_option")

_FUNCTIONS = ("args_validator", "prepare", "repair")
_FLAGS = ("repeatable", "requires_approval", "sequential", "local", "strict")
_OTHER_NAMES = {"retries": "max_retries", "function_timeout": "timeout", "idempotent": "repeatable"}


def unknown_option(name: str, names: Sequence[str]) -> str:
    """What to say about an option that there is not."""
    close = [_OTHER_NAMES[name]] if name in _OTHER_NAMES else difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"the options are: {', '.join(names)}."
    return f"there is no option {name!r}; {hint}"


def settings_problems(settings: ToolSettings) -> list[str]:
    """What is wrong with the values, alone and together."""
    found = [*_durations(settings), *_counts(settings), *_choices(settings), *_kinds(settings)]
    if settings.requires_approval is False and settings.approval is not None:
        found.append("`approval` says how to approve, but `requires_approval=False` says not to: remove one of them.")
    if settings.local and (settings.requires_approval or settings.approval is not None):
        found.append(
            "`local=True` calls are repeated without limit when their worker dies, so a call that a person approves "
            "cannot be local: remove `local`, or the approval."
        )
    if settings.local and settings.repeatable is False:
        found.append(
            "`local=True` calls are repeated without limit when their worker dies, which `repeatable=False` forbids: "
            "remove one of them."
        )
    return found


def _durations(settings: ToolSettings) -> list[str]:
    found: list[str] = []
    for name, lowest in (("timeout", "longer than 0"), ("backoff", "0 or longer")):
        value: object = getattr(settings, name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, timedelta | int | float):
            found.append(f"`{name}` is a timedelta or a number of seconds, got {value!r}: write {name}=30.")
            continue
        span = seconds(value)
        if not math.isfinite(span) or span < 0 or (span == 0 and name == "timeout"):
            found.append(f"`{name}` must be {lowest}, got {value!r}: write {name}=30 for 30 seconds.")
    return found


def _counts(settings: ToolSettings) -> list[str]:
    found: list[str] = []
    for name, least, meaning in (
        ("max_retries", 0, "0 means that the model may not try again"),
        ("attempts", 1, "1 means that a call is made once and never tried again"),
    ):
        value: object = getattr(settings, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            found.append(f"`{name}` is a whole number from {least}, got {value!r}: {meaning}.")
    return found


def _choices(settings: ToolSettings) -> list[str]:
    found: list[str] = []
    for name, choices in (("on_error", ("tell_model", "fail_run", "ask")), ("on_unknown", ("ask", "tell_model"))):
        value: object = getattr(settings, name)
        if value is not None and value not in choices:
            found.append(f"`{name}` is one of {', '.join(map(repr, choices))}, got {value!r}.")
    return found


def _kinds(settings: ToolSettings) -> list[str]:
    found: list[str] = []
    for name in _FUNCTIONS:
        value: object = getattr(settings, name)
        if value is not None and not callable(value):
            found.append(f"`{name}` is a function, got {value!r}.")
    for name in _FLAGS:
        flag: object = getattr(settings, name)
        if flag is not None and not isinstance(flag, bool):
            found.append(f"`{name}` is True or False, got {flag!r}.")
    approval: object = getattr(settings, "approval")  # noqa: B009 # any object, whatever its annotation says
    if approval is not None and not isinstance(approval, Approval):
        found.append(f"`approval` is an Approval, got {approval!r}: write approval=Approval(prompt='…').")
    queue: object = getattr(settings, "task_queue")  # noqa: B009
    if queue is not None and (not isinstance(queue, str) or not queue.strip()):
        found.append(f"`task_queue` is the name of a task queue, got {queue!r}.")
    if settings.metadata is not None:
        found.extend(_metadata(settings.metadata))
    return found


def _metadata(metadata: object) -> list[str]:
    if not isinstance(metadata, dict):
        return [f"`metadata` is a dict of JSON values, got {metadata!r}."]
    try:
        json.dumps(metadata, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return [f"`metadata` is a dict of JSON values, but {error}."]
    return []
