"""Commands that a person gives to the engine itself (``/status``), answered without the model.

Looked up before the step and answered by it, in every state. Making a session twice under one
message makes one, so an answer that a crash cut off can be worked out again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fsm.agent import Agent
from fsm.binding import Binding
from fsm.conversation import Bound, Conversation, Edge, Key
from fsm.effects import Disposition
from fsm.events import Choice
from fsm.language.texts import age, duration, say
from fsm.language.titles import show_title
from fsm.ports import InboxRow, SourceError
from fsm.sessions import Sessions, session_id_for

HISTORY = 5
"""Messages that ``/why`` explains."""


@dataclass(frozen=True, slots=True)
class Asked:
    """An engine command with all that its answer may need. ``ref`` names the ``message`` for ever; ``binding`` looks up
    what a text would talk to now, which takes as long as the sources take."""

    agent: Agent
    key: Key
    now: Conversation
    sessions: Sessions
    binding: Callable[[], Awaitable[Binding]]
    argument: str
    message: str
    ref: str
    at: float
    lang: str


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    choice: Choice | None = None
    lang: str | None = None
    allow: bool | None = None
    number: int | None = None


Handler = Callable[[Asked], Awaitable[Answer]]


async def help_(asked: Asked) -> Answer:
    return Answer(say(asked.lang, "help"))


async def why(asked: Asked) -> Answer:
    rows = await asked.sessions.store.history(asked.key, HISTORY + 1)
    earlier = [row for row in rows if row.message.id != asked.message][:HISTORY]
    return Answer(explain(earlier, asked.now.trail, asked.at, asked.lang))


async def status(asked: Asked) -> Answer:
    now, lang = asked.now, asked.lang
    state = now.state.value
    if now.turn is not None:
        state += (
            f"（{say(lang, 'status_busy', loops=now.turn.loops)}）"
            if lang == "zh"
            else (f" ({say(lang, 'status_busy', loops=now.turn.loops)})")
        )
    binding = await asked.binding()
    bound = binding.bound
    away = await asked.sessions.away(bound) if bound else ""
    return Answer(
        say(
            lang,
            "status",
            state=state,
            session=name_bound(bound, lang) if bound else binding.problem or say(lang, "none"),
            queue=len(now.queue),
            muted=say(lang, "yes_for", minutes=duration(lang, now.muted_until - asked.at))
            if now.muted_until is not None and now.muted_until > asked.at
            else say(lang, "no"),
        )
        + ("\n" + say(lang, "away", problem=away) if away else "")
    )


async def auto(asked: Asked) -> Answer:
    return Answer(say(asked.lang, "bound_back"), Choice(None))


async def new(asked: Asked) -> Answer:
    title = asked.argument.strip()
    if not title:
        return Answer(say(asked.lang, "usage_new"))
    try:
        made = await asked.sessions.create(
            asked.agent, asked.key.sender, title, session_id=session_id_for(asked.ref), at=asked.at
        )
    except SourceError as error:
        return Answer(str(error))
    if made is None:
        return Answer(say(asked.lang, "cannot_create"))
    text = say(asked.lang, "bound", title=show_title(made.title, lang=asked.lang), source=made.source)
    return Answer(text, Choice(Bound(made.id, "manual", made.title, made.source)))


async def lang(asked: Asked) -> Answer:
    return Answer(say(asked.argument, "lang_set"), lang=asked.argument)


async def memory(asked: Asked) -> Answer:
    return Answer(say(asked.lang, "memory_off"))


async def allow(asked: Asked) -> Answer:
    """The machine answers instead where the running turn's agent waits for leave."""
    return Answer(say(asked.lang, "nothing_asked"), allow=True, number=_number(asked))


async def deny(asked: Asked) -> Answer:
    return Answer(say(asked.lang, "nothing_asked"), allow=False, number=_number(asked))


def _number(asked: Asked) -> int | None:
    if not asked.argument:
        return None
    digits = asked.argument.lstrip("0")
    return int(digits or "0") if len(digits) < 10 else 0  # longer ones are none of ours, as 0 is none


ENGINE_COMMANDS: dict[str, Handler] = {
    "help": help_,
    "why": why,
    "status": status,
    "auto": auto,
    "new": new,
    "lang": lang,
    "memory": memory,
    "remember": memory,
    "forget": memory,
    "allow": allow,
    "deny": deny,
}


def name_bound(bound: Bound, lang: str) -> str:
    """A session with its source and the reason that it is the one."""
    kind = say(lang, "kind_" + bound.kind.replace("-", "_"))
    title = show_title(bound.title, lang=lang) if bound.title else bound.session
    return say(lang, "status_session", title=title, source=bound.source or "-", kind=kind)


def explain(
    rows: Sequence[InboxRow], trail: Sequence[Edge], at: float, lang: str, *, row_names: bool = False
) -> str:
    """What became of these messages and why, newest first, in plain words; the last edges below. For those who read
    the table, ``row_names`` gives the edges by their rows."""
    if not rows:
        return say(lang, "why_nothing")
    lines = [say(lang, "why_head")]
    for row in rows:
        lines.append(
            say(
                lang,
                "why_row",
                age=age(lang, at - row.message.at),
                text=show_title(row.message.text, 20, lang=lang),
                disposition=row.disposition,
                reason=say(lang, row.reason) if row.reason else say(lang, "why_running"),
            )
        )
    assert all(row.disposition in {d.value for d in Disposition} for row in rows)
    for edge in trail[-3:]:
        if row_names:
            words = f"{edge.went_from} → {edge.went_to} ({edge.event}: {edge.row})"
        else:
            went_from, went_to = (say(lang, f"state_{state}") for state in (edge.went_from, edge.went_to))
            words = say(lang, "why_edge", event=say(lang, edge.event), went_from=went_from, went_to=went_to)
        lines.append(f"· {age(lang, at - edge.at)} {words}")
    return "\n".join(lines)
