"""Language models behind an address, through pydantic-ai's thin request functions.

Nothing of pydantic-ai is imported before the first call: it takes most of a second, and ``--help``
should not wait for it. Every failure leaves here as a :class:`fsm.ports.ModelError` whose ``kind`` is one of

``timeout``, ``rate_limit``, ``server``, ``connection``, ``bad_reply`` (asking again can help),
``auth``, ``quota``, ``not_found``, ``context``, ``rejected``, ``config``, ``missing`` (it cannot),
``error`` (unforeseen).
"""

from __future__ import annotations

import asyncio
import importlib
import ipaddress
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fsm.language.redact import redact
from fsm.ports import ChatMessage, LanguageModel, ModelError, Reply

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings as PydanticAISettings

MAX_TOKENS = 4096
"""Tokens of one answer, hidden reasoning included. Some servers take no limit to mean a very short one."""
REQUEST_TIMEOUT = 120.0
"""Seconds for one request in all: connecting, waiting, and the last piece of a stream."""
MOST_RETRIES = 5
"""Retries inside the client at most. The engine retries by itself, visibly, so the default is none."""
ERROR_CHARS = 600
"""Characters of a provider's error text that are kept: some send whole web pages."""

MEND = 'in the folder of Session Router, pip install ".[model]"'

Opened = tuple["Model", Callable[[], Awaitable[None]]]
"""A model of pydantic-ai, and what closes its connections."""


