"""What is read of OpenCode's HTTP answers and events, and nothing else of them.

Names and shapes are those of OpenCode 1.18 (``GET /doc`` of a running server). Fields that it may leave
out have defaults; what tools gave back, attached files and changed files are passed over undecoded.
All times are unix milliseconds.
"""

from __future__ import annotations

import json as stdlib_json
from typing import Any, TypeVar

from msgspec import Raw, Struct, field, json

T = TypeVar("T")

_NOTHING, _TRUE = Raw(b"null"), Raw(b"true")

OURS = "session_router"
"""Under this name stands in the metadata of a session or of a prompt that it is one of ours; OpenCode keeps it."""


class Times(Struct, gc=False):
    created: float = 0.0
    updated: float = 0.0
    completed: float | None = None


class Undone(Struct, gc=False):
    """From which message, and part of it, on the user took back what was said."""

    message: str = field(default="", name="messageID")
    part: str | None = field(default=None, name="partID")


class Session(Struct):
    id: str
    time: Times
    title: str | None = None
    directory: str | None = None
    parent: str | None = field(default=None, name="parentID")
    revert: Undone | None = None
    model: Raw = _NOTHING
    metadata: dict[str, Any] | None = None

    @property
    def names_model(self) -> bool:
        """OpenCode notes the model of a session's newest prompt."""
        return self.model != _NOTHING


class Provider(Struct):
    """A provider by what it offers. (The server also tells its keys: these are passed over.)"""

    id: str
    models: dict[str, Raw] = {}


class Providers(Struct):
    providers: list[Provider] = []


class Failure(Struct):
    """An error as OpenCode stores it: ``name`` from a short list, ``data`` with a message and more."""

    name: str = ""
    data: Any = None

    @property
    def message(self) -> str:
        return str(self.data.get("message") or "") if isinstance(self.data, dict) else ""


class Cache(Struct, gc=False):
    read: float = 0.0
    write: float = 0.0


class Tokens(Struct, gc=False):
    """``input`` is what no cache answered, ``output`` what was not reasoning."""

    input: float = 0.0
    output: float = 0.0
    reasoning: float = 0.0
    cache: Cache = field(default_factory=Cache)


class Info(Struct):
    id: str
    role: str
    time: Times
    session: str = field(default="", name="sessionID")
    parent: str | None = field(default=None, name="parentID")
    finish: str | None = None
    error: Failure | None = None
    tokens: Tokens | None = None
    summary: Raw = _NOTHING

    @property
    def is_summary(self) -> bool:
        """A compaction's answer. On a person's message ``summary`` is an object of changed files."""
        return self.summary == _TRUE


class Part(Struct, gc=False):
    id: str
    type: str
    message: str = field(default="", name="messageID")
    text: str | None = None
    synthetic: bool | None = None
    ignored: bool | None = None
    metadata: Raw = _NOTHING

    @property
    def visible(self) -> str:
        """The text that a person wrote or was shown, else nothing: ``synthetic`` is OpenCode's own text
        under the user's role, ``ignored`` a plugin's banner."""
        text = self.text
        if self.type != "text" or self.synthetic or self.ignored or not text or text.isspace():
            return ""
        return text


class Message(Struct):
    info: Info
    parts: list[Part] = []

    @property
    def is_ours(self) -> bool:
        """A prompt that we have sent; the ones of older versions do not say so."""
        return any(f'"{OURS}"'.encode() in bytes(part.metadata) for part in self.parts)


class Status(Struct):
    """``busy``, or ``retry`` with the number of the try and the provider's words."""

    type: str
    attempt: int = 0
    message: str = ""


class Permission(Struct):
    id: str
    session: str = field(name="sessionID")
    permission: str = ""
    patterns: list[str] = []
    metadata: dict[str, Any] | None = None


class Question(Struct):
    id: str
    session: str = field(name="sessionID")
    questions: list[Raw] = []


class Health(Struct):
    healthy: bool
    version: str = ""


class Delta(Struct, gc=False):
    session: str = field(name="sessionID")
    part: str = field(name="partID")
    field_name: str = field(name="field")
    delta: str


class PartUpdated(Struct):
    part: Part
    session: str = field(default="", name="sessionID")


class MessageUpdated(Struct):
    info: Info


class OfSession(Struct):
    """What all events about a session have in common, and the error of ``session.error``."""

    session: str = field(default="", name="sessionID")
    error: Failure | None = None


class Event(Struct):
    type: str
    properties: Raw = _NOTHING


def decode(raw: bytes, kind: type[T]) -> T:
    """``raw`` as ``kind``. Raises :class:`ValueError` for anything else."""
    try:
        return json.decode(raw, type=kind)
    except ValueError:  # half an emoji, cut off by JavaScript, is JSON to Python's own parser alone
        try:
            text = stdlib_json.dumps(stdlib_json.loads(raw), ensure_ascii=False)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        return json.decode(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"), type=kind)
