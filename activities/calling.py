"""One call of a tool: validate, run, and say as data what came of it."""

from __future__ import annotations

import asyncio
import inspect
import random
import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

import anyio
import pydantic_core
from pydantic import TypeAdapter

from outlast.activities.planning import unknown_tool
from outlast.activities.run_tools import StepTools
from outlast.contracts import (
    MAX_PAYLOAD_BYTES,
    CallOutcome,
    CallPolicy,
    Deferred,
    Failed,
    Retried,
    Returned,
    Transient,
)
from outlast.errors import (
    ApprovalRequired,
    CallDeferred,
    FatalToolError,
    ModelRetry,
    TransientToolError,
    single_cause,
)
from outlast.messages import JsonObject
from outlast.payloads import json_problem
from outlast.toolsets.abstract import AbstractToolset, ToolsetTool
from outlast.toolsets.context import RunContext
from outlast.toolsets.returns import ToolReturn
from outlast.toolsets.validation import Invalid, validate_args

RESULT_BYTES = MAX_PAYLOAD_BYTES - 64 * 1024
"""Most JSON bytes of one result: it travels on to the next model request in a payload of the same size."""

MAX_BACKOFF_SECONDS = 60.0
MAX_WAIT = timedelta(days=365)
MESSAGE_CHARS = 2_000

METADATA_BYTES = 64 * 1024
"""Most JSON bytes that a tool may show beside a waiting call."""

_SECRET = re.compile(r"(?i)\b(api[_-]?key|token|password|passwd|secret|authorization|bearer)(\s*[=:]\s*|\s+)(\S{6,})")


class AttemptFailed(Exception):
    """This attempt at a repeatable call failed, and another may follow.

    Attributes:
        error_type: Class of the exception that the tool raised.
        retry_after: Time until the next attempt.
        __cause__: What the tool raised.
    """

    def __init__(self, error_type: str, message: str, retry_after: timedelta) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.message = message
        self.retry_after = retry_after


@dataclass(frozen=True, kw_only=True)
class Call:
    """What to run: as planned, or as a person approved it."""

    tool_name: str
    args: JsonObject
    policy: CallPolicy
    repeatable: bool
    deps_adapter: TypeAdapter[Any] | None = None


async def execute_call(call: Call, ctx: RunContext[Any], offered: StepTools) -> CallOutcome:
    """Run one attempt at a call.

    Returns:
        What came of it; every outcome that the run must know is a value.

    Raises:
        AttemptFailed: A repeatable call failed in a way that another attempt may mend.
        asyncio.CancelledError: The call was cancelled from outside.
    """
    tool = offered.tools.get(call.tool_name)
    if tool is None:
        return Retried(content=unknown_tool(call.tool_name, offered.tools), reason="unknown_tool")
    try:
        checked = await validate_args(tool, call.args, ctx)
    except (CallDeferred, ApprovalRequired) as deferral:
        return _raised(call, ctx, tool, deferral)
    if isinstance(checked, Invalid):
        return Retried(content=checked.errors, reason="arguments")
    try:
        before = _dump_deps(call, ctx)
    except (ValueError, TypeError, RecursionError):
        # Live objects, which stay on this worker.
        call = replace(call, deps_adapter=None)
        before = None
    outcome = await _run(call, ctx, offered.toolset, tool, checked.args)
    return outcome if isinstance(outcome, Transient) else _with_deps(outcome, call, ctx, before)


async def _run(
    call: Call, ctx: RunContext[Any], toolset: AbstractToolset[Any], tool: ToolsetTool[Any], args: dict[str, Any]
) -> CallOutcome:
    timeout = float(call.policy.timeout)
    try:
        # Not `fail_after`: a TimeoutError of the tool's own is an error like any other, not the tool's timeout.
        with anyio.move_on_after(timeout):
            return returned(await toolset.call_tool(call.tool_name, args, ctx, tool))
        return _timed_out(call)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # A task group inside the tool wraps what was raised in it.
        cause = single_cause(error)
        if isinstance(cause, asyncio.CancelledError):
            if _cancelled_from_outside():
                raise cause from None
            cause = RuntimeError("the tool was cancelled by its own code")
        return _raised(call, ctx, tool, cause)


def _cancelled_from_outside() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _timed_out(call: Call) -> CallOutcome:
    message = f"Timed out after {call.policy.timeout} seconds."
    if call.repeatable:
        return Retried(content=message, reason="timeout")
    return Failed(error_type="Timeout", message=message.rstrip("."), known=False)


def _raised(call: Call, ctx: RunContext[Any], tool: ToolsetTool[Any], error: BaseException) -> CallOutcome:
    match error:
        case ModelRetry():
            return Retried(content=said(error))
        case CallDeferred():
            return Deferred(wait_for="deferred", metadata=_metadata(error.metadata))
        case ApprovalRequired():
            schema = tool.tool_def.parameters_json_schema
            return Deferred(wait_for="approval", metadata=_metadata(error.metadata), json_schema=schema)
        case FatalToolError():
            return Failed(error_type="FatalToolError", message=mask(said(error)))
        case TransientToolError():
            wait = (
                jittered_backoff(call.policy.backoff, ctx.attempt) if error.retry_after is None else error.retry_after
            )
            wait = min(max(wait, timedelta(0)), MAX_WAIT)
            if call.repeatable:
                raise AttemptFailed("TransientToolError", mask(said(error)), wait) from error
            return Transient(
                error_type="TransientToolError", message=mask(said(error)), retry_after=wait.total_seconds()
            )
        case _:
            if call.repeatable:
                wait = jittered_backoff(call.policy.backoff, ctx.attempt)
                raise AttemptFailed(type(error).__name__, mask(said(error)), wait) from error
            return Failed(error_type=type(error).__name__, message=mask(said(error)), known=False)


