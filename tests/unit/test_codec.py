from __future__ import annotations

import json
import math
from typing import Any, cast, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields, replace

from fsm.conversation import Bound, Conversation, Edge, Key, Message, Phase, Said, State, Turn
from fsm.ports import StoreError
from storage.codec import clean, decode, encode

KEY = Key("mohe", "xmpp", "hmo@example.org")


def is_value(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Struct)


def anything(hint: Any) -> st.SearchStrategy[Any]:
    """Every value of a type, but NaN, which equals nothing, so that no round trip could be checked."""
    if hint is float:
        return st.floats(allow_nan=False)
    if is_value(hint) or (isinstance(hint, type) and hasattr(hint, "_fields")):
        parts = {name: anything(part) for name, part in get_type_hints(hint).items()}
        return st.builds(cast(Any, hint), **parts)
    if (arguments := get_args(hint)) and getattr(hint, "__origin__", None) is tuple:
        if arguments[-1] is not Ellipsis:
            return st.tuples(*(anything(part) for part in arguments))
        return st.lists(anything(arguments[0]), max_size=3).map(tuple)
    if float in arguments or any(is_value(part) for part in arguments):
        return st.one_of(*(anything(part) for part in arguments))
    resolved: st.SearchStrategy[Any] = st.from_type(hint)
    return resolved


@given(anything(Conversation))
def test_a_conversation_comes_back_equal_and_with_its_types(conversation: Conversation) -> None:
    back = decode(KEY, encode(KEY, conversation))

    assert back == conversation
    assert all(type(edge) is Edge for edge in back.trail)
    assert back.turn is None or type(back.turn.taken_in) is frozenset


def test_an_idle_conversation_is_stored_in_two_bytes() -> None:
    assert encode(KEY, Conversation()) == "{}"


@pytest.mark.parametrize("missing", [one.name for one in fields(Conversation)])
def test_a_row_that_lacks_a_field_loads_with_its_default(missing: str) -> None:
    bound = Bound("ses_a", "manual", "天气机器人", "own")
    message = Message("ref", "m1", "xmpp", "hmo", "在吗", "[xmpp] 在吗", "[xmpp]", True, "zh")
    turn = Turn("t", message, bound, 1.5, exchange=(Said("user", "在吗"),), taken_in=frozenset({"##a##"}))
    edge = Edge(1.5, "row", "event", "idle", "idle")
    full = Conversation(State.SILENCED, turn, None, bound, ("a",), ("b",), 1.0, 2.0, 3.0, "zh", 4, (edge,))
    row = json.loads(encode(KEY, full))
    row.pop(missing, None)

    loaded = decode(KEY, json.dumps(row))

    assert getattr(loaded, missing) == getattr(Conversation(), missing)
    others = [one.name for one in fields(Conversation) if one.name != missing]
    assert [getattr(loaded, name) for name in others] == [getattr(full, name) for name in others]


def test_a_field_that_this_version_does_not_know_is_passed_over() -> None:
    assert decode(KEY, '{"count": 3, "mood": "sunny"}') == Conversation(count=3)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("", "Invalid JSON"),
        ('{"count": 3', "Invalid JSON"),
        ("null", "got `null`"),
        ("[]", "Expected `object`"),
        ('{"state": "asleep"}', "$.state"),
        ('{"turn": {"id": "t"}}', "`message` - at `$.turn`"),
    ],
)
def test_an_unreadable_row_is_named_by_its_key_and_its_fault(data: str, why: str) -> None:
    with pytest.raises(StoreError, match=r"agent='mohe' channel='xmpp' sender='hmo@example\.org'") as raised:
        decode(KEY, data)
    assert why in str(raised.value)
    assert "Delete its row" in str(raised.value)


def test_a_conversation_with_a_foreign_value_is_refused_by_key() -> None:
    with pytest.raises(StoreError, match=r"sender='hmo@example.org' cannot be stored: .*count"):
        encode(KEY, Conversation(count="three"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("foreign", "why"), [(5, r"turn\.exchange\[1\]\.text"), (b"bytes", "not be the same")])
def test_a_foreign_value_deep_inside_is_refused(foreign: Any, why: str) -> None:
    message = Message("ref", "m1", "xmpp", "hmo", "在吗", "[xmpp] 在吗", "[xmpp]", True, "zh")
    turn = Turn("t", message, Bound("ses_a", "manual"), 1.5, exchange=(Said("user", "在吗"), Said("user", foreign)))

    with pytest.raises(StoreError, match=f"cannot be stored: .*{why}"):
        encode(KEY, Conversation(turn=turn))


def test_a_row_of_the_first_versions_loads() -> None:
    row = (
        '{"state":"silenced","turn":{"id":"t","message":{"ref":"ref","id":"m1","channel":"xmpp","to":"hmo",'
        '"text":"在吗","prompt":"[xmpp] 在吗","tag":"[xmpp]","owed":true,"lang":"zh"},"bound":{"session":"ses_a",'
        '"kind":"manual"},"started":1.5,"phase":"model","deadline":Infinity,"taken_in":["##a##"]},'
        '"trail":[[1.5,"row","event","idle","idle"]],"muted_until":7}'
    )
    message = Message("ref", "m1", "xmpp", "hmo", "在吗", "[xmpp] 在吗", "[xmpp]", True, "zh")
    turn = Turn("t", message, Bound("ses_a", "manual"), 1.5, Phase.MODEL, math.inf, taken_in=frozenset({"##a##"}))
    edge = Edge(1.5, "row", "event", "idle", "idle")
    stored = Conversation(State.SILENCED, turn, muted_until=7.0, trail=(edge,))

    assert decode(KEY, row) == decode(KEY, row.replace("Infinity", "Infinity ")) == stored
    assert decode(KEY, row.replace('"deadline":Infinity,', "")) == replace(stored, turn=replace(turn, deadline=None))


def test_a_deadline_that_never_comes_is_kept() -> None:
    assert decode(KEY, encode(KEY, Conversation(muted_until=math.inf))).muted_until == math.inf
    half = Conversation(muted_until=math.inf, lang="\ud800")
    assert decode(KEY, encode(KEY, half)) == Conversation(muted_until=math.inf, lang="\ufffd")


@given(st.text(st.characters(exclude_categories=())))
def test_a_cleaned_text_is_utf8_and_differs_in_lone_surrogates_alone(text: str) -> None:
    cleaned = clean(text)

    cleaned.encode()
    pairs = zip(text, cleaned, strict=True)
    assert all(now == (was if not 0xD800 <= ord(was) < 0xE000 else "\ufffd") for was, now in pairs)
