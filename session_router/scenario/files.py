"""Reads a scenario file. Whatever is wrong with it is said with file, line and what was expected there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from fsm.agent import Agent
from session_router.config import ConfigError, agent_from_mapping
from session_router.scenario import plain_yaml
from session_router.scenario.format import AnswerEntry, File, SessionEntry, Step, quotes, shown
from session_router.scenario.plain_yaml import YamlProblem, line_of
from session_router.scenario.script import Answer
from session_router.scenario.sense import nonsense

MINIMAL: dict[str, Any] = {"name": "bot", "language": "zh", "allow": ["*"], "rate_limit": 0, "model_retries": 0}
"""What ``agent`` is laid over: everybody is admitted, nothing is limited, nothing retried."""


class ScenarioError(Exception):
    """A scenario file that cannot be run: ``file``, ``line`` (from 1) and ``problem``."""

    def __init__(self, file: str, line: int, problem: str) -> None:
        super().__init__(f"{file}:{line}: {problem}")
        self.file, self.line, self.problem = file, line, problem


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


def read_answers(entries: Sequence[AnswerEntry]) -> list[Answer]:
    """Scripted answers in order."""
    return [answer for entry in entries for answer in entry.answers()]


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
        nodes = plain_yaml.documents(text)
        if not nodes:
            raise ScenarioError(file, 1, "is empty; expected `scenario: NAME` and `steps:`")
        return [_scenario(node, plain_yaml.plain(node), file) for node in nodes]
    except YamlProblem as error:
        raise ScenarioError(file, error.line, error.text) from error


def _scenario(node: yaml.Node, data: Any, file: str) -> Scenario:
    def wrong(path: plain_yaml.Path, text: str, key: str = "") -> ScenarioError:
        where, line = _where(path), line_of(node, (*path, key) if key else path)
        return ScenarioError(file, line, f"{where}: {text}" if where else text)

    if not isinstance(data, Mapping):
        raise wrong((), "expected a mapping with `scenario:` and `steps:`")
    try:
        found = File.model_validate(data)
    except ValidationError as error:
        raise wrong(*_first(error, node, data)) from error
    try:
        # A scenario that lists its sessions, be it none, means those; one that does not care gets one made.
        agent = agent_from_mapping(found.agent, MINIMAL | {"make_sessions": found.sessions is None})
    except ConfigError as error:
        raise wrong(("agent", *error.path), error.text) from error
    for path, text in nonsense(found, agent):
        raise wrong(path, text)
    return Scenario(
        name=found.scenario,
        file=file,
        start=found.start,
        agent=agent,
        sessions=None if found.sessions is None else tuple(found.sessions),
        answers=tuple(read_answers(found.model)),
        steps=tuple(found.steps),
        lines=tuple(line_of(node, ("steps", n)) for n in range(len(found.steps))),
    )


# -- where, and what was expected -----------------------------------------------------------------


def _first(error: ValidationError, node: yaml.Node, data: Any) -> tuple[plain_yaml.Path, str, str]:
    """The topmost of what is wrong: where, a sentence, and the key there that it is about, if it is about one. What a
    value could have been instead is all in one sentence."""
    found: dict[tuple[plain_yaml.Path, str], list[Any]] = {}
    for detail in error.errors(include_url=False):
        key = detail["ctx"]["key"] if detail["type"] == "at_key" else ""
        found.setdefault((_path(detail, data), key), []).append(detail)
    path, key = min(found, key=lambda place: (line_of(node, (*place[0], place[1])), -len(place[0])))
    details = found[path, key]
    wanted = [_wanted(detail) for detail in details]
    if "" in wanted:
        return path, _sentence(details[wanted.index("")]), key
    value = details[0]["input"]
    hint = quotes(value) if any(name.startswith("a text") for name in wanted) else ""
    return path, f"expected {' or '.join(dict.fromkeys(wanted))}, not {shown(value)}{hint}", key


def _path(detail: Any, data: Any) -> plain_yaml.Path:
    """Where in the file an error is: its place without the parts that name a type and no place."""
    path: list[str | int] = []
    for part in detail["loc"]:
        if (isinstance(data, Mapping) and part in data) or (isinstance(data, list) and isinstance(part, int)):
            path.append(part)
            data = data[part]
    return tuple(path)


_KINDS = {
    "string_type": "a text", "string_too_short": "a text that is not empty",
    "string_unicode": "a text without halves of characters (lone surrogates)", "bool_type": "true or false",
    "int_type": "a whole number", "int_from_float": "a whole number", "float_type": "a number",
    "finite_number": "a finite number", "list_type": "a list", "too_short": "at least one entry",
    "dict_type": "a mapping",
}  # fmt: skip


def _wanted(detail: Any) -> str:
    """What would have been right for a value that is of the wrong kind; empty where it is not that."""
    context = detail.get("ctx", {})
    match detail["type"]:
        case "greater_than_equal":
            return f"a number of at least {context['ge']:.0f}"
        case "less_than_equal":
            return f"a number of at most {context['le']:.0f}"
        case "literal_error":
            return str(context["expected"])
        case kind:
            return _KINDS.get(kind, "")


def _sentence(detail: Any) -> str:
    match detail["type"]:
        case "missing":
            return f"the key `{detail['loc'][-1]}` is missing"
        case "value_error":
            return str(detail["ctx"]["error"])
        case _:
            return str(detail["msg"])


def _where(path: Sequence[int | str]) -> str:
    text = ""
    for part in path:
        text += f" {part + 1}" if isinstance(part, int) else f", {part}" if text else part
    return text
