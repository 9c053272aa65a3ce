"""One client of slixmpp, with the parts of it taken over that would act on their own.

slixmpp 1.17 reconnects in some cases and not in others: its first connection retries for ever, its keepalive
reconnects beside whoever else does, and everything else stays dead. Here it never does; whoever holds the
wire is told of the loss. What it queues while there is no session would go out before a room is entered, so
nothing is handed to it then. It neither answers subscription requests nor confirms a stanza before the
message in it has been taken.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast
from xml.etree.ElementTree import Element

from slixmpp import ClientXMPP
from slixmpp.exceptions import IqError, IqTimeout
from slixmpp.jid import JID, InvalidJID
from slixmpp.plugins.xep_0198 import stanza as sm_stanza
from slixmpp.stanza import Message, Presence
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath

from channels.xmpp.account import XmppAccount
from channels.xmpp.archive import QueryFailed
from channels.xmpp.stanzas import CLIENT, read_error

log = logging.getLogger("session_router.xmpp")

FEATURES = (
    "http://jabber.org/protocol/chatstates", "http://jabber.org/protocol/muc", "urn:xmpp:receipts",
    "urn:xmpp:message-correct:0", "urn:xmpp:sid:0", "urn:xmpp:reference:0", "urn:xmpp:reply:0",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Listener:
    """What is told of the wire: called from the loop, and not to block. ``up``: there is a session (resumed or
    not); ``acked``: the server has taken over the stanza of that id; ``taken`` returns once every message that
    has come so far is safe, and ``waiting`` says whether one is not."""

    up: Callable[[bool], None]
    lost: Callable[[str], None]
    login_refused: Callable[[str], None]
    displaced: Callable[[str], None]
    message: Callable[[Element], None]
    presence: Callable[[Element], None]
    acked: Callable[[str], None]
    taken: Callable[[], Awaitable[None]]
    waiting: Callable[[], bool]


class _Client(ClientXMPP):  # type: ignore[misc, unused-ignore]
    def reconnect(self, *args: Any, **kwargs: Any) -> None:
        self.abort()

    def reschedule_connection_attempt(self) -> None:
        self._current_connection_attempt = None
        self.event("gave_up")


class Wire:
    """Raises ``ValueError`` for an address that XMPP does not allow."""

    def __init__(
        self,
        account: XmppAccount,
        password: str,
        listener: Listener,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._account, self._listener, self._spawn = account, listener, spawn
        self._reason = ""
        self._refusals: list[str] = []
        self._open = False
        self._acked = 0
        """Stanzas of the session that the server was told are safe."""
        try:
            for room in account.rooms:
                JID(f"{room}/{account.nick}")
            address = JID(f"{account.jid}/{account.resource}")
        except InvalidJID as error:
            raise ValueError(f"jid, rooms, nick or resource make no address of XMPP ({error}); correct them") from None
        self.client = _Client(
            address,
            password,
            plugin_config={
                "feature_mechanisms": {
                    "unencrypted_scram": account.plaintext_loopback,
                    "unencrypted_plain": account.plaintext_loopback,
                },
                "xep_0199": {"keepalive": False},
            },
        )
        self._untyped: Any = self.client
        self._set_up()

    def _set_up(self) -> None:
        account, client = self._account, self.client
        client.enable_plaintext = account.plaintext_loopback
        client.enable_starttls = not (account.direct_tls or account.plaintext_loopback)
        client.enable_direct_tls = account.direct_tls or not account.host  # a looked-up host says what it has
        if account.ca_file is not None:
            client.ca_certs = account.ca_file
        client.auto_authorize = None
        client.auto_subscribe = False
        for plugin in ("xep_0030", "xep_0198", "xep_0199"):
            client.register_plugin(plugin)
        for feature in FEATURES:
            client.plugin["xep_0030"].add_feature(feature)
        self._sm: Any = client.plugin["xep_0198"]
        # The library would acknowledge what has only just come in.
        vars(self._sm)["send_ack"] = self._answer_ack_request
        for name, tag, take in (
            ("messages", "message", self._listener.message),
            ("presences", "presence", self._listener.presence),
        ):
            xpath = MatchXPath(f"{{jabber:client}}{tag}")
            client.register_handler(Callback(f"session router: {name}", xpath, _xml_to(take)))
        for event, handler in {
            "session_start": lambda _: self._up(False),
            "session_resumed": lambda _: self._up(True),
            "sm_enabled": lambda _: self._begin_counting(),
            "disconnected": self._disconnected,
            "gave_up": self._gave_up,
            "connection_failed": self._connection_failed,
            "ssl_invalid_chain": self._invalid_chain,
            "stream_error": self._stream_error,
            "failed_auth": lambda failure: self._refusals.append(failure["condition"]),
            "failed_all_auth": self._no_login,
            "stanza_acked": lambda stanza: self._listener.acked(stanza["id"]),
        }.items():
            client.add_event_handler(event, handler)

    # -- the link --------------------------------------------------------------------------------

    async def open(self, began: Callable[[], None]) -> None:
        """Begin to connect; the listener hears what comes of it. An earlier link is waited out first, and then
        ``began`` called: whatever is heard from then on is about the new one."""
        while self.client.transport is not None:
            over = self.client.disconnected
            self.client.abort()
            await asyncio.wait({over})
        self._reason, self._refusals = "", []
        if not self._sm.sm_id:
            # Where no session can be resumed, the library would count on from the last one, and take the
            # server's first acknowledgement for one of everything.
            self._sm.session_end(None)
        elif self._listener.waiting():
            # The library would say in resuming that all of it is safe. What comes again is told by its id.
            self._sm.handled = self._acked
        self._open = True
        began()
        if self._account.host:
            self.client.connect(self._account.host, self._account.port)
        else:
            self.client.connect()

    def abort(self) -> None:
        """End the link at once, or the attempt to make one."""
        self.client.cancel_connection_attempt()
        self.client.abort()

    async def close(self) -> None:
        """Close the stream, and let go of every task and timer of the library."""
        self._open = False
        if self.client.transport is not None:
            self.client.cancel_connection_attempt()
            if self._sm.enabled_in and not self._listener.waiting():
                self._ack(self._sm.handled)
            await self.client.disconnect()
        else:
            self.abort()
        for name in list(self.client.scheduled_events):
            self.client.cancel_schedule(name)
        sending = self.client._run_out_filters
        if sending is not None:
            sending.cancel()
            with suppress(asyncio.CancelledError):
                await sending

    @property
    def is_up(self) -> bool:
        """Whether there is a session that stanzas can be handed to."""
        return bool(self.client._session_started) and self.client.transport is not None

    @property
    def has_acks(self) -> bool:
        """Whether the server counts what it takes over (XEP-0198)."""
        return bool(self._sm.enabled_out)

    # -- stanzas ---------------------------------------------------------------------------------

    def send(self, xml: Element) -> None:
        """Hand a message or presence (in ``jabber:client``) to the stream."""
        self._untyped.send((Message if xml.tag == f"{CLIENT}message" else Presence)(self.client, xml=xml))

    def ask_for_ack(self) -> None:
        """Have the server say what it has taken over, once what was sent before this is out."""
        self._untyped.send(sm_stanza.RequestAck(self.client))

    async def query(self, to: str, kind: str, payload: Element, within: float) -> Element:
        """Ask ``to`` (empty: our own account) and return its answer.

        Raises :class:`QueryFailed`.
        """
        iq = self.client.Iq()
        iq["type"] = kind
        if to:
            iq["to"] = to
        iq.xml.append(payload)
        try:
            answer = await cast(Any, iq).send(timeout=within)
        except IqError as error:
            raise QueryFailed(*read_error(error.iq.xml)) from None
        except IqTimeout:
            raise QueryFailed("", f"no answer from {to or 'the server'} within {within:g} seconds") from None
        xml: Element = answer.xml
        return xml

    async def ping(self, to: str, within: float) -> None:
        """XEP-0199. Raises :class:`QueryFailed`; an answer that is an error is one too."""
        await self.query(to, "get", Element("{urn:xmpp:ping}ping"), within)

    async def features(self, of: str, within: float) -> frozenset[str]:
        """What ``of`` announces that it can do (XEP-0030). Raises :class:`QueryFailed`."""
        query = Element("{http://jabber.org/protocol/disco#info}query")
        answer = await self.query(of, "get", query, within)
        found = answer.iter("{http://jabber.org/protocol/disco#info}feature")
        return frozenset(feature.get("var", "") for feature in found)

    # -- what slixmpp tells ----------------------------------------------------------------------

    def _up(self, resumed: bool) -> None:
        if not self._account.plaintext_loopback and not isinstance(
            self.client.socket, (ssl.SSLObject, ssl.SSLSocket)
        ):
            self._listener.login_refused("the connection is not encrypted: the server has to offer TLS")
            return
        self._listener.up(resumed)

    def _disconnected(self, why: object) -> None:
        if self._open:
            self._open = False
            if isinstance(why, ssl.SSLCertVerificationError):
                self._reason = _untrusted(why)
            self._listener.lost(self._reason or (str(why) if why else "the connection was closed"))

    def _gave_up(self, _: object) -> None:
        if self._open:
            self._open = False
            self._listener.lost(self._reason or "no connection could be made")

    def _connection_failed(self, why: object) -> None:
        self._reason = _untrusted(why) if isinstance(why, ssl.SSLCertVerificationError) else f"no connection: {why}"

    def _invalid_chain(self, why: object) -> None:
        self._reason = _untrusted(why)
        self.client.abort()

    def _stream_error(self, error: Any) -> None:
        condition, text = error["condition"], error["text"]
        self._reason = f"the server ended the stream: {condition}" + (f" ({text})" if text else "")
        if condition == "conflict":
            self._listener.displaced(
                f"another client has logged in as {self._account.jid}/{self._account.resource}; stop it, or give one "
                "of the two another resource"
            )
        elif condition in ("host-unknown", "not-authorized"):
            self._listener.login_refused(self._reason)

    def _no_login(self, _: object) -> None:
        if "temporary-auth-failure" in self._refusals:
            self._reason = "the server cannot check passwords just now"
        elif self._refusals:
            self._listener.login_refused(
                f"{self._account.jid} could not log in ({self._refusals[-1]}); correct the address or the password"
            )
        else:
            self._listener.login_refused(
                "the server offers no way to log in that is safe here; without TLS that is so for passwords"
            )

    def _answer_ack_request(self) -> None:
        handled = self._sm.handled
        link = self.client.transport

        async def answer() -> None:
            await self._listener.taken()
            if self.client.transport is link and link is not None:
                self._ack(handled)

        self._spawn(answer())

    def _begin_counting(self) -> None:
        self._acked = 0

    def _ack(self, handled: int) -> None:
        self._acked = handled
        ack = sm_stanza.Ack(self.client)
        ack["h"] = handled
        self.client.send_raw(str(ack))


def _untrusted(why: object) -> str:
    return f"the server's certificate is not trusted: {why}; give ca_file if it is your own"


def _xml_to(take: Callable[[Element], None]) -> Callable[[Any], None]:
    def run(stanza: Any) -> None:
        try:
            take(stanza.xml)
        except Exception:  # the library would answer the sender with an error
            log.exception("a stanza could not be read: %s", stanza)

    return run
