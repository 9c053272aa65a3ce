"""Which session a conversation talks to, and why: manual, active-sender, auto, default.

The first that applies. Looked up before the step, so the step itself stays pure.
"""

from __future__ import annotations

import json

from msgspec.structs import replace

from fsm.agent import Agent, in_room
from fsm.conversation import Bound, Conversation, Key, Kind, Message
from fsm.language.texts import say
from fsm.language.titles import one_line, show_title
from fsm.ports import SessionInfo, SourceError, Store
from fsm.sessions import Sessions, session_id_for
from fsm.values import Value

ACTIVE_SENDER_KEY = "active_xmpp_sender_session"
"""Key in ``state_meta``; an agent's own stands behind a colon, the bare one is that of older setups with one agent."""

TITLE_CHARS = 60
"""Characters of a message that stand for the title of a session without one."""


class Binding(Value):
    """``bound`` is None where nothing can be bound, and ``problem`` says so to the sender. ``unsure``: a source that
    cannot be read may hold the right one, so none is made either."""

    bound: Bound | None
    problem: str = ""
    unsure: bool = False


async def resolve(
    agent: Agent,
    key: Key,
    now: Conversation,
    sessions: Sessions,
    *,
    at: float,
    lang: str,
    message: Message | None = None,
) -> Binding:
    """What a text in this conversation would talk to at ``at``.

    For a ``message`` a session is made where none can be bound and the agent's rules allow it, called by what it says
    until it has a title. A chosen session that has vanished is said, never silently replaced.
    """
    found = await _first(agent, key, now, sessions, at=at, lang=lang, message=message)
    if found.bound is None:
        return found
    bound = await sessions.kept(found.bound)
    return found if bound is found.bound else replace(found, bound=bound)


async def _first(
    agent: Agent, key: Key, now: Conversation, sessions: Sessions, *, at: float, lang: str, message: Message | None
) -> Binding:
    if now.manual is not None:
        try:
            there = await sessions.find(now.manual.session, now.manual.source) is not None
        except SourceError as error:
            return Binding(None, str(error))
        if not there or not agent.may_see(key.sender, now.manual.source, now.manual.session):
            return Binding(None, say(lang, "not_visible" if there else "vanished", title=show_title(now.manual.title)))
        return Binding(now.manual)
    active = await active_sender(agent, sessions, at) if in_room(key.channel) else None
    if active is not None and agent.may_see(key.sender, active.source, active.session):
        return Binding(active)
    problems: tuple[SourceError, ...] = ()
    if agent.auto:
        listing = await sessions.latest(agent, key.sender)
        problems = listing.problems
        if hidden := [str(problem) for problem in problems if problem.kind not in ("missing", "empty")]:
            # The most recent session may be in there: another one, or a new one, would be the wrong one unsaid.
            return Binding(None, "\n".join([say(lang, "sessions_unreadable"), *hidden]), unsure=True)
        if listing.sessions:
            return Binding(_bound(_titled(listing.sessions[0], message), "auto"))
    if agent.default_session:
        try:
            found = await sessions.find(agent.default_session)
        except SourceError:
            found = None
        bound = _bound(found, "default") if found else Bound(agent.default_session, "default")
        if agent.may_see(key.sender, bound.source, bound.session):
            return Binding(bound)
    if message is not None and agent.make_sessions:
        # Without a title of its own: whoever keeps it makes one from what is said there.
        try:
            made = await sessions.create(agent, key.sender, "", session_id=session_id_for(message.ref), at=at)
        except SourceError as error:
            return Binding(None, str(error))
        if made is not None:
            return Binding(_bound(_titled(made, message), "auto"))
    text = say(lang, "no_session")
    return Binding(None, "\n".join([text, *(str(problem) for problem in problems)]))


def _titled(session: SessionInfo, message: Message | None) -> SessionInfo:
    if session.title or message is None:
        return session
    return replace(session, title=one_line(message.text)[:TITLE_CHARS])


def _bound(session: SessionInfo, kind: Kind) -> Bound:
    return Bound(session.id, kind, session.title, session.source)


async def active_sender(agent: Agent, sessions: Sessions, at: float) -> Bound | None:
    """The session that last spoke in a group from the command line, while its record is young enough.

    Exactly the limit is too old, and so is a record from the future. A record that cannot be read
    or whose session is gone counts as none.
    """
    record = await read_active_sender(sessions.store, agent.name)
    if record is None or not 0 <= at - record[1] < agent.limits.active_session_ttl:
        return None
    try:
        found = await sessions.find(record[0])
    except SourceError:
        return None
    return _bound(found, "active-sender") if found is not None else None


async def read_active_sender(store: Store, agent: str) -> tuple[str, float] | None:
    """(session id, unix seconds) as recorded for the agent, else under the single key of older setups."""
    for key in (f"{ACTIVE_SENDER_KEY}:{agent}", ACTIVE_SENDER_KEY):
        value = await store.get_meta(key)
        if value is None:
            continue
        try:
            record = json.loads(value)
            return str(record["session_id"]), float(record["timestamp"])
        except (ValueError, KeyError, TypeError):
            continue
    return None


def active_sender_record(agent: str, session_id: str, at: float) -> tuple[str, str]:
    """(key, value) that remembers that the agent's ``session_id`` spoke in a group at ``at``."""
    value = json.dumps({"session_id": session_id, "timestamp": at, "source": "cli"}, ensure_ascii=False)
    return f"{ACTIVE_SENDER_KEY}:{agent}", value
