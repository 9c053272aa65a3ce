"""What every engine store does, whatever it keeps its rows in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace

from fsm.conversation import Bound, Conversation, Edge, Key, Message, State, Turn
from fsm.ports import (
    Change,
    Inbound,
    KeptLine,
    Line,
    Outgoing,
    Settled,
    StepRecord,
    Store,
    StoreError,
)
from storage.memory import MemoryStore
from storage.sqlite import SqliteStore
from tests.support.stores import admit

T0 = 1768464000.0
HMO = Key("mohe", "xmpp", "hmo@example.org")


class Opened:
    """A store and a way to open what it holds anew, as after a restart."""

    def __init__(self, make: Callable[[], Store]) -> None:
        self._make = make
        self.store = make()

    async def restart(self) -> Store:
        await self.store.close()
        self.store = self._make()
        await self.store.open()
        return self.store


@pytest_asyncio.fixture(params=["sqlite", "memory"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opened]:
    memory = MemoryStore()
    makes: dict[str, Callable[[], Store]] = {
        "sqlite": lambda: SqliteStore(tmp_path / "state" / "engine.db"),
        "memory": lambda: memory,
    }
    opened = Opened(makes[request.param])
    await opened.store.open()
    yield opened
    await opened.store.close()


@pytest_asyncio.fixture
async def store(opened: Opened) -> Store:
    return opened.store


def said(name: str, text: str = "在吗", key: Key = HMO, **more: object) -> Inbound:
    message = Inbound(key.channel, key.sender, text, name, T0, reply_to=key.sender)
    return replace(message, **more)


def at(instant: float, **more: object) -> Conversation:
    """A conversation whose last step was taken at that instant."""
    taken = Conversation(trail=(Edge(instant, "row", "event", "idle", "idle"),))
    return replace(taken, **more)


def answering(name: str) -> Conversation:
    message = Message("ref", name, "xmpp", "hmo", "text", "[xmpp] text", "[xmpp]", True, "zh")
    return Conversation(State.COMMAND_LOOPING, Turn(f"t-{name}", message, Bound("ses_a", "auto"), T0))


# -- admission -------------------------------------------------------------------------------------


async def test_a_message_is_new_once_and_known_ever_after(opened: Opened) -> None:
    assert await admit(opened.store, HMO, said("m1")) is True
    assert await admit(opened.store, HMO, said("m1")) is False

    store = await opened.restart()

    assert await admit(store, HMO, said("m1", "in other words")) is False
    row = await store.message(HMO, "m1")
    assert row is not None
    assert row.message.text == "在吗"


async def test_of_two_hundred_deliveries_at_once_exactly_one_is_new(store: Store) -> None:
    answers = await asyncio.gather(*(admit(store, HMO, said("m1", f"try {n}")) for n in range(200)))

    assert answers.count(True) == 1
    assert len(await store.history(HMO)) == 1


async def test_one_id_in_two_channels_or_for_two_agents_is_two_messages(store: Store) -> None:
    keys = [HMO, HMO._replace(channel="voice"), HMO._replace(agent="zhiwei")]

    assert [await admit(store, key, said("7", key=key)) for key in keys] == [True, True, True]

    assert [(await store.history(key))[0].key for key in keys] == keys
    found = [await store.message(key, "7") for key in keys]
    assert [None if row is None else row.key for row in found] == keys
    assert await store.message(HMO._replace(agent="nobody"), "7") is None


async def test_one_id_from_two_senders_of_one_channel_is_one_message(store: Store) -> None:
    other = HMO._replace(sender="xxm@example.org")
    await admit(store, HMO, said("m1"))

    assert await admit(store, other, said("m1", key=other)) is False
    assert await store.history(other) == []
    row = await store.message(other, "m1")
    assert row is not None
    assert row.key == HMO


async def test_every_field_of_a_message_comes_back(opened: Opened) -> None:
    whole = Inbound("xmpp", "occupant-9", "a\x00b\n😀", "m1", T0 + 0.123456, "room@muc", "hmo", "hmo@real",
                    mentioned=True, own=True, delayed=True, edited=True, bot=True)  # fmt: skip
    await admit(opened.store, HMO, whole, disposition="queued", reason="a turn is running")

    store = await opened.restart()

    row = await store.message(HMO, "m1")
    assert row is not None
    assert (row.key, row.message) == (HMO, whole)
    assert (row.disposition, row.reason, row.settled_at) == ("queued", "a turn is running", None)


async def test_a_message_refused_at_the_door_is_settled_on_arrival(store: Store) -> None:
    await admit(store, HMO, said("m1"), disposition="refused", reason="too long")

    row = await store.message(HMO, "m1")
    assert row is not None
    assert (row.disposition, row.settled_at) == ("refused", T0)
    assert (await store.open_work()).messages == []


async def test_a_message_of_another_channel_than_its_conversation_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="Admit it under the channel"):
        await admit(store, HMO, said("m1", channel="voice"))
    assert await store.message(HMO._replace(channel="voice"), "m1") is None


# -- changes ---------------------------------------------------------------------------------------


async def test_a_conversation_comes_back_as_the_last_change_left_it(opened: Opened) -> None:
    assert await opened.store.load(HMO) is None
    for conversation in (answering("m1"), at(T0, count=1, listed=("ses_b", "ses_a"), muted_until=T0 + 1800)):
        await opened.store.commit(Change(HMO, conversation))

    store = await opened.restart()

    assert await store.load(HMO) == at(T0, count=1, listed=("ses_b", "ses_a"), muted_until=T0 + 1800)


async def test_a_change_without_a_conversation_leaves_the_stored_one(store: Store) -> None:
    await store.commit(Change(HMO, at(T0), due=T0 + 5, started=T0))
    await store.commit(Change(HMO, meta=(("k", "v"),)))

    assert await store.load(HMO) == at(T0)
    assert (await store.open_work()).overdue == [(HMO, T0 + 5, T0)]


BAD_PARTS = {
    "an unknown disposition": {"settled": (Settled("m1", "replied"), Settled("m1", "eaten"))},
    "a conversation with a foreign value": {"conversation": Conversation(count=object())},  # type: ignore[arg-type]
    "a line by nobody": {"lines": (KeptLine("ses_a", Line("system", "hi", T0, id="l2")),)},  # type: ignore[arg-type]
}


@pytest.mark.parametrize("bad", BAD_PARTS.values(), ids=BAD_PARTS.keys())
async def test_a_change_with_a_bad_part_writes_nothing_at_all(store: Store, bad: dict[str, object]) -> None:
    await admit(store, HMO, said("m1"))
    good = Change(
        HMO,
        at(T0),
        due=T0,
        sends=(Outgoing("o1", HMO, "xmpp", "hmo", "hi"),),
        settled=(Settled("m1", "replied"),),
        lines=(KeptLine("ses_a", Line("user", "hi", T0, id="l1")),),
        steps=(StepRecord("t1", 1, 0, "model", "{}", T0),),
        meta=(("k", "v"),),
    )

    with pytest.raises(StoreError):
        await store.commit(replace(good, **bad))

    assert await store.load(HMO) is None
    work = await store.open_work()
    assert [row.disposition for row in work.messages] == ["running"]
    assert (work.sends, work.overdue, work.turns) == ([], [], [])
    assert (await store.lines("ses_a"), await store.steps("t1"), await store.get_meta("k")) == ([], [], None)


async def test_an_arrival_is_admitted_with_the_step_that_answers_it(store: Store) -> None:
    change = Change(HMO, Conversation(count=1), arrival=said("m1"), settled=(Settled("m1", "replied", "why_told"),))

    assert await store.commit(change) is True

    row = await store.message(HMO, "m1")
    assert row is not None
    assert (row.disposition, row.reason, row.message.text) == ("replied", "why_told", said("m1").text)
    assert await store.load(HMO) == Conversation(count=1)


async def test_an_arrival_that_came_before_writes_nothing_of_its_change(store: Store) -> None:
    await store.commit(Change(HMO, Conversation(count=1), arrival=said("m1")))

    again = Change(HMO, Conversation(count=2), arrival=said("m1"), meta=(("k", "v"),))
    assert await store.commit(again) is False

    assert await store.load(HMO) == Conversation(count=1)
    assert await store.get_meta("k") is None


async def test_of_many_commits_of_one_arrival_exactly_one_counts(store: Store) -> None:
    changes = [Change(HMO, Conversation(count=n), arrival=said("m1")) for n in range(1, 101)]

    done = await asyncio.gather(*map(store.commit, changes))

    assert done.count(True) == 1
    assert await store.load(HMO) == Conversation(count=1 + done.index(True))


async def test_what_is_committed_soon_is_there_after_the_next_commit(store: Store) -> None:
    await store.commit(Change(HMO, sends=(Outgoing("o1", HMO, "xmpp", "hmo", "hi"),)))
    store.commit_soon(Change(HMO, delivered=("o1",)), failed=pytest.fail)
    await store.set_meta("k", "v")
    assert (await store.open_work()).sends == []


async def test_a_bad_change_fails_alone_among_many_committed_together(store: Store) -> None:
    nobody = Line("system", "hi", T0)  # type: ignore[arg-type]
    bad = Change(HMO, at(T0), lines=(KeptLine("ses_a", nobody),), meta=(("bad", "1"),))
    changes = [bad if n == 50 else Change(HMO, meta=((f"k{n}", str(n)),)) for n in range(100)]

    outcomes = await asyncio.gather(*map(store.commit, changes), return_exceptions=True)

    assert [n for n, outcome in enumerate(outcomes) if outcome is not True] == [50]
    assert isinstance(outcomes[50], StoreError)
    assert len(await store.meta_with_prefix("k")) == 99
    assert (await store.get_meta("bad"), await store.load(HMO)) == (None, None)


# -- many conversations at a time ------------------------------------------------------------------


async def test_of_many_conversations_those_that_there_are_are_loaded(opened: Opened) -> None:
    keys = [HMO._replace(sender=f"u{n}") for n in range(1200)]
    await opened.store.commit_many([Change(key, at(T0, count=n)) for n, key in enumerate(keys)])

    store = await opened.restart()

    nobody = [HMO._replace(sender=name) for name in ("nobody", "u7\x00", "U7", "u7' OR '1'='1")]
    assert await store.load_many([*keys[200:], *nobody, keys[200]]) == {
        key: at(T0, count=n) for n, key in enumerate(keys) if n >= 200
    }
    assert await store.load_many([]) == {}


async def test_many_changes_write_what_each_of_them_would(opened: Opened) -> None:
    xxm = HMO._replace(sender="xxm@example.org")
    await admit(opened.store, HMO, said("m1"))
    await admit(opened.store, xxm, said("m2", key=xxm))
    changes = [
        Change(
            key,
            at(T0 + n, count=n),
            due=T0 + 300 + n,
            started=T0,
            sends=(Outgoing(f"o{n}", key, "xmpp", key.sender, "hi"),),
            settled=(Settled(f"m{n}", "replied"),),
            lines=(KeptLine("ses_a", Line("user", f"line {n}", T0, id=f"l{n}")),),
            steps=(StepRecord("t1", n, 0, "model", "{}", T0),),
            meta=((f"k{n}", "v"),),
        )
        for n, key in ((1, HMO), (2, xxm))
    ]
    await opened.store.commit_many(changes)

    store = await opened.restart()

    assert await store.load_many([HMO, xxm]) == {HMO: at(T0 + 1, count=1), xxm: at(T0 + 2, count=2)}
    work = await store.open_work()
    assert work.overdue == [(HMO, T0 + 301, T0), (xxm, T0 + 302, T0)]
    assert (work.messages, work.sends) == ([], [changes[0].sends[0], changes[1].sends[0]])
    rows = [await store.message(HMO, name) for name in ("m1", "m2")]
    assert [None if row is None else row.settled_at for row in rows] == [T0 + 1, T0 + 2]
    assert [line.text for line in await store.lines("ses_a")] == ["line 1", "line 2"]
    assert [step.call for step in await store.steps("t1")] == [1, 2]
    assert await store.meta_with_prefix("k") == [("k1", "v"), ("k2", "v")]


async def test_many_changes_are_written_in_their_order(store: Store) -> None:
    first, again, other = (Outgoing(name, HMO, "xmpp", "hmo", text) for name, text in
                           (("o1", "first"), ("o1", "again"), ("o2", "other")))  # fmt: skip
    await admit(store, HMO, said("m1"))
    await store.commit_many(
        [
            Change(HMO, at(T0, count=1), sends=(first,), settled=(Settled("m1", "queued"),), meta=(("k", "1"),)),
            Change(HMO, delivered=("o1",), settled=(Settled("m1", "silent"),), meta=(("k", None), ("l", "1"))),
            Change(HMO, at(T0, count=2), sends=(other, again), settled=(Settled("m1", "replied"),)),
            Change(HMO, meta=(("k", "2"), ("l", None))),
        ]
    )

    assert await store.load(HMO) == at(T0, count=2)
    assert (await store.open_work()).sends == [other, again]
    row = await store.message(HMO, "m1")
    assert row is not None
    assert row.disposition == "silent"
    assert (await store.get_meta("k"), await store.get_meta("l")) == ("2", None)


@pytest.mark.parametrize("bad", BAD_PARTS.values(), ids=BAD_PARTS.keys())
@pytest.mark.parametrize("place", [0, 500, 999])
async def test_of_many_changes_with_a_bad_one_none_is_written(
    opened: Opened, bad: dict[str, object], place: int
) -> None:
    keys = [HMO._replace(sender=f"u{n}") for n in range(1000)]
    await admit(opened.store, HMO, said("m1"))
    await opened.store.commit(Change(keys[1], at(T0, count=-1)))
    changes = [
        Change(
            key,
            at(T0, count=n),
            due=T0,
            sends=(Outgoing(f"o{n}", key, "xmpp", key.sender, "hi"),),
            settled=(Settled("m1", "replied"),),
            lines=(KeptLine("ses_a", Line("user", "hi", T0)),),
            steps=(StepRecord("t1", n, 0, "model", "{}", T0),),
            meta=((f"k{n}", "v"),),
        )
        for n, key in enumerate(keys)
    ]
    changes[place] = replace(changes[place], **bad)

    with pytest.raises(StoreError):
        await opened.store.commit_many(changes)
    await opened.store.set_meta("later", "v")

    store = await opened.restart()

    assert await store.load_many(keys) == {keys[1]: at(T0, count=-1)}
    work = await store.open_work()
    assert [row.disposition for row in work.messages] == ["running"]
    assert (work.sends, work.overdue, work.turns) == ([], [], [])
    assert (await store.lines("ses_a"), await store.steps("t1")) == ([], [])
    assert await store.meta_with_prefix("") == [("later", "v")]


async def test_no_changes_at_all_are_soon_written(store: Store) -> None:
    await store.commit_many([])
    await store.commit(Change(HMO))

    assert await store.conversations() == []


# -- dispositions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "stands"),
    [
        ("queued", "running", "running"),
        ("running", "queued", "queued"),
        ("running", "silent", "silent"),
        ("replied", "failed", "failed"),
        ("failed", "replied", "failed"),
        ("replied", "running", "replied"),
        ("replied", "stopped", "replied"),
        ("silent", "failed", "silent"),
        ("muted", "replied", "muted"),
    ],
)
async def test_a_final_disposition_stays_save_that_a_reply_may_fail(
    store: Store, before: str, after: str, stands: str
) -> None:
    await admit(store, HMO, said("m1"), disposition=before, reason="first")
    await store.commit(Change(HMO, at(T0 + 9), settled=(Settled("m1", after, "second"),)))

    row = await store.message(HMO, "m1")
    assert row is not None
    assert row.disposition == stands
    assert row.reason == ("first" if stands == before else "second")


async def test_a_message_is_settled_at_the_instant_of_the_step_that_settled_it(store: Store) -> None:
    await admit(store, HMO, said("m1"))
    await store.commit(Change(HMO, at(T0 + 1), settled=(Settled("m1", "queued"),)))
    queued = await store.message(HMO, "m1")
    await store.commit(Change(HMO, at(T0 + 2), settled=(Settled("m1", "replied"),)))
    await store.commit(Change(HMO, settled=(Settled("m1", "failed", "delivery failed"),)))
    failed = await store.message(HMO, "m1")

    assert queued is not None
    assert queued.settled_at is None
    assert failed is not None
    assert (failed.disposition, failed.settled_at) == ("failed", T0 + 2)


async def test_settling_touches_the_own_agent_and_channel_alone(store: Store) -> None:
    other = HMO._replace(agent="zhiwei")
    await admit(store, HMO, said("m1"))
    await admit(store, other, said("m1", key=other))

    await store.commit(Change(HMO, settled=(Settled("m1", "silent"), Settled("nobody's", "silent"))))

    assert [row.key for row in (await store.open_work()).messages] == [other]


# -- what a start takes up ---------------------------------------------------------------------------


async def test_open_work_is_what_a_start_must_take_up_again(opened: Opened) -> None:
    xxm, idle, waiting = (HMO._replace(sender=name) for name in ("xxm", "idle", "waiting"))
    for name in ("m1", "m2", "m3", "m4"):
        await admit(opened.store, HMO, said(name))
    await opened.store.commit(Change(HMO, answering("m1"), due=T0 + 300, started=T0))
    await opened.store.commit(Change(xxm, at(T0), due=T0 + 120, started=None))
    await opened.store.commit(Change(idle, at(T0)))
    await opened.store.commit(Change(waiting, Conversation(queue=("m3",))))
    await opened.store.commit(Change(HMO, settled=(Settled("m2", "replied"), Settled("m3", "queued"))))
    sends = tuple(Outgoing(f"o{n}", HMO, "xmpp", "hmo", "hi", "m2", due=T0 - n) for n in range(3))
    await opened.store.commit(Change(HMO, sends=sends))
    await opened.store.commit(Change(HMO, delivered=("o1", "unknown")))

    work = await (await opened.restart()).open_work()

    assert dict(work.turns) == {HMO: answering("m1"), waiting: Conversation(queue=("m3",))}
    assert work.overdue == [(xxm, T0 + 120, 0.0), (HMO, T0 + 300, T0)]
    assert [(row.message.id, row.disposition) for row in work.messages] == [
        ("m1", "running"),
        ("m3", "queued"),
        ("m4", "running"),
    ]
    assert work.sends == [sends[0], sends[2]]


async def test_a_deadline_that_a_change_does_not_name_is_over(store: Store) -> None:
    await store.commit(Change(HMO, answering("m1"), due=T0 + 300, started=T0))
    await store.commit(Change(HMO, at(T0)))

    work = await store.open_work()
    assert (work.overdue, work.turns) == ([], [])


async def test_a_text_that_is_tried_again_keeps_its_place_in_the_outbox(store: Store) -> None:
    first, second = (Outgoing(name, HMO, "xmpp", "hmo", name, "m1") for name in ("o1", "o2"))
    await store.commit(Change(HMO, sends=(first, second)))
    tried = replace(first, tries=1, due=T0 + 1)
    await store.commit(Change(HMO, sends=(tried,)))

    assert (await store.open_work()).sends == [tried, second]


async def test_what_is_owed_to_one_address_is_told_whoever_owes_it(store: Store) -> None:
    mine, other, theirs = (
        Outgoing("o1", HMO, "journal", "ses_a", "1"), Outgoing("o2", HMO, "journal", "ses_b", "2"),
        Outgoing("o3", HMO._replace(sender="xxm"), "journal", "ses_a", "3"),
    )  # fmt: skip
    await store.commit(Change(HMO, sends=(mine, other, theirs, Outgoing("o4", HMO, "xmpp", "ses_a", "4"))))

    assert await store.owed("journal", "ses_a") == [mine, theirs]
    await store.commit(Change(HMO, delivered=("o1",)))
    assert await store.owed("journal", "ses_a") == [theirs]
    assert await store.owed("journal", "ses_\udc80") == []


async def test_a_text_is_owed_by_a_conversation_even_where_it_goes_out_by_another_channel(
    opened: Opened,
) -> None:
    owed = Outgoing("o1", HMO, "voice", "room 7", "hi", "m1", tries=2, due=T0)
    await opened.store.commit(Change(HMO._replace(agent="zhiwei"), sends=(owed,)))

    store = await opened.restart()

    assert (await store.open_work()).sends == [owed]
    moved = replace(owed, key=Key("zhiwei", "xmpp:room", "xxm"), channel="xmpp")
    await store.commit(Change(HMO, sends=(moved,)))
    assert (await store.open_work()).sends == (await store.open_work()).sends == [moved]


# -- reading -----------------------------------------------------------------------------------------


async def test_history_is_the_newest_first_and_of_one_conversation(store: Store) -> None:
    other = HMO._replace(sender="xxm")
    for n in range(30):
        await admit(store, HMO, said(f"m{n}"))
        await admit(store, other, said(f"x{n}", key=other))

    assert [row.message.id for row in await store.history(HMO, limit=3)] == ["m29", "m28", "m27"]
    assert len(await store.history(HMO)) == 20
    assert await store.history(HMO, limit=0) == []


async def test_conversations_are_listed_by_agent_and_channel(store: Store) -> None:
    keys = [Key(agent, channel, "s") for agent in ("mohe", "zhiwei") for channel in ("voice", "xmpp")]
    for n, key in enumerate(keys):
        await store.commit(Change(key, at(T0, count=n)))

    assert await store.conversations() == [(key, at(T0, count=n)) for n, key in enumerate(keys)]
    assert [key for key, _ in await store.conversations("zhiwei")] == keys[2:]
    assert [key for key, _ in await store.conversations(channel="xmpp")] == keys[1::2]
    assert [key for key, _ in await store.conversations("mohe", "xmpp")] == [keys[1]]
    assert await store.conversations("nobody") == []


async def test_a_step_recorded_again_changes_nothing(opened: Opened) -> None:
    steps = [StepRecord("t1", 1, 0, kind, f'"{kind}"', T0) for kind in ("model", "started", "finished")]
    for step in steps:
        await opened.store.commit(Change(HMO, steps=(step,)))
    again = replace(steps[1], data='"other"', at=T0 + 9)
    await opened.store.commit(Change(HMO, steps=(again, StepRecord("t2", 1, 0, "model", "{}", T0))))

    store = await opened.restart()

    assert await store.steps("t1") == steps
    assert await store.steps("nothing") == []


async def test_lines_are_the_newest_by_time_and_each_id_is_kept_once(opened: Opened) -> None:
    lines = [Line("user", f"line {n}", T0 + n, "[群聊] hmo:", f"l{n}") for n in range(5)]
    for line in (lines[3], lines[0], lines[4], lines[1], lines[2], replace(lines[2], text="again")):
        await opened.store.commit(Change(HMO, lines=(KeptLine("ses_a", line),)))
    await opened.store.commit(Change(HMO, lines=(KeptLine("ses_b", lines[0]),)))

    store = await opened.restart()

    assert await store.lines("ses_a") == lines
    assert await store.lines("ses_a", limit=2) == lines[3:]
    assert await store.lines("ses_b") == lines[:1]
    assert await store.lines("ses_a", limit=0) == []


async def test_lines_without_an_id_repeat_nothing_and_of_one_instant_keep_their_order(store: Store) -> None:
    lines = [Line("assistant", text, T0) for text in ("好", "好", "再见")]
    await store.commit(Change(HMO, lines=tuple(KeptLine("ses_a", line) for line in lines)))

    assert await store.lines("ses_a") == lines
    assert await store.lines("ses_a", limit=1) == lines[2:]


async def test_meta_is_written_replaced_and_taken_away(opened: Opened) -> None:
    store = opened.store
    await store.set_meta("active_xmpp_sender_session:mohe", '{"session_id":"a"}')
    await store.commit(Change(HMO, meta=(("k", "1"), ("k", "2"), ("gone", "x"), ("gone", None))))
    await store.set_meta("k2", "")

    store = await opened.restart()

    assert await store.get_meta("active_xmpp_sender_session:mohe") == '{"session_id":"a"}'
    assert [await store.get_meta(key) for key in ("k", "k2", "gone", "never")] == ["2", "", None, None]
    await store.set_meta("k", None)
    await store.set_meta("never", None)
    assert await store.get_meta("k") is None


async def test_meta_with_a_prefix_takes_the_prefix_literally_and_in_order(store: Store) -> None:
    for key in ("session:b", "session:a", "session:😀", "session", "sessionX", "session%", "SESSION:c"):
        await store.set_meta(key, key.upper())

    found = await store.meta_with_prefix("session:")

    assert [key for key, _ in found] == ["session:a", "session:b", "session:😀"]
    assert found[0] == ("session:a", "SESSION:A")
    assert [key for key, _ in await store.meta_with_prefix("session%")] == ["session%"]
    assert await store.meta_with_prefix("session_") == []


# -- texts -------------------------------------------------------------------------------------------


async def test_half_a_surrogate_pair_is_replaced_wherever_it_stands(opened: Opened) -> None:
    bad, good = "a\ud83d", "a\ufffd"
    key = Key(bad, bad, bad)
    store = opened.store
    message = Inbound(bad, bad, bad, bad, T0, bad, bad, bad)
    assert await admit(store, key, message) is True
    change = Change(
        key,
        at(T0, lang=bad, queue=(bad, "好")),
        sends=(Outgoing(bad, key, bad, bad, bad, bad),),
        settled=(Settled(bad, "replied", bad),),
        lines=(KeptLine(bad, Line("user", bad, T0, bad, bad)),),
        steps=(StepRecord(bad, 1, 0, "model", bad, T0),),
        meta=((bad, bad),),
    )
    await store.commit(change)

    store = await opened.restart()

    clean_key = Key(good, good, good)
    kept = at(T0, lang=good, queue=(good, "好"))
    assert await store.load(key) == await store.load(clean_key) == kept
    assert await store.load_many([key, clean_key]) == {key: kept, clean_key: kept}
    assert await admit(store, key, message) is False
    row = await store.message(clean_key, good)
    assert row is not None
    assert row == await store.message(key, bad)
    assert row.message == Inbound(good, good, good, good, T0, good, good, good)
    assert (row.key, row.disposition, row.reason) == (clean_key, "replied", good)
    assert (await store.open_work()).sends == [Outgoing(good, clean_key, good, good, good, good)]
    assert await store.lines(bad) == [Line("user", good, T0, good, good)]
    assert [step.data for step in await store.steps(bad)] == [good]
    assert await store.get_meta(bad) == good
    assert await store.history(key) == [row]
    await store.commit(Change(key, delivered=(bad,)))
    assert (await store.open_work()).sends == []


# -- many callers ------------------------------------------------------------------------------------


async def test_three_thousand_calls_at_once_all_land_and_each_caller_sees_its_own(store: Store) -> None:
    async def talk(n: int) -> None:
        key = Key("mohe", "xmpp", f"u{n}")
        assert await admit(store, key, said(f"m{n}", key=key))
        await store.commit(Change(key, at(T0, count=n), settled=(Settled(f"m{n}", "replied"),)))
        assert await store.load(key) == at(T0, count=n)

    await asyncio.gather(*(talk(n) for n in range(3000)))

    assert len(await store.conversations("mohe")) == 3000
    assert (await store.open_work()).messages == []


async def test_changes_sent_one_after_another_are_written_in_that_order(store: Store) -> None:
    calls = [asyncio.create_task(store.commit(Change(HMO, at(T0, count=n)))) for n in range(500)]
    await asyncio.gather(*calls)

    loaded = await store.load(HMO)
    assert loaded is not None
    assert loaded.count == 499


async def test_callers_that_give_up_do_not_stop_the_others(store: Store) -> None:
    calls = [asyncio.create_task(store.set_meta(f"k{n:03}", "x")) for n in range(400)]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)

    assert all(outcome is None for outcome in outcomes[1::2])
    kept = {key for key, _ in await store.meta_with_prefix("k")}
    assert {f"k{n:03}" for n in range(1, 400, 2)} <= kept


async def test_closing_finishes_what_was_asked_for(opened: Opened) -> None:
    calls = [asyncio.create_task(opened.store.set_meta(f"k{n}", "x")) for n in range(50)]
    await asyncio.sleep(0)

    store = await opened.restart()

    await asyncio.gather(*calls)
    assert len(await store.meta_with_prefix("k")) == 50


async def test_a_store_that_is_not_open_says_so(opened: Opened) -> None:
    await opened.store.close()
    await opened.store.close()

    with pytest.raises(StoreError, match="is not open"):
        await opened.store.load(HMO)
    await opened.store.open()
    await opened.store.open()
    assert await opened.store.load(HMO) is None
