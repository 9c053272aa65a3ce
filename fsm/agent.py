"""One agent as the core sees it: a named persona with its rules. Plain values; config makes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fsm.constants import Limits
from fsm.language.words import WORDS, Words


@dataclass(frozen=True, slots=True)
class Group:
    """A room that the agent is in.

    ``allow``: real addresses (or occupant ids) whose messages are answered. ``others``: what becomes
    of everybody else's messages, ``context`` or ``nothing``. ``nicks`` lets a bare nick count, which
    anybody can take: the log says so at start-up.
    """

    allow: frozenset[str] = frozenset()
    others: str = "context"
    nicks: bool = False


@dataclass(frozen=True, slots=True)
class Agent:
    """``allow`` admits direct chats (``*`` everybody).

    ``permissions`` narrows commands: command name to the persons or channels that may use it.
    ``visible`` narrows sessions: person to the sources and session ids that they may see.
    ``make_sessions`` lets a text make a session where none can be bound.
    """

    name: str
    nick: str = ""
    aliases: tuple[str, ...] = ()
    language: str = "zh"
    user_label: str = "用户"
    agent_label: str = ""
    instructions: str = ""
    default_session: str | None = None
    auto: bool = True
    make_sessions: bool = True
    allow: frozenset[str] = frozenset()
    groups: Mapping[str, Group] = field(default_factory=dict)
    bots: frozenset[str] = frozenset()
    permissions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    visible: Mapping[str, frozenset[str]] = field(default_factory=dict)
    words: Words = WORDS
    limits: Limits = field(default_factory=Limits)

    @property
    def label(self) -> str:
        """How the agent's own lines are labelled in a context: its config, else its first alias or name."""
        return self.agent_label or (self.aliases[0] if self.aliases else self.nick or self.name)

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that it is called by."""
        return tuple(dict.fromkeys(n for n in (self.name, self.nick, *self.aliases) if n))

    def may_use(self, command: str, person: str, channel: str) -> bool:
        """Whether config leaves this command to that person on that channel."""
        allowed = self.permissions.get(command)
        return allowed is None or bool(allowed & {person, channel, "*"})

    def may_see(self, person: str, source: str, session: str) -> bool:
        allowed = self.visible.get(person)
        return allowed is None or bool(allowed & {source, session, "*"})


def in_room(channel: str) -> bool:
    """Whether a channel name is that of a group (``xmpp:ROOM``)."""
    return ":" in channel


def room_of(channel: str) -> str:
    return channel.partition(":")[2]
