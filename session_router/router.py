"""The public face: one object that takes messages and gives the replies to them."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from fsm.agent import Agent
from fsm.binding import Binding
from fsm.closing import close_all, closings_of
from fsm.commands.registry import Registry
from fsm.conversation import Bound, Conversation, Key
from fsm.desk import Bridge, Desk
from fsm.events import Choice
from fsm.ports import Channel, Clock, Inbound, SessionInfo, SessionSource, Store
from fsm.runner import Engine, Receipt
from fsm.sessions import Sessions
from session_router.clock import SystemClock
from session_router.config_sources import data_folder
from session_router.hold import hold
from session_router.sources import beside, journal_channels, writable_of
from storage.journal import JournalSource
from storage.opencode import OpenCodeSource
from storage.sqlite import SqliteStore


class SessionRouter:
    """Routes the messages of one agent.

        router = SessionRouter(bridge=SessionBridge(model), default_session="ses_xxm_xmpp")
        reply = await router.route(channel="xmpp", sender="hmo", message="你好", message_id="m1")

    Without ``store`` the embedded one is opened (``router.db`` in the data folder, which one program at a
    time may use; the terminal chat has its own), without
    ``sources`` OpenCode's database and our own journals (``sessions`` beside the store) are read.
    ``agent`` carries every other rule; ``commands`` replaces the built-in commands (copy ``BUILTIN`` and
    add to it). Direct chats are open to everybody whom the embedding program lets in, unless ``agent`` says
    otherwise.
    """

    def __init__(
        self,
        *,
        bridge: Bridge,
        store: Store | None = None,
        default_session: str | None = None,
        agent: Agent | None = None,
        sources: Sequence[SessionSource] | None = None,
        commands: Registry | None = None,
        clock: Clock | None = None,
        channels: Mapping[str, Channel] | None = None,
        new_id: Callable[[], str] | None = None,
        engine: Engine | None = None,
    ) -> None:
        agent = agent or Agent(name="assistant", allow=frozenset({"*"}))
        if default_session is not None:
            agent = replace(agent, default_session=default_session)
        self.agent = agent
        self._holds = ExitStack()
        self._own_file: Path | None = None
        if store is None:
            self._own_file = data_folder(os.environ) / "router.db"
            store = SqliteStore(self._own_file)
        self.store: Store = store
        if sources is None:
            sources = getattr(bridge, "sources", None)
        if sources is None:
            sources = (OpenCodeSource(), JournalSource(beside(self.store, data_folder(os.environ))))
        clock = clock or SystemClock()
        self.sessions = Sessions(sources, self.store, writable_of(sources), clock.now)
        self.desk = Desk(agent, self.sessions, bridge, commands)
        self.bridge = bridge
        self.engine = engine or Engine(
            desks={agent.name: self.desk},
            store=self.store,
            clock=clock,
            channels={
                **journal_channels(agent.name, sources),
                **{(agent.name, name): channel for name, channel in (channels or {}).items()},
            },
        )
        self._new_id = new_id or (lambda: uuid.uuid4().hex)
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Open the store and take up what was left. ``route`` does it where nobody else has."""
        async with self._starting:
            if self.engine.open:
                return
            if self._own_file is not None:
                self._holds.enter_context(hold(self._own_file, self.agent.name))
            try:
                await self.engine.start()
            except BaseException:
                self._holds.close()
                raise

    async def close(self) -> None:
        """Stop; what is not done yet is taken up at the next start. Whatever cannot be closed keeps nothing else open.

        Raises:
            StoreError: the store could not be closed as it should.
        """
        await close_all([self.engine.close, self._holds.close, self.sessions.close, *closings_of([self.bridge])])

    async def __aenter__(self) -> SessionRouter:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                        ) -> None:
        await self.close()

    async def route(self, channel: str, sender: str, message: str, *, message_id: str | None = None, nick: str = "",
                    real_jid: str = "", mentioned: bool = False) -> str | None:
        """The reply to this very message, or None where nothing is to be sent (silence, a duplicate,
        a refusal that is not told). Sends nothing itself. Waits while earlier messages are worked on.

        A message without an id is always a new one; an id that came before, ever, is a duplicate.

        Raises:
            StoreError: the message could not be recorded; it was not taken.
        """
        receipt = await self.submit(
            channel, sender, message, message_id=message_id, nick=nick, real_jid=real_jid, mentioned=mentioned
        )
        await receipt.done
        return "\n\n".join(receipt.texts) or None

    async def submit(self, channel: str, sender: str, message: str, *, message_id: str | None = None, nick: str = "",
                     real_jid: str = "", mentioned: bool = False, reply_to: str = "") -> Receipt:
        """As ``route``, but returns once the message is on disk. With ``reply_to`` the answers go out
        through the channel, to that address."""
        await self.start()
        inbound = Inbound(
            channel=channel, sender=sender, text=message, id=message_id or self._new_id(), at=self.engine.clock.now(),
            reply_to=reply_to, nick=nick, real_jid=real_jid, mentioned=mentioned,
        )  # fmt: skip
        return await self.engine.receive(self.agent.name, inbound)

    def key(self, channel: str, sender: str) -> Key:
        return Key(self.agent.name, channel, sender)

    async def conversation(self, channel: str, sender: str) -> Conversation:
        """How that conversation stands."""
        await self.start()
        return await self.engine.conversation(self.key(channel, sender))

    async def binding(self, channel: str, sender: str) -> Binding:
        """What a text in that conversation would talk to now."""
        now = await self.conversation(channel, sender)
        return await self.desk.binding(self.key(channel, sender), now, self.engine.clock.now())

    def bind(self, channel: str, sender: str, session: SessionInfo | None) -> None:
        """Choose the session of a conversation from outside, or give the choice back with None. A
        turn that runs keeps the session that it started with."""
        bound = Bound(session.id, "manual", session.title, session.source) if session else None
        self.engine.rebind(self.key(channel, sender), Choice(bound))

