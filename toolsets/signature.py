"""What a function's signature says about the tool it makes."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any, get_args, get_origin

from outlast.toolsets.context import RunContext

__all__ = ("ToolSignature", "read_signature", "where")

_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class ToolSignature:
    """A callable, read for its use as a tool.

    Attributes:
        function: The callable itself.
        plain: The function behind it: without `functools.partial`, the `__call__` of an object.
        name: Its own name; None for a lambda.
        is_async: Calling it gives something to await.
        takes_ctx: Its first parameter is the run's context.
        parameters: What the model gives, by name, without the context.
        hints: The parameters' types; `Any` where there is none.
        returns: The type of the result; `Any` where there is none.
        problems: What is wrong, each with the line to write instead.
    """

    function: Callable[..., Any]
    plain: Callable[..., Any]
    name: str | None
    is_async: bool
    takes_ctx: bool
    parameters: dict[str, Parameter] = field(default_factory=dict[str, Parameter])
    hints: dict[str, Any] = field(default_factory=dict[str, Any])
    returns: Any = Any
    problems: list[str] = field(default_factory=list[str])


def read_signature(function: Callable[..., Any], *, takes_ctx: bool | None = None) -> ToolSignature:
    """Reads a callable; mistakes are listed in the result and not raised.

    Args:
        function: Any callable: function, method, partial, object with `__call__`.
        takes_ctx: Whether its first parameter must be the context; None finds out.
    """
    plain, bound = _plain(function)
    name = _name(function, plain)
    is_async = inspect.iscoroutinefunction(plain)
    try:
        signature = _signature(function)
    except (ValueError, TypeError) as error:
        problem = (
            f"its signature cannot be read ({error}): wrap it in a function of your own with annotated parameters."
        )
        return ToolSignature(function, plain, name, is_async, bool(takes_ctx), problems=[problem])
    problems: list[str] = []
    hints = _hints(plain, problems)
    # Arguments that a partial has fixed are its own business: offered to the model, a key or a tenant would leak.
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name not in bound]
    contexts = [p for p in parameters if _is_context(hints.get(p.name, p.annotation))]
    has_ctx = _leads(contexts, parameters)
    if takes_ctx and not has_ctx and not contexts and _is_bare_lambda(plain, parameters):
        has_ctx = True
        contexts = parameters[:1]
    problems += _context_problems(name or "tool", signature, parameters, contexts, has_ctx, takes_ctx, is_async)
    offered = {p.name: p for p in parameters if p not in contexts}
    return ToolSignature(
        function=function,
        plain=plain,
        name=name,
        is_async=is_async,
        takes_ctx=has_ctx,
        parameters=offered,
        hints={each: hints.get(each, Any) for each in offered},
        returns=hints.get("return", Any),
        problems=problems,
    )


def where(function: Callable[..., Any]) -> str:
    """Where a callable is written, for messages: " (app.py:12)", or nothing."""
    code = getattr(inspect.unwrap(_plain(function)[0]), "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if isinstance(code, types.CodeType) else ""


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except NameError:
        # Since Python 3.14 this evaluates annotations, also those with names that exist for the type checker alone.
        # What they mean is asked again, and answered with a mistake to correct, by `get_type_hints`.
        if sys.version_info < (3, 14):
            raise
        from annotationlib import Format  # pyright: ignore

        return inspect.signature(function, annotation_format=Format.FORWARDREF)  # pyright: ignore


def _plain(function: Callable[..., Any]) -> tuple[Callable[..., Any], frozenset[str]]:
    bound: frozenset[str] = frozenset()
    while isinstance(function, functools.partial):
        bound |= frozenset(function.keywords)
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type):
        return function, bound
    return getattr(function, "__call__", function), bound  # noqa: B004 # the method, not the question


def _name(function: Callable[..., Any], plain: Callable[..., Any]) -> str | None:
    while isinstance(function, functools.partial):
        function = function.func
    own = getattr(function, "__name__", None)
    if own is None:
        own = type(getattr(plain, "__self__", function)).__name__
    return None if own == "<lambda>" else own


def _hints(plain: Callable[..., Any], problems: list[str]) -> dict[str, Any]:
    annotated = plain.__init__ if isinstance(plain, type) else plain
    names: dict[str, Any] | None = None
    try:
        return typing.get_type_hints(annotated, include_extras=True)
    except NameError:
        names = _surrounding_names(annotated)
    except Exception as error:
        problems.append(f"its annotations cannot be read: {error}.")
        return {}
    try:
        return typing.get_type_hints(annotated, localns=names, include_extras=True)
    except Exception as error:
        problems.append(
            f"its annotations cannot be read: {error}. Import or define the type before the tool, at the top of its "
            "module and not only under `if TYPE_CHECKING:`."
        )
        return {}


def _surrounding_names(function: Callable[..., Any]) -> dict[str, Any] | None:
    # Under `from __future__ import annotations` a function that is defined inside another one names types which only
    # that one knows. It is still running while it registers its tools, so its variables are found on the stack.
    scopes: list[str] = getattr(function, "__qualname__", "").split(".")
    code = getattr(inspect.unwrap(function), "__code__", None)
    if "<locals>" not in scopes or code is None:
        return None
    outer = {scope for scope in scopes[:-1] if scope != "<locals>"}
    frame = inspect.currentframe()
    names: dict[str, Any] = {}
    while frame is not None:
        if frame.f_code.co_filename == code.co_filename and frame.f_code.co_name in outer:
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def _is_context(annotation: Any) -> bool:
    if get_origin(annotation) is typing.Annotated:
        annotation = get_args(annotation)[0]
    annotation = get_origin(annotation) or annotation
    return isinstance(annotation, type) and issubclass(annotation, RunContext)


def _leads(contexts: list[Parameter], parameters: list[Parameter]) -> bool:
    return (
        len(contexts) == 1
        and contexts[0] is parameters[0]
        and contexts[0].kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    )


def _is_bare_lambda(plain: Callable[..., Any], parameters: list[Parameter]) -> bool:
    # A lambda cannot be annotated, so its first parameter is taken for what it must be.
    return getattr(plain, "__name__", "") == "<lambda>" and bool(parameters) and parameters[0].kind not in _VARIADIC


def _context_problems(
    name: str,
    signature: inspect.Signature,
    parameters: list[Parameter],
    contexts: list[Parameter],
    has_ctx: bool,
    takes_ctx: bool | None,
    is_async: bool,
) -> list[str]:
    others = [p for p in parameters if p not in contexts]
    context = next((p.name for p in contexts), "ctx")
    annotation = contexts[0].annotation if contexts else RunContext
    with_ctx = _line(name, signature, [Parameter(context, _FIRST, annotation=annotation), *others], is_async)
    if takes_ctx is False and contexts:
        without = _line(name, signature, others, is_async)
        problem = (
            f"it is registered as a tool without context, but `{context}` is a RunContext. Register it with "
            f"`@agent.tool`, or leave the context out:\n    {without}"
        )
        return [problem]
    if takes_ctx and not contexts:
        first = f"its first parameter `{parameters[0].name}` is no RunContext" if parameters else "it has no parameter"
        if parameters and parameters[0].name == "ctx" and parameters[0].annotation is Parameter.empty:
            first = "its first parameter `ctx` is not annotated"
            with_ctx = _line(
                name, signature, [Parameter("ctx", _FIRST, annotation=RunContext), *parameters[1:]], is_async
            )
        problem = (
            f"it is registered as a tool with context, but {first}. Register it with `@agent.tool_plain`, or take the "
            f"context first:\n    {with_ctx}"
        )
        return [problem]
    if contexts and not has_ctx:
        number = "two contexts" if len(contexts) > 1 else f"its context `{context}` is not the first parameter"
        return [f"it has {number}: the context comes once, and first:\n    {with_ctx}".replace("it has its", "its")]
    return []


_FIRST = Parameter.POSITIONAL_OR_KEYWORD


def _line(name: str, signature: inspect.Signature, parameters: list[Parameter], is_async: bool) -> str:
    """A `def` line as somebody would write it."""
    shown: list[str] = []
    starred = False
    for parameter in parameters:
        if parameter.kind is Parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        starred = starred or parameter.kind is Parameter.VAR_POSITIONAL
        shown.append(_parameter(parameter))
    returns = signature.return_annotation
    arrow = "" if returns is inspect.Signature.empty else f" -> {_type_name(returns)}"
    return f"{'async ' if is_async else ''}def {name}({', '.join(shown)}){arrow}:"


def _parameter(parameter: Parameter) -> str:
    stars = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}"
    annotated = parameter.annotation is not Parameter.empty
    text += f": {_type_name(parameter.annotation)}" if annotated else ""
    if parameter.default is not Parameter.empty:
        text += f" = {parameter.default!r}" if annotated else f"={parameter.default!r}"
    return text


def _type_name(annotation: object) -> str:
    if isinstance(annotation, str):
        return annotation
    if get_origin(annotation) is RunContext:
        return f"RunContext[{', '.join(map(_type_name, get_args(annotation)))}]"
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__qualname__.rpartition(".")[2]
    return inspect.formatannotation(annotation)
