"""A server of the OpenAI chat API on loopback that plays the model behind a coding agent.

What it does is written in the newest message of the user, so that a test says it where it asks:

    ``[read PATH]``, ``[bash COMMAND]``   call that tool, and once its result is back: ``saw: RESULT``
    ``[terminal COMMAND]``                the same, as Hermes calls it
    ``[task read PATH]``                  have a sub-agent do that
    ``[question]``                        call the tool that lets a person choose
    ``[hold]``                            say ``first `` and wait for ``release()``, then ``last``
    ``[reason]``                          think aloud, then ``answer``
    ``[status N]``                        that HTTP error
    ``[nofinish]``                        end the stream without a reason for it
    ``[full]``, at the end                count so many tokens that the agent takes its context for full
    anything else                         ``echo: `` and the message's first line

A message may hold several tools; they are called one by one.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

MODEL = "fake-1"
USAGE = {"prompt_tokens": 120, "completion_tokens": 10, "total_tokens": 130,
         "prompt_tokens_details": {"cached_tokens": 96}, "completion_tokens_details": {"reasoning_tokens": 4}}
FULL = {"prompt_tokens": 199_990, "completion_tokens": 10, "total_tokens": 200_000}
INPUT, OUTPUT, CACHED = 120, 10, 96
"""What each request counts for, as a :class:`fsm.ports.Reply` has it."""
_TOOL = re.compile(r"\[(read|bash|terminal|task) ([^\]]+)\]|\[(question)\]")


@dataclass(frozen=True, slots=True)
class Plan:
    """One answer."""

    words: tuple[str, ...] = ()
    tool: tuple[str, Mapping[str, object]] | None = None
    thoughts: str = ""
    status: int = 200
    hold: bool = False
    finish: bool = True


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: the user's newest message (its first part), and the whole body."""

    prompt: str
    body: Mapping[str, Any] = field(repr=False)


class FakeAgentLLM:
    """``with FakeAgentLLM() as llm``: ``llm.url`` ends before ``/chat/completions``."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        """Every request but those for titles and summaries, in order."""
        self._changed = threading.Condition()
        self._released = threading.Event()
        self._closing = threading.Event()
        fake = self

        class Handler(_Handler):
            llm = fake

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def release(self) -> None:
        """Let every held answer end, those to come included until ``hold_again``."""
        self._released.set()

    def hold_again(self) -> None:
        self._released.clear()

    def count(self, words: str) -> int:
        """How many requests had ``words`` in the user's newest message."""
        return sum(words in asked.prompt for asked in list(self.asked))

    def wait_for(self, words: str, count: int = 1, timeout: float = 20.0) -> None:
        """Return as soon as that many such requests have come."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.count(words) >= count, timeout):
                raise AssertionError(f"the model was asked {words!r} {self.count(words)} times, not {count}")

    def note(self, asked: Asked) -> None:
        with self._changed:
            self.asked.append(asked)
            self._changed.notify_all()

    def held(self, connection: socket.socket) -> bool:
        """Wait for the release; False where the client leaves before it."""
        while not self._closing.is_set():
            if self._released.wait(0.02):
                return True
            readable, _, _ = select.select([connection], [], [], 0)
            if readable and not connection.recv(1, socket.MSG_PEEK):
                return False
        return False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _text(content: object) -> str:
    if isinstance(content, list):  # OpenCode adds reminders of its own as further parts
        return next((str(part["text"]) for part in content if part.get("type") == "text"), "")
    return str(content or "")


def plan(body: Mapping[str, Any]) -> tuple[str, Plan]:
    """The user's newest message and what to answer. OpenCode's own requests, for a title or a summary, count
    as having no message."""
    messages = body["messages"]
    systems = [_text(message["content"]) for message in messages if message["role"] == "system"]
    if any("title generator" in text or "summarization agent" in text for text in systems):
        return "", Plan(words=("In short.",))
    last = max(at for at, message in enumerate(messages) if message["role"] == "user")
    prompt = _text(messages[last]["content"])
    results = [_text(message["content"]) for message in messages[last:] if message["role"] == "tool"]
    tools = _TOOL.findall(prompt)
    if len(results) < len(tools):
        name, argument, question = tools[len(results)]
        if question:
            options = [{"label": "red", "description": "like fire"}, {"label": "blue", "description": "like water"}]
            asks = [{"question": "Which colour?", "header": "Colour", "options": options}]
            return prompt, Plan(tool=("question", {"questions": asks}))
        if name == "read":
            return prompt, Plan(words=("Let me ", "read it."), tool=("read", {"filePath": argument}))
        if name == "task":
            task = {"description": "look", "prompt": f"[{argument}]", "subagent_type": "explore"}
            return prompt, Plan(tool=("task", task))
        return prompt, Plan(tool=(name, {"command": argument, "description": "run it"}))
    if results and "[hold]" not in prompt:
        return prompt, Plan(words=("saw: ", " ".join(results[-1].split())))
    if found := re.search(r"\[status (\d+)\]", prompt):
        return prompt, Plan(status=int(found[1]))
    if "[hold]" in prompt:
        return prompt, Plan(words=("first ", "last"), hold=True)
    if "[reason]" in prompt:
        return prompt, Plan(words=("ans", "wer"), thoughts="I should think about this.")
    if "[nofinish]" in prompt:
        return prompt, Plan(words=("partial ",), finish=False)
    return prompt, Plan(words=("echo: ", prompt.splitlines()[0]))


class _Handler(BaseHTTPRequestHandler):
    llm: FakeAgentLLM
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def handle(self) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            super().handle()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt, todo = plan(body)
        if prompt:
            self.llm.note(Asked(prompt, body))
        if todo.status != 200:
            words = json.dumps({"error": {"message": f"the fake fails with {todo.status}", "type": "fake"}}).encode()
            self.send_response(todo.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(words)))
            self.end_headers()
            self.wfile.write(words)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self._event({"role": "assistant", "content": ""})
        if todo.thoughts:
            self._event({"reasoning_content": todo.thoughts})
        for at, word in enumerate(todo.words):
            if todo.hold and at == 1 and not self.llm.held(self.connection):
                self.close_connection = True
                return
            self._event({"content": word})
        if todo.tool:
            name, arguments = todo.tool
            call = {"index": 0, "id": f"call_{time.monotonic_ns():x}", "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)}}
            self._event({"tool_calls": [call]})
        if todo.finish:
            self._event({}, "tool_calls" if todo.tool else "stop", usage=FULL if prompt.endswith("[full]") else USAGE)
        self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, delta: Mapping[str, object], finish_reason: str | None = None, **more: object) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        event = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": MODEL,
                 "choices": [choice], **more}
        self._chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