class PydanticAIModel:
    """A :class:`fsm.ports.LanguageModel` on any model of pydantic-ai.

    ``open`` makes that model and says how to close it; it is called in a thread at the first request.
    ``secrets`` are texts that no error may show. ``request_timeout`` in seconds, for everything that one
    request does.
    """

    def __init__(
        self,
        open: Callable[[], Opened],
        *,
        name: str,
        max_tokens: int = MAX_TOKENS,
        request_timeout: float = REQUEST_TIMEOUT,
        max_retries: int = 0,
        temperature: float | None = None,
        extra_body: dict[str, object] | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        if not 0 <= max_retries <= MOST_RETRIES:
            raise ValueError(f"max_retries must be from 0 to {MOST_RETRIES}, not {max_retries}")
        self.name = name
        self._open, self._secrets = open, tuple(secrets)
        self._opened: Opened | None = None
        self._opening = asyncio.Lock()
        self._settings: PydanticAISettings = {
            "max_tokens": max_tokens, "request_timeout": request_timeout, "max_retries": max_retries,
        }
        if temperature is not None:
            self._settings["temperature"] = temperature
        if extra_body:
            self._settings["extra_body"] = extra_body

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    async def complete(self, messages: Sequence[ChatMessage], *, session_id: str = "") -> Reply:
        try:
            model = await self._model()
            from pydantic_ai.direct import model_request

            response = await model_request(model, _prompt(messages), model_settings=self._settings)
        except Exception as error:
            raise self._failure(error) from None
        return _reply(response, _text(response))

    async def stream(
        self, messages: Sequence[ChatMessage], *, session_id: str = ""
    ) -> AsyncIterator[str | Reply]:
        said: list[str] = []
        try:
            model = await self._model()
            from pydantic_ai.direct import model_request_stream

            request = model_request_stream(model, _prompt(messages), model_settings=self._settings)
            async with request as events:
                async for event in events:
                    if piece := _piece(event):
                        said.append(piece)
                        yield piece
            response = events.get()
        except Exception as error:
            raise self._failure(error) from None
        yield _reply(response, "".join(said))

    async def close(self) -> None:
        async with self._opening:
            opened, self._opened = self._opened, None
        if opened is not None:
            await opened[1]()

    async def _model(self) -> Model:
        async with self._opening:
            if self._opened is None:
                self._opened = await asyncio.to_thread(self._import_and_open)
            return self._opened[0]

    def _import_and_open(self) -> Opened:
        importlib.import_module("pydantic_ai.direct")
        return self._open()

    def _failure(self, error: Exception) -> ModelError:
        # The original is cut off by the callers (``from None``): its own text may hold the key.
        kind, retryable = _judge(error)
        detail = redact(str(error) or type(error).__name__, self._secrets)
        if kind == "missing":
            detail = f"a package is not installed ({detail}); {MEND}"
        return ModelError(f"{self.name}: {kind}: {detail[:ERROR_CHARS]}", kind=kind, retryable=retryable)


def openai_compatible(
    base_url: str,
    api_key: str,
    model_name: str,
    *,
    name: str = "",
    max_tokens: int = MAX_TOKENS,
    request_timeout: float = REQUEST_TIMEOUT,
    max_retries: int = 0,
    temperature: float | None = None,
    extra_body: dict[str, object] | None = None,
) -> PydanticAIModel:
    """A model behind an address of the OpenAI chat API: a provider's, a gateway's, or a server of one's own.

    ``base_url`` ends before ``/chat/completions``; ``api_key`` may be empty where the server wants none.
    """

    def open() -> Opened:
        import httpx2
        from openai import AsyncOpenAI
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.profiles.openai import OpenAIModelProfile
        from pydantic_ai.providers.openai import OpenAIProvider

        # A proxy named in the environment must not get what is meant for this machine.
        http = httpx2.AsyncClient(timeout=httpx2.Timeout(request_timeout, connect=10.0),
                                  trust_env=not is_loopback(base_url))
        client = AsyncOpenAI(base_url=base_url, api_key=api_key or "none", max_retries=0, http_client=http)
        profile = OpenAIModelProfile(
            # OpenAI alone insists on the new field; older servers refuse it or, worse, overlook it.
            openai_chat_supports_max_completion_tokens=urlsplit(base_url).hostname == "api.openai.com",
            # A stream that just ends was cut off somewhere: half an answer must not pass for a whole one.
            openai_chat_streaming_requires_finish_reason=True,
        )
        model = OpenAIChatModel(model_name, provider=OpenAIProvider(openai_client=client), profile=profile)
        return model, client.close

    return PydanticAIModel(
        open, name=name or model_name, max_tokens=max_tokens, request_timeout=request_timeout,
        max_retries=max_retries, temperature=temperature, extra_body=extra_body, secrets=[api_key],
    )


class FallbackChain:
    """Models tried in order: the next one answers where one fails.

    A stream falls over only before its first piece: behind it the reader has seen words that another
    model would not go on with.
    """

    def __init__(self, models: Sequence[LanguageModel]) -> None:
        if not models:
            raise ValueError("a chain needs at least one model")
        self._models = tuple(models)
        self.name = " → ".join(model.name for model in models)

    async def complete(self, messages: Sequence[ChatMessage], *, session_id: str = "") -> Reply:
        failures: list[ModelError] = []
        for model in self._models:
            try:
                return await model.complete(messages, session_id=session_id)
            except ModelError as error:
                failures.append(error)
        raise _all_failed(failures)

    async def stream(
        self, messages: Sequence[ChatMessage], *, session_id: str = ""
    ) -> AsyncIterator[str | Reply]:
        failures: list[ModelError] = []
        for model in self._models:
            begun = False
            try:
                async with closing_stream(model.stream(messages, session_id=session_id)) as pieces:
                    async for piece in pieces:
                        begun = True
                        yield piece
                return
            except ModelError as error:
                if begun:
                    raise
                failures.append(error)
        raise _all_failed(failures)

    async def close(self) -> None:
        results = await asyncio.gather(*(model.close() for model in self._models), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result


def is_loopback(url: str) -> bool:
    """Whether ``url`` leads to this machine itself."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


@asynccontextmanager
async def closing_stream(pieces: AsyncIterator[str | Reply]) -> AsyncIterator[AsyncIterator[str | Reply]]:
    """Closes a stream when its reader goes away, here and now rather than by the garbage collector."""
    try:
        yield pieces
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


def _all_failed(failures: Sequence[ModelError]) -> ModelError:
    if len(failures) == 1:
        return failures[0]
    return ModelError("every model failed: " + "; ".join(map(str, failures)), kind=failures[-1].kind,
                      retryable=any(failure.retryable for failure in failures))


def _judge(error: Exception) -> tuple[str, bool]:
    """(kind, retryable) of an exception of pydantic-ai, openai or httpx2."""
    if isinstance(error, ModelError):
        return error.kind, error.retryable
    if isinstance(error, ImportError):
        return "missing", False
    from pydantic_ai import exceptions as e

    # Narrow before wide: an HTTP error is of its category and of ModelHTTPError at once.
    table: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, bool], ...] = (
        ((e.ModelRequestTimeout, e.ModelTimeoutError, TimeoutError), "timeout", True),
        (e.ModelRateLimitError, "rate_limit", True),
        (e.ModelQuotaExceededError, "quota", False),
        (e.ModelAuthenticationError, "auth", False),
        (e.ModelNotFoundError, "not_found", False),
        (e.ModelContextWindowExceededError, "context", False),
        (e.ModelRequestRejectedError, "rejected", False),
        ((e.ModelUnavailableError, e.ModelServerError), "server", True),
        ((e.ModelConnectionError, OSError), "connection", True),
        (e.UserError, "config", False),
    )
    for kinds, kind, retryable in table:
        if isinstance(error, kinds):
            return kind, retryable
    if isinstance(error, e.ModelHTTPError):
        again = error.status_code >= 500 or error.status_code in (408, 409, 425)
        return ("server", True) if again else ("rejected", False)
    if isinstance(error, e.AgentRunError | ValueError):
        return "bad_reply", True
    return "error", True


def _prompt(messages: Sequence[ChatMessage]) -> list[ModelMessage]:
    """One message each: merging neighbours would change the bytes that a provider's cache knows."""
    from pydantic_ai.messages import ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart

    prompt: list[ModelMessage] = []
    for message in messages:
        if message["role"] == "assistant":
            prompt.append(ModelResponse(parts=[TextPart(message["content"])]))
        elif message["role"] == "system":
            prompt.append(ModelRequest(parts=[SystemPromptPart(message["content"])]))
        else:
            prompt.append(ModelRequest(parts=[UserPromptPart(message["content"])]))
    return prompt


def _piece(event: object) -> str:
    """The text that a stream event adds; reasoning is not text."""
    from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
        return event.part.content
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""


def _text(response: ModelResponse) -> str:
    from pydantic_ai.messages import TextPart

    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def _reply(response: ModelResponse, text: str) -> Reply:
    usage = response.usage
    return Reply(text, usage.input_tokens, usage.output_tokens, usage.cache_read_tokens)
