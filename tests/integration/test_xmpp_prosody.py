"""The XMPP channel against a real Prosody: what people see, and what a bot hears."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from channels.xmpp import Standing, State
from fsm.ports import DeliveryError
from tests.support.tcp_proxy import proxy
from tests.support.xmpp_people import QUICK, Heap, bot, person
from tests.support.xmpp_servers import HOST, Prosody, Server, need, running

_numbers = itertools.count()


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(Prosody, tmp_path_factory.mktemp("prosody")) as prosody:
        yield prosody


@pytest.fixture
def server(one_server: Server) -> Server:
    one_server.new_bot()
    return one_server


@pytest.fixture
def room() -> str:
    """A room of its own for each test, which shows real addresses."""
    return f"room{next(_numbers)}@{Prosody.rooms}"


@pytest.fixture
def masked() -> str:
    return f"room{next(_numbers)}@{Prosody.masked}"


async def test_a_direct_chat_goes_both_ways(server: Server) -> None:
    async with person(server, "alice") as alice, bot(server) as our:
        alice.says(our.account.jid, "早", id="a1", more="<request xmlns='urn:xmpp:receipts'/>")
        heard = await our.hears("早")

        assert (heard.channel, heard.sender, heard.real_jid, heard.reply_to) == ("xmpp", *[alice.jid] * 3)
        assert (heard.own, heard.delayed, heard.edited, heard.mentioned) == (False, False, False, False)

        await our.sends(heard.reply_to, "早上好")
        answer = await alice.hears("早上好")
        assert answer.get("type") == "chat"
        await alice.heard.until(lambda m: m.find("{urn:xmpp:receipts}received") is not None)


async def test_a_room_that_shows_addresses_names_the_person_behind_a_nick(server: Server, room: str) -> None:
    async with person(server, "alice") as alice, bot(server, room) as our:
        await alice.joins(room, "隔壁老王")
        alice.says(room, "大家好", "groupchat", id="m1")
        heard = await our.hears("大家好")

        assert (heard.channel, heard.sender, heard.real_jid) == (f"xmpp:{room}", alice.jid, alice.jid)
        assert (heard.nick, heard.reply_to, heard.mentioned) == ("隔壁老王", room, False)
        assert heard.id != "m1", "the room's own id is proven, the sender's is not"

        id = await our.sends(room, "你好")
        seen = await alice.hears("你好")
        assert (seen.get("from"), seen.get("id")) == (f"{room}/小小莫", id)
        await alice.settled()
        assert our.texts == ["大家好"], "its own message must not come back to it"


async def test_somebody_who_takes_an_allowed_nick_is_not_taken_for_its_owner(server: Server, room: str) -> None:
    async with person(server, "alice") as alice, person(server, "mallory") as mallory, bot(server, room) as our:
        await alice.joins(room, "Alice")
        alice.says(room, "me", "groupchat")
        assert (await our.hears("me")).sender == alice.jid
        alice.write(f"<presence type='unavailable' to='{room}/Alice'/>")
        await alice.settled()

        await mallory.joins(room, "Alice")
        forged = (
            f"<x xmlns='http://jabber.org/protocol/muc#user'><item jid='{alice.jid}/phone'/></x>"
            "<occupant-id xmlns='urn:xmpp:occupant-id:0' id='forged'/>"
            f"<stanza-id xmlns='urn:xmpp:sid:0' id='forged' by='{room}'/>"
        )
        mallory.says(room, "me too", "groupchat", more=forged)
        heard = await our.hears("me too")

        assert (heard.sender, heard.real_jid, heard.nick) == (mallory.jid, mallory.jid, "Alice")
        assert heard.id != "forged"


async def test_in_a_room_that_hides_addresses_the_occupant_id_names_people(server: Server, masked: str) -> None:
    async with person(server, "alice") as owner, person(server, "bob") as bob:
        await owner.joins(masked, "owner")
        async with bot(server, masked) as our:
            await bob.joins(masked, "Bob")
            bob.says(masked, "one", "groupchat")
            first = await our.hears("one")
            bob.write(f"<presence to='{masked}/Robert'/>")
            await bob.settled()
            bob.says(masked, "two", "groupchat")
            second = await our.hears("two")

            assert first.real_jid == second.real_jid == ""
            assert first.sender == second.sender
            assert not first.sender.startswith(masked)
            assert (first.nick, second.nick) == ("Bob", "Robert")
            await our.sends(masked, "mine")
            await bob.hears("mine")
            await bob.settled()
            assert our.texts == ["one", "two"]


async def test_what_was_said_before_the_bot_came_is_history(server: Server, room: str) -> None:
    async with person(server, "alice") as alice:
        await alice.joins(room, "Alice")
        alice.says(room, "重启服务器", "groupchat")
        await alice.hears("重启服务器")
        async with bot(server, room) as our:
            heard = await our.hears("重启服务器")
            alice.says(room, "now", "groupchat")
            live = await our.hears("now")

            assert (heard.delayed, live.delayed) == (True, False)
            assert heard.sender == alice.jid, "the archive says who it was"
            assert our.texts == ["重启服务器", "now"]


async def test_a_message_that_its_sender_sent_late_is_live(server: Server, room: str) -> None:
    async with person(server, "alice") as alice, bot(server, room) as our:
        await alice.joins(room, "Alice")
        late = "<delay xmlns='urn:xmpp:delay' stamp='2026-01-15T07:50:00Z'/>"
        alice.says(room, "刚才断网", "groupchat", more=late)
        alice.says(our.account.jid, "me too", more=late)

        assert not (await our.hears("刚才断网")).delayed
        assert not (await our.hears("me too")).delayed


async def test_an_edit_comes_under_the_id_of_what_it_edits(server: Server, room: str) -> None:
    async with person(server, "alice") as alice, bot(server, room) as our:
        await alice.joins(room, "Alice")
        replace = "<replace xmlns='urn:xmpp:message-correct:0' id='m1'/>"
        for to, kind in ((room, "groupchat"), (our.account.jid, "chat")):
            alice.says(to, f"teh {kind}", kind, id="m1")
            alice.says(to, f"the {kind}", kind, id="m2", more=replace)
            original, edit = await our.hears(f"teh {kind}"), await our.hears(f"the {kind}")

            assert (original.edited, edit.edited) == (False, True)
            assert edit.id == original.id


async def test_what_addresses_the_bot_by_protocol_is_a_mention(server: Server, room: str) -> None:
    async with person(server, "alice") as alice, bot(server, room) as our:
        await alice.joins(room, "Alice")
        await our.sends(room, "mine")
        mine = (await alice.hears("mine")).find("{urn:xmpp:sid:0}stanza-id")
        assert mine is not None
        for body, more in {
            "reference": f"<reference xmlns='urn:xmpp:reference:0' type='mention' uri='xmpp:{our.account.jid}'/>",
            "reply": f"<reply xmlns='urn:xmpp:reply:0' id='{mine.get('id')}' to='{room}/小小莫'/>",
            "reply to another": "<reply xmlns='urn:xmpp:reply:0' id='unknown'/>",
            "another": "<reference xmlns='urn:xmpp:reference:0' type='mention' uri='xmpp:bob@xmpp.test'/>",
        }.items():
            alice.says(room, body, "groupchat", more=more)
        await our.hears("another")

        assert [message.text for message in our.inbox.items if message.mentioned] == ["reference", "reply"]


async def test_a_private_message_in_a_room_is_one_persons_and_answered_to_him_alone(server: Server, room: str) -> None:
    async with (
        person(server, "alice") as alice, person(server, "mallory") as mallory, bot(server, room) as our,
    ):  # fmt: skip
        await alice.joins(room, "Alice")
        await mallory.joins(room, "Mallory")
        alice.says(f"{room}/小小莫", "psst", more="<x xmlns='http://jabber.org/protocol/muc#user'/>")
        heard = await our.hears("psst")

        assert (heard.channel, heard.sender, heard.reply_to) == ("xmpp", alice.jid, f"{room}/Alice")
        await our.sends(heard.reply_to, "secret", sender=heard.sender)
        assert (await alice.hears("secret")).get("type") == "chat"

        alice.write(f"<presence type='unavailable' to='{room}/Alice'/>")
        await alice.settled()
        mallory.write(f"<presence to='{room}/Alice'/>")
        mallory.says(room, "I am Alice", "groupchat")
        await our.hears("I am Alice")
        with pytest.raises(DeliveryError, match=r"alice@xmpp\.test is no longer in .* as Alice") as refused:
            await our.sends(heard.reply_to, "secret 2", sender=heard.sender)
        assert refused.value.final
        await mallory.settled()
        assert mallory.bodies(f"{room}/小小莫") == []


async def test_the_subject_and_errors_are_no_messages(server: Server, room: str) -> None:
    async with person(server, "alice") as alice, bot(server, room) as our:
        await alice.joins(room, "Alice")
        alice.write(f"<message type='groupchat' to='{room}'><subject>今日话题</subject></message>")
        alice.write(f"<message type='error' to='{our.account.jid}' id='x'><body>bounce</body><error type='cancel'>"
                    "<gone xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></message>")  # fmt: skip
        alice.says(room, "done", "groupchat")
        alice.says(our.account.jid, "done too")
        await our.hears("done")
        await our.hears("done too")

        assert sorted(our.texts) == ["done", "done too"]


async def test_the_subject_that_a_room_has_is_no_message_and_ends_the_history(server: Server, room: str) -> None:
    async with person(server, "alice") as alice:
        await alice.joins(room, "Alice")
        alice.write(f"<message type='groupchat' to='{room}'><subject>今日话题</subject></message>")
        await alice.settled()
        # Were the subject not seen, entering would wait for it a minute.
        async with bot(server, room, timing=replace(QUICK, answer=60.0)) as our:
            alice.says(room, "hi", "groupchat")
            await our.hears("hi")

            assert our.texts == ["hi"]


@pytest.mark.parametrize(
    ("item", "cause"),
    [
        pytest.param("nick='小小莫' role='none'", "kicked", id="kicked"),
        pytest.param("jid='{bot}' affiliation='outcast'", "banned", id="banned"),
    ],
)
async def test_a_bot_that_is_put_out_stays_out_and_says_so(server: Server, room: str, item: str, cause: str) -> None:
    async with person(server, "alice") as alice:
        await alice.joins(room, "Alice")
        async with bot(server, room) as our:
            await alice.admin(room, item.format(bot=our.account.jid))
            told = await our.is_told("room out")

            assert told.text.startswith(f"{room}: {cause}")
            with pytest.raises(DeliveryError, match=cause) as failed:
                await our.sends(room, "hello?")
            assert failed.value.final
            assert our.channel.state is State.JOINED
            alice.says(our.account.jid, "direct chats go on")
            await our.hears("direct chats go on")

        if cause == "banned":
            async with bot(server, room) as our:
                assert "forbidden" in (await our.is_told("room out")).text


async def test_a_destroyed_room_is_not_made_anew(server: Server, room: str) -> None:
    async with person(server, "alice") as alice:
        await alice.joins(room, "Alice")
        async with bot(server, room) as our:
            await alice.destroys(room)

            assert "destroyed" in (await our.is_told("room out")).text
            assert [r.standing for r in our.channel.connection.rooms] == [Standing.GONE]
            with pytest.raises(DeliveryError, match="destroyed"):
                await our.sends(room, "anyone?")


async def test_a_nick_that_is_taken_is_waited_for(server: Server, room: str) -> None:
    async with person(server, "alice") as alice:
        await alice.joins(room, "小小莫")
        async with bot(server, room, start=False) as our:
            await our.starts(State.JOINING)
            assert "conflict" in (await our.is_told("room out")).text
            sending = asyncio.ensure_future(our.sends(room, "at last"))

            alice.write(f"<presence to='{room}/Alice'/>")
            await our.reaches(State.JOINED)
            await sending
            await alice.hears("at last")


async def test_entering_a_room_that_was_not_there_is_told(server: Server, room: str) -> None:
    async with bot(server, room) as our:
        told = await our.is_told("room created")

        assert told.room == room
        assert our.channel.connection.rooms[0].created


async def test_a_wrong_password_is_tried_once(server: Server) -> None:
    async with bot(server, start=False, password=lambda: "wrong") as our:
        assert await our.starts(State.REFUSED) is State.REFUSED
        assert f"{our.account.jid} could not log in (not-authorized)" in (await our.is_told("refused")).text
        with pytest.raises(DeliveryError, match="correct the address or the password") as failed:
            await our.sends("alice@xmpp.test", "x")
        assert failed.value.final
        assert our.channel.connection.link == 1


async def test_an_account_that_was_refused_is_tried_again_when_started_again(server: Server) -> None:
    passwords = ["wrong", f"pw-{server.bot}"]
    async with bot(server, start=False, password=lambda: passwords.pop(0)) as our:
        await our.starts(State.REFUSED)

        assert await our.starts(State.JOINED) is State.JOINED
        await our.sends("alice@xmpp.test", "back")


async def test_a_second_client_of_the_same_address_ends_the_first_for_good(server: Server) -> None:
    async with bot(server) as first, bot(server) as second:
        await first.reaches(State.REFUSED)

        told = await first.is_told("refused")
        assert f"another client has logged in as {first.account.jid}/session-router" in told.text
        assert (first.channel.connection.link, second.channel.state) == (1, State.JOINED)


async def test_a_connection_beside_the_bots_own_takes_no_message_from_it(server: Server, room: str) -> None:
    async with person(server, "alice") as alice:
        await alice.joins(room, "Alice")
        alice.says(f"{server.bot}@{HOST}", "while nobody is there")
        await alice.settled()
        async with bot(server, room, resource="beside", priority=-1, history=0) as beside:
            await beside.sends(room, "from beside")
            await alice.hears("from beside")
            async with bot(server, room) as our:
                assert not (await our.hears("while nobody is there")).delayed
                alice.says(our.account.jid, "now")
                await our.hears("now")
                alice.says(room, "to all", "groupchat")
                await beside.hears("to all")

            assert beside.texts == ["to all"]


async def test_a_long_text_comes_whole_in_order_and_once(server: Server, room: str) -> None:
    text = "\n\n".join(f"paragraph {n}: " + "字 & word " * 50 for n in range(60))
    assert len(text.encode()) > 30_000
    async with person(server, "alice") as alice, bot(server, room) as our:
        await alice.joins(room, "Alice")
        await our.sends(room, text, id="long")
        await our.sends(room, text, id="long")
        await our.sends(room, "end")
        await alice.hears("end")
        pieces = alice.bodies(f"{room}/小小莫")[:-1]

        assert len(pieces) > 3
        assert "\n\n".join(pieces) == text
        assert max(len(piece.encode()) for piece in pieces) <= our.account.body_bytes


async def test_typing_is_shown_and_cleared(server: Server, room: str) -> None:
    async with person(server, "alice") as alice, bot(server, room) as our:
        await alice.joins(room, "Alice")
        for to in (room, alice.jid):
            alice.heard.items.clear()
            await our.channel.typing(to, True)
            await our.channel.typing(to, False)
            for state in ("composing", "active"):
                tag = f"{{http://jabber.org/protocol/chatstates}}{state}"
                await alice.heard.until(lambda m, tag=tag: m.find(tag) is not None)


async def test_a_request_to_see_the_bots_presence_is_not_granted(server: Server) -> None:
    async with person(server, "mallory") as mallory, bot(server) as our:
        mallory.write(f"<presence type='subscribe' to='{our.account.jid}'/>")
        mallory.says(our.account.jid, "hi")
        await our.hears("hi")
        await our.sends(mallory.jid, "hello")
        await mallory.hears("hello")

        answers = {p.get("type") for p in mallory.seen.items if p.get("from", "").startswith(our.account.jid)}
        assert answers <= {"unavailable"}, "neither `subscribed` nor a presence"


async def test_a_text_for_somebody_who_is_not_there_fails(server: Server) -> None:
    async with bot(server) as our:
        with pytest.raises(DeliveryError, match="refused the text: service-unavailable"):
            await our.sends("nobody@xmpp.test", "hello")


async def test_control_characters_do_not_end_the_stream(server: Server) -> None:
    async with person(server, "alice") as alice, bot(server) as our:
        await our.sends(alice.jid, "a\x00b\x1b[31m\ud800\uffff")

        await alice.hears("a\ufffdb\ufffd[31m\ufffd\ufffd")
        assert our.channel.connection.link == 1


async def test_with_tls_the_certificate_is_checked(tmp_path: Path) -> None:
    with running(Prosody, tmp_path, tls=True) as server:
        assert isinstance(server, Prosody)
        async with bot(server, start=False, plaintext_loopback=False) as our:
            await our.starts(State.BACKING_OFF)
            assert "certificate is not trusted" in (await our.is_told("link")).text
        async with bot(server, plaintext_loopback=False, ca_file=server.certificate) as our:
            assert our.channel.state is State.JOINED


# -- a server that goes away ----------------------------------------------------------------------


async def test_after_a_server_was_killed_everything_is_taken_up_again_once(tmp_path: Path) -> None:
    with running(Prosody, tmp_path) as server:
        await killed_and_started_again(server, f"team@{Prosody.rooms}")


async def killed_and_started_again(server: Server, room: str) -> None:
    async with person(server, "alice") as alice:
        await alice.joins(room, "Alice")
    server.stop()  # a room is on disk once the server has been stopped
    server.start()
    async with bot(server, room) as our:
        async with person(server, "alice") as alice:
            await alice.joins(room, "Alice")
            alice.says(room, "before", "groupchat")
            await our.hears("before")
            await our.sends(room, "sent before")

            server.kill()
            await our.reaches(State.BACKING_OFF, State.CONNECTING)
            held = [asyncio.ensure_future(our.sends(room, f"held {n}", id=f"held-{n}")) for n in range(2)]
            direct = asyncio.ensure_future(our.sends("alice@xmpp.test", "held for her", id="held-direct"))
        server.start()
        async with person(server, "alice") as alice:
            await alice.joins(room, "Alice")
            await our.reaches(State.JOINED)
            await asyncio.gather(*held, direct)
            await alice.hears("held for her")
            alice.says(room, "after", "groupchat")
            await our.hears("after")
            await alice.hears("after")

            said = [body for body in alice.bodies(f"{room}/小小莫") if body.startswith("held")]
            assert sorted(said) == ["held 0", "held 1"]
            assert our.texts == ["before", "after"]
            assert [tell.kind for tell in our.notices.items if tell.kind == "room created"] == []


async def test_a_server_that_is_not_there_yet_is_waited_for_by_our_own_clock(tmp_path: Path) -> None:
    need(Prosody)
    server = Prosody(tmp_path)
    try:
        async with bot(server, start=False) as our:
            await our.channel.start()
            # The library alone would wait three seconds, then nine.
            await our.states.until(lambda now: now.failures >= 3, within=2.5)
            assert "no connection: " in (await our.is_told("link")).text
            server.start()
            await our.reaches(State.JOINED)
    finally:
        server.stop()


async def test_a_short_cut_is_mended_in_the_same_session(server: Server, room: str) -> None:
    async with person(server, "alice") as alice, proxy(server.port) as wire, bot(server, room, port=wire.port) as our:
        await alice.joins(room, "Alice")
        alice.says(room, "before", "groupchat")
        await our.hears("before")
        wire.refusing = True
        wire.cut()
        await our.reaches(State.BACKING_OFF)
        sending = asyncio.ensure_future(our.sends(room, "held"))
        alice.says(room, "missed", "groupchat")
        alice.says(our.account.jid, "missed too")
        await alice.settled()
        wire.refusing = False
        await our.reaches(State.JOINED)
        await sending

        assert not (await our.hears("missed")).delayed
        assert not (await our.hears("missed too")).delayed
        await alice.hears("held")
        assert alice.bodies(f"{room}/小小莫") == ["held"]
        assert sorted(our.texts) == ["before", "missed", "missed too"]
        assert [p for p in alice.seen.items if p.get("from") == f"{room}/小小莫" and p.get("type")] == []


@pytest.mark.parametrize(("answer_missed", "history"), [(600.0, False), (0.0, True)], ids=["young", "old"])
async def test_what_was_missed_in_a_room_is_read_from_its_archive_once(
    server: Server, room: str, answer_missed: float, history: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        person(server, "alice") as alice, proxy(server.port) as wire,
        bot(server, room, port=wire.port, answer_missed=answer_missed, start=False) as our,
    ):  # fmt: skip
        await our.channel.start()
        our.channel._wire.client.plugin["xep_0198"].allow_resume = False
        await our.reaches(State.JOINED)
        await alice.joins(room, "Alice")
        alice.says(room, "before", "groupchat")
        await our.hears("before")
        wire.refusing = True
        wire.cut()
        await alice.seen.until(lambda p: p.get("from") == f"{room}/小小莫" and p.get("type") == "unavailable")
        alice.says(room, "missed 1", "groupchat")
        alice.says(room, "missed 2", "groupchat")
        alice.says(our.account.jid, "missed too")
        await alice.settled()
        wire.refusing = False
        await our.reaches(State.JOINED)
        alice.says(room, "after", "groupchat")
        await our.hears("after")
        await our.hears("missed too")

        of_room = [message for message in our.inbox.items if message.channel != "xmpp"]
        assert [message.text for message in of_room] == ["before", "missed 1", "missed 2", "after"]
        assert [message.delayed for message in of_room] == [False, history, history, False]
        assert {message.sender for message in of_room} == {alice.jid}
        assert our.texts.count("missed too") == 1
        assert "Inconsistent sequence numbers" not in caplog.text, "acknowledgements are counted anew"


async def test_a_server_that_says_nothing_any_more_is_noticed(server: Server, room: str) -> None:
    timing = replace(QUICK, ping=0.2, answer=0.5)
    async with proxy(server.port) as wire, bot(server, room, port=wire.port, timing=timing) as our:
        wire.swallowing = True
        assert "does not answer" in (await our.is_told("link")).text
        wire.swallowing = False
        await our.reaches(State.JOINED)
        await our.sends(room, "back")


async def test_looking_after_a_room_that_is_well_changes_nothing(
    server: Server, room: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bot(server, room, timing=replace(QUICK, ping=0.05), start=False) as our:
        await our.channel.start()
        looks, wire = Heap(), our.channel._wire
        ping = wire.ping

        async def looked(to: str, within: float) -> None:
            await ping(to, within)
            looks.add((to, len(looks.items)))

        monkeypatch.setattr(wire, "ping", looked)
        await looks.until(lambda look: look[0] == f"{room}/小小莫" and look[1] > 6)

        assert our.channel.state is State.JOINED
        assert [tell.kind for tell in our.notices.items] == ["room created"]


async def test_a_room_that_has_forgotten_the_bot_is_noticed_and_entered_again(server: Server, room: str) -> None:
    async with person(server, "alice") as alice:
        await alice.joins(room, "Alice")
        async with bot(server, room, timing=replace(QUICK, ping=0.1)) as our:
            # The room knows nobody of this nick, as after a restart of the service that nobody was told of.
            our.channel._hearing.seats[room].view.nick = "somebody else"
            assert "the room says that we are not in it" in (await our.is_told("room out")).text
            await our.reaches(State.JOINED)
            await our.sends(room, "back")
            await alice.hears("back")


async def test_a_server_that_accepts_and_never_answers_is_given_up(server: Server) -> None:
    async with proxy(server.port) as wire:
        wire.swallowing = True
        async with bot(server, port=wire.port, timing=replace(QUICK, connect=0.3), start=False) as our:
            await our.starts(State.BACKING_OFF)

            assert "no session within 0.3 seconds" in (await our.is_told("link")).text


async def test_nothing_of_the_library_is_left_behind(server: Server, room: str) -> None:
    async with person(server, "alice") as alice:
        before = asyncio.all_tasks()
        async with bot(server, room) as our:
            await our.sends(alice.jid, "bye")
        async with asyncio.timeout(5):
            while left := asyncio.all_tasks() - before:
                await asyncio.wait(left, timeout=0.1)


async def test_what_is_said_between_two_processes_is_missed_and_not_history(
    server: Server, room: str, tmp_path: Path
) -> None:
    async with person(server, "alice") as alice:
        await alice.joins(room, "Alice")
        async with bot(server, room, places=tmp_path / "places.json") as before:
            alice.says(room, "before", "groupchat")
            await before.hears("before")
            await before.channel.close()
        alice.says(room, "between", "groupchat")
        await alice.hears("between")
        async with bot(server, room, places=tmp_path / "places.json") as after:
            between = await after.hears("between")

            assert not between.delayed
            assert after.texts == ["between"]


async def test_what_is_said_in_a_room_that_a_dead_session_is_in_is_heard_once_and_from_whom_it_is(
    server: Server, room: str, tmp_path: Path
) -> None:
    places = tmp_path / "places.json"
    async with person(server, "alice") as alice, proxy(server.port) as wire:
        await alice.joins(room, "Alice")
        async with bot(server, room, port=wire.port, places=places) as before:
            alice.says(room, "before", "groupchat", id="g1")
            await before.hears("before")
            wire.refusing = True
            wire.cut()
            alice.says(room, "between", "groupchat", id="g2")
            await alice.hears("between")
            async with bot(server, room, places=places) as after:
                between = await after.hears("between")
                alice.says(room, "after", "groupchat", id="g3")
                await after.hears("after")

                assert (between.sender, between.delayed) == (alice.jid, False)
                assert after.texts.count("between") == 1


@pytest.mark.parametrize("leave", ["killed", "stopped"])
async def test_what_is_written_to_the_bot_alone_between_two_processes_is_heard_once(
    server: Server, tmp_path: Path, leave: str
) -> None:
    places = tmp_path / "places.json"
    async with (
        person(server, "alice") as alice, proxy(server.port) as wire,
        bot(server, port=wire.port, places=places) as before,
    ):  # fmt: skip
        alice.says(before.account.jid, "before", id="d1")
        await before.hears("before")
        if leave == "killed":
            # The server goes on with the dead session: what comes is for whoever would resume it.
            wire.refusing = True
            wire.cut()
        else:
            await before.channel.close()
        alice.says(before.account.jid, "between", id="d2")
        await alice.settled()
        async with bot(server, places=places, answer_missed=0.0) as after:
            assert not (await after.hears("between")).delayed
            alice.says(after.account.jid, "after", id="d3")
            await after.hears("after")
            heard = [*before.inbox.items, *after.inbox.items]

            assert len({message.id for message in heard if message.text == "before"}) == 1
            assert [m.text for m in after.inbox.items if m.text != "before"] == ["between", "after"]


async def test_a_session_that_is_resumed_brings_again_what_was_not_taken_and_it_is_heard_once(server: Server) -> None:
    async with person(server, "alice") as alice, proxy(server.port) as wire, bot(server, port=wire.port) as our:
        came = Heap()
        our.channel._wire.client.add_filter("in", lambda stanza: came.add(stanza.xml) or stanza)
        our.disk_is_full = True
        alice.says(our.account.jid, "held", id="d1")
        await our.refused.until(lambda m: m.text == "held")
        wire.cut()
        await our.reaches(State.BACKING_OFF)
        await our.reaches(State.JOINED)
        await came.until(lambda m: [each.get("id") for each in came.items].count("d1") == 2)
        our.disk_is_full = False

        await our.hears("held")
        alice.says(our.account.jid, "after", id="d2")
        await our.hears("after")
        assert our.texts == ["held", "after"]


@pytest.mark.parametrize("leave", ["killed", "stopped"])
async def test_what_a_process_could_not_take_is_read_again_by_the_next(
    server: Server, room: str, tmp_path: Path, leave: str
) -> None:
    places = tmp_path / "places.json"
    async with (
        person(server, "alice") as alice, proxy(server.port) as wire,
        bot(server, room, port=wire.port, places=places, timing=replace(QUICK, confirm=0.2, ping=0.2)) as before,
    ):  # fmt: skip
        await alice.joins(room, "Alice")
        before.disk_is_full = True
        for to, kind, id in ((before.account.jid, "chat", "d1"), (room, "groupchat", "g1")):
            alice.says(to, f"held {kind}", kind, id=id)
            await before.refused.until(lambda m, kind=kind: m.text == f"held {kind}")
        counted = before.channel._wire.client.plugin["xep_0198"].handled
        if leave == "killed":
            wire.refusing = True
            wire.cut()
        else:
            await before.channel.close()
            assert max(map(int, re.findall(rb'<a [^>]*h="(\d+)"', wire.sent))) < counted
        async with bot(server, room, places=places) as after:
            await after.hears("held chat")
            await after.hears("held groupchat")

            assert not any(message.delayed for message in after.inbox.items)
            assert sorted(after.texts) == ["held chat", "held groupchat"]


async def test_a_text_that_a_crashed_process_had_brought_to_its_room_is_not_sent_again(
    server: Server, room: str, tmp_path: Path
) -> None:
    async with person(server, "alice") as alice:
        await alice.joins(room, "Alice")
        alice.says(room, "hello", "groupchat")
        await alice.hears("hello")
        async with bot(server, room, places=tmp_path / "places.json") as crashed:
            await crashed.hears("hello")
            await crashed.sends(room, "mine", id="answer")
        async with bot(server, room, places=tmp_path / "places.json") as our:
            await our.sends(room, "mine", id="answer")
            await our.sends(room, "and on")
            await alice.hears("and on")

            assert alice.bodies(f"{room}/小小莫") == ["mine", "and on"]


@pytest.mark.parametrize("kept", ["{", "[1]", '{"ROOM": 3}', '{"ROOM": ["x", 1.0]}', '{"ROOM": ["x", 9e12]}'])
async def test_a_place_that_is_old_or_cannot_be_read_makes_it_history(
    server: Server, room: str, tmp_path: Path, kept: str
) -> None:
    (tmp_path / "places.json").write_text(kept.replace("ROOM", room))
    async with person(server, "alice") as alice:
        await alice.joins(room, "Alice")
        alice.says(room, "long ago", "groupchat")
        await alice.hears("long ago")
        async with bot(server, room, places=tmp_path / "places.json") as our:
            assert (await our.hears("long ago")).delayed
