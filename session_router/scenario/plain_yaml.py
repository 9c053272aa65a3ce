"""YAML that means what it looks like.

By the rules of YAML 1.2 only ``true`` and ``false`` are switches and only decimals are numbers. So ``yes``, ``12:30``,
``010``, ``0x1f``, ``1_000`` and ``2026-02-30`` are texts. A key is always the text that stands there, once in its
mapping; ``<<`` takes over the keys of another one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import yaml

Path = tuple[str | int, ...]
"""Where a value stands: keys of mappings, and indices of lists from 0."""

DEEPEST = 50
"""Levels of lists and mappings; the format itself needs seven."""

MOST = 1_000_000
"""Values in one document, an alias counted with all that it stands for."""

_TAG = "tag:yaml.org,2002:"
_TEXT, _MERGE = f"{_TAG}str", f"{_TAG}merge"

NUMBER = re.compile(
    r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z|[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z"
)
SCALARS = {
    f"{_TAG}null": re.compile(r"(~|null|Null|NULL|)\Z"),
    f"{_TAG}bool": re.compile(r"(true|True|TRUE|false|False|FALSE)\Z"),
    f"{_TAG}int": re.compile(r"(0|-?[1-9][0-9]{0,299})\Z"),  # so that str() gives back what stands there
    f"{_TAG}float": NUMBER,
    _MERGE: re.compile(r"<<\Z"),
}


class YamlProblem(Exception):
    """A text that is no YAML, or none of ours: the ``line`` (from 1) and what is wrong there."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line, self.text = line, text


class _Loader(yaml.SafeLoader):
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise YamlProblem(self.line + 1, _TOO_DEEP)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


_TOO_DEEP = f"lists and mappings are nested more than {DEEPEST} deep; write it flatter"

_Loader.yaml_implicit_resolvers = {}
for tag, pattern in SCALARS.items():
    _Loader.add_implicit_resolver(tag, pattern, None)


def documents(text: str) -> list[yaml.Node]:
    """The documents of a text. Raises YamlProblem."""
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        code = f"{error.character:04x}"
        raise YamlProblem(
            text.count("\n", 0, error.position) + 1,
            f'YAML has no character U+{code.upper()} as it is; write it in double quotes as "\\u{code}"',
        ) from error
    found: list[yaml.Node] = []
    try:
        while loader.check_node():
            if (node := loader.get_node()) is not None:
                found.append(node)
        return found
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlProblem(mark.line + 1 if mark else loader.line + 1, f"this is not YAML: {error.problem}") from error
    except (ValueError, OverflowError) as error:
        raise YamlProblem(loader.line + 1, "this is not YAML: an escape in double quotes names no character") from error
    finally:
        loader.dispose()


class _Value(NamedTuple):
    plain: Any
    many: int
    depth: int


def plain(node: yaml.Node) -> Any:
    """What a document says, in dicts with texts as keys, lists, texts, numbers, true, false and None. Merged keys stand
    in the mapping's own node from then on. Raises YamlProblem."""
    return _Reading().of(node).plain


class _Reading:
    """An aliased node is read once, and what it says is shared."""

    def __init__(self) -> None:
        self._read: dict[int, _Value] = {}
        self._open: set[int] = set()

    def of(self, node: yaml.Node) -> _Value:
        name = id(node)
        if name in self._open:
            raise _wrong(node, "an alias stands inside of what it names; write out what is meant")
        if name not in self._read:
            self._open.add(name)
            self._read[name] = self._value(node)
            self._open.discard(name)
        return self._read[name]

    def _value(self, node: yaml.Node) -> _Value:
        match node:
            case yaml.MappingNode(tag="tag:yaml.org,2002:map"):
                self._merge(node)
                parts = {key.value: self.of(value) for key, value in node.value}
                made: Any = {key: part.plain for key, part in parts.items()}
                inner = list(parts.values())
            case yaml.SequenceNode(tag="tag:yaml.org,2002:seq"):
                inner = [self.of(each) for each in node.value]
                made = [part.plain for part in inner]
            case yaml.ScalarNode():
                return _Value(_scalar(node), 1, 0)
            case _:
                raise _wrong(node, _useless(node.tag))
        value = _Value(made, 1 + sum(part.many for part in inner), 1 + max((part.depth for part in inner), default=0))
        if value.many > MOST:
            raise _wrong(node, f"this is more than {MOST:,} values, aliases included; make it smaller")
        if value.depth > DEEPEST:
            raise _wrong(node, _TOO_DEEP)
        return value

    def _merge(self, node: yaml.MappingNode) -> None:
        """Put the keys of ``<<`` into the node itself, behind its own, which count before them."""
        keys: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _wrong(key, "a key has to be a text")
            if key.value in keys:
                raise _wrong(key, f"the key `{key.value}` stands twice; keep one of them")
            keys[key.value] = key, value
        merged = keys.pop("<<")[1] if "<<" in keys and keys["<<"][0].tag == _MERGE else None
        for source in merged.value if isinstance(merged, yaml.SequenceNode) else [merged] if merged else ():
            if not isinstance(source, yaml.MappingNode):
                raise _wrong(source, "`<<` takes over the keys of a mapping, or of a list of mappings")
            self.of(source)
            for key, value in source.value:
                keys.setdefault(key.value, (key, value))
        node.value = list(keys.values())


def _scalar(node: yaml.ScalarNode) -> Any:
    text = node.value
    seen = next((tag for tag, pattern in SCALARS.items() if pattern.match(text)), _TEXT)
    if node.tag not in (_TEXT, seen):
        raise _wrong(node, _useless(node.tag))
    match node.tag.removeprefix(_TAG):
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return int(text)
        case "float":
            return float(re.sub(r"\.(?=[a-zA-Z])", "", text) if text[-1].isalpha() else text)
        case _:
            return text


def _useless(tag: str) -> str:
    return f"the tag {tag.replace(_TAG, '!!')} means nothing here; leave it out, and put a text in quotes"


def _wrong(node: yaml.Node, text: str) -> YamlProblem:
    return YamlProblem(node.start_mark.line + 1, text)


def line_of(node: yaml.Node, path: Sequence[int | str]) -> int:
    """The line (from 1) of what ``path`` names, or of the nearest thing around it that there is."""
    line = node.start_mark.line + 1
    for part in path:
        if isinstance(node, yaml.MappingNode) and (found := _entry(node, str(part))):
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return int(line)


def _entry(node: yaml.MappingNode, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    return next(((key, value) for key, value in node.value if key.value == name), None)
