"""Models behind the chat completions of OpenAI, DeepSeek and servers like theirs."""

from __future__ import annotations

import asyncio
import math
import os
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import anyio
from pydantic import ValidationError
from typing_extensions import override

from outlast.errors import ProviderError, UserError
from outlast.messages import JsonObject, ModelMessage, ModelResponse
from outlast.models.chat import Completion, chat_messages, chat_name, chat_tool, to_model_response
from outlast.models.model import Model, ModelRequestParameters, ModelSettings

if TYPE_CHECKING:
    import openai

__all__ = ("BASE_URLS", "DEFAULT_TIMEOUT_SECONDS", "OpenAIModel")

BASE_URLS = {
    "openai": "https://api.openai.com/v1",
    "deepseek": "https://api.deepseek.com/v1",
}
"""The public address of each provider that is known by its name alone."""

DEFAULT_TIMEOUT_SECONDS = 540.0
"""For a whole request: below the 10 minutes after which Temporal would give the activity up."""

_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "parallel_tool_calls": "parallel_tool_calls",
    "seed": "seed",
    "stop_sequences": "stop",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "logit_bias": "logit_bias",
}

_RETRYABLE = {408, 409, 425, 429}
# No waiting refills an account.
_EXHAUSTED = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}

_MAX_MESSAGE_CHARS = 300


