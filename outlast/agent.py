"""The agent: a model, its instructions, its tools, and the type of its answer."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, cast, overload

from pydantic import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, TypeAdapter
from typing_extensions import TypeVar, Unpack

from outlast.activities.output import Output
from outlast.contracts import UsageLimits
from outlast.errors import UserError
from outlast.in_process import Ended, InProcessRun, RunRequest
from outlast.messages import JsonObject, ModelMessage, ModelResponse, Usage, UserContent
from outlast.models.infer import infer_model
from outlast.models.model import Model, ModelSettings, load_settings, merge_settings
from outlast.toolsets.abstract import AbstractToolset
from outlast.toolsets.combined import CombinedToolset
from outlast.toolsets.context import DepsT, RunContext
from outlast.toolsets.deferred import DeferredToolResults
from outlast.toolsets.dynamic import DynamicToolset, ToolsetFunction
from outlast.toolsets.function import FunctionToolset
from outlast.toolsets.prepared import PreparedToolset
from outlast.toolsets.settings import ToolOptions, ToolSettings
from outlast.toolsets.tool import Tool

OutputT = TypeVar("OutputT", default=str)
F = TypeVar("F", bound=Callable[..., Any])

Instructions: TypeAlias = str | Callable[..., str | Awaitable[str | None] | None]
Toolset: TypeAlias = AbstractToolset[Any] | ToolsetFunction


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


@dataclass(frozen=True, kw_only=True)
class _Override:
    model: Model | None = None
    toolsets: Sequence[Toolset] | None = None
    tools: Sequence[Tool | Callable[..., Any]] | None = None
    deps: Any = None
    has_deps: bool = False


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
        output_type: Any = str,
        instructions: Instructions | Sequence[Instructions] | None = None,
        deps_type: type[DepsT] | None = None,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        toolsets: Sequence[Toolset] | None = None,
        prepare_tools: Callable[..., Any] | None = None,
        model_settings: ModelSettings | None = None,
        model_attempts: int = 5,
        output_retries: int = 1,
        **options: Unpack[ToolOptions],
    ) -> None:
        if name is not None and (not name.strip() or ":" in name):
            raise UserError(f"An agent's name is not empty and has no colon, got {name!r}: write name='support'.")
        if model_attempts < 1:
            raise UserError(
                f"`model_attempts` is a whole number from 1, got {model_attempts!r}: 1 means no second try."
            )
        if output_retries < 0:
            raise UserError(f"`output_retries` is a whole number from 0, got {output_retries!r}.")
        self.name = name
        self.model = infer_model(model) if model is not None else None
        self.deps_type = deps_type
        self.output_type = output_type
        self.output = Output(output_type)
        self.tool_settings = ToolSettings.of(options)
        self.model_attempts = model_attempts
        self.output_retries = output_retries
        self._model_settings = load_settings(model_settings)
        self._prepare_tools = prepare_tools
        self._instructions: list[Instructions] = (
            []
            if instructions is None
            else [instructions]
            if isinstance(instructions, str) or callable(instructions)
            else list(instructions)
        )
        self._function_toolset: FunctionToolset[DepsT] = FunctionToolset(tools=list(tools), id=name)
        self._toolsets = [_toolset(toolset) for toolset in toolsets or ()]
        self._combined: AbstractToolset[DepsT] | None = None
        self._deps_adapter: TypeAdapter[Any] | None = None
        self._override: ContextVar[_Override | None] = ContextVar(f"outlast override {name or id(self)}", default=None)

    def __repr__(self) -> str:
        return f"Agent(name={self.name!r})"

    # --- building ------------------------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, /, **options: Any) -> Callable[[F], F]: ...
    def tool(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Makes a tool of a function whose first parameter is the `RunContext`.

        Args:
            function: The function, where the decorator is used without options.
            **options: `name`, `description`, `docstring_format`, `require_parameter_descriptions` and all settings of
                a tool; see `Tool` and `ToolSettings`.
        """
        return self._register(function, takes_ctx=True, options=options)

    @overload
    def tool_plain(self, function: F, /) -> F: ...
    @overload
    def tool_plain(self, /, **options: Any) -> Callable[[F], F]: ...
    def tool_plain(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Makes a tool of a function that takes no `RunContext`; options as for `tool`."""
        return self._register(function, takes_ctx=False, options=options)

    def _register(self, function: F | None, *, takes_ctx: bool, options: dict[str, Any]) -> F | Callable[[F], F]:
        def register(decorated: F) -> F:
            self._function_toolset.add_tool(Tool(decorated, takes_ctx=takes_ctx, **options))
            return decorated

        return register if function is None else register(function)

    def toolset(
        self, function: ToolsetFunction | None = None, /, *, per_run_step: bool = True, id: str | None = None
    ) -> Any:
        """Makes a toolset of a function of the run's context, called before each step, or once per run."""

        def register(decorated: ToolsetFunction) -> ToolsetFunction:
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
        **deps: Any,
    ) -> Generator[None]:
        """Replaces parts of the agent inside the block, whatever a run is given.

        Args:
            model: Used instead of any other model.
            toolsets: Used instead of the agent's and the run's toolsets.
            tools: Used instead of the agent's own tools.
            **deps: `deps=…`, used instead of the run's deps.
        """
        if unknown := deps.keys() - {"deps"}:
            raise UserError(f"override takes model, toolsets, tools and deps, got {', '.join(sorted(unknown))}.")
        token = self._override.set(
            _Override(
                model=infer_model(model) if model is not None else None,
                toolsets=toolsets,
                tools=tools,
                deps=deps.get("deps"),
                has_deps="deps" in deps,
            )
        )
        try:
            yield
        finally:
            self._override.reset(token)

    # --- running in this process ---------------------------------------------------------------------------------

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
        override = self._override.get() or _Override()
        runnable = RunnableAgent(
            self,
            model=infer_model(model) if model is not None else None,
            output=None if output_type is None else self._other_output(output_type),
        )
        request = RunRequest(
            prompt=prompt,
            deps=override.deps if override.has_deps else deps,
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

    def run_sync(self, prompt: str | Sequence[UserContent] | None = None, **options: Any) -> AgentRunResult[Any]:
        """Like `run`, for code that is not async."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return _runner().run(self.run(prompt, **options), context=contextvars.copy_context())
        raise UserError("run_sync was called while an event loop is running here: write `await agent.run(…)`.")

    # --- what the engines need -----------------------------------------------------------------------------------

    def combined_toolset(self, extra: Sequence[Toolset] = ()) -> AbstractToolset[DepsT]:
        """All toolsets of the agent, and those of one run, in one."""
        override = self._override.get() or _Override()
        if override.toolsets is None and override.tools is None and not extra:
            if self._combined is None:
                self._combined = self._combine([self._function_toolset, *self._toolsets])
            return self._combined
        own = self._function_toolset
        if override.tools is not None:
            own = FunctionToolset(tools=list(override.tools), id=self.name)
        others = self._toolsets + [_toolset(toolset) for toolset in extra]
        if override.toolsets is not None:
            others = [_toolset(toolset) for toolset in override.toolsets]
        return self._combine([own, *others] if override.toolsets is None or override.tools is not None else others)

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
        override = self._override.get() or _Override()
        chosen = override.model or model or self.model
        if chosen is None:
            raise UserError(f"{self!r} has no model: write Agent('openai:gpt-4o', …), or give model=… when running.")
        return chosen

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


class RunnableAgent:
    """An agent as an engine sees it: what `AgentSpec` asks for, with what one run replaces."""

    def __init__(self, agent: Agent[Any, Any], *, model: Model | None = None, output: Output | None = None) -> None:
        self.agent = agent
        self._model = model
        self._output = output

    @property
    def name(self) -> str | None:
        """What runs are started with."""
        return self.agent.name

    @property
    def toolset(self) -> AbstractToolset[Any]:
        """All of the agent's toolsets in one."""
        return self.agent.combined_toolset()

    @property
    def output(self) -> Output:
        """What a run may end with."""
        return self._output or self.agent.output

    @property
    def tool_settings(self) -> ToolSettings:
        """What holds for every tool whose own settings and toolset do not say otherwise."""
        return self.agent.tool_settings

    @property
    def model_attempts(self) -> int:
        """Most attempts at one model request."""
        return self.agent.model_attempts

    @property
    def output_retries(self) -> int:
        """How often the model may give an invalid output."""
        return self.agent.output_retries

    @property
    def deps_adapter(self) -> TypeAdapter[Any] | None:
        """Reads and writes the deps of durable runs; None where there is no `deps_type`."""
        return self.agent.deps_adapter

    def model_for(self, override: str | None) -> Model:
        """The model of a run: the agent's own, or the one that the run names."""
        return self.agent.model_for_run(infer_model(override) if override is not None else self._model)

    def settings_for(self, override: Mapping[str, Any] | None) -> ModelSettings:
        """The model settings of a run: the agent's own, and single ones that the run overrides."""
        return merge_settings(self.agent.model_settings, load_settings(override))

    async def instructions_for(self, ctx: RunContext[Any]) -> str | None:
        """The agent's instructions for one step."""
        return await self.agent.render_instructions(ctx)


def _toolset(toolset: Toolset) -> AbstractToolset[Any]:
    if isinstance(toolset, AbstractToolset):
        return cast("AbstractToolset[Any]", toolset)
    if callable(toolset):
        return DynamicToolset[Any](toolset)
    raise UserError(
        f"A toolset is an AbstractToolset, or a function of the run's context that returns one: {toolset!r}."
    )


def _type_name(some_type: Any) -> str:
    return getattr(some_type, "__name__", None) or str(some_type)


_runners = threading.local()


def _runner() -> asyncio.Runner:
    # One loop for all runs of a thread: a provider's client keeps connections that belong to the loop it met first.
    if not hasattr(_runners, "runner"):
        _runners.runner = asyncio.Runner()
    return _runners.runner
