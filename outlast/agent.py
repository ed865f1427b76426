"""The agent: a model, its instructions, its tools, and the type of its answer."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, cast, overload

from pydantic import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, TypeAdapter
from typing_extensions import TypedDict, TypeVar, Unpack

from outlast.activities.output import Output
from outlast.contracts import UsageLimits
from outlast.errors import UserError
from outlast.in_process import Ended, InProcessRun, RunRequest
from outlast.messages import JsonObject, ModelMessage, ModelResponse, Usage, UserContent
from outlast.models.infer import infer_model
from outlast.models.model import Model, ModelSettings, load_settings
from outlast.runnable import RunnableAgent
from outlast.toolsets.abstract import AbstractToolset
from outlast.toolsets.combined import CombinedToolset
from outlast.toolsets.context import DepsT, RunContext
from outlast.toolsets.deferred import DeferredToolResults
from outlast.toolsets.dynamic import DynamicToolset, ToolsetFunction
from outlast.toolsets.function import FunctionToolset
from outlast.toolsets.mistakes import DefinitionError
from outlast.toolsets.prepared import PreparedToolset
from outlast.toolsets.settings import NOTHING_SET, ToolOptions, ToolSettings
from outlast.toolsets.tool import DefinitionOptions, Tool

OutputT = TypeVar("OutputT", default=str)
RunOutputT = TypeVar("RunOutputT")
T = TypeVar("T")
D = TypeVar("D")
F = TypeVar("F", bound=Callable[..., Any])
ToolsetF = TypeVar("ToolsetF", bound=ToolsetFunction)
P = ParamSpec("P")
R = TypeVar("R")

Instructions: TypeAlias = str | Callable[..., str | Awaitable[str | None] | None]
Toolset: TypeAlias = AbstractToolset[Any] | ToolsetFunction
OutputSpec: TypeAlias = type[T] | Sequence[type[T]]
ContextTool: TypeAlias = Callable[Concatenate[RunContext[D], P], R]

_NOT_GIVEN: Any = object()
_TEXT: Any = str


@dataclass(frozen=True, kw_only=True)
class AgentRunResult(Generic[OutputT]):
    """What an in-process run ended with.

    Attributes:
        output: The agent's answer, or `DeferredToolRequests`.
        usage: Cost of the run.
    """

    output: OutputT
    usage: Usage
    _messages: list[ModelMessage]
    _history: int

    def all_messages(self) -> list[ModelMessage]:
        """The whole conversation, with what the run was started with."""
        return list(self._messages)

    def new_messages(self) -> list[ModelMessage]:
        """The messages that this run added."""
        return self._messages[self._history :]

    @property
    def response(self) -> ModelResponse:
        """The model's last response."""
        return next(message for message in reversed(self._messages) if isinstance(message, ModelResponse))


class RunOptions(TypedDict, Generic[DepsT], total=False):
    """What one run may be given besides its prompt and its output type; see `Agent.run`."""

    message_history: Sequence[ModelMessage] | None
    deferred_tool_results: DeferredToolResults | None
    model: Model | str | None
    deps: DepsT | None
    model_settings: ModelSettings | None
    usage_limits: UsageLimits | None
    toolsets: Sequence[Toolset] | None
    metadata: JsonObject | None
    resources: Any


@dataclass(frozen=True, kw_only=True)
class _Override:
    model: Model | None = None
    toolsets: Sequence[AbstractToolset[Any]] | None = None
    tools: Sequence[Tool | Callable[..., Any]] | None = None
    deps: Any = _NOT_GIVEN


