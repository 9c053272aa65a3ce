"""What the engine says, in both languages."""

from __future__ import annotations

import pytest

from fsm.conversation import State
from fsm.events import EVENTS
from fsm.language.texts import LANGUAGES, say


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_state_and_every_event_has_words_for_people(lang: str) -> None:
    for name in (*(f"state_{state.value}" for state in State), *(event.__name__ for event in EVENTS)):
        assert "_" not in say(lang, name)
