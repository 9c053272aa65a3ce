"""What the engine says, in both languages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fsm.conversation import State
from fsm.events import EVENTS
from fsm.language.texts import LANGUAGES, say

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_state_and_every_event_has_words_for_people(lang: str) -> None:
    for name in (*(f"state_{state.value}" for state in State), *(event.__name__ for event in EVENTS)):
        assert "_" not in say(lang, name)


def test_nobody_is_sent_to_a_package_index_for_this_program() -> None:
    said = re.compile(r"session[-_]router\[|pip install[^\n]*\bsession[-_]router\b")
    for package in ("fsm", "channels", "storage", "session_router", "docs", "README.md", "README.zh.md"):
        for file in [ROOT / package, *(ROOT / package).rglob("*")]:
            if file.suffix in (".py", ".md"):
                assert said.findall(file.read_text(encoding="utf-8")) == [], file