def said(error: BaseException) -> str:
    """The text of an exception, whatever it was made with; half an emoji, which has no UTF-8, reads as `?`."""
    try:
        text = str(getattr(error, "message", error))
    except Exception:
        text = ""
    return text.encode(errors="replace").decode() or "no message"


def _metadata(metadata: Any) -> JsonObject:
    """What is shown beside a waiting call. It waits also where its tool gave something that cannot be shown."""
    try:
        json = pydantic_core.to_json(metadata, inf_nan_mode="strings")
        shown: Any = pydantic_core.from_json(json)
        problem = json_problem(shown)
        if not isinstance(shown, dict):
            problem = "is no object"
        elif len(json) > METADATA_BYTES:
            problem = f"has {len(json):,} bytes of JSON, and at most {METADATA_BYTES:,} fit"
    except (ValueError, TypeError, RecursionError) as error:
        shown, problem = {}, f"cannot be written as JSON: {mask(said(error))}"
    return cast(JsonObject, shown) if problem is None else {"omitted": f"The metadata that the tool gave {problem}."}


def returned(result: Any) -> CallOutcome:
    """What a result, or a `ToolReturn`, means for its call: the result as JSON, or why there is none."""
    given = result if isinstance(result, ToolReturn) else ToolReturn(return_value=result)
    try:
        outcome = Returned(
            content=_to_json(given.return_value),
            user_content=given.content,  # type: ignore[arg-type] - checked by pydantic
            metadata=_to_json(given.metadata),
        )
        # Only now is it sure that all of it, to the last nested value, can be written.
        json = outcome.to_json()
        size = len(json)
        if b'"NaN"' in json or b'Infinity"' in json:
            # They are numbers still, here, and text once this has been on the wire: text it is, on both engines.
            outcome = Returned.model_validate_json(json)
        # And read: parsers take neither numbers of 5,000 digits nor 200 levels.
        if (problem := json_problem(pydantic_core.from_json(json))) is not None:
            raise ValueError(f"it {problem}")
    except (pydantic_core.PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        kind = type(given.return_value).__name__
        problem = mask(str(error).splitlines()[0] if str(error) else type(error).__name__)
        message = f"The tool ran, but its result, a {kind}, cannot be written as JSON: {problem}"
        return Failed(error_type="UnserialisableResult", message=message)
    if size > RESULT_BYTES:
        message = (
            f"The tool ran, but its result has {size:,} bytes of JSON, and at most {RESULT_BYTES:,} fit. "
            f"Ask for less: a filter or a page."
        )
        return Failed(error_type="ResultTooLarge", message=message)
    return outcome


def _to_json(value: Any) -> Any:
    if value is None or type(value) in (str, bool, int):
        return value
    if inspect.isgenerator(value) or inspect.isasyncgen(value) or inspect.iscoroutine(value):
        raise TypeError(f"it is a {type(value).__name__}; return a list")
    return pydantic_core.to_jsonable_python(
        value, by_alias=True, bytes_mode="base64", inf_nan_mode="strings", serialize_unknown=False
    )


def _dump_deps(call: Call, ctx: RunContext[Any]) -> Any:
    if call.deps_adapter is None:
        return None
    # By the names under which they are read again, and as they will be once they have been on the wire.
    dumped = call.deps_adapter.dump_python(ctx.deps, mode="json", by_alias=True, warnings=False)
    return pydantic_core.from_json(pydantic_core.to_json(dumped, inf_nan_mode="strings"))


def _with_deps(outcome: CallOutcome, call: Call, ctx: RunContext[Any], before: Any) -> CallOutcome:
    """The outcome, with what the tool changed in `deps`; where that cannot be carried back, this is the outcome."""
    try:
        after = _dump_deps(call, ctx)
        problem = json_problem(after)
    except (ValueError, TypeError, RecursionError) as error:
        after, problem = None, f"cannot be written as JSON: {mask(said(error))}"
    if problem is None and after == before:
        return outcome
    if problem is None and not isinstance(after, dict):
        problem = "are no object, so that its changes to them cannot be carried back: make them a model or a dataclass"
    if problem is not None:
        return Failed(error_type="InvalidDeps", message=f"The tool ran, but its deps {problem}.")
    old, new = cast(JsonObject, before), cast(JsonObject, after)
    changed = {name: value for name, value in new.items() if name not in old or old[name] != value}
    return outcome.model_copy(update={"deps": changed})


def jittered_backoff(backoff_seconds: float, attempt: int) -> timedelta:
    """The wait after an attempt: doubled for each, at most a minute, and spread so that calls do not come in waves."""
    wait = min(MAX_BACKOFF_SECONDS, backoff_seconds * 2 ** min(attempt - 1, 30))
    return timedelta(seconds=wait * random.uniform(0.75, 1.25))


def mask(message: str) -> str:
    """An error's text for a model or a history: cut, and without what looks like a secret."""
    shown = _SECRET.sub(lambda match: f"{match[1]}{match[2]}***", message)
    return shown if len(shown) <= MESSAGE_CHARS else f"{shown[:MESSAGE_CHARS]}…"
