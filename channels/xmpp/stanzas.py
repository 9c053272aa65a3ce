"""What a stanza says, and how much of that is proven. Pure: XML in, values out.

Everything that a sender can write himself is doubted here. Elements that vouch for something (an occupant
id, a stanza id, a real address) count only where the room announces that it sets them, and only when there
is exactly one: servers differ in whether they take forged ones out, and some put theirs behind a forged one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from channels.xmpp.account import bare, resource
from channels.xmpp.events import (
    Cause,
)
from fsm.ports import Inbound

CLIENT = "{jabber:client}"
MUC = "{http://jabber.org/protocol/muc}"
MUC_USER = "{http://jabber.org/protocol/muc#user}"
DELAY = "{urn:xmpp:delay}delay"
SID = "{urn:xmpp:sid:0}"
OCCUPANT_ID = "{urn:xmpp:occupant-id:0}occupant-id"
RECEIPTS = "{urn:xmpp:receipts}"
CORRECTION = "{urn:xmpp:message-correct:0}replace"
REFERENCE = "{urn:xmpp:reference:0}reference"
REPLY = "{urn:xmpp:reply:0}reply"
MAM = "{urn:xmpp:mam:2}"
FORWARDED = "{urn:xmpp:forward:0}forwarded"
RSM = "{http://jabber.org/protocol/rsm}"
CHATSTATES = "{http://jabber.org/protocol/chatstates}"
HINTS = "{urn:xmpp:hints}"
STANZA_ERRORS = "{urn:ietf:params:xml:ns:xmpp-stanzas}"

FEATURE_OCCUPANT_IDS = "urn:xmpp:occupant-id:0"
FEATURE_STANZA_IDS = "urn:xmpp:sid:0"
FEATURE_ARCHIVE = "urn:xmpp:mam:2"
FEATURE_NON_ANONYMOUS = "muc_nonanonymous"

# -- a room as its stanzas tell it ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Occupant:
    """``jid`` is the real bare address where the room shows it, ``id`` the occupant id where it sets one."""

    jid: str = ""
    id: str = ""


@dataclass(slots=True)
class RoomView:
    """What is known of a room while we are in it. ``nick`` is ours as the room last confirmed it."""

    address: str
    nick: str
    name: str = ""
    """The room's address as channel names spell it."""
    features: frozenset[str] = frozenset()
    non_anonymous: bool = False
    own: Occupant = Occupant()
    occupants: dict[str, Occupant] = field(default_factory=dict)
    present: bool = False

    def forget(self) -> None:
        """We are out: nothing of who is there holds any more."""
        self.occupants.clear()
        self.present = False

    @property
    def has_stanza_ids(self) -> bool:
        return FEATURE_STANZA_IDS in self.features or FEATURE_ARCHIVE in self.features

    @property
    def has_occupant_ids(self) -> bool:
        return FEATURE_OCCUPANT_IDS in self.features

    @property
    def has_archive(self) -> bool:
        return FEATURE_ARCHIVE in self.features

    @property
    def hides_people(self) -> bool:
        """Nobody in it can be told from somebody else who takes his nick."""
        return not self.non_anonymous and not self.has_occupant_ids


@dataclass(frozen=True, slots=True)
class Entered:
    created: bool


@dataclass(frozen=True, slots=True)
class Left:
    cause: Cause
    text: str


@dataclass(frozen=True, slots=True)
class Refused:
    condition: str
    text: str


