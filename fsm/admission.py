"""Who is let in: the first look at a message, before anything is recognised or stored.

Identity is what the channel could prove (a real address, an occupant id); a nick is for display.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from fsm.agent import Agent, Group, in_room, room_of
from fsm.conversation import State
from fsm.language.recognise import Kind, recognise
from fsm.language.spans import INVISIBLE, is_blank
from fsm.ports import Inbound
from fsm.values import Value

FEW = 10_000
"""Senders of whom the door may remember something without asking whether it still matters."""

RATE_SECONDS = 60
"""What a rate is counted over."""

_UNSEEN = re.compile(f"[{INVISIBLE}]")


class Verdict(Enum):
    """``ANSWER`` it; ``REFUSE`` it with a reason; keep it as ``CONTEXT``; or ``DROP`` it unseen."""

    ANSWER = "answer"
    REFUSE = "refuse"
    CONTEXT = "context"
    DROP = "drop"


class Admission(Value):
    """``reason`` is a key of the texts; ``tell`` says that the sender hears of the refusal;
    ``keep`` that a refused message is still context; ``counted`` that it took one of the answers that
    bots have in a row."""

    verdict: Verdict
    reason: str = ""
    tell: bool = False
    keep: bool = False
    counted: bool = False


_WELCOME = Admission(Verdict.ANSWER)
_COUNTED = Admission(Verdict.ANSWER, counted=True)


@dataclass(slots=True)
class Gatekeeper:
    """The door of one agent. Holds the counters that rate limit and bot budget need; a restart
    forgets them, which errs on the side of answering."""

    agent: Agent
    recent: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """When each sender's messages of the last minute came. Tuples: an empty deque alone takes more memory than all the
    rest of an idle conversation."""
    room: int = FEW
    """Senders in ``recent`` before the quiet ones are looked for."""
    told: dict[str, float] = field(default_factory=dict)
    """When each sender was told last that it is too much: a flood is not answered with a flood."""
    in_a_row: dict[str, set[str]] = field(default_factory=dict)
    """By room, the ids of the bots' messages that are answered or may be, since a person spoke."""

    def look(self, message: Inbound) -> Admission:
        """What to do with ``message``; counts it against the sender's rate."""
        if message.own:
            return Admission(Verdict.DROP)
        if message.edited:
            return Admission(Verdict.CONTEXT, "why_edited")
        if is_blank(message.text):
            return Admission(Verdict.DROP, "why_blank")
        group = self.agent.groups.get(room_of(message.channel), Group()) if in_room(message.channel) else None
        refusal = self._identity(message, group)
        if message.delayed:
            # History is for the model to know and for nobody to answer; a stranger's only where theirs is kept.
            return Admission(Verdict.CONTEXT if refusal is None or refusal.keep else Verdict.DROP)
        if refusal is not None:
            return refusal
        limits, counted = self.agent.limits, False
        if group is not None:
            if self._is_bot(message):
                answered = self.in_a_row.setdefault(message.channel, set())
                if message.id not in answered:
                    if len(answered) >= limits.bot_budget:
                        return Admission(Verdict.REFUSE, "why_bot_budget", keep=True)
                    answered.add(message.id)
                    counted = True
            else:
                self.in_a_row.pop(message.channel, None)
        if len(message.text) > limits.message_chars:
            return Admission(Verdict.REFUSE, "why_too_long", tell=True)
        if self._too_many(message):
            return Admission(Verdict.REFUSE, "why_too_many", tell=self._is_to_be_told(message))
        return _COUNTED if counted else _WELCOME

    def not_answered(self, channel: str, message_id: str) -> None:
        """Nothing was said to that message: where a bot sent it, it takes no answer from the others."""
        if (answered := self.in_a_row.get(channel)) is not None:
            answered.discard(message_id)

    def take_back(self, message: Inbound, look: Admission) -> None:
        """``look`` let in what had been let in before, or what could not be recorded and comes again: it counts against
        nothing."""
        if look.counted:
            self.not_answered(message.channel, message.id)
        if (times := self.recent.get(who := _sender(message))) and look.verdict is Verdict.ANSWER:
            self.recent[who] = times[:-1]
        if look.tell and look.reason == "why_too_many":
            self.told.pop(who, None)

    def is_owed(self, message: Inbound) -> bool:
        """Whether a reply is owed for reasons of the message itself: a direct chat, or a mention."""
        if not in_room(message.channel):
            return True
        return message.mentioned or mentions(message.text, self.agent.names)

    def _identity(self, message: Inbound, group: Group | None) -> Admission | None:
        who = bare(message.real_jid or message.sender)
        if group is None:
            if message.channel == "console" or "*" in self.agent.allow or who in folded(self.agent.allow):
                return None
            return Admission(Verdict.REFUSE, "why_not_allowed")
        if who and who in folded(group.allow):
            return None
        if group.nicks and message.nick and message.nick in group.allow:
            return None
        keep = group.others == "context"
        # Whom the room does not show is ``ROOM/nick``, the room's address and no person's.
        unproven = not message.real_jid and ("@" not in message.sender or who == bare(room_of(message.channel)))
        return Admission(Verdict.REFUSE, "why_unproven" if unproven else "why_not_allowed", keep=keep)

    def _is_bot(self, message: Inbound) -> bool:
        return message.bot or bare(message.real_jid or message.sender) in folded(self.agent.bots)

    def _too_many(self, message: Inbound) -> bool:
        who = _sender(message)
        if self.agent.limits.rate_limit <= 0 or self._counted(who, message.at):
            return False
        # What ends a turn, or what it waits for, is what people need just then; that has a rate of its own.
        said = recognise(message.text, State.IDLE, self.agent.words)
        needed = said.kind is Kind.STOP or said.command in ("allow", "deny")
        return not (needed and self._counted(f"{who}\n/stop", message.at))

    def _counted(self, who: str, at: float) -> bool:
        """Count one more, unless that is too many."""
        times, since = self.recent.get(who, ()), at - RATE_SECONDS
        if times and min(times) <= since:
            times = tuple(before for before in times if before > since)
        if len(times) >= self.agent.limits.rate_limit:
            return False
        self.recent[who] = (*times, at)
        if len(self.recent) > self.room:  # senders come and go: forget those who have been quiet a minute
            self.recent = {w: t for w, t in self.recent.items() if t and t[-1] > since}
            self.room = max(FEW, 2 * len(self.recent))
        return True

    def _is_to_be_told(self, message: Inbound) -> bool:
        who, since = _sender(message), message.at - RATE_SECONDS
        if not self.is_owed(message) or self.told.get(who, since) > since:
            return False
        self.told = {w: at for w, at in self.told.items() if at > since} | {who: message.at}
        return True


