"""What may stand in a scenario file: its mappings with their keys, one class each.

A key that is not known, or that has no value where null means nothing, is wrong in all of them alike.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from fsm.conversation import State
from fsm.effects import Disposition
from session_router.config_errors import did_you_mean
from session_router.scenario.cli_words import Sending, sending
from session_router.scenario.script import Answer
from storage.journal.errors import JournalIdError
from storage.journal.names import path_of
from storage.journal.records import EVENTS

START = 1768464000.0
"""2026-01-15T08:00:00Z, where the clock of a scenario stands unless it says otherwise."""

LATEST = 32503680000.0
"""The year 3000, in which no clock begins."""

LONGEST = 100 * 366 * 86400.0
"""Seconds: no time in a file, nor all of them together, is longer than a hundred years."""


def shown(value: object) -> str:
    """A value as a message shows it, short."""
    text = "nothing" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def quotes(value: object) -> str:
    """The hint for something that stands where a text belongs."""
    return " (put it in quotes)" if isinstance(value, bool | int | float) else ""


def at_key(key: str, text: str) -> PydanticCustomError:
    """The error for a mapping that is wrong at one of its keys."""
    return PydanticCustomError("at_key", "{text}", {"text": text, "key": key})


class Table(BaseModel):
    """A mapping. ``may_be_null`` are the keys for which null says something."""

    model_config = ConfigDict(extra="forbid", strict=True)
    may_be_null: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _keys(cls, values: Any) -> Any:
        names = [field.alias or name for name, field in cls.model_fields.items()]
        if not isinstance(values, Mapping):
            raise ValueError(f"expected a mapping with keys of {', '.join(names)}, not {shown(values)}")
        for key, value in values.items():
            if key not in names:
                raise at_key(key, f"unknown key `{key}`; {did_you_mean(key, names)}")
            if value is None and key not in cls.may_be_null:
                raise at_key(key, f"`{key}` has no value; write one, or leave the key out")
        return values


def _yes(value: bool) -> bool:
    if not value:
        raise ValueError("only true means something here; otherwise leave the key out")
    return value


def _number_as_text(value: Any) -> Any:
    return str(value) if type(value) is int else value


def _listed(value: Any) -> Any:
    """A text alone is a list of one."""
    if not isinstance(value, str | list):
        raise ValueError(f"expected a text or a list of texts, not {shown(value)}{quotes(value)}")
    return [value] if isinstance(value, str) else value


def _file_name(session: str) -> str:
    """A session id, which for a session of ours is the name of a file."""
    try:
        path_of(Path(), session)
    except JournalIdError as error:
        raise ValueError(str(error)) from error
    return session


Seconds = Annotated[float, Field(allow_inf_nan=False, ge=-LONGEST, le=LONGEST)]
Duration = Annotated[float, Field(allow_inf_nan=False, ge=0, le=LONGEST)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]
Some = Annotated[int, Field(ge=1, le=10_000)]
Yes = Annotated[bool, AfterValidator(_yes)]
Text = str
Word = Annotated[str, Field(min_length=1)]
Spelled = Annotated[str, Field(min_length=1), BeforeValidator(_number_as_text)]
"""A word that may look like a number; it is taken as it is spelled."""
Parts = Annotated[list[Word], Field(min_length=1), BeforeValidator(_listed)]
SessionId = Annotated[str, AfterValidator(_file_name)]


class SessionLine(Table):
    role: Literal["user", "assistant"]
    text: Text
    at: Seconds


class SessionFacts(Table):
    """What a session is, and what of it can change; times in seconds from the start of the scenario."""

    id: SessionId
    title: Text = ""
    active: Seconds | None = None
    messages: list[SessionLine] | None = None
    parent: SessionId | None = None
    archived: bool = False

    @field_validator("messages")
    @classmethod
    def _in_order(cls, lines: list[SessionLine] | None) -> list[SessionLine] | None:
        for before, line in itertools.pairwise(lines or ()):
            if line.at < before.at:
                raise ValueError(f"the line at {line.at:g} stands behind that at {before.at:g}; put the earliest first")
        return lines

    @model_validator(mode="after")
    def _active_at_last(self) -> Self:
        newest = self.messages[-1].at if self.messages else None
        if self.active is not None and newest is not None and self.active < newest:
            raise at_key("active", f"active {self.active:g} is before its newest line at {newest:g}; leave it out")
        return self


class SessionEntry(SessionFacts):
    source: Word = "opencode"
    talks: bool = False
    """Its own agent runs the turns, as with OpenCode's server."""

    @model_validator(mode="after")
    def _of_one_source(self) -> Self:
        if self.talks and "source" in self.model_fields_set:
            raise at_key("source", "a session with `talks` has the source of its agent; leave `source` out")
        if self.source == JOURNAL:
            for key in ("parent", "archived"):
                if key in self.model_fields_set:
                    raise at_key(key, f"a session of ours has no `{key}`; leave it out, or take another source")
        return self


