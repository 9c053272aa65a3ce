"""Who the bot is on XMPP and where it talks. Plain values; needs no XMPP library."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from channels.splitting import SMALLEST
from channels.xmpp.events import (
    Timing,
)

BODY_BYTES = 8_000
"""Bytes of one message body as it goes over the wire. RFC 6120 lets a server refuse stanzas above 10,000."""


@dataclass(frozen=True, slots=True)
class XmppAccount:
    """An account and its rooms. Raises ``ValueError``, naming the mend, for values that cannot work.

    ``jid`` is the bare address, ``password`` is asked when the connection is started. ``rooms`` are bare
    addresses, in the spelling that channel names are to have. ``host`` and ``port`` go together and replace
    the look-up in DNS; ``direct_tls`` is for a port that begins with TLS. ``ca_file`` holds certificates to
    trust beside those of the system. ``plaintext_loopback`` allows a connection without TLS, to this
    machine only. ``resource`` is fixed, so that a second client of the same account can be told apart.

    ``history``: lines of history that the first entering asks for. ``answer_missed``: what was said in a
    room while the link was down is a message like any other up to this age (seconds), then only history.
    ``priority`` is that of the presence (RFC 6121): with a negative one the server hands over nothing that is for
    the account as a whole, which a second connection beside the bot's own must not take away from it.
    ``places`` is a file that keeps where the rooms were left: what was said since is then missed and not history, also
    where a new process asks.
    """

    jid: str
    password: Callable[[], str] = field(repr=False)
    nick: str = ""
    rooms: tuple[str, ...] = ()
    host: str = ""
    port: int = 0
    plaintext_loopback: bool = False
    resource: str = "session-router"
    direct_tls: bool = False
    ca_file: Path | None = None
    history: int = 20
    answer_missed: float = 600.0
    priority: int = 0
    places: Path | None = None
    body_bytes: int = BODY_BYTES
    timing: Timing = field(default_factory=Timing)

    def __post_init__(self) -> None:
        if not _is_bare(self.jid):
            raise ValueError(f"jid: expected an address such as bot@example.org, not {self.jid!r}")
        for room in self.rooms:
            if not _is_bare(room):
                raise ValueError(f"rooms: expected addresses such as team@muc.example.org, not {room!r}")
        if len({bare(room) for room in self.rooms}) < len(self.rooms):
            raise ValueError("rooms: one of them stands there twice; keep it once")
        if self.rooms and not self.nick.strip():
            raise ValueError("nick: rooms need one; give the name that the bot has there")
        if bool(self.host) != bool(self.port):
            raise ValueError("host and port go together; give both or neither")
        if self.plaintext_loopback and not is_loopback(self.host):
            raise ValueError(
                f"plaintext_loopback is for a server on this machine; {self.host or 'a looked-up host'} is not: "
                "give host 127.0.0.1 or ::1, or use TLS"
            )
        if not -128 <= self.priority <= 127:
            raise ValueError("priority: expected a number from -128 to 127")
        if self.body_bytes < SMALLEST:
            raise ValueError(f"body_bytes: give at least {SMALLEST}")


def _is_bare(address: str) -> bool:
    return re.fullmatch(r"[^@/\s]+@[^@/\s]+", address) is not None


def is_loopback(host: str) -> bool:
    """Whether ``host`` can only be this machine, going by the name alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bare(address: str) -> str:
    """An address without its resource, in lower case, as addresses are compared."""
    return address.partition("/")[0].lower()


def resource(address: str) -> str:
    """What stands behind the first slash: a device, or in a room the nick, which may hold slashes too."""
    return address.partition("/")[2]
