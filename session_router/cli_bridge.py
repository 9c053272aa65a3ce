"""The command line's word in a group: posted as the agent, kept in its session, remembered as the active sender.

In this order, so that what could not be posted leaves nothing behind. Who posts is the caller's: the running engine
through its own connection, the command line through a second one, a scenario into its record.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fsm.agent import Agent
from fsm.binding import ACTIVE_SENDER_KEY, active_sender_record, read_active_sender
from fsm.conversation import Key
from fsm.language.own_lines import cli_line_id, tagged
from fsm.ports import Change, DeliveryError, KeptLine, Line, SessionRouterError, SourceError, Store, StoreError
from fsm.sessions import Sessions

CLI_KEY = "cli"
"""Channel and sender of what comes from the command line: no conversation, but the store wants a key."""

Post = Callable[[str, str, str], Awaitable[None]]
"""(room, text, id): returns once the room has it, raises :class:`DeliveryError` otherwise."""


class Mirror(Protocol):
    """Where a few keys are repeated for other programs; see :class:`storage.hermes.StateMetaMirror`."""

    async def write(self, key: str, value: str | None) -> bool: ...


class SendRefused(SessionRouterError):
    """Nothing was posted and nothing recorded. ``kind``: ``no_text``, ``no_session``, ``no_room``."""

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class NotRecorded(SessionRouterError):
    """It was posted, but the store did not take the record."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """What is needed of an agent. ``alone``: it is the only one in the config, so the single key that older setups
    keep for all is its."""

    agent: Agent
    rooms: Sequence[str]
    sessions: Sessions
    mirror: Mirror | None = None
    alone: bool = False

    @property
    def store(self) -> Store:
        return self.sessions.store


@dataclass(frozen=True, slots=True)
class Sent:
    """What was said where. ``session`` is the one that the line was recorded in, or where nothing was recorded the one
    that the groups lead to anyway (empty: whichever was active last)."""

    agent: str
    rooms: tuple[str, ...]
    session: str
    title: str
    recorded: bool


@dataclass(frozen=True, slots=True)
class Active:
    """The active sender's record. ``valid`` says whether groups still lead there at the instant it was asked for,
    ``age`` in seconds."""

    session: str
    title: str
    source: str
    age: float
    valid: bool


async def send(
    text: str, session_id: str | None, speaker: Speaker, *, post: Post, id: str, now: Callable[[], float]
) -> Sent:
    """Post ``text`` in every room as the agent; with ``session_id`` record it. ``id`` names the sending for ever: the
    same again shows and records it once.

    Raises:
        SendRefused: before anything was done.
        SourceError: the sessions cannot be read; nothing was done either.
        DeliveryError: a room has not got it; nothing was recorded.
        NotRecorded: it was posted only.
    """
    if not text.strip():
        raise SendRefused("The text is empty. Write what is to be said.", kind="no_text")
    name = speaker.agent.name
    if not speaker.rooms:
        raise SendRefused(f"{name} is in no group. Add one under [agents.{name}.groups] in the config.", kind="no_room")
    found = await speaker.sessions.find(session_id) if session_id is not None else None
    if session_id is not None and found is None:
        raise SendRefused(f"There is no session {session_id}. `session-router sessions` lists the ones there are.",
                          kind="no_session")  # fmt: skip
    done: list[str] = []
    for number, room in enumerate(speaker.rooms):
        try:
            await post(room, text, id if number == 0 else f"{id}.{number}")
        except DeliveryError as error:
            before = f" {' and '.join(done)} had got it before." if done else ""
            raise DeliveryError(f"{room} has not got the text: {error}.{before}", final=error.final) from error
        done.append(room)
    if found is None:
        there = await active(speaker, now())
        session = there.session if there is not None and there.valid else speaker.agent.default_session or ""
        title = there.title if there is not None and there.valid else ""
        return Sent(name, tuple(done), session, title, recorded=False)
    try:
        await record(text, found.id, speaker, id=id, at=now())
    except StoreError as error:
        raise NotRecorded(f"The text was posted, but not recorded: {error}") from error
    return Sent(name, tuple(done), found.id, found.title, recorded=True)


async def record(text: str, session_id: str, speaker: Speaker, *, id: str, at: float) -> None:
    """What a sending leaves behind, all of it or none: the line in the session, and the session as the active one.

    Raises StoreError.
    """
    name = speaker.agent.name
    line = Line("assistant", tagged(text), at, "", cli_line_id(name, id))
    key, value = active_sender_record(name, session_id, at)
    change = Change(Key(name, CLI_KEY, CLI_KEY), lines=(KeptLine(session_id, line),), meta=((key, value),))
    await speaker.store.commit(change)
    await _repeat(speaker, key, value)


async def active(speaker: Speaker, at: float) -> Active | None:
    """The agent's record, with the session that it names; None where there is none. Raises StoreError."""
    record = await read_active_sender(speaker.store, speaker.agent.name)
    if record is None:
        return None
    session, since = record
    try:
        found = await speaker.sessions.find(session)
    except SourceError:
        found = None
    valid = found is not None and 0 <= at - since < speaker.agent.limits.active_session_ttl
    return Active(session, found.title if found else "", found.source if found else "", at - since, valid)


async def clear(speaker: Speaker) -> bool:
    """Forget the agent's record; whether there was one. Raises StoreError."""
    own = f"{ACTIVE_SENDER_KEY}:{speaker.agent.name}"
    keys = (own, ACTIVE_SENDER_KEY) if speaker.alone else (own,)
    there = [key for key in keys if await speaker.store.get_meta(key) is not None]
    for key in there:
        await speaker.store.set_meta(key, None)
    await _repeat(speaker, own, None)
    return bool(there)


async def _repeat(speaker: Speaker, key: str, value: str | None) -> None:
    if speaker.mirror is not None:
        await speaker.mirror.write(key, value)
        if speaker.alone:
            await speaker.mirror.write(ACTIVE_SENDER_KEY, value)
