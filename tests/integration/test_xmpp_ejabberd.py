"""What the channel shows on Prosody it shows on ejabberd too, which differs exactly where bots break: it hands
on forged elements, has no occupant ids, and makes a destroyed room anew for whoever asks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from channels.xmpp import State
from tests.integration import test_xmpp_prosody as shared
from tests.support.xmpp_people import bot, person
from tests.support.xmpp_servers import Ejabberd, Server, running

_numbers = itertools.count()


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(Ejabberd, tmp_path_factory.mktemp("ejabberd")) as ejabberd:
        yield ejabberd


@pytest.fixture
def server(one_server: Server) -> Server:
    one_server.new_bot()
    return one_server


@pytest.fixture
def room() -> str:
    return f"room{next(_numbers)}@{Ejabberd.rooms}"


test_direct = shared.test_a_direct_chat_goes_both_ways
test_real_addresses = shared.test_a_room_that_shows_addresses_names_the_person_behind_a_nick
test_taken_nick = shared.test_somebody_who_takes_an_allowed_nick_is_not_taken_for_its_owner
test_history = shared.test_what_was_said_before_the_bot_came_is_history
test_late_but_live = shared.test_a_message_that_its_sender_sent_late_is_live
test_edit = shared.test_an_edit_comes_under_the_id_of_what_it_edits
test_mention = shared.test_what_addresses_the_bot_by_protocol_is_a_mention
test_private_message = shared.test_a_private_message_in_a_room_is_one_persons_and_answered_to_him_alone
test_subject_and_errors = shared.test_the_subject_and_errors_are_no_messages
test_put_out = shared.test_a_bot_that_is_put_out_stays_out_and_says_so
test_destroyed = shared.test_a_destroyed_room_is_not_made_anew
test_nick_conflict = shared.test_a_nick_that_is_taken_is_waited_for
test_created = shared.test_entering_a_room_that_was_not_there_is_told
test_wrong_password = shared.test_a_wrong_password_is_tried_once
test_second_client = shared.test_a_second_client_of_the_same_address_ends_the_first_for_good
test_long_text = shared.test_a_long_text_comes_whole_in_order_and_once
test_typing = shared.test_typing_is_shown_and_cleared
test_short_cut = shared.test_a_short_cut_is_mended_in_the_same_session
test_missed = shared.test_what_was_missed_in_a_room_is_read_from_its_archive_once
test_between = shared.test_what_is_said_between_two_processes_is_missed_and_not_history
test_alone_between = shared.test_what_is_written_to_the_bot_alone_between_two_processes_is_heard_once
test_dead_session = shared.test_what_is_said_in_a_room_that_a_dead_session_is_in_is_heard_once_and_from_whom_it_is
test_not_again = shared.test_a_text_that_a_crashed_process_had_brought_to_its_room_is_not_sent_again
test_subject = shared.test_the_subject_that_a_room_has_is_no_message_and_ends_the_history

test_beside = shared.test_a_connection_beside_the_bots_own_takes_no_message_from_it
test_well = shared.test_looking_after_a_room_that_is_well_changes_nothing
test_forgotten = shared.test_a_room_that_has_forgotten_the_bot_is_noticed_and_entered_again


async def test_a_server_without_tls_gets_no_password(server: Server) -> None:
    async with bot(server, start=False, plaintext_loopback=False) as our:
        await our.starts(State.REFUSED)

        assert "no way to log in that is safe here" in (await our.is_told("refused")).text


async def test_in_a_room_without_addresses_or_occupant_ids_nobody_is_proven(server: Server, room: str) -> None:
    async with person(server, "alice") as owner, person(server, "mallory") as mallory:
        await owner.joins(room, "owner")
        await owner.configures(room, whois="moderators", persistentroom="1")
        async with bot(server, room) as our:
            assert "nobody in it can be recognised" in (await our.is_told("room anonymous")).text
            await mallory.joins(room, "Alice")
            forged = (
                "<x xmlns='http://jabber.org/protocol/muc#user'><item jid='alice@xmpp.test/phone'/></x>"
                "<occupant-id xmlns='urn:xmpp:occupant-id:0' id='of-alice'/>"
            )
            mallory.says(room, "I am Alice", "groupchat", more=forged)
            heard = await our.hears("I am Alice")

            assert (heard.real_jid, heard.sender) == ("", f"{room}/Alice")


async def test_a_forged_address_in_the_history_of_a_room_is_not_believed(server: Server, room: str) -> None:
    async with person(server, "mallory") as mallory:
        await mallory.joins(room, "Alice")
        forged = "<x xmlns='http://jabber.org/protocol/muc#user'><item jid='alice@xmpp.test/phone'/></x>"
        mallory.says(room, "it was me", "groupchat", more=forged)
        await mallory.hears("it was me")
        async with bot(server, room) as our:
            heard = await our.hears("it was me")

            assert heard.delayed
            assert heard.sender == mallory.jid


async def test_after_a_server_was_killed_everything_is_taken_up_again_once(tmp_path: Path) -> None:
    with running(Ejabberd, tmp_path) as server:
        await shared.killed_and_started_again(server, f"team@{Ejabberd.rooms}")
