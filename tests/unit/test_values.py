"""The quick ``replace`` does what ``dataclasses.replace`` does."""

from __future__ import annotations

import dataclasses

import pytest

from fsm.conversation import Bound, Conversation, Message, Phase, State, Turn
from fsm.values import replace

MESSAGE = Message("bot/xmpp/m1", "m1", "xmpp", "alice", "Hello", "[xmpp] Hello", "[xmpp]", True, "en")
TURN = Turn("bot/xmpp/m1", MESSAGE, Bound("ses_a", "auto"), 1.0)


def test_a_changed_copy_is_the_one_that_the_standard_library_makes() -> None:
    now = Conversation(turn=TURN, queue=("m2",), count=3)
    assert replace(TURN, phase=Phase.MODEL, call=2) == dataclasses.replace(TURN, phase=Phase.MODEL, call=2)
    assert replace(now, state=State.SILENCED, trail=()) == dataclasses.replace(now, state=State.SILENCED, trail=())
    assert replace(now) == now
    assert now.state is State.IDLE


def test_a_field_that_does_not_exist_is_refused() -> None:
    with pytest.raises(KeyError, match="colour"):
        replace(TURN, colour="red")  # type: ignore[call-arg]
