"""A real conversation as a scenario file: its messages, the model's answers, and the time between them.

What stands in the file is what the store recorded. The sessions are those of today, so that a switch finds
something; a call that never answered is written as one that hangs.
"""

from __future__ import annotations

import datetime
import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import yaml
from msgspec import structs

from fsm.agent import Agent, in_room, room_of
from fsm.constants import CMD_RE, Limits
from fsm.conversation import Key, State
from fsm.language.recognise import Kind, recognise
from fsm.language.words import WORDS, Words
from fsm.ports import InboxRow, SessionInfo, SessionRouterError, StepRecord, Store
from fsm.sessions import Sessions, session_id_for
from session_router.scenario.plain_yaml import SCALARS

REPLAYABLE = {"replied", "silent", "muted", "duplicate", "refused", "failed", "stopped"}
LEFT_OUT = {"why_too_many"}
"""Reasons that depend on what other conversations did, or on the process: such a message is left out."""
_KEPT_ARGUMENT = re.compile(r"[\d\s~-]+|\d+[smhd]?", re.ASCII)


class NothingToExport(SessionRouterError):
    """No message of the conversation has come to its end."""


async def export(
    key: Key,
    store: Store,
    sessions: Sessions,
    *,
    agent: Agent | None = None,
    mask: bool = False,
    limit: int = 1000,
) -> str:
    """The scenario file of a conversation as YAML text.

    ``agent`` is the conversation's own; None where the config does not name it any more. ``limit`` counts the
    newest messages. With ``mask`` texts and titles are hidden (see :func:`masked`).

    Raises:
        StoreError: the store cannot be read.
        NothingToExport: there is nothing to play.
    """
    agent = agent or Agent(key.agent)
    rows = [row for row in reversed(await store.history(key, limit)) if _belongs(row)]
    if not rows:
        who = f"{key.channel} {key.sender}"
        raise NothingToExport(f"No message of {who} has come to its end yet; try again when one has.")
    told = [_Told(row, tuple(await store.steps(f"{key.agent}/{key.channel}/{row.message.id}"))) for row in rows]
    made = {session_id_for(f"{key.agent}/{key.channel}/{row.message.id}") for row in rows}
    there = [s for s in (await sessions.list(agent, key.sender)).sessions if s.id not in made]
    hide = _Mask(agent.words, {session.id for session in there}) if mask else _Mask.off()
    start = rows[0].message.at
    scenario: dict[str, Any] = {
        "scenario": f"{key.channel} {key.sender}, as it went",
        "start": datetime.datetime.fromtimestamp(start, datetime.UTC).isoformat(timespec="milliseconds"),
        "agent": _agent(agent, key, rows),
    }
    if there:
        scenario["sessions"] = [_session(session, start, hide) for session in there]
    scenario["model"] = [answer for one in told for answer in one.answers(hide)]
    scenario["steps"] = list(_steps(told, start, hide))
    return yaml.dump(scenario, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=10_000)


class _Dumper(yaml.SafeDumper):
    """Lists of steps stand below their key, indented, as people write them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


for tag, pattern in SCALARS.items():
    _Dumper.add_implicit_resolver(tag, pattern, None)  # what we would read as a number is put in quotes as well


def _belongs(row: InboxRow) -> bool:
    return row.disposition in REPLAYABLE and row.reason not in LEFT_OUT


def _agent(agent: Agent, key: Key, rows: Sequence[InboxRow]) -> dict[str, Any]:
    """What of the agent decides how messages are taken. Retries stay off: the record holds only answers."""
    limits, usual = asdict(agent.limits), asdict(Limits())
    found: dict[str, Any] = {"name": agent.name}
    if agent.nick:
        found["nick"] = agent.nick
    if agent.aliases:
        found["aliases"] = list(agent.aliases)
    found["language"] = agent.language
    found |= {"make_sessions": agent.make_sessions, "auto": agent.auto}
    if agent.default_session:
        found["default_session"] = agent.default_session
    if in_room(key.channel):
        group = agent.groups.get(room_of(key.channel))
        if group is not None:
            found["groups"] = {
                room_of(key.channel): {"allow": sorted(group.allow), "others": group.others, "nicks": group.nicks}
            }
    elif any(row.reason == "why_not_allowed" for row in rows):
        found["allow"] = sorted(agent.allow)
    if agent.bots:
        found["bots"] = sorted(agent.bots)
    if agent.words != WORDS:
        words = {
            name: [each for each in given if each not in getattr(WORDS, name)]
            for name, given in structs.asdict(agent.words).items()
        }
        found["words"] = {
            name: dict(given) if isinstance(given[0], tuple) else given for name, given in words.items() if given
        }
    for name, value in limits.items():
        if value != usual[name] and name not in ("rate_limit", "model_retries"):
            found[name] = list(value) if isinstance(value, tuple) else value
    return found


def _session(session: SessionInfo, start: float, hide: _Mask) -> dict[str, Any]:
    return {"id": session.id, "title": hide.text(session.title), "active": round(session.active_at - start, 3),
            "source": session.source}  # fmt: skip


# -- one message and its turn ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Told:
    """A message with the recorded steps of its turn."""

    row: InboxRow
    steps: tuple[StepRecord, ...] = field(default=())

    @property
    def at(self) -> float:
        return self.row.message.at

    @property
    def settled(self) -> float:
        return self.row.settled_at if self.row.settled_at is not None else self.at

    def answers(self, hide: _Mask) -> list[Any]:
        """The model's answers in order, and the call that got none where the turn ended without."""
        found: list[Any] = []
        before = self.at
        for step in self.steps:
            if step.kind == "model":
                data = json.loads(step.data)
                found.append(_answer(data, hide, step.at - before))
            before = step.at
        match self.row.reason:
            case "why_stopped" | "why_timed_out":
                found.append({"hang": True})
            case "why_model_failed" | "why_cut_off":
                found.append({"error": "no answer", "takes": _seconds(self.settled - before)})
        return found

    def message(self, hide: _Mask) -> dict[str, Any]:
        inbound = self.row.message
        told: dict[str, Any] = {
            "channel": inbound.channel, "sender": inbound.sender, "text": hide.said(inbound.text), "id": inbound.id,
        }  # fmt: skip
        for name in ("nick", "real_jid"):
            if value := getattr(inbound, name):
                told[name] = value
        for name in ("mentioned", "own", "delayed", "edited", "bot"):
            if getattr(inbound, name):
                told[name] = True
        return told