class OpenAIModel(Model):
    """A model behind an OpenAI-compatible chat completions API.

    Nothing is imported or looked up before the first request, so an agent can be defined without a key. The SDK
    makes no retries: they belong to the caller, which on Temporal keeps them over crashes.

    Args:
        model_name: As the provider calls it.
        provider_name: `openai`, `deepseek`, or any name for another server; it names the environment variables
            `<PROVIDER>_API_KEY` and `<PROVIDER>_BASE_URL`.
        base_url: Address of the API, up to and with its `/v1`; by default from the environment, then the
            provider's public one.
        api_key: By default from the environment.
        client: An `openai.AsyncOpenAI` to use instead; then address and key are its own. It lives as long as its
            event loop.
    """

    def __init__(
        self,
        model_name: str,
        *,
        provider_name: str = "openai",
        base_url: str | None = None,
        api_key: str | None = None,
        client: openai.AsyncOpenAI | None = None,
    ) -> None:
        self._model_name = model_name
        self._provider_name = provider_name
        self._base_url = base_url
        self._api_key = api_key
        self._given = None if client is None else client.with_options(max_retries=0)
        # A pool of connections belongs to one event loop, and each `run_sync` may bring another.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, openai.AsyncOpenAI] = WeakKeyDictionary()

    @property
    @override
    def model_name(self) -> str:
        return self._model_name

    @property
    @override
    def system(self) -> str:
        return self._provider_name

    @override
    async def request(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        settings = settings or {}
        body = self.request_body(messages, settings, parameters)
        client = self._client()
        timeout = settings.get("timeout", DEFAULT_TIMEOUT_SECONDS)
        with self._provider_errors(timeout):
            # The SDK's timeout counts from byte to byte, and a busy DeepSeek sends blank lines to keep alive.
            with anyio.fail_after(timeout):
                create = cast(Any, client.chat.completions.with_raw_response.create)
                answer = await create(**body, timeout=timeout, extra_headers=settings.get("extra_headers"))
            return self._response(answer.text, answer.headers, parameters)

    def request_body(
        self, messages: list[ModelMessage], settings: ModelSettings, parameters: ModelRequestParameters
    ) -> JsonObject:
        """The JSON that is sent, but for `extra_body`'s place in it: it is merged last.

        Raises:
            UserError: A prompt holds content that this format cannot carry.
        """
        body: JsonObject = {
            "model": self._model_name,
            "messages": chat_messages(
                messages, instructions=parameters.instructions, provider_name=self._provider_name
            ),
        }
        given = cast(JsonObject, settings)
        body.update({field: given[name] for name, field in _SETTINGS.items() if given.get(name) is not None})
        if "max_tokens" in settings:
            # OpenAI's newer models refuse the older name; other servers know only that one.
            body["max_completion_tokens" if self._is_openai() else "max_tokens"] = settings["max_tokens"]
        if tools := [chat_tool(tool) for tool in (*parameters.function_tools, *parameters.output_tools)]:
            body["tools"] = tools
            if choice := settings.get("tool_choice", None if parameters.allow_text_output else "required"):
                named = {"type": "function", "function": {"name": chat_name(choice)}}
                body["tool_choice"] = choice if choice in ("auto", "required", "none") else named
        else:
            body.pop("parallel_tool_calls", None)
        if extra := settings.get("extra_body"):
            body["extra_body"] = extra
        return body

    def _is_openai(self) -> bool:
        return self._provider_name == "openai" and (self._given is not None or self._address() == BASE_URLS["openai"])

    def _address(self) -> str | None:
        variable = _variable(self._provider_name, "BASE_URL")
        return self._base_url or os.environ.get(variable) or BASE_URLS.get(self._provider_name)

    def _client(self) -> openai.AsyncOpenAI:
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = self._new_client()
        return client

    @override
    def check_setup(self) -> None:
        if self._given is None:
            self._new_client()

    def _new_client(self) -> openai.AsyncOpenAI:
        try:
            import openai
        except ImportError as error:
            raise UserError(
                f"The model {self._provider_name}:{self._model_name} needs the package `openai`, which is not "
                'installed. Install it with: pip install "outlast[openai]"'
            ) from error
        base_url = self._address()
        if base_url is None:
            raise UserError(
                f"No address is known for the provider {self._provider_name!r}: give OpenAIModel(base_url=…), or set "
                f"{_variable(self._provider_name, 'BASE_URL')}. Known without: {', '.join(sorted(BASE_URLS))}."
            )
        variable = _variable(self._provider_name, "API_KEY")
        # A key that is read from a file often ends with a line break, which no header may hold.
        api_key = (self._api_key or os.environ.get(variable) or "").strip()
        if not api_key:
            raise UserError(
                f"No API key for {self._provider_name}:{self._model_name}: set the environment variable {variable}, "
                "or give OpenAIModel(api_key=…); any text will do for a server that asks for none. "
                "To try things without a key, use the model 'test' or 'offline'."
            )
        return openai.AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0)

    # --- failures ------------------------------------------------------------------------------------------------

    @contextmanager
    def _provider_errors(self, timeout: float) -> Generator[None]:
        """Turns what the SDK raises into a `ProviderError`."""
        import openai

        try:
            yield
        except (openai.APITimeoutError, TimeoutError) as error:
            raise self._error(f"gave no answer within {timeout:g} seconds", retryable=True) from error
        except openai.APIStatusError as error:
            raise self._status_error(error.status_code, error.body, error.response.headers) from error
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            detail = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
            raise self._error("could not be reached, or broke the connection", detail, retryable=True) from error
        except openai.OpenAIError as error:
            raise self._error("could not be asked", str(error), retryable=False) from error

    def _status_error(self, status: int, body: object, headers: Mapping[str, str]) -> ProviderError:
        error = _error_object(body)
        retryable = status in _RETRYABLE or status >= 500
        match headers.get("x-should-retry"):
            case "true":
                retryable = True
            case "false":
                retryable = False
            case _:
                pass
        if {str(error.get("code")), str(error.get("type"))} & _EXHAUSTED:
            retryable = False
        detail = error.get("message") or (body if isinstance(body, str) else "")
        return self._error(
            f"answered with status {status}",
            str(detail),
            retryable=retryable,
            retry_after=retry_after_seconds(headers),
            status_code=status,
        )

    def _response(self, text: str, headers: Mapping[str, str], parameters: ModelRequestParameters) -> ModelResponse:
        try:
            completion = Completion.model_validate_json(text)
        except ValidationError as error:
            # A web page instead of JSON is a wrong address; broken JSON is an answer that was cut off.
            content_type = headers.get("content-type", "")
            if "json" not in content_type:
                raise self._error(
                    f"answered with {content_type or 'no content type'} instead of JSON; is its base_url right, "
                    "up to and with /v1?",
                    retryable=False,
                    status_code=200,
                ) from error
            first = error.errors(include_input=False, include_url=False)[0]
            detail = f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}"
            raise self._error(
                "answered with JSON that is no chat completion", detail, retryable=True, status_code=200
            ) from error
        if not completion.choices:
            if completion.error:
                code = _error_object(completion.error).get("code")
                raise self._status_error(code if isinstance(code, int) else 500, completion.error, headers)
            raise self._error("answered without any choice", retryable=True, status_code=200)
        choice = completion.choices[0]
        if choice.finish_reason == "insufficient_system_resource":  # DeepSeek, when it is overloaded half-way.
            raise self._error("stopped half-way for lack of resources", retryable=True, status_code=200)
        tools = (*parameters.function_tools, *parameters.output_tools)
        response = to_model_response(completion, choice, provider_name=self._provider_name, tools=tools)
        response.model_name = response.model_name or self._model_name
        return response

    def _error(
        self,
        happened: str,
        detail: str = "",
        *,
        retryable: bool,
        retry_after: float | None = None,
        status_code: int | None = None,
    ) -> ProviderError:
        message = f"{self._provider_name}:{self._model_name} {happened}"
        if detail := self._masked(" ".join(detail.split())):
            message += f": {detail}"
        if len(message) > _MAX_MESSAGE_CHARS:
            message = message[: _MAX_MESSAGE_CHARS - 1] + "…"
        return ProviderError(message, retryable=retryable, retry_after=retry_after, status_code=status_code)

    def _masked(self, text: str) -> str:
        key = (self._api_key or os.environ.get(_variable(self._provider_name, "API_KEY")) or "").strip()
        if key:
            text = text.replace(key, "***")
        # Providers quote the key that they refuse, with a part of it starred out.
        return re.sub(r"\b(?:sk|pk)-[\w*.-]{5,}[\w*-]|\bBearer \S+|[\w-]*\*{3,}[\w-]+", "***", text)


def _variable(provider_name: str, what: str) -> str:
    return f"{re.sub(r'[^A-Z0-9]', '_', provider_name.upper())}_{what}"


def _error_object(body: object) -> JsonObject:
    """The object that describes an error: the body, or its `error`."""
    if not isinstance(body, dict):
        return {}
    error: Any = cast(JsonObject, body).get("error", body)
    return cast(JsonObject, error) if isinstance(error, dict) else {"message": error}


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """How long to wait, from `retry-after-ms` or `Retry-After` (seconds or a date).

    Source: RFC 9110, section 10.2.3; the first header is OpenAI's own.
    """
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _seconds(text)
    if seconds is not None or not text:
        return seconds
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())


def _seconds(text: str | None) -> float | None:
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
