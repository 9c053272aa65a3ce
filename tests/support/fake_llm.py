"""A server of the OpenAI chat API on loopback that answers as it is told to, faults included.

    with FakeLLM([Answer("Hello"), Answer(status=500)]) as llm:
        ...  # llm.url, llm.requests, llm.client_left
"""

from __future__ import annotations

import json
import select
import socket
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

KEY = "sk-test-0123456789abcdef"
USAGE = {"prompt_tokens": 120, "completion_tokens": 7, "total_tokens": 127,
         "prompt_tokens_details": {"cached_tokens": 96}}


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. A stream sends ``text`` word by word.

    ``cut`` drops the connection in the middle; ``hang`` says nothing more behind a stream's first word (and
    nothing at all otherwise) until the client leaves; ``unfinished`` ends a stream without a reason for it.
    """

    text: str = "Hello from the fake."
    status: int = 200
    error: str = "the provider's words"
    cut: bool = False
    hang: bool = False
    unfinished: bool = False
    body: bytes | None = None


class FakeLLM:
    """Answers requests with ``answers`` in order, then with the last one again and again."""

    def __init__(self, answers: Iterable[Answer] = (Answer(),), *, models: Any = ("fake-1",)) -> None:
        self.answers = deque(answers)
        self.models = models
        self.requests: list[dict[str, Any]] = []
        """Bodies of the chat requests, in order."""
        self.headers: list[dict[str, str]] = []
        self.asked = threading.Event()
        """Set by the first chat request."""
        self.client_left = threading.Event()
        self.closing = threading.Event()
        fake = self

        class Handler(_Handler):
            llm = fake

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.host = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.url = f"{self.host}/v1"

    def answer_to(self, request: dict[str, Any]) -> Answer:
        """What to say to a chat request; here whatever comes next."""
        return self.next()

    def next(self) -> Answer:
        return self.answers.popleft() if len(self.answers) > 1 else self.answers[0]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    llm: FakeLLM
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except (BrokenPipeError, ConnectionResetError):
            self.llm.client_left.set()

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            if isinstance(self.llm.models, bytes):
                self._send(200, self.llm.models)
            else:
                self._json(200, {"object": "list", "data": [{"id": name} for name in self.llm.models]})
        else:
            self._json(404, {"error": {"message": "no such thing"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.llm.requests.append(body)
        self.llm.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.llm.asked.set()
        answer = self.llm.answer_to(body)
        if answer.status != 200:
            self._json(answer.status, {"error": {"message": answer.error, "type": "fake_error"}})
        elif answer.body is not None:
            self._send(200, answer.body)
        elif body.get("stream"):
            self._stream(answer)
        elif answer.hang:
            self._wait_for_the_client_to_leave()
        else:
            message = {"role": "assistant", "content": answer.text}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": "fake-1",
                     "choices": [choice], "usage": USAGE}
            self._send(200, json.dumps(whole).encode(), cut=answer.cut)

    def _stream(self, answer: Answer) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        words = answer.text.split(" ")
        self._event({"role": "assistant", "content": words[0]})
        if answer.hang:
            self._wait_for_the_client_to_leave()
            return
        for word in words[1:]:
            self._event({"content": f" {word}"})
        if answer.cut:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if not answer.unfinished:
            self._event({}, finish_reason="stop", usage=USAGE)
        self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, delta: dict[str, str], finish_reason: str | None = None, **more: object) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        event = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "fake-1",
                 "choices": [choice], **more}
        self._chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _json(self, status: int, value: object) -> None:
        self._send(status, json.dumps(value).encode())

    def _send(self, status: int, body: bytes, cut: bool = False) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = self.close_connection or cut

    def _wait_for_the_client_to_leave(self) -> None:
        self.close_connection = True
        while not self.llm.closing.is_set():
            readable, _, _ = select.select([self.connection], [], [], 0.02)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                self.llm.client_left.set()
                return