def _answer(data: dict[str, Any], hide: _Mask, takes: float) -> Any:
    text = data["text"]
    answer: dict[str, Any] = {"text": text if text is None else hide.answer(text)}
    if seconds := _seconds(takes):
        answer["takes"] = seconds
    if data.get("input") or data.get("output"):
        answer["tokens"] = {"in": data.get("input", 0), "out": data.get("output", 0)}
    return answer


def _seconds(seconds: float) -> float | int:
    rounded = round(max(0.0, seconds), 3)
    return int(rounded) if rounded.is_integer() else rounded


def _steps(told: Sequence[_Told], start: float, hide: _Mask) -> list[dict[str, Any]]:
    """A message waits for its end, unless the next one came before that."""
    steps: list[dict[str, Any]] = []
    running, now = 0.0, start
    for n, one in enumerate(told):
        if one.at > now:
            now = one.at
            steps.append({"at": _seconds(now - start)})
        running = max(running, one.settled)
        following = told[n + 1] if n + 1 < len(told) else None
        # A stop settles the message before it in the very instant in which it comes.
        stopped = one.row.reason == "why_stopped"
        overtaken = following is not None and (following.at < one.settled or (stopped and following.at == one.settled))
        step: dict[str, Any] = {"message": one.message(hide)}
        if overtaken:
            step["message"]["wait_reply"] = False
        elif one.row.reason != "why_undelivered":
            # A delivery that failed is no part of the conversation; up to there the message was answered.
            step["expect"] = {"disposition": one.row.disposition}
        steps.append(step)
    if running > max(now, told[-1].settled):
        steps.append({"at": _seconds(running - start)})  # until the overtaken ones are done as well
    return steps


# -- masking -------------------------------------------------------------------------------------


def masked(text: str) -> str:
    """``text`` with its letters hidden: ``字`` for a Chinese, Japanese or Korean one, ``x`` or ``X`` for any
    other; its length, numbers and punctuation stay."""
    return "".join(map(_hidden, text))


def _hidden(char: str) -> str:
    category = unicodedata.category(char)
    if category == "Lo":
        return "字"
    if category.startswith("L") or category in ("Mn", "Mc", "So"):
        return "X" if category in ("Lu", "Lt") else "x"
    return char


@dataclass(frozen=True, slots=True)
class _Mask:
    """Hides texts while what the engine acts on stays."""

    words: Words = WORDS
    ids: frozenset[str] | set[str] = frozenset()
    on: bool = True

    @classmethod
    def off(cls) -> _Mask:
        return cls(on=False)

    def text(self, text: str) -> str:
        return masked(text) if self.on else text

    def said(self, text: str) -> str:
        """What a person wrote: of a switch, a title or a memory the words behind the phrase are hidden."""
        if not self.on:
            return text
        # In some state each of these means something; kept in all of them, they play as they did.
        for state in (State.AWAITING_SELECTION, State.COMMAND_LOOPING):
            found = recognise(text, state, self.words)
            if found.kind is Kind.TEXT:
                continue
            behind = found.words or (found.argument if found.command != "lang" else "")
            if not behind or behind in self.ids or behind not in text:
                return text
            head, _, tail = text.rpartition(behind)
            return head + masked(behind) + tail
        return masked(text)

    def answer(self, text: str) -> str:
        """What the model wrote: markers and commands stay, words in a command's argument do not."""
        if not self.on:
            return text
        found, end = "", 0
        for hit in _ACTING.finditer(text):
            found += masked(text[end : hit.start()]) + self._command(hit[0])
            end = hit.end()
        return found + masked(text[end:])

    def _command(self, spelling: str) -> str:
        name, colon, argument = spelling.strip("#").partition(":")
        if not colon or argument in self.ids or _KEPT_ARGUMENT.fullmatch(argument):
            return spelling
        return f"##{name}:{masked(argument)}##"


_ACTING = re.compile(rf"__(?:SILENT|REPLY)__|</?[a-z_]*think[a-z]*>|{CMD_RE.pattern}")
