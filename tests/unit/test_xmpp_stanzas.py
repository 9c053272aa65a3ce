"""What a stanza says and how much of it is believed: from bytes, through the library's own parser, to the door."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, fromstring
from xml.sax.saxutils import quoteattr

import pytest
import yaml

from channels.xmpp import XmppAccount, XmppChannel
from channels.xmpp.archive import Archive
from channels.xmpp.stanzas import (
    FEATURE_ARCHIVE,
    FEATURE_NON_ANONYMOUS,
    FEATURE_OCCUPANT_IDS,
    FEATURE_STANZA_IDS,
    Archived,
    Known,
    read_archived,
    read_room_message,
)
from channels.xmpp.wire import Listener, Wire
from fsm.admission import Gatekeeper, Verdict
from fsm.agent import Agent, Group
from fsm.conversation import Key
from fsm.ports import Inbound, Outgoing

CASES = {
    case["id"]: case
    for case in yaml.safe_load(
        (Path(__file__).parents[1] / "cases" / "group_inbound.yaml").read_text(encoding="utf-8")
    )
}
ROOM, NICK, ME = "r@muc.example", "小小莫", "bot@example.org"
NOW = 1_768_464_000.0
SHOWS = {FEATURE_NON_ANONYMOUS, FEATURE_STANZA_IDS}


class Stopped:
    """A clock that stands still."""

    def now(self) -> float:
        return NOW

    async def sleep_until(self, at: float) -> None:
        await asyncio.Event().wait()


class Stream:
    """A channel whose library reads what a server would send; ``heard`` is what came of it."""

    def __init__(self, *features: str) -> None:
        self.heard: list[Inbound] = []
        account = XmppAccount(ME, lambda: "pw", nick=NICK, rooms=(ROOM,))
        self.channel = XmppChannel(account, self._receive, clock=Stopped())
        seen = self.channel
        listener = Listener(
            seen._up, seen._lost, seen._login_refused, seen._displaced, seen._hearing.message,
            seen._hearing.presence, seen._sender.acked, seen._inbox.taken,
            lambda: seen._inbox.waiting,
        )  # fmt: skip
        self.wire = Wire(account, "pw", listener, seen._spawn)
        self.channel._wire_or_none = self.wire
        self.seat = seen._hearing.seats[ROOM]
        self.view = self.seat.view
        self.view.features = frozenset(features)
        self.view.non_anonymous = FEATURE_NON_ANONYMOUS in features
        self.wire.client.init_parser()
        self.feed("<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>")
        self.joined(NICK, ME, "<status code='110'/>")

    async def _receive(self, message: Inbound) -> None:
        self.heard.append(message)

    def feed(self, xml: str) -> None:
        self.wire.client.data_received(xml.encode())

    async def after(self, *xml: str) -> list[Inbound]:
        for stanza in xml:
            self.feed(stanza)
        await self.channel._inbox.taken()
        return self.heard

    def joined(self, nick: str, jid: str | None, codes: str = "", more: str = "") -> None:
        shown = f" jid={quoteattr(jid)}" if jid else ""
        self.feed(f"<presence from={quoteattr(f'{ROOM}/{nick}')}><x xmlns='http://jabber.org/protocol/muc#user'>"
                  f"<item affiliation='none' role='participant'{shown}/>{codes}</x>{more}</presence>")  # fmt: skip

    def left(self, nick: str, codes: str = "", item: str = "<item/>") -> None:
        self.feed(f"<presence type='unavailable' from={quoteattr(f'{ROOM}/{nick}')}>"
                  f"<x xmlns='http://jabber.org/protocol/muc#user'>{item}{codes}</x></presence>")  # fmt: skip


def said(nick: str, body: str = "hi", more: str = "", kind: str = "groupchat", id: str = "m") -> str:
    return f"<message type='{kind}' from={quoteattr(f'{ROOM}/{nick}')} id='{id}'><body>{body}</body>{more}</message>"


@pytest.fixture
async def stream() -> AsyncIterator[Stream]:
    made = Stream(*SHOWS, FEATURE_OCCUPANT_IDS)
    yield made
    await made.channel.close(drain=False)


@pytest.fixture
async def masked() -> AsyncIterator[Stream]:
    made = Stream()
    yield made
    await made.channel.close(drain=False)


def forwarded(messages: list[Inbound], allow: list[str]) -> list[str]:
    """The texts that the door lets through to be answered."""
    agent = Agent("mohe", nick=NICK, groups={ROOM: Group(allow=frozenset(allow))})
    door = Gatekeeper(agent)
    return [message.text for message in messages if door.look(message).verdict is Verdict.ANSWER]


# -- history and live messages --------------------------------------------------------------------


@pytest.mark.parametrize(
    "example", [pytest.param(e, id=f"GRP-01-{e['name']}") for e in CASES["GRP-01"]["examples"] if "<" in e["xml"]]
)
async def test_only_what_the_room_itself_stamps_is_history(stream: Stream, example: dict[str, Any]) -> None:
    for nick, jid in CASES["GRP-01"]["setup"]["nick_to_jid"].items():
        stream.joined(nick, jid)
    if "Alice" not in stream.view.occupants:
        pytest.fail("the case names nobody")

    heard = await stream.after(example["xml"])

    assert bool(forwarded(heard, CASES["GRP-01"]["setup"]["allow"])) is example["forward"]


async def test_a_message_with_a_known_stanza_id_is_told_from_a_new_one__GRP_01_replay(stream: Stream) -> None:
    stream.joined("Alice", "alice@example.org/phone")
    sid = f"<stanza-id xmlns='urn:xmpp:sid:0' id='s1' by='{ROOM}'/>"

    heard = await stream.after(said("Alice", "once", sid), said("Alice", "once", sid, id="another"))

    assert [message.text for message in heard] == ["once"]
    assert heard[0].id == "s1"


async def test_a_message_id_used_again_counts_only_without_a_stanza_id(stream: Stream) -> None:
    stream.joined("Alice", "alice@example.org/phone")

    heard = await stream.after(
        *(said("Alice", f"n{n}", f"<stanza-id xmlns='urn:xmpp:sid:0' id='s{n}' by='{ROOM}'/>", id="1") for n in (1, 2)),
        *(said("Alice", f"n{n}", id="2") for n in (3, 4)),
    )

    assert [message.text for message in heard] == ["n1", "n2", "n3"]


async def test_a_message_that_its_sender_sends_again_under_its_origin_id_is_one_and_two_peoples_are_two(
    stream: Stream,
) -> None:
    stream.joined("Alice", "alice@example.org/phone")
    stream.joined("Bob", "bob@example.org/phone")
    stream.joined("Nobody", "")
    numbers = itertools.count()

    def sent(nick: str, body: str, more: str = "") -> str:
        stanza_id = f"<stanza-id xmlns='urn:xmpp:sid:0' id='s{next(numbers)}' by='{ROOM}'/>"
        return said(nick, body, f"<origin-id xmlns='urn:xmpp:sid:0' id='o1'/>{stanza_id}{more}", id="o1")

    edit = "<replace xmlns='urn:xmpp:message-correct:0' id='o1'/>"
    heard = await stream.after(
        sent("Alice", "one"), sent("Alice", "one"), sent("Bob", "two"), sent("Nobody", "three"), sent("Nobody", "four"),
        sent("Alice", "edit", edit),
    )  # fmt: skip

    assert [message.text for message in heard] == ["one", "two", "three", "four", "edit"]


async def test_a_stamp_of_our_own_server_on_a_direct_message_means_late_not_old(stream: Stream) -> None:
    delay = "<delay xmlns='urn:xmpp:delay' from='example.org' stamp='2026-01-14T08:00:00Z'/>"

    (heard,) = await stream.after(
        f"<message type='chat' from='ann@example.org/phone' id='d1'><body>hi</body>{delay}</message>"
    )

    assert (heard.delayed, heard.at) == (False, NOW)


# -- who it was -----------------------------------------------------------------------------------

_numbers = itertools.count()


@pytest.mark.parametrize(
    "example", [pytest.param(e, id=f"GRP-03-{next(_numbers)}") for e in CASES["GRP-03"]["examples"]]
)
async def test_only_a_proven_address_on_the_allowlist_is_let_in(
    stream: Stream, masked: Stream, example: dict[str, Any]
) -> None:
    nick, jid = example["nick"], example["real_jid"]
    reading = stream if jid or not nick else masked
    if nick:
        reading.joined(nick, jid)
        heard = await reading.after(said(nick, kind=example.get("type", "groupchat")))
        assert [message.nick for message in heard] in ([], [nick])
    else:
        heard = await reading.after(f"<message type='groupchat' from='{example['from']}'><body>notice</body></message>")

    allow = example.get("allow_override", CASES["GRP-03"]["setup"]["allow"])
    assert bool(forwarded(heard, allow)) is example["forward"]


async def test_the_address_is_that_of_the_moment_in_which_the_message_came(stream: Stream) -> None:
    stream.joined("Alice", "alice@example.org/phone")
    stream.feed(said("Alice", "mine", id="1"))
    stream.left("Alice")
    stream.joined("Alice", "mallory@evil.example/x")

    heard = await stream.after(said("Alice", "mine too", id="2"))

    assert [message.real_jid for message in heard] == ["alice@example.org", "mallory@evil.example"]


ITEM = "<x xmlns='http://jabber.org/protocol/muc#user'><item jid='{}'/></x>"
ALICE, MALLORY = ITEM.format("alice@example.org/phone"), ITEM.format("mallory@evil.example/x")


async def test_an_address_in_a_live_message_is_its_senders_own_invention(stream: Stream) -> None:
    stream.joined("Mallory", "mallory@evil.example/x")

    (heard,) = await stream.after(said("Mallory", more=ALICE))

    assert heard.real_jid == "mallory@evil.example"


async def test_an_address_in_the_history_that_comes_with_entering_proves_nothing(stream: Stream) -> None:
    delay = f"<delay xmlns='urn:xmpp:delay' from='{ROOM}' stamp='2026-01-14T08:00:00Z'/>"
    stream.joined("Alice", "alice@example.org/phone")

    (heard,) = await stream.after(said("Alice", more=ALICE + delay))

    assert (heard.real_jid, heard.delayed) == ("", True)


@pytest.mark.parametrize(
    ("items", "believed"),
    [(ALICE, "alice@example.org"), (ALICE + MALLORY, ""), (MALLORY + ALICE, ""), ("", "")],
    ids=["one", "forged first", "forged last", "none"],
)
async def test_of_an_archived_message_exactly_one_address_is_believed(
    stream: Stream, items: str, believed: str
) -> None:
    inner = said("Alice", more=items).replace("<message", "<message xmlns='jabber:client'")
    results: list[Any] = []
    stream.channel._hearing.archive.take = lambda xml: bool(results.append(xml) or True)  # type: ignore[method-assign]
    stream.feed(
        f"<message from='{ROOM}'><result xmlns='urn:xmpp:mam:2' id='a1' queryid='q'><forwarded "
        "xmlns='urn:xmpp:forward:0'><delay xmlns='urn:xmpp:delay' stamp='2026-01-15T07:59:00Z'/>"
        f"{inner}</forwarded></result></message>"
    )
    found = read_archived(results[0])
    assert found is not None
    query, message, archived = found

    heard = read_room_message(message, stream.view, Known(ME, NOW), archived=archived, answer_from=NOW - 600)

    assert (query, archived) == ("q", Archived("a1", NOW - 60))
    assert heard is not None
    assert (heard.inbound.real_jid, heard.inbound.id, heard.inbound.delayed) == (believed, "a1", False)


async def test_an_archive_is_read_to_its_end_and_only_from_whom_was_asked() -> None:
    pages = {"": (["a1", "a2"], "a2", False), "a2": (["a3"], "a3", True)}
    asked: list[str] = []

    async def query(to: str, payload: Element) -> Element:
        after = payload.findtext("{http://jabber.org/protocol/rsm}set/{http://jabber.org/protocol/rsm}after") or ""
        asked.append(after)
        ids, last, complete = pages[after]
        forged = [("mallory@evil.example/x", "forged"), (f"{ROOM}/Ann", "forged")]
        for sender, id in [(ROOM, id) for id in ids] + forged:
            taken = archive.take(fromstring(
                f"<message xmlns='jabber:client' from='{sender}'><result xmlns='urn:xmpp:mam:2' id='{id}' "
                f"queryid='{payload.get('queryid')}'><forwarded xmlns='urn:xmpp:forward:0'><message "
                "xmlns='jabber:client'/></forwarded></result></message>"
            ))  # fmt: skip
            assert taken, "a result is no message, whoever sends it"
        return fromstring(
            f"<iq xmlns='jabber:client'><fin xmlns='urn:xmpp:mam:2' complete='{str(complete).lower()}'>"
            f"<set xmlns='http://jabber.org/protocol/rsm'><last>{last}</last></set></fin></iq>"
        )

    archive = Archive(ME, query)

    found = await archive.after(ROOM, "", NOW)

    assert asked == ["", "a2"]
    assert [where.id for _, where in found] == ["a1", "a2", "a3"]


def occupant_id(id: str) -> str:
    return f"<occupant-id xmlns='urn:xmpp:occupant-id:0' id='{id}'/>"


async def test_an_occupant_id_counts_where_the_room_sets_them_and_only_alone(masked: Stream) -> None:
    masked.feed(said("Ann", "not announced", occupant_id("o1"), id="1"))
    masked.view.features = frozenset({FEATURE_OCCUPANT_IDS})
    masked.feed(said("Ann", "announced", occupant_id("o1"), id="2"))

    heard = await masked.after(said("Ann", "two of them", occupant_id("o1") + occupant_id("o2"), id="3"))

    assert [message.sender for message in heard] == [f"{ROOM}/Ann", "o1", f"{ROOM}/Ann"]


async def test_two_extensions_in_a_presence_name_nobody(stream: Stream) -> None:
    stream.feed(f"<presence from='{ROOM}/Mallory'>{ALICE}{MALLORY}</presence>")

    (heard,) = await stream.after(said("Mallory"))

    assert heard.real_jid == ""


@pytest.mark.parametrize("by", ["r@muc.example", "mallory@evil.example"])
async def test_a_stanza_id_counts_only_from_the_room_and_only_where_it_announces_them(masked: Stream, by: str) -> None:
    sid = f"<stanza-id xmlns='urn:xmpp:sid:0' id='s1' by='{by}'/>"
    masked.feed(said("Ann", "1", sid, id="1"))
    masked.view.features = frozenset({FEATURE_STANZA_IDS})

    heard = await masked.after(said("Ann", "2", sid, id="2"))

    assert [message.id for message in heard] == [f"{ROOM}/Ann/1", "s1" if by == ROOM else f"{ROOM}/Ann/2"]


async def test_of_two_stanza_ids_of_the_room_neither_counts(stream: Stream) -> None:
    sids = "".join(f"<stanza-id xmlns='urn:xmpp:sid:0' id='s{n}' by='{ROOM}'/>" for n in (1, 2))

    (heard,) = await stream.after(said("Ann", more=sids))

    assert heard.id == f"{ROOM}/Ann/m"


@pytest.mark.parametrize(("code", "shows"), [("172", True), ("173", False), ("174", False), ("170", None)])
async def test_a_room_may_begin_and_cease_to_show_addresses(stream: Stream, code: str, shows: bool | None) -> None:
    for before in (True, False):
        stream.view.non_anonymous = before
        change = f"<x xmlns='http://jabber.org/protocol/muc#user'><status code='{code}'/></x>"
        stream.feed(f"<message type='groupchat' from='{ROOM}/Ann'>{change}</message>")
        assert stream.view.non_anonymous is before, "only the room itself can say so"

        stream.feed(f"<message type='groupchat' from='{ROOM}'>{change}</message>")

        assert stream.view.non_anonymous is (before if shows is None else shows)


async def test_what_was_missed_comes_before_what_is_said_while_it_is_read(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sid(id: str) -> str:
        return f"<stanza-id xmlns='urn:xmpp:sid:0' id='{id}' by='{ROOM}'/>"

    missed = fromstring(said("Ann", "missed", id="1").replace("<message", "<message xmlns='jabber:client'"))

    async def after(of: str, last: str, since: float) -> list[tuple[Element, Archived]]:
        stream.feed(said("Ann", "live", sid("s2"), id="2"))
        return [(missed, Archived("s1", NOW)), (missed, Archived("s1", NOW))]

    monkeypatch.setattr(stream.channel._hearing.archive, "after", after)
    stream.view.features |= {FEATURE_ARCHIVE}
    stream.seat.since, stream.seat.waiting = NOW, []
    stream.feed(f"<message type='groupchat' from='{ROOM}'><subject/></message>")

    await stream.channel._hearing.catch_up(ROOM)

    assert [message.text for message in await stream.after()] == ["missed", "live"]


async def test_a_room_that_refuses_a_text_because_we_are_not_in_it_gets_it_later(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(stream.wire.client, "send", sent.append)
    sender = stream.channel._sender
    sender.release([ROOM], fresh=True)
    delivery = asyncio.ensure_future(
        stream.channel.send(Outgoing("o1", Key("mohe", f"xmpp:{ROOM}", "ann"), f"xmpp:{ROOM}", ROOM, "hello"))
    )
    await asyncio.sleep(0)
    error = "<error type='cancel'><not-acceptable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
    stream.feed(f"<message type='error' from='{ROOM}' id='o1'><body>hello</body>{error}</message>")
    assert not stream.view.present

    sender.hold([ROOM])
    sender.release([ROOM], fresh=True)
    stream.joined(NICK, ME, "<status code='110'/>")
    for _ in range(5):
        await asyncio.sleep(0)
    assert [stanza["id"] for stanza in sent] == ["o1", "o1"]
    await stream.after(said(NICK, "hello", id="o1"))
    await delivery


# -- our own messages -----------------------------------------------------------------------------


async def test_our_own_messages_do_not_come_back(stream: Stream) -> None:
    stream.joined("second client", f"{ME}/laptop")

    assert await stream.after(said(NICK, "mine"), said("second client", "mine as well", id="2")) == []


async def test_our_nick_is_ours_only_while_we_have_it(stream: Stream) -> None:
    stream.left(NICK, "<status code='303'/><status code='110'/>", "<item nick='小小莫2'/>")
    stream.joined("小小莫2", ME, "<status code='110'/>")
    stream.joined(NICK, "mallory@evil.example/x")

    heard = await stream.after(said(NICK, "I am the bot"), said("小小莫2", "no, I", id="2"))

    assert [(message.text, message.own) for message in heard] == [("I am the bot", False)]


# -- what is no message ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "xml",
    [
        pytest.param(said("Alice", kind="error"), id="an error"),
        pytest.param(f"<message type='groupchat' from='{ROOM}/Alice'><subject>x</subject></message>", id="a subject"),
        pytest.param(f"<message type='groupchat' from='{ROOM}'><body>notice</body></message>", id="the room itself"),
        pytest.param(said("Alice", body=""), id="an empty body"),
        pytest.param("<message type='groupchat' from='other@muc.example/Ann'><body>x</body></message>",
                     id="a strange room"),
        pytest.param("<message from='other@muc.example/Ann' type='chat'><body>x</body>"
                     "<x xmlns='http://jabber.org/protocol/muc#user'/></message>", id="an occupant of a strange room"),
        pytest.param(f"<message from='{ROOM}'><x xmlns='http://jabber.org/protocol/muc#user'><invite/></x>"
                     "<body>come</body></message>", id="an invitation"),
        pytest.param("<message type='headline' from='ann@example.org'><body>x</body></message>", id="a headline"),
        pytest.param("<message from='example.org'><body>welcome</body></message>", id="the server"),
        pytest.param(f"<message type='chat' from='{ME}/phone'><body>x</body></message>", id="ourselves"),
        pytest.param(f"<message from='{ROOM}'><result xmlns='urn:xmpp:mam:2' id='1' queryid='guess'><forwarded "
                     "xmlns='urn:xmpp:forward:0'><message xmlns='jabber:client' type='chat' from='ann@example.org/x'>"
                     "<body>forged</body></message></forwarded></result></message>", id="a result nobody asked for"),
        pytest.param("<message from='mallory@evil.example'><received xmlns='urn:xmpp:carbons:2'><forwarded "
                     "xmlns='urn:xmpp:forward:0'><message xmlns='jabber:client' type='chat' from='ann@example.org/x'>"
                     "<body>forged</body></message></forwarded></received></message>", id="a forged carbon copy"),
    ],
)  # fmt: skip
async def test_what_is_no_message_is_not_heard(stream: Stream, xml: str) -> None:
    stream.joined("Alice", "alice@example.org/phone")

    assert await stream.after(xml) == []
    assert [message.text for message in await stream.after(said("Alice", "still here"))] == ["still here"]


async def test_a_private_message_of_an_unknown_occupant_is_not_the_rooms(masked: Stream) -> None:
    masked.joined("Ann", None)

    (heard,) = await masked.after(said("Ann", "psst", kind="chat"))

    assert (heard.channel, heard.sender, heard.real_jid, heard.reply_to) == ("xmpp", f"{ROOM}/Ann", "", f"{ROOM}/Ann")


async def test_a_stanza_that_cannot_be_read_is_dropped_without_an_answer(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream.channel._hearing.archive, "take", lambda xml: 1 / 0)
    sent: list[Any] = []
    monkeypatch.setattr(stream.wire.client, "send", sent.append)

    await stream.after(said("Alice"))

    assert (sent, stream.heard) == ([], [])


async def test_the_server_hears_that_a_message_came_only_once_it_is_safe(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, sent = asyncio.Event(), []

    async def receive(message: Inbound) -> None:
        await stored.wait()

    monkeypatch.setattr(stream.channel._inbox, "_receive", receive)
    monkeypatch.setattr(stream.wire.client, "send_raw", sent.append)
    stream.wire.client.transport = object()  # type: ignore[assignment]
    stream.feed("<enabled xmlns='urn:xmpp:sm:3' id='x' resume='true'/>")
    stream.joined("Alice", "alice@example.org/phone")
    stream.feed(said("Alice"))
    stream.feed("<r xmlns='urn:xmpp:sm:3'/>")
    for _ in range(10):
        await asyncio.sleep(0)
    assert sent == []

    stored.set()
    await stream.channel._inbox.taken()
    await asyncio.gather(*stream.channel._loose)
    assert sent == ['<a xmlns="urn:xmpp:sm:3" h="2" />']
    stream.wire.client.transport = None
