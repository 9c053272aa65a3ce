"""People on an XMPP server, with the library's plain client: they write what the tests have them write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from xml.etree.ElementTree import Element, fromstring

from channels.xmpp import State, Tell, Timing, XmppAccount, XmppChannel
from fsm.conversation import Key
from fsm.ports import Inbound, Outgoing, StoreError
from session_router.clock import SystemClock
from tests.support.xmpp_servers import HOST, Server

CLIENT = "{jabber:client}"
QUICK = Timing(connect=5.0, join=5.0, confirm=5.0, receipt=0.5, answer=5.0, ping=30.0, base=0.05, cap=0.4)
"""Seconds short enough for a server on this machine."""


class Heap:
    """What has come so far, and waiting for what is to come."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._waiting: list[tuple[Callable[[Any], bool], asyncio.Future[Any]]] = []

    def add(self, item: Any) -> None:
        self.items.append(item)
        for wanted, found in self._waiting:
            if not found.done() and wanted(item):
                found.set_result(item)

    async def until(self, wanted: Callable[[Any], bool], within: float = 15.0) -> Any:
        """The first item that is wanted, as soon as it is there."""
        for item in self.items:
            if wanted(item):
                return item
        waiting = (wanted, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(within):
                return await waiting[1]
        finally:
            self._waiting.remove(waiting)


class Person:
    def __init__(self, server: Server, name: str, client: Any) -> None:
        self.server, self.name, self.client = server, name, client
        self.jid = f"{name}@{HOST}"
        self.heard, self.seen = Heap(), Heap()

    def write(self, xml: str) -> None:
        """A stanza exactly as given."""
        self.client.send_raw(xml)

    def says(self, to: str, body: str, kind: str = "chat", id: str = "", more: str = "") -> None:
        id = f" id='{id}'" if id else ""
        self.write(f"<message type='{kind}' to='{to}'{id}><body>{body}</body>{more}</message>")

    async def joins(self, room: str, nick: str) -> None:
        await self.client.plugin["xep_0045"].join_muc_wait(room, nick, maxstanzas=0, timeout=10)

    async def asks(self, kind: str, to: str, payload: str) -> None:
        iq = self.client.make_iq(itype=kind, ito=to)
        iq.xml.append(fromstring(payload))
        await iq.send(timeout=10)

    async def admin(self, room: str, item: str) -> None:
        await self.asks("set", room, f"<query xmlns='http://jabber.org/protocol/muc#admin'><item {item}/></query>")

    async def destroys(self, room: str) -> None:
        await self.asks("set", room, "<query xmlns='http://jabber.org/protocol/muc#owner'><destroy/></query>")

    async def configures(self, room: str, **fields: str) -> None:
        values = {"FORM_TYPE": "http://jabber.org/protocol/muc#roomconfig"} | {
            f"muc#roomconfig_{name}": value for name, value in fields.items()
        }
        form = "".join(f"<field var='{var}'><value>{value}</value></field>" for var, value in values.items())
        await self.asks("set", room, "<query xmlns='http://jabber.org/protocol/muc#owner'>"
                                     f"<x xmlns='jabber:x:data' type='submit'>{form}</x></query>")  # fmt: skip

    async def settled(self) -> None:
        """Everything that was written so far has been taken by the server."""
        await self.client.plugin["xep_0199"].send_ping(HOST, timeout=10)

    def bodies(self, of: str) -> list[str]:
        """What was said under that address, in order."""
        return [m.findtext(f"{CLIENT}body") for m in self.heard.items if m.get("from") == of and said(m)]

    async def hears(self, body: str, within: float = 15.0) -> Element:
        found: Element = await self.heard.until(lambda m: m.findtext(f"{CLIENT}body") == body, within)
        return found

    async def leaves(self) -> None:
        with suppress(asyncio.TimeoutError):
            await self.client.disconnect()
        for name in list(self.client.scheduled_events):
            self.client.cancel_schedule(name)
        if self.client._run_out_filters is not None:
            self.client._run_out_filters.cancel()
            with suppress(asyncio.CancelledError):
                await self.client._run_out_filters


def said(message: Element) -> bool:
    return message.findtext(f"{CLIENT}body") is not None and message.get("type") != "error"


@asynccontextmanager
async def person(server: Server, name: str) -> AsyncIterator[Person]:
    """Somebody who has logged in and can be reached."""
    from slixmpp import ClientXMPP
    from slixmpp.xmlstream.handler import Callback
    from slixmpp.xmlstream.matcher import MatchXPath

    plain = {"feature_mechanisms": {"unencrypted_scram": True, "unencrypted_plain": True}}
    client = ClientXMPP(f"{name}@{HOST}/phone", f"pw-{name}", plugin_config=plain)
    client.enable_direct_tls = client.enable_starttls = False
    client.enable_plaintext = True
    for plugin in ("xep_0030", "xep_0045", "xep_0199"):
        client.register_plugin(plugin)
    someone = Person(server, name, client)
    for tag, heap in (("message", someone.heard), ("presence", someone.seen)):
        client.register_handler(
            Callback(f"test {tag}", MatchXPath(f"{CLIENT}{tag}"), lambda stanza, heap=heap: heap.add(stanza.xml))
        )
    client.connect("127.0.0.1", server.port)
    await client.wait_until("session_start", 10)
    client.send_presence()
    try:
        yield someone
    finally:
        await someone.leaves()


class Bot:
    """A channel under test, with everything that it reported."""

    def __init__(self, account: XmppAccount) -> None:
        self.inbox, self.notices, self.states = Heap(), Heap(), Heap()
        self.channel = XmppChannel(
            account, self._receive, clock=SystemClock(), on_state=self.states.add, on_notice=self.notices.add
        )
        self.account = account
        self.disk_is_full = False
        self.refused = Heap()
        self._sent = 0

    async def _receive(self, message: Inbound) -> None:
        if self.disk_is_full:
            self.refused.add(message)
            raise StoreError("the disk is full")
        self.inbox.add(message)

    async def starts(self, *states: State) -> State:
        await self.channel.start()
        return await self.reaches(*(states or (State.JOINED,)))

    async def reaches(self, *states: State, within: float = 20.0) -> State:
        async with asyncio.timeout(within):
            return await self.channel.reached(*states)

    async def sends(self, to: str, text: str, *, id: str = "", sender: str = "") -> str:
        """Deliver a text and return its id."""
        self._sent += 1
        id = id or f"out-{self._sent}"
        await self.channel.send(self.outgoing(to, text, id, sender))
        return id

    def outgoing(self, to: str, text: str, id: str, sender: str = "") -> Outgoing:
        channel = f"xmpp:{to}" if to in self.account.rooms else "xmpp"
        return Outgoing(id, Key("bot", channel, sender or to), channel, to, text)

    async def hears(self, text: str, within: float = 15.0) -> Inbound:
        found: Inbound = await self.inbox.until(lambda m: m.text == text, within)
        return found

    async def is_told(self, kind: str, within: float = 15.0) -> Tell:
        found: Tell = await self.notices.until(lambda tell: tell.kind == kind, within)
        return found

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.inbox.items]


def account(server: Server, *rooms: str, **more: Any) -> XmppAccount:
    settings: dict[str, Any] = {
        "nick": "小小莫", "host": "127.0.0.1", "port": server.port, "plaintext_loopback": True, "timing": QUICK,
        "password": lambda: f"pw-{server.bot}",
    }  # fmt: skip
    return XmppAccount(f"{server.bot}@{HOST}", rooms=rooms, **{**settings, **more})


@asynccontextmanager
async def bot(server: Server, *rooms: str, start: bool = True, **more: Any) -> AsyncIterator[Bot]:
    """A bot that is there and in its rooms."""
    made = Bot(account(server, *rooms, **more))
    try:
        if start:
            await made.starts()
        yield made
    finally:
        await made.channel.close(drain=False)