JOURNAL = "journal"
"""The source that our own sessions are in."""


class SessionUpdate(SessionFacts):
    """A session of which only the keys that are given count."""

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.model_fields_set == {"id"}:
            raise ValueError(f"nothing changes; beside the id give {', '.join(list(SessionFacts.model_fields)[1:])}")
        return self


class SessionChange(Table):
    add: list[SessionEntry] = []
    update: list[SessionUpdate] = []
    remove: list[Text] = []

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not (self.add or self.update or self.remove):
            raise ValueError("nothing changes; give add, update or remove, with a session each")
        return self


class MessageEntry(Table):
    channel: Word
    sender: Word
    text: Text
    id: Spelled | None = None
    nick: Text = ""
    mentioned: bool = False
    own: bool = False
    delayed: bool = False
    edited: bool = False
    real_jid: Text | None = None
    bot: bool = False
    wait_reply: bool = True


class Tokens(Table):
    input: Count = Field(0, alias="in")
    output: Count = Field(0, alias="out")


class AnswerEntry(Table):
    """One of: a text with what it takes, an error, a hang, or a text some times over."""

    may_be_null = frozenset({"text"})
    text: Text | None = None
    takes: Duration = 0.0
    tokens: Tokens = Field(default_factory=lambda: Tokens.model_validate({}))
    error: Spelled | None = None
    hang: Yes = False
    repeat: Text | None = None
    times: Some = 1
    asks: Text | None = None
    denied: Text | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = self.model_fields_set
        kinds = [kind for kind in _BESIDE if kind in given]
        if len(kinds) != 1:
            found = " and ".join(kinds) or "none of them"
            raise ValueError(f"an answer is one of text, error, hang: true, or repeat with times; this one has {found}")
        for key in type(self).model_fields:
            if key in given and key != kinds[0] and key not in _BESIDE[kinds[0]]:
                fitting = " or ".join(kind for kind, beside in _BESIDE.items() if key in beside)
                raise at_key(key, f"`{key}` means nothing beside `{kinds[0]}`; it stands with {fitting}")
        if "denied" in given and "asks" not in given:
            raise at_key("denied", "`denied` is said when leave was asked for and not given; it stands with asks")
        return self

    def answers(self) -> list[Answer]:
        text = self.repeat if self.repeat is not None else self.text
        answer = Answer(
            text, self.takes, self.tokens.input, self.tokens.output, self.error, self.hang, self.asks, self.denied
        )
        return [answer] * self.times


_SAID = frozenset({"takes", "tokens", "asks", "denied"})
_BESIDE: dict[str, frozenset[str]] = {
    "text": _SAID, "repeat": _SAID | {"times"}, "error": frozenset({"takes"}), "hang": frozenset(),
}  # fmt: skip
"""The kinds of answers, and what may stand beside each."""


def _as_answer(value: Any) -> Any:
    """A text alone is an answer, and null one in which the model gave nothing."""
    if value is None or isinstance(value, str):
        return {"text": value}
    if not isinstance(value, Mapping):
        wanted = "a text, null, or a mapping such as {text: TEXT, takes: SECONDS}"
        raise ValueError(f"expected {wanted}, not {shown(value)}{quotes(value)}")
    return value


OneAnswer = Annotated[AnswerEntry, BeforeValidator(_as_answer)]


class Of(Table):
    channel: Word
    sender: Word


Kind = Literal["model", "command", "send", "commit"]