class Agent(Generic[DepsT, OutputT]):
    """A model with instructions and tools.

    The same agent runs in this process (`run`, `run_sync`) and, given a `name`, durably on a Temporal worker.

    Args:
        model: A model, or its name such as `openai:gpt-4o`. May be left out and given when running.
        name: What durable runs are started with; unique on its task queue.
        output_type: `str`, a type, or a list of types.
        instructions: Text, or functions of the run's context, sent with every request and never stored.
        deps_type: What runs are started with; durably it must be something that pydantic can write as JSON.
        tools: Functions, or `Tool`s.
        toolsets: Toolsets, or functions of the run's context that return one.
        prepare_tools: Changes or hides tool definitions before each step.
        model_settings: For every request.
        model_attempts: Most attempts at one request, for 429, 5xx, broken connections and the like.
        output_retries: How often the model may give an invalid output.
        **options: Defaults for the settings of all tools; see `ToolSettings`.

    Raises:
        UserError: Something does not fit; the message lists all that does not.
    """

    def __init__(
        self,
        model: Model | str | None = None,
        *,
        name: str | None = None,
        output_type: OutputSpec[OutputT] = _TEXT,
        instructions: Instructions | Sequence[Instructions] | None = None,
        deps_type: type[DepsT] | None = None,
        tools: Sequence[Tool[DepsT] | Callable[..., Any]] = (),
        toolsets: Sequence[Toolset] | None = None,
        prepare_tools: Callable[..., Any] | None = None,
        model_settings: ModelSettings | None = None,
        model_attempts: int = 5,
        output_retries: int = 1,
        **options: Unpack[ToolOptions],
    ) -> None:
        check = _Check()
        check.that(name is None or _is_name(name), f"a name is text without a colon, got {name!r}: name='support'.")
        for what, count, least in (("model_attempts", model_attempts, 1), ("output_retries", output_retries, 0)):
            fits = type(count) is int and count >= least
            check.that(fits, f"`{what}` is a whole number from {least}, got {count!r}.")
        check.that(deps_type is None or not _is_plain_value(deps_type), _no_type("deps_type", deps_type))
        check.that(
            prepare_tools is None or callable(prepare_tools),
            f"`prepare_tools` is a function of (ctx, tool_defs), got {prepare_tools!r}.",
        )
        self.name = name
        self.deps_type = deps_type
        self.output_type = output_type
        self.model_attempts = model_attempts
        self.output_retries = output_retries
        self.model = check.made(lambda: infer_model(model) if model is not None else None, None)
        self.output = check.made(lambda: Output(output_type), None) or Output()
        self.tool_settings = check.made(lambda: ToolSettings.of(options), NOTHING_SET)
        self._model_settings = check.made(lambda: load_settings(model_settings), ModelSettings())
        self._prepare_tools = prepare_tools
        self._instructions = [*check.each("instructions", _listed(instructions), _instructions)]
        self._function_toolset: FunctionToolset[DepsT] = FunctionToolset(id=name if isinstance(name, str) else None)
        for _ in check.each("tools", tools, self._add_tool):
            pass
        self._toolsets = [*check.each("toolsets", toolsets or (), _toolset)]
        self._combined: AbstractToolset[DepsT] | None = None
        self._deps_adapter: TypeAdapter[Any] | None = None
        self._override: ContextVar[_Override | None] = ContextVar(f"outlast override {name or id(self)}", default=None)
        check.done(f"Agent {name!r}" if name else "Agent")

    def __repr__(self) -> str:
        return f"Agent(name={self.name!r})"

    # --- building ------------------------------------------------------------------------------------------------

    @overload
    def tool(self, function: ContextTool[DepsT, P, R], /) -> ContextTool[DepsT, P, R]: ...
    @overload
    def tool(
        self, /, **options: Unpack[DefinitionOptions]
    ) -> Callable[[ContextTool[DepsT, P, R]], ContextTool[DepsT, P, R]]: ...
    def tool(self, function: Any = None, /, **options: Any) -> Any:
        """Makes a tool of a function whose first parameter is the `RunContext`.

        Args:
            function: The function, where the decorator is used without options.
            **options: `name`, `description`, `docstring_format`, `require_parameter_descriptions` and all settings of
                a tool; see `Tool` and `ToolSettings`.

        Raises:
            UserError: The definition has mistakes, or the name is there already.
        """
        return self._register(function, takes_ctx=True, options=options)

    @overload
    def tool_plain(self, function: F, /) -> F: ...
    @overload
    def tool_plain(self, /, **options: Unpack[DefinitionOptions]) -> Callable[[F], F]: ...
    def tool_plain(self, function: Any = None, /, **options: Any) -> Any:
        """Makes a tool of a function that takes no `RunContext`; options as for `tool`."""
        return self._register(function, takes_ctx=False, options=options)

    def _register(self, function: Any, *, takes_ctx: bool, options: dict[str, Any]) -> Any:
        def register(decorated: Any) -> Any:
            self._add_tool(Tool[DepsT](decorated, **cast("Any", {"takes_ctx": takes_ctx, **options})))
            return decorated

        return register if function is None else register(function)

    def _add_tool(self, tool: Tool[DepsT] | Callable[..., Any]) -> None:
        made = cast("Tool[DepsT]", tool) if isinstance(tool, Tool) else Tool[DepsT](tool)
        # Now, and not in the first run: what the agent sets for all tools may contradict what this one sets.
        made.settings.under(self.tool_settings)
        self._function_toolset.add_tool(made)

    @overload
    def toolset(self, function: ToolsetF, /) -> ToolsetF: ...
    @overload
    def toolset(self, /, *, per_run_step: bool = True, id: str | None = None) -> Callable[[ToolsetF], ToolsetF]: ...
    def toolset(self, function: Any = None, /, *, per_run_step: bool = True, id: str | None = None) -> Any:
        """Makes a toolset of a function of the run's context, called before each step, or once per run."""

        def register(decorated: ToolsetF) -> ToolsetF:
            self._toolsets.append(DynamicToolset(decorated, per_run_step=per_run_step, id=id))
            self._combined = None
            return decorated

        return register if function is None else register(function)

    def instructions(self, function: F) -> F:
        """Adds the text that a function returns to the instructions; it may take the run's context."""
        self._instructions.append(function)
        return function

    def output_validator(self, function: F) -> F:
        """Adds a check of the output, called as `(ctx, output)` or `(output)`; `ModelRetry` refuses it.

        The validator must be free of effects: it may run more than once.
        """
        self.output.validators.append(function)
        return function

    @contextmanager
    def override(
        self,
        *,
        model: Model | str | None = None,
        toolsets: Sequence[Toolset] | None = None,
        tools: Sequence[Tool | Callable[..., Any]] | None = None,
        deps: Any = _NOT_GIVEN,
    ) -> Generator[None]:
        """Replaces parts of the agent inside the block, whatever a run is given.

        Blocks may be nested: an inner one keeps what it does not replace. A worker that is started inside the block
        runs the agent so for as long as it lives.

        Args:
            model: Used instead of any other model.
            toolsets: Used instead of the agent's and the run's toolsets.
            tools: Used instead of the agent's own tools.
            deps: Used instead of the run's deps.
        """
        changes: dict[str, Any] = {"deps": deps} if deps is not _NOT_GIVEN else {}
        if model is not None:
            changes["model"] = infer_model(model)
        if toolsets is not None:
            changes["toolsets"] = [_toolset(toolset) for toolset in toolsets]
        if tools is not None:
            changes["tools"] = list(tools)
        token = self._override.set(replace(self._overridden, **changes))
        try:
            yield
        finally:
            self._override.reset(token)

    @property
    def _overridden(self) -> _Override:
        return self._override.get() or _Override()

    # --- running in this process ---------------------------------------------------------------------------------

    @overload
    async def run(
        self,
        prompt: str | Sequence[UserContent] | None = None,
        *,
        output_type: None = None,
        **options: Unpack[RunOptions[DepsT]],
    ) -> AgentRunResult[OutputT]: ...
    @overload
    async def run(
        self,
        prompt: str | Sequence[UserContent] | None = None,
        *,
        output_type: OutputSpec[RunOutputT],
        **options: Unpack[RunOptions[DepsT]],
    ) -> AgentRunResult[RunOutputT]: ...
    async def run(
        self,
        prompt: str | Sequence[UserContent] | None = None,
        *,
        output_type: Any = None,
        message_history: Sequence[ModelMessage] | None = None,
        deferred_tool_results: DeferredToolResults | None = None,
        model: Model | str | None = None,
        deps: DepsT | None = None,
        model_settings: ModelSettings | None = None,
        usage_limits: UsageLimits | None = None,
        toolsets: Sequence[Toolset] | None = None,
        metadata: JsonObject | None = None,
        resources: Any = None,
    ) -> AgentRunResult[Any]:
        """Run in this process, without a server: for tests, notebooks and scripts.

        Args:
            prompt: What the user says; None to go on from `message_history`.
            output_type: Instead of the agent's.
            message_history: Earlier messages to go on from.
            deferred_tool_results: Answers to the calls that waited when the history ended.
            model: Instead of the agent's.
            deps: A live object; the tools see this very object.
            model_settings: Override single settings of the agent.
            usage_limits: Limits of this run.
            toolsets: Besides the agent's.
            metadata: Reaches tools as `ctx.metadata`, and is never sent to the model.
            resources: Reaches tools as `ctx.resources`.

        Raises:
            RunError: The run ended without an output.
            UserError: Something does not fit, or calls wait and the output types do not allow it.
        """
        runnable = RunnableAgent(
            self,
            model=infer_model(model) if model is not None else None,
            output=None if output_type is None else self._other_output(output_type),
        )
        request = RunRequest(
            prompt=prompt,
            deps=self.deps_for_run(lambda: deps),
            message_history=list(message_history or ()),
            deferred_tool_results=deferred_tool_results,
            model_settings=load_settings(model_settings) if model_settings else None,
            usage_limits=usage_limits or UsageLimits(),
            metadata=metadata or {},
            resources=resources,
        )
        ended: Ended = await InProcessRun(runnable, self.combined_toolset(toolsets or ()), request).run()
        return AgentRunResult(
            output=ended.output, usage=ended.usage, _messages=ended.messages, _history=len(request.message_history)
        )

    @overload
    def run_sync(
        self,
        prompt: str | Sequence[UserContent] | None = None,
        *,
        output_type: None = None,
        **options: Unpack[RunOptions[DepsT]],
    ) -> AgentRunResult[OutputT]: ...
    @overload
    def run_sync(
        self,
        prompt: str | Sequence[UserContent] | None = None,
        *,
        output_type: OutputSpec[RunOutputT],
        **options: Unpack[RunOptions[DepsT]],
    ) -> AgentRunResult[RunOutputT]: ...
    def run_sync(self, prompt: str | Sequence[UserContent] | None = None, **options: Any) -> AgentRunResult[Any]:
        """Like `run`, for code that is not async.

        Raises:
            UserError: An event loop is running here already.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return _runner().run(self.run(prompt, **options), context=contextvars.copy_context())
        raise UserError("run_sync was called while an event loop is running here: write `await agent.run(…)`.")

    # --- what the engines need -----------------------------------------------------------------------------------

    def combined_toolset(self, extra: Sequence[Toolset] = ()) -> AbstractToolset[DepsT]:
        """All toolsets of the agent, and those of one run, in one."""
        override = self._overridden
        if override.toolsets is None and override.tools is None and not extra:
            if self._combined is None:
                self._combined = self._combine([self._function_toolset, *self._toolsets])
            return self._combined
        own: AbstractToolset[Any] = self._function_toolset
        others = [*self._toolsets, *map(_toolset, extra)]
        if override.tools is not None:
            own = FunctionToolset(tools=override.tools, id=self.name)
        if override.toolsets is not None:
            others = list(override.toolsets)
        return self._combine(others if override.toolsets is not None and override.tools is None else [own, *others])

    def _combine(self, toolsets: list[AbstractToolset[Any]]) -> AbstractToolset[Any]:
        combined: AbstractToolset[Any] = CombinedToolset(toolsets)
        return combined if self._prepare_tools is None else PreparedToolset(combined, self._prepare_tools)

    def _other_output(self, output_type: Any) -> Output:
        output = Output(output_type)
        output.validators = self.output.validators
        return output

    def model_for_run(self, model: Model | None = None) -> Model:
        """The model of one run: that of `override`, else the given one, else the agent's own.

        Raises:
            UserError: There is none.
        """
        chosen = self._overridden.model or model or self.model
        if chosen is None:
            raise UserError(f"{self!r} has no model: write Agent('openai:gpt-4o', …), or give model=… when running.")
        return chosen

    def deps_for_run(self, given: Callable[[], Any]) -> Any:
        """The deps of one run: those of `override`, else the given ones."""
        overridden = self._overridden.deps
        return given() if overridden is _NOT_GIVEN else overridden

    @property
    def deps_adapter(self) -> TypeAdapter[Any] | None:
        """Reads and writes the deps of durable runs.

        Raises:
            UserError: pydantic cannot write the `deps_type` as JSON.
        """
        if self.deps_type is None or self.deps_type is type(None):
            return None
        if self._deps_adapter is None:
            try:
                self._deps_adapter = TypeAdapter(self.deps_type)
                self._deps_adapter.json_schema(mode="serialization")
            except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, ValueError, TypeError) as error:
                self._deps_adapter = None
                raise UserError(
                    f"The deps of {self!r} cannot live in a durable run: {_type_name(self.deps_type)} has no JSON "
                    f"({str(error).splitlines()[0]}). Keep plain data in deps (a dataclass, a pydantic model); "
                    f"connections and clients belong to the worker, as `resources`, and reach tools as `ctx.resources`."
                ) from None
        return self._deps_adapter

    def durable(self) -> RunnableAgent:
        """The agent as a worker hosts it.

        Raises:
            UserError: It has no name, or its deps cannot be written as JSON.
        """
        if self.name is None:
            raise UserError(
                "A durable agent needs a name, which runs are started with: write Agent(…, name='support')."
            )
        _ = self.deps_adapter
        return RunnableAgent(self)

    async def render_instructions(self, ctx: RunContext[DepsT]) -> str | None:
        """The instructions for one step."""
        rendered: list[str] = []
        for instructions in self._instructions:
            if isinstance(instructions, str):
                rendered.append(instructions)
                continue
            text = instructions(ctx) if inspect.signature(instructions).parameters else instructions()
            if inspect.isawaitable(text):
                text = await text
            if text:
                rendered.append(text)
        return "\n\n".join(rendered) or None

    @property
    def model_settings(self) -> ModelSettings:
        """The settings of every request."""
        return self._model_settings


class _Check:
    """Collects what is wrong with an agent, so that it is all said at once."""

    def __init__(self) -> None:
        self._problems: list[str] = []

    def that(self, fits: bool, problem: str) -> None:
        if not fits:
            self._problems.append(problem)

    def made(self, make: Callable[[], T], otherwise: T) -> T:
        try:
            return make()
        except UserError as error:
            self._problems.append(error.message)
            return otherwise

    def each(self, name: str, given: Any, make: Callable[[Any], R]) -> Generator[R]:
        if isinstance(given, str) or not isinstance(given, Sequence):
            self._problems.append(f"`{name}` is a list, got {given!r}: write {name}=[…].")
            return
        for one in cast("Sequence[Any]", given):
            try:
                yield make(one)
            except UserError as error:
                self._problems.append(error.message)

    def done(self, what: str) -> None:
        if self._problems:
            raise DefinitionError(what, self._problems)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and bool(name.strip()) and ":" not in name


def _is_plain_value(deps_type: object) -> bool:
    """An object where a type is wanted. Whatever may stand for a type in an annotation passes."""
    return isinstance(deps_type, str | bytes | int | float | list | dict | tuple) or (
        not isinstance(deps_type, type) and type(deps_type).__module__ not in ("typing", "types", "typing_extensions")
    )


def _no_type(name: str, value: object) -> str:
    return f"`{name}` is a type, got {value!r}: write {name}={type(value).__name__}."


def _listed(instructions: Any) -> Any:
    if instructions is None:
        return ()
    return [instructions] if isinstance(instructions, str) or callable(instructions) else instructions


def _instructions(instructions: Instructions) -> Instructions:
    if isinstance(instructions, str) or callable(instructions):
        return instructions
    raise UserError(f"instructions are text, or functions of the run's context that return it, got {instructions!r}.")


def _toolset(toolset: Toolset) -> AbstractToolset[Any]:
    if isinstance(toolset, AbstractToolset):
        return cast("AbstractToolset[Any]", toolset)
    if callable(toolset):
        return DynamicToolset[Any](toolset)
    raise UserError(
        f"a toolset is an AbstractToolset, or a function of the run's context that returns one, got {toolset!r}."
    )


def _type_name(some_type: Any) -> str:
    return getattr(some_type, "__name__", None) or str(some_type)


_runners = threading.local()


def _runner() -> asyncio.Runner:
    # One loop for all runs of a thread: a provider's client keeps connections that belong to the loop it met first.
    if not hasattr(_runners, "runner"):
        _runners.runner = asyncio.Runner()
    return _runners.runner
