"""What is wrong with a config, in sentences that name the file, the key and the mend.

pydantic knows where a value is wrong and by which rule; here that becomes plain words. The value
itself is never repeated: it may be a password that stands under the wrong key.
"""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from fsm.ports import SessionRouterError

Path_ = tuple[str | int, ...]
"""Where a value stands: keys of tables, and indices of lists from 0."""


@dataclass(frozen=True, slots=True)
class Problem:
    """``path`` leads to the value as it is spelled in the config, ``text`` is one plain sentence and
    ``place`` the file or the environment variable that holds it, empty where it came from neither."""

    path: Path_
    text: str
    place: str = ""

    @property
    def key(self) -> str:
        return dotted(self.path)

    def __str__(self) -> str:
        return ": ".join(part for part in (self.place, self.key, self.text) if part)


class ConfigError(SessionRouterError):
    """A config cannot be used; nothing was done with it.

    ``problems`` holds one entry or more and ``str()`` a line for each. ``key`` (dotted), ``path`` and
    ``text`` are those of the first.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)

    @property
    def key(self) -> str:
        return self.problems[0].key

    @property
    def path(self) -> Path_:
        return self.problems[0].path

    @property
    def text(self) -> str:
        return self.problems[0].text


def dotted(path: Path_) -> str:
    """A path as TOML spells it: ``agents.mohe.groups."team@muc.example".allow[0]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = part if re.fullmatch(r"[\w-]+", part) else f'"{part}"'
            text += f".{bare}" if text else bare
    return text


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The hint behind an unknown name: the nearest known one, else all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(word.lower(), names, n=1)
    if near:
        return f"did you mean `{near[0]}`?"
    return f"known here: {', '.join(names)}" if names else "nothing is known here"


def problems_of(
    error: ValidationError,
    model: type[BaseModel],
    spelled: Callable[[Path_], Path_],
    place: Callable[[Path_], str],
    extra: Mapping[type[BaseModel], Iterable[str]],
) -> list[Problem]:
    """Every error of a validation of ``model``.

    ``spelled`` turns a path of the model into that of the text it was read from, ``place`` names what
    holds it, and ``extra`` are keys that a model takes beside its fields.
    """
    found = []
    for detail in error.errors(include_url=False, include_input=True):
        loc: Path_ = tuple(part for part in detail["loc"] if part != "[key]")
        path = spelled(loc)
        if detail["type"] == "extra_forbidden":
            table = _type_at(model, loc[:-1])
            known = [*table.model_fields, *extra.get(table, ())] if _is_model(table) else []
            word = str(loc[-1])
            text = f"unknown key `{word}`; {_misplaced(word, loc, extra) or did_you_mean(word, known)}"
        else:
            text = _sentence(detail)
        found.append(Problem(path, text, place(path)))
    return found


def _misplaced(word: str, loc: Path_, extra: Mapping[type[BaseModel], Iterable[str]]) -> str:
    """What to say of a key at the top that is one of a single agent."""
    if len(loc) > 1:
        return ""
    if any(word.lower() in tuple(names) for names in extra.values()):
        return "write it under [limits], or in the table of one agent"
    if any(word in table.model_fields for table in extra):
        return "write it in the table of one agent, such as [agents.assistant]"
    return ""


def _sentence(detail: Any) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    match kind:
        case "value_error":
            return str(context["error"])
        case "missing":
            return "this key has to be there"
        case "literal_error":
            return f"expected {context['expected']}"
        case "greater_than":
            return f"expected a number greater than {context['gt']}"
        case "greater_than_equal":
            return f"expected a number of at least {context['ge']}"
        case "less_than" | "less_than_equal":
            return f"expected a number of at most {context.get('le', context.get('lt'))}"
        case "finite_number":
            return "expected a finite number"
        case "string_too_short" | "too_short":
            return "expected something here, not nothing"
        case "string_too_long" | "too_long":
            return f"expected at most {context.get('max_length')} of them"
        case "invalid_key":
            return "expected a key that is text"
    for begin, wanted in _WANTED.items():
        if kind.startswith(begin):
            return f"expected {wanted}, not {_named(detail['input'])}"
    return str(detail["msg"])


_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "path": "the path of a file",
    "tuple": "a list",
    "frozen_set": "a list",
    "set": "a list",
    "list": "a list",
    "dict": "a table",
    "mapping": "a table",
    "model": "a table",
}


def _named(value: object) -> str:
    """What kind of thing a value is. Never the value, which may be a secret."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case "":
            return "empty text"
        case str():
            return "text"
        case Mapping():
            return "a table"
        case list() | tuple() | set() | frozenset():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


def _is_model(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)


def _type_at(model: type[BaseModel], path: Path_) -> Any:
    """The type that a path of the model leads to."""
    found: Any = model
    for part in path:
        found = _plain(found)
        if _is_model(found):
            field = found.model_fields.get(part)
            found = field.annotation if field else None
        else:
            arguments = get_args(found)
            found = (arguments[1] if get_origin(found) is dict else arguments[0]) if arguments else None
    return _plain(found)


def _plain(annotation: Any) -> Any:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _plain(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        inner = [each for each in get_args(annotation) if each is not types.NoneType]
        return _plain(next((each for each in inner if _is_model(each)), inner[0]))
    if isinstance(annotation, typing.ForwardRef):
        return None
    return annotation
