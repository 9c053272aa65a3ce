"""Reads a scenario file. Whatever is wrong with it is said with file, line and what was expected there."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator

from fsm.agent import Agent
from fsm.conversation import State
from fsm.effects import Disposition
from session_router.config import ConfigError, agent_from_mapping
from session_router.scenario.script import Answer

START = 1768464000.0
"""2026-01-15T08:00:00Z, where the clock of a scenario stands unless it says otherwise."""

MINIMAL: dict[str, Any] = {"name": "bot", "language": "zh", "allow": ["*"], "rate_limit": 0, "model_retries": 0}
"""What ``agent`` is laid over: everybody is admitted, nothing is limited, nothing retried."""


class ScenarioError(Exception):
    """A scenario file that cannot be run: ``file``, ``line`` (from 1) and ``problem``."""

    def __init__(self, file: str, line: int, problem: str) -> None:
        super().__init__(f"{file}:{line}: {problem}")
        self.file, self.line, self.problem = file, line, problem


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


Seconds = Annotated[float, Field(strict=False, allow_inf_nan=False)]
Text = Annotated[str, Field(strict=True)]
Name = Annotated[str | int, Field(union_mode="left_to_right")]
Texts = list[Text] | Text


class SessionLine(_Strict):
    role: Literal["user", "assistant"]
    text: Text
    at: Seconds


class SessionEntry(_Strict):
    """A session; times in seconds from the start of the scenario."""

    id: Text
    title: Text = ""
    active: Seconds | None = None
    messages: list[SessionLine] | None = None
    parent: Text | None = None
    archived: bool = False
    source: Text = "opencode"
    talks: bool = False
    """Its own agent runs the turns, as with OpenCode's server."""


class SessionChange(_Strict):
    add: list[SessionEntry] = []
    update: list[SessionEntry] = []
    remove: list[Text] = []


class MessageEntry(_Strict):
    channel: Text
    sender: Text
    text: Text
    id: Text | int | None = None
    nick: Text = ""
    mentioned: bool = False
    own: bool = False
    delayed: bool = False
    edited: bool = False
    real_jid: Text | None = None
    bot: bool = False
    wait_reply: bool = True


class Tokens(_Strict):
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)
    input: int = Field(0, alias="in")
    output: int = Field(0, alias="out")


class AnswerEntry(_Strict):
    """One of: a text with what it takes, an error, a hang, or a text some times over."""

    text: Text | None = None
    takes: Seconds = 0.0
    tokens: Tokens = Field(default_factory=lambda: Tokens.model_validate({}))
    error: Text | int | None = None
    hang: bool = False
    repeat: Text | None = None
    times: int = 1
    asks: Text | None = None
    denied: Text | None = None

    @model_validator(mode="after")
    def one_kind(self) -> AnswerEntry:
        kinds = [self.error is not None, self.hang, self.repeat is not None, "text" in self.model_fields_set]
        if sum(kinds) != 1:
            raise ValueError("an answer is one of text, error, hang: true, or repeat with times")
        return self

    def answers(self) -> list[Answer]:
        text = self.repeat if self.repeat is not None else self.text
        error = None if self.error is None else str(self.error)
        answer = Answer(
            text, self.takes, self.tokens.input, self.tokens.output, error, self.hang, self.asks, self.denied
        )
        return [answer] * (self.times if self.repeat is not None else 1)


class Of(_Strict):
    channel: Text
    sender: Text


class CrashAt(_Strict):
    before: Literal["model", "command", "send", "commit"] | None = None
    after: Literal["model", "command", "send", "commit"] | None = None

    @model_validator(mode="after")
    def one_moment(self) -> CrashAt:
        if (self.before is None) == (self.after is None):
            raise ValueError("crash_at is {before: KIND} or {after: KIND}")
        return self


StateName = Literal["idle", "awaiting_selection", "command_looping", "silenced"]
DispositionName = Literal[
    "replied", "silent", "muted", "duplicate", "refused", "failed", "stopped", "queued", "running"
]
assert set(StateName.__args__) == {s.value for s in State}  # type: ignore[attr-defined]
assert set(DispositionName.__args__) == {d.value for d in Disposition}  # type: ignore[attr-defined]


