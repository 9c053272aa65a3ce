"""Who is let in, and what is said of whoever is not."""

from __future__ import annotations

import pytest

from fsm.admission import Gatekeeper, Verdict, mentions
from fsm.agent import Agent, Group
from fsm.constants import Limits
from fsm.ports import Inbound

ROOM, ALICE = "Team@muc.example", "alice@example.org"


@pytest.mark.parametrize(
    ("sender", "real_jid", "reason"),
    [
        (f"{ROOM.lower()}/Alice", "", "why_unproven"),
        (f"{ROOM.lower()}/alice@example.org", "", "why_unproven"),
        ("an-occupant-id", "", "why_unproven"),
        ("mallory@example.org", "mallory@example.org", "why_not_allowed"),
        ("mallory@example.org", "", "why_not_allowed"),
    ],
)
def test_whom_the_room_does_not_show_is_unproven_and_not_merely_missing_from_the_list(
    sender: str, real_jid: str, reason: str
) -> None:
    door = Gatekeeper(Agent("bot", groups={ROOM: Group(allow=frozenset({ALICE}))}))

    look = door.look(Inbound(f"xmpp:{ROOM}", sender, "hello", "1", 0.0, ROOM, nick="Alice", real_jid=real_jid))

    assert (look.verdict, look.reason) == (Verdict.REFUSE, reason)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("在吗＠小小莫", True),
        ("早 ＠mohe 在吗", True),
        ("ｍｏｈｅ：早", True),
        ("\u200b小小莫 早", True),
        ("早 @\u2060Mo\u200bHe", True),
        ("＠mohex 早", False),
        ("ｍｏｈｅｘ 早", False),
        ("mohe\u200bx 早", False),
        ("早，小小莫", False),
    ],
)
def test_a_mention_is_one_in_any_width_and_with_unseen_characters(text: str, is_one: bool) -> None:
    assert mentions(text, ("mohe", "小小莫")) is is_one


@pytest.mark.parametrize("text", ["", " \n", "\u200b", "\u2060 \ufeff\n", "\u3164"])
def test_a_text_of_which_nothing_is_seen_is_blank(text: str) -> None:
    door = Gatekeeper(Agent("bot", allow=frozenset({ALICE})))

    look = door.look(Inbound("xmpp", ALICE, text, "1", 0.0, ALICE))

    assert (look.verdict, look.reason) == (Verdict.DROP, "why_blank")


def test_a_flood_is_told_once_a_minute_and_stop_still_gets_through() -> None:
    door = Gatekeeper(Agent("bot", allow=frozenset({ALICE, "bob@example.org"}), limits=Limits(rate_limit=2)))

    def says(text: str, at: float, sender: str = ALICE) -> tuple[bool, bool]:
        look = door.look(Inbound("xmpp", sender, text, f"{sender} {text} {at}", at, sender))
        return look.verdict is Verdict.ANSWER, look.tell

    assert [says("hi", at) for at in (0, 1, 2, 3, 4)] == [(True, False)] * 2 + [(False, True)] + [(False, False)] * 2
    assert [says("/stop", at) for at in (5, 6, 7)] == [(True, False)] * 2 + [(False, False)]
    assert [says("hi", at, "bob@example.org") for at in (5, 5, 5)] == [(True, False)] * 2 + [(False, True)]
    assert [says("hi", at) for at in (60, 61, 61.5, 62)] == [(True, False)] * 2 + [(False, False), (False, True)]


def test_a_refusal_that_came_before_is_not_the_one_that_is_told() -> None:
    door = Gatekeeper(Agent("bot", allow=frozenset({ALICE}), limits=Limits(rate_limit=1)))
    first, second, third = (Inbound("xmpp", ALICE, "hi", id, 0.0, ALICE) for id in "abc")
    door.look(first)

    door.take_back(second, look := door.look(second))

    assert look.tell
    assert door.look(third).tell