def read_presence(xml: Element, room: RoomView) -> Entered | Left | Refused | None:
    """Take a presence of the room into ``room``; what it says about ourselves, if anything."""
    nick, kind = resource(xml.get("from", "")), xml.get("type")
    if kind == "error":
        # Of our own joining; one that comes while we are in is about something else (a new nick, say).
        return None if room.present else Refused(*read_error(xml))
    if not nick or kind not in (None, "unavailable"):
        return None
    extensions = xml.findall(f"{MUC_USER}x")
    x = extensions[0] if len(extensions) == 1 else None
    codes = {status.get("code") for status in x.findall(f"{MUC_USER}status")} if x is not None else set()
    items = x.findall(f"{MUC_USER}item") if x is not None else []
    item = items[0] if len(items) == 1 else None
    ours = "110" in codes or (room.present and nick == room.nick)
    if kind == "unavailable":
        was = room.occupants.pop(nick, Occupant())
        if "303" in codes and item is not None and (new := item.get("nick")):
            room.occupants[new] = was
            if ours:
                room.nick = new
            return None
        if not ours or not room.present:
            return None
        room.forget()
        return Left(*_why_left(x, codes, item))
    occupant = Occupant(bare(item.get("jid", "")) if item is not None else "", _occupant_id(xml, room))
    room.occupants[nick] = occupant
    if not ours:
        return None
    first = not room.present
    room.nick, room.own, room.present = nick, occupant, True
    if "100" in codes:
        room.non_anonymous = True
    return Entered("201" in codes) if first else None


def _why_left(x: Element | None, codes: set[str | None], item: Element | None) -> tuple[Cause, str]:
    destroyed = x.find(f"{MUC_USER}destroy") if x is not None else None
    reason = _text(destroyed if destroyed is not None else item, f"{MUC_USER}reason")
    if destroyed is not None:
        return Cause.DESTROYED, reason
    if "301" in codes:
        return Cause.BANNED, reason
    # 333 says that a kick was the doing of a fault; 332 that the service shuts down.
    if codes & {"332", "333"}:
        return Cause.TECHNICAL, reason
    if "307" in codes:
        return Cause.KICKED, reason
    if codes & {"321", "322"}:
        return Cause.NOT_A_MEMBER, reason
    return Cause.TECHNICAL, reason


def read_configuration(xml: Element, room: RoomView) -> bool:
    """Take a change of the room's settings into ``room``; whether its features may have changed too."""
    if resource(xml.get("from", "")):
        return False
    codes = {status.get("code") for status in xml.findall(f"{MUC_USER}x/{MUC_USER}status")}
    if "172" in codes:
        room.non_anonymous = True
    if codes & {"173", "174"}:
        room.non_anonymous = False
    return bool(codes & {"104", "172", "173", "174"})


def read_error(xml: Element) -> tuple[str, str]:
    """Condition and text of a stanza error."""
    error = xml.find(f"{CLIENT}error")
    if error is None:
        return "undefined-condition", ""
    conditions = [e.tag.removeprefix(STANZA_ERRORS) for e in error if e.tag.startswith(STANZA_ERRORS)]
    condition = next((c for c in conditions if c != "text"), "undefined-condition")
    return condition, _text(error, f"{STANZA_ERRORS}text")


def error_may_pass(xml: Element) -> bool:
    """Whether the error says that another try may help."""
    error = xml.find(f"{CLIENT}error")
    return error is not None and error.get("type") == "wait"


# -- messages ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Archived:
    """Where an archive has a message: its id there, and since when (unix seconds)."""

    id: str
    at: float


