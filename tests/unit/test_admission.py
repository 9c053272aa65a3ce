"""Who is let in, and what is said of whoever is not."""

from __future__ import annotations

import pytest

from fsm.admission import Gatekeeper, Verdict
from fsm.agent import Agent, Group
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