def _sender(message: Inbound) -> str:
    return f"{message.channel}\n{message.sender}"


def bare(address: str) -> str:
    """An address without its resource, case folded; anything else folded as it is."""
    first = address.partition("/")[0]
    return first.strip().casefold() if "@" in first else address.strip()


@lru_cache(maxsize=1024)
def folded(addresses: frozenset[str]) -> frozenset[str]:
    """An allowlist as :func:`bare` addresses, blank entries left out: an empty name is nobody."""
    return frozenset(bare(a) for a in addresses if a.strip())


def mentions(text: str, names: tuple[str, ...]) -> bool:
    """``@name`` anywhere, or a name at the very start, where people address each other; in any letter case and width,
    whatever unseen characters stand between."""
    said = _as_seen(text).lstrip()
    for name in _names_as_seen(names):
        if said.startswith(name) and not _continues(said, len(name), name):
            return True
        at = said.find("@" + name)
        while at >= 0:
            if not _continues(said, at + 1 + len(name), name):
                return True
            at = said.find("@" + name, at + 1)
    return False


def _as_seen(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _UNSEEN.sub("", text))
    return text.casefold()


@lru_cache(maxsize=64)
def _names_as_seen(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(seen for name in names if (seen := _as_seen(name)))


def _continues(text: str, end: int, name: str) -> bool:
    """Whether the word goes on behind an ASCII name; Chinese is written without spaces."""
    if not name.isascii() or end >= len(text):
        return False
    return text[end].isascii() and (text[end].isalnum() or text[end] in "-_.@")