@dataclass(frozen=True, slots=True)
class Known:
    """What the reader knows beside the stanza: our bare address and the time."""

    me: str
    now: float
    own_ids: Container[str] = frozenset()
    """Ids of our own messages: those that rooms gave them, and in direct chats ours."""
    under_way: Container[str] = frozenset()
    """Ids of texts that have not been seen to arrive. Nobody else can know them yet."""
    reported: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(full address of the sender, its own message id) to the id that was reported."""
    stanza_ids: bool = False
    """Whether our own server sets stanza ids in direct chats."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A message, and what else its stanza says. ``stanza_id`` is the proven one of room or account;
    ``message_ids`` are those that the sender gave it (one or two, or none), ``address`` is his full one;
    ``origin_id`` is the first of them where he says that it is his message's alone, and it is proven who he is;
    ``receipt`` is the id under which he wants to know that it came."""

    inbound: Inbound
    address: str
    message_ids: tuple[str, ...]
    stanza_id: str
    origin_id: str = ""
    receipt: str = ""


def read_room_message(
    xml: Element, room: RoomView, known: Known, *, archived: Archived | None = None, answer_from: float = 0.0
) -> Heard | None:
    """A message of a room; None for everything else: subjects, errors, the room's own notices, empty ones.

    ``archived``: it was read from the room's archive, and is history when older than ``answer_from``.
    """
    address = xml.get("from", "")
    nick = resource(address)
    body = xml.findtext(f"{CLIENT}body") or ""
    if xml.get("type") != "groupchat" or bare(address) != room.address or not nick or not body:
        return None
    stamp = _stamp(xml, room.address)
    stanza_id = archived.id if archived else _stanza_id(xml, room.address) if room.has_stanza_ids else ""
    message_ids = _message_ids(xml)
    occupant_id = _occupant_id(xml, room)
    live = archived is None and stamp is None
    jid = ""
    if live:
        # Only now: asked later, the roster may have given the nick to somebody else. And only from there: an
        # address in a live message is what its sender wrote.
        jid = room.occupants.get(nick, Occupant()).jid
    elif archived is not None and room.non_anonymous:
        # XEP-0313 has the archive add it and take out what was there before. The history that comes with
        # entering is another matter: ejabberd 23.01 hands on a forged address in it, and adds none.
        jid = _item_jid(xml)
    own = (
        (bool(jid) and jid == known.me)
        or (bool(occupant_id) and occupant_id == room.own.id)
        or (bool(stanza_id) and stanza_id in known.own_ids)
        # The room keeps every nick for one account, and this one is ours as long as we are in.
        or (live and room.present and nick == room.nick)
        or (nick == room.nick and any(id in known.under_way for id in message_ids))
    )
    at = archived.at if archived else known.now if stamp is None else stamp
    corrects = xml.find(CORRECTION)
    sender = jid or occupant_id or f"{room.address}/{nick}"
    inbound = Inbound(
        channel=f"xmpp:{room.name or room.address}",
        sender=sender,
        text=body,
        id=_reported_id(address, sender, stanza_id, message_ids, corrects, known)
        or _digest(address, body, str(stamp), str(known.now) if live else ""),
        at=at,
        reply_to=room.name or room.address,
        nick=nick,
        real_jid=jid,
        mentioned=_mentions(xml, {known.me, f"{room.address}/{room.nick}".lower()}, known),
        own=own,
        delayed=stamp is not None or (archived is not None and archived.at < answer_from),
        edited=corrects is not None,
    )
    return Heard(inbound, address, message_ids, stanza_id, _origin_id(xml) if jid or occupant_id else "")


def read_direct_message(
    xml: Element, known: Known, *, room: RoomView | None = None, archived: Archived | None = None
) -> Heard | None:
    """A message from one person to us; None for everything else.

    ``room`` is the room of that address, if it is one of ours: then this is a private message of an
    occupant, who counts as the person that the room says he is, and is answered through the room.
    """
    address = xml.get("from", "") or known.me
    body = xml.findtext(f"{CLIENT}body") or ""
    if xml.get("type", "normal") not in ("chat", "normal") or not body or "@" not in bare(address):
        return None
    sender, nick, jid, reply_to, proven = bare(address), "", bare(address), bare(address), True
    if room is not None:
        nick = resource(address)
        if not nick:  # an invitation or a notice of the room itself
            return None
        # Of an archived one nobody can say who had the nick then.
        occupant = Occupant() if archived else room.occupants.get(nick, Occupant())
        jid = occupant.jid
        sender, reply_to = jid or occupant.id or f"{room.address}/{nick}", f"{room.address}/{nick}"
        proven = bool(jid or occupant.id)
    elif xml.find(f"{MUC_USER}x") is not None:  # an invitation, or an occupant of a room that is not ours
        return None
    stanza_id = archived.id if archived else _stanza_id(xml, known.me) if known.stanza_ids else ""
    message_ids = _message_ids(xml)
    corrects = xml.find(CORRECTION)
    inbound = Inbound(
        channel="xmpp",
        sender=sender,
        text=body,
        id=_reported_id(address, sender, stanza_id, message_ids, corrects, known)
        or _digest(address, body, str(known.now)),
        at=known.now,
        reply_to=reply_to,
        nick=nick,
        real_jid=jid,
        mentioned=_mentions(xml, {known.me}, known),
        own=jid == known.me,
        edited=corrects is not None,
    )
    wants_receipt = xml.find(f"{RECEIPTS}request") is not None and archived is None
    return Heard(
        inbound, address, message_ids, stanza_id, _origin_id(xml) if proven else "",
        xml.get("id", "") if wants_receipt else "",
    )  # fmt: skip


def is_subject(xml: Element) -> bool:
    """The last thing that a room sends to who enters it: what comes behind it is live."""
    return xml.find(f"{CLIENT}subject") is not None and xml.find(f"{CLIENT}body") is None


def read_archived(xml: Element) -> tuple[str, Element, Archived] | None:
    """(query, message, where) of a message that an archive forwards."""
    result = xml.find(f"{MAM}result")
    forwarded = result.find(FORWARDED) if result is not None else None
    message = forwarded.find(f"{CLIENT}message") if forwarded is not None else None
    if result is None or forwarded is None or message is None:
        return None
    delay = forwarded.find(DELAY)
    at = _instant(delay.get("stamp", "")) if delay is not None else None
    return result.get("queryid", ""), message, Archived(result.get("id", ""), at or 0.0)


def _item_jid(xml: Element) -> str:
    """The real address in a message itself, if there is exactly one: a second one is a forgery, or makes
    it impossible to tell which is."""
    items = [item for x in xml.findall(f"{MUC_USER}x") for item in x.findall(f"{MUC_USER}item")]
    return bare(items[0].get("jid", "")) if len(items) == 1 else ""


def _occupant_id(xml: Element, room: RoomView) -> str:
    ids = [element.get("id", "") for element in xml.findall(OCCUPANT_ID)]
    return ids[0] if room.has_occupant_ids and len(ids) == 1 else ""


def _stanza_id(xml: Element, by: str) -> str:
    ids = [e.get("id", "") for e in xml.findall(f"{SID}stanza-id") if bare(e.get("by", "")) == by]
    return ids[0] if len(ids) == 1 else ""


def _message_ids(xml: Element) -> tuple[str, ...]:
    """The origin id, which no server changes, before the stanza's own."""
    return tuple(dict.fromkeys(id for id in (_origin_id(xml), xml.get("id", "")) if id))


