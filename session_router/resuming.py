"""What is said to whoever goes on with a session of ours: what was cut off there, and what is set otherwise now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fsm.conversation import Bound, Conversation, Key
from fsm.language.texts import age
from fsm.language.titles import one_line, show_title
from fsm.owed import owed_records
from fsm.ports import Clock, SourceError, Store
from fsm.runner.engine import PARKED
from storage.journal import JournalSource, TakenUp

_TEXTS = {
    "cut": (
        "「{title}」的第 {turn} 轮在中途断了（{when}开始）{calls}；{then}。",
        "“{title}” was cut off in the middle of turn {turn}, which began {when}{calls}; {then}.",
    ),
    "left": (
        "上次离开时，「{title}」的第 {turn} 轮还没做完（{when}开始）{calls}；{then}。",
        "“{title}” was left in the middle of turn {turn}, which began {when}{calls}; {then}.",
    ),
    "call": ("，有一个命令没有结果（{names}）", ", with one command left without a result ({names})"),
    "calls": ("，{many} 个命令没有结果（{names}）", ", with {many} commands left without a result ({names})"),
    "goes_on": ("现在接着做", "it is taken up again now"),
    "is_left": ("没有得到回答，需要的话请再说一次", "it has no answer, so say it again if it still matters"),
    "long_ago": ("不知何时", "at an unknown time"),
    "different": (
        "「{title}」的设置和上次不同：{fields}。",
        "“{title}” runs with other settings than the last time: {fields}.",
    ),
}


def _say(lang: str, key: str, **values: object) -> str:
    return _TEXTS[key][0 if lang == "zh" else 1].format(**values)


def in_words(
    found: TakenUp, lang: str, at: float, *, cut: bool, goes_on: bool = False, left: bool = False
) -> list[str]:
    """The sentences, each about one thing; none where there is nothing to say. ``cut`` says that nobody is at work on
    an interrupted turn, ``goes_on`` that somebody will be in a moment, ``left`` that it was left on purpose."""
    said: list[str] = []
    title = show_title(found.title, lang=lang)
    if cut and found.interrupted is not None:
        names = [one_line(call.name) or "?" for call in found.open_calls if call.turn == found.interrupted]
        key = "call" if len(names) == 1 else "calls"
        calls = _say(lang, key, many=len(names), names=", ".join(names)) if names else ""
        when = _say(lang, "long_ago") if found.since is None else age(lang, at - found.since)
        then = _say(lang, "goes_on" if goes_on else "is_left")
        key = "left" if left else "cut"
        said.append(_say(lang, key, title=title, turn=found.interrupted, when=when, calls=calls, then=then))
    if found.different:
        fields = ", ".join(f"{one.field} {_value(one.was)} → {_value(one.now)}" for one in found.different)
        said.append(_say(lang, "different", title=title, fields=fields))
    return said


def _value(value: object) -> str:
    return one_line(str(value)) if value is not None else "-"


class Resuming:
    """Looks at each session of ours as soon as the conversation ``key`` is bound to it, and says by ``tell`` what there
    is to say, once for each session."""

    def __init__(self, journal: JournalSource | None, store: Store, key: Key, clock: Clock, lang: str,
                 tell: Callable[[str], None]) -> None:
        self._journal, self._store, self._key, self._clock = journal, store, key, clock
        self._lang, self._tell = lang, tell
        self._known: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, bound: Bound | None) -> None:
        """Before the engine starts, with what the conversation was left with."""
        if bound is not None:
            await self._look(bound, starting=True)

    def watch(self, key: Key, then: Conversation) -> None:
        """The conversation moved (the engine's ``watch``)."""
        bound = then.turn.bound if then.turn is not None else then.manual
        if key == self._key and bound is not None and bound.session not in self._known:
            task = asyncio.create_task(self._look(bound, starting=False))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _look(self, bound: Bound, *, starting: bool) -> None:
        if self._journal is None or bound.source != self._journal.name or bound.session in self._known:
            return
        self._known.add(bound.session)
        at = self._clock.now()
        try:
            found = await self._journal.take_up(bound.session, at=at)
        except SourceError as error:
            self._tell(str(error))
            return
        if found is None:
            return
        turns = (await self._store.open_work()).turns if found.turn else ()
        owner = next((key for key, now in turns if now.turn is not None and now.turn.id == found.turn), None)
        cut, goes_on = owner is None or (starting and owner == self._key), owner is not None
        if found.turn and owner is None:  # its end may be on the way to the journal
            owed = await owed_records(self._store, bound.session)
            cut = not any(held["turn"] == found.turn and held["event"] == "turn_end" for held in owed)
        left = found.turn != "" and await self._store.get_meta(PARKED + found.turn) is not None
        for sentence in in_words(found, self._lang, at, cut=cut, goes_on=goes_on, left=left):
            self._tell(sentence)