class CrashAt(Table):
    before: Kind | None = None
    after: Kind | None = None

    @model_validator(mode="after")
    def _one_moment(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError("expected {before: KIND} or {after: KIND}")
        return self


StateName = Literal["idle", "awaiting_selection", "command_looping", "silenced"]
DispositionName = Literal[
    "replied", "silent", "muted", "duplicate", "refused", "failed", "stopped", "queued", "running"
]
EventName = Literal["turn_start", "tool_call", "tool_result", "turn_end"]
assert set(StateName.__args__) == {s.value for s in State}  # type: ignore[attr-defined]
assert set(DispositionName.__args__) == {d.value for d in Disposition}  # type: ignore[attr-defined]
assert set(EventName.__args__) == EVENTS  # type: ignore[attr-defined]


class Expect(Table):
    """What must hold after a step. Absent is not looked at; null is an expectation where there may be none."""

    may_be_null = frozenset({"state", "bound", "binding", "disposition", "deadline"})
    of: Of | None = None
    state: StateName | None = None
    bound: Text | None = None
    binding: Literal["manual", "active-sender", "auto", "default"] | None = None
    loops: Count | None = None
    sent: list[Text] | None = None
    sent_has: Parts | None = None
    sent_lacks: Parts | None = None
    sent_count: Count | None = None
    sent_to: list[Word] | Word | None = None
    disposition: DispositionName | None = None
    dispositions: (
        list[DispositionName | None]
        | Annotated[dict[str, DispositionName | None], Field(min_length=1)]
        | None
    ) = None  # fmt: skip
    queued: Count | None = None
    model_calls: Count | None = None
    commands: list[list[Text | None]] | None = None
    prompt_has: Parts | None = None
    prompt_lacks: Parts | None = None
    journal: list[EventName] | Count | None = None
    deadline: Seconds | None = None

    @field_validator("commands")
    @classmethod
    def _pairs(cls, value: list[list[str | None]] | None) -> list[list[str | None]] | None:
        if any(len(pair) != 2 or pair[0] is None for pair in value or ()):
            raise ValueError("commands are pairs: [name, argument], with null for no argument")
        return value

    @model_validator(mode="after")
    def _expects_something(self) -> Self:
        if not self.model_fields_set - {"of"}:
            raise ValueError("nothing is expected; name something, or leave `expect` out")
        return self


VERBS = (
    "message", "messages", "wait", "at", "wall_jump", "restart", "crash_at", "sessions", "cli", "fail_send",
    "late_timers", "model",
)  # fmt: skip


class Step(Table):
    """One verb, and what must hold afterwards."""

    message: MessageEntry | None = None
    messages: Annotated[list[MessageEntry], Field(min_length=1)] | None = None
    wait: Duration | None = None
    at: Duration | None = None
    wall_jump: Seconds | None = None
    restart: Yes | None = None
    crash_at: CrashAt | None = None
    sessions: SessionChange | None = None
    cli: Annotated[Sending, PlainValidator(sending)] | None = None
    fail_send: Some | None = None
    late_timers: Duration | None = None
    model: Annotated[list[OneAnswer], Field(min_length=1)] | None = None
    wait_reply: bool = True
    expect: Expect | None = None

    @model_validator(mode="after")
    def _one_verb(self) -> Self:
        if len(self.verbs) != 1:
            found = " and ".join(self.verbs) or "none"
            raise ValueError(f"a step has one verb ({', '.join(VERBS)}); this one has {found}")
        if "wait_reply" in self.model_fields_set and not self.said:
            raise at_key("wait_reply", "`wait_reply` means something beside `message` or `messages` only")
        return self

    @property
    def verbs(self) -> list[str]:
        return [verb for verb in VERBS if verb in self.model_fields_set]

    @property
    def verb(self) -> str:
        return self.verbs[0]

    @property
    def said(self) -> list[MessageEntry]:
        """The messages of the step, none where it is about something else."""
        return [self.message] if self.message is not None else self.messages or []


def _instant(value: Any) -> float:
    found = -1.0
    if isinstance(value, str):
        try:
            when = datetime.datetime.fromisoformat(value)
            found = (when if when.tzinfo else when.replace(tzinfo=datetime.UTC)).timestamp()
        except (ValueError, OverflowError):
            pass
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value)
    if not 0 <= found < LATEST:
        raise ValueError(f"expected an instant from 1970 on like 2026-01-15T08:00:00Z, not {shown(value)}")
    return found


class File(Table):
    """A whole scenario as its file says it; ``sessions`` None: it does not care which there are."""

    scenario: Word
    start: Annotated[float, PlainValidator(_instant)] = START
    agent: dict[str, Any] = {}
    sessions: list[SessionEntry] | None = None
    model: list[OneAnswer] = []
    steps: Annotated[list[Step], Field(min_length=1)]