def _origin_id(xml: Element) -> str:
    origin = xml.find(f"{SID}origin-id")
    return origin.get("id", "") if origin is not None else ""


def _reported_id(
    address: str, sender: str, stanza_id: str, message_ids: tuple[str, ...], corrects: Element | None, known: Known
) -> str:
    if corrects is not None and (original := corrects.get("id", "")):
        # An edit is no new message: it goes under the original's id, whatever that was reported as.
        return known.reported.get((address, original)) or f"{sender}/{original}"
    # Other people choose their ids as they like, so those count only together with who chose them.
    return stanza_id or (f"{sender}/{message_ids[0]}" if message_ids else "")


def _mentions(xml: Element, us: set[str], known: Known) -> bool:
    for reference in xml.findall(REFERENCE):
        uri = unquote(reference.get("uri", "")).partition("?")[0]
        if reference.get("type") == "mention" and uri.startswith("xmpp:") and uri[5:].lower() in us:
            return True
    return any(reply.get("id", "") in known.own_ids for reply in xml.findall(REPLY))


def _stamp(xml: Element, by: str) -> float | None:
    """Since when the room has had the message, if this is its history. Others' stamps say only that the
    message was late: a client that was offline, or our own server after a lost link."""
    for delay in xml.findall(DELAY):
        if bare(delay.get("from", "")) == by:
            return _instant(delay.get("stamp", "")) or 0.0
    return None


def _instant(stamp: str) -> float | None:
    try:
        read = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def _text(xml: Element | None, tag: str) -> str:
    return ((xml.findtext(tag) if xml is not None else None) or "").strip()


def _digest(*parts: str) -> str:
    """An id for a message that came without any."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