class Expect(_Strict):
    """What must hold after a step. Absent is not looked at; null is an expectation."""

    of: Of | None = None
    state: StateName | None = None
    bound: Text | None = None
    binding: Literal["manual", "active-sender", "auto", "default"] | None = None
    loops: int | None = None
    sent: list[Text] | None = None
    sent_has: Texts | None = None
    sent_lacks: Texts | None = None
    sent_count: int | None = None
    sent_to: Texts | None = None
    disposition: DispositionName | None = None
    dispositions: list[DispositionName | None] | dict[str, DispositionName | None] | None = None
    queued: int | None = None
    model_calls: int | None = None
    commands: list[list[Text | None]] | None = None
    prompt_has: Texts | None = None
    prompt_lacks: Texts | None = None
    journal: list[Text] | int | None = None
    deadline: Seconds | None = None

    @field_validator("commands")
    @classmethod
    def pairs(cls, value: list[list[str | None]] | None) -> list[list[str | None]] | None:
        if any(len(pair) != 2 or pair[0] is None for pair in value or ()):
            raise ValueError("commands are pairs: [name, argument], with null for no argument")
        return value


VERBS = (
    "message", "messages", "wait", "at", "wall_jump", "restart", "crash_at", "sessions", "cli", "fail_send",
    "late_timers", "model",
)  # fmt: skip


class Step(_Strict):
    """One verb, and what must hold afterwards."""

    message: MessageEntry | None = None
    messages: list[MessageEntry] | None = None
    wait: Annotated[Seconds, Field(ge=0)] | None = None
    at: Annotated[Seconds, Field(ge=0)] | None = None
    wall_jump: Seconds | None = None
    restart: Literal[True] | None = None
    crash_at: CrashAt | None = None
    sessions: SessionChange | None = None
    cli: list[Text | int] | None = None
    fail_send: Annotated[int, Field(ge=0)] | None = None
    late_timers: Annotated[Seconds, Field(ge=0)] | None = None
    model: list[Text | AnswerEntry | None] | None = None
    wait_reply: bool = True
    expect: Expect | None = None

    @model_validator(mode="after")
    def one_verb(self) -> Step:
        if len(self.verbs) != 1:
            found = " and ".join(self.verbs) or "none"
            raise ValueError(f"a step has one verb ({', '.join(VERBS)}); this one has {found}")
        return self

    @field_validator("cli")
    @classmethod
    def a_send(cls, words: list[str | int] | None) -> list[str | int] | None:
        if words is not None and (not words or words[0] != "send"):
            raise ValueError("cli is [send, TEXT, SESSION_ID, --agent, NAME]")
        return words

    @property
    def verbs(self) -> list[str]:
        return [verb for verb in VERBS if verb in self.model_fields_set]

    @property
    def verb(self) -> str:
        return self.verbs[0]


class _File(_Strict):
    scenario: Text
    start: Any = None
    agent: dict[str, Any] = {}
    sessions: list[SessionEntry] | None = None
    model: list[Text | AnswerEntry | None] = []
    steps: list[Step]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario, read and checked. ``lines`` gives the line of each step."""

    name: str
    file: str
    start: float
    agent: Agent
    sessions: tuple[SessionEntry, ...] | None
    answers: tuple[Answer, ...]
    steps: tuple[Step, ...]
    lines: tuple[int, ...]


def read_answers(entries: Sequence[str | AnswerEntry | None]) -> list[Answer]:
    """Scripted answers in order; null is one in which the model gave nothing."""
    found: list[Answer] = []
    for entry in entries:
        found += entry.answers() if isinstance(entry, AnswerEntry) else [Answer(entry)]
    return found


def read(path: Path | str) -> list[Scenario]:
    """The scenarios of a file (one a YAML document).

    Raises:
        ScenarioError: with the line, and what was expected there.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError(str(path), 1, f"cannot be read ({error.strerror}); expected a scenario file") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(
            str(path), 1, f"is not UTF-8 text (byte {error.start}); expected a scenario file"
        ) from error
    return read_text(text, str(path))


def read_text(text: str, file: str = "<text>") -> list[Scenario]:
    """As ``read``, from a text."""
    try:
        nodes = [node for node in yaml.compose_all(text, Loader=_Loader) if node is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ScenarioError(file, mark.line + 1 if mark else 1, f"is not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ScenarioError(file, 1, f"is not YAML: {error}") from error
    if not nodes:
        raise ScenarioError(file, 1, "is empty; expected `scenario: NAME` and `steps:`")
    return [_scenario(node, file) for node in nodes]


class _Loader(yaml.SafeLoader):
    """YAML without its surprises: a key that stands twice is an error, and 12:30 is text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (str, int)) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", key_node.start_mark
                )
            seen.add(key if isinstance(key, (str, int)) else repr(key))
        return super().construct_mapping(node, deep)


def _construct(node: yaml.Node) -> Any:
    loader = _Loader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _scenario(node: yaml.Node, file: str) -> Scenario:
    try:
        data = _construct(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise ScenarioError(file, mark.line + 1 if mark else 1, f"is not YAML: {error.problem}") from error
    if not isinstance(data, Mapping):
        raise ScenarioError(file, node.start_mark.line + 1, "expected a mapping with `scenario:` and `steps:`")
    try:
        found = TypeAdapter(_File).validate_python(data)
    except ValidationError as error:
        first = min(error.errors(), key=lambda e: _rank(node, e))
        raise ScenarioError(file, _line(node, first["loc"]), _say(first, data)) from error
    try:
        agent = agent_from_mapping({**found.agent}, MINIMAL | _making(found))
    except ConfigError as error:
        loc = ("agent", *(getattr(error, "key", "") or "").split("."))
        raise ScenarioError(file, _line(node, loc), f"agent: {error}") from error
    steps = tuple(found.steps)
    return Scenario(
        name=found.scenario,
        file=file,
        start=_start(found.start, node, file),
        agent=agent,
        sessions=None if found.sessions is None else tuple(found.sessions),
        answers=tuple(read_answers(found.model)),
        steps=steps,
        lines=tuple(_line(node, ("steps", n)) for n in range(len(steps))),
    )


def _making(found: _File) -> dict[str, Any]:
    """A scenario that lists its sessions, be it none, means those; one that does not care gets one made."""
    return {"make_sessions": found.sessions is None}


def _start(value: Any, node: yaml.Node, file: str) -> float:
    match value:
        case None:
            return START
        case datetime.datetime():
            return (value if value.tzinfo else value.replace(tzinfo=datetime.UTC)).timestamp()
        case bool():
            pass
        case int() | float() if math.isfinite(value):
            return float(value)
        case str():
            try:
                parsed = datetime.datetime.fromisoformat(value)
                return (parsed if parsed.tzinfo else parsed.replace(tzinfo=datetime.UTC)).timestamp()
            except ValueError:
                pass
    raise ScenarioError(
        file, _line(node, ("start",)), f"start: expected an instant like 2026-01-15T08:00:00Z, not {value!r}"
    )


# -- where, and what was expected -----------------------------------------------------------------


def _line(node: yaml.Node, loc: Sequence[int | str]) -> int:
    """The line of what ``loc`` names, or of the nearest thing around it that there is."""
    line = node.start_mark.line + 1
    for part in loc:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == str(part):
                    node, line = value, key.start_mark.line + 1
                    break
            else:
                continue  # pydantic also names the branch of a union: not a place in the file
        elif isinstance(node, yaml.SequenceNode):
            if isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line + 1
        else:
            break
    return line


def _rank(node: yaml.Node, error: Any) -> tuple[int, int]:
    """Unknown keys first (a misspelt one is the cause of the others), then by line."""
    return (0 if error["type"] == "extra_forbidden" else 1, _line(node, error["loc"]))


_MODELS: dict[str, type[BaseModel]] = {
    "message": MessageEntry, "messages": MessageEntry, "expect": Expect, "sessions": SessionEntry, "of": Of,
    "crash_at": CrashAt, "model": AnswerEntry, "steps": Step,
}  # fmt: skip


def _say(error: Any, data: Any) -> str:
    """One sentence: where, what stands there, what was expected."""
    loc = [part for part in error["loc"] if isinstance(part, int) or part.islower()]
    where = _where(loc)
    match error["type"]:
        case "extra_forbidden":
            import difflib

            key, around = str(loc[-1]), [p for p in loc[:-1] if isinstance(p, str)]
            model = _MODELS.get(around[-1], _File) if around else _File
            names = [f.alias or n for n, f in model.model_fields.items()]
            near = difflib.get_close_matches(key, names, n=1)
            hint = f"; did you mean `{near[0]}`?" if near else f"; expected one of {', '.join(names)}"
            return f"{_where(loc[:-1])}unknown key `{key}`{hint}"
        case "missing":
            return f"{_where(loc[:-1])}the key `{loc[-1]}` is missing"
        case "value_error":
            return f"{where}{error['ctx']['error']}"
        case "string_type":
            return f"{where}expected a text, not {_short(error['input'])} (put it in quotes)"
        case _:
            message = error["msg"][0].lower() + error["msg"][1:]
            return f"{where}{message.replace('input should be', 'expected')}, not {_short(error['input'])}"


def _where(loc: Sequence[int | str]) -> str:
    text = ""
    for part in loc:
        text += f" {part + 1}" if isinstance(part, int) else (f", {part}" if text else part)
    return text + ": " if text else ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
