"""What a message is: a switch, a list, a number, an order to the engine, or text for the model.

Only the whole message counts, after trimming, with case and width folded and closing punctuation
dropped. Anything else is text: a wrong hit would steal a message from the model. A number or a bare
"stop" means something only in the states in which one was asked for or can act.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

from fsm.conversation import State
from fsm.language.durations import parse_duration
from fsm.language.words import CLOSING, SLASH_COMMANDS, TRIMMED, Words, fold, squeeze
from fsm.values import Value


class Kind(Enum):
    """What a message asks for."""

    SWITCH = "switch"
    LIST = "list"
    NUMBER = "number"
    CANCEL = "cancel"
    STOP = "stop"
    MUTE = "mute"
    UNMUTE = "unmute"
    ENGINE_COMMAND = "engine_command"
    TEXT = "text"


class Recognised(Value):
    """A message, read.

    ``words``: what to look for (of a switch or a list), in the sender's own spelling; empty where
    nothing was named. ``only_if_matches``: a switch only where some session matches ``words``, else
    text. ``number``: as written; very large ones are given as 10**9. ``seconds``: of a mute as said,
    above zero and without an upper limit, None where none was named. ``command`` and ``argument``: of
    an engine command, the argument in its own spelling (of ``lang``: ``zh`` or ``en``). ``problem``:
    key of the usage text to answer with instead of acting: ``usage_mute``, ``usage_lang``,
    ``usage_remember`` or ``usage_forget``.
    """

    kind: Kind
    words: str = ""
    number: int | None = None
    seconds: float | None = None
    command: str = ""
    argument: str = ""
    only_if_matches: bool = False
    problem: str = ""


_TEXT = Recognised(Kind.TEXT)
_HUGE = 10**9
_WITH_SOMETHING_TO_END = (State.AWAITING_SELECTION, State.COMMAND_LOOPING)
_KEEPS_ITS_END = frozenset({"new", "remember"})
_SLASH = re.compile(r"/([a-z]+)(?:\s+(?=\S)|$)")


def recognise(text: str, state: State, words: Words) -> Recognised:
    """Read ``text`` as said in ``state``. Pure; never raises."""
    whole = text.strip(TRIMMED)
    body = whole.rstrip(CLOSING + TRIMMED)
    if not body:
        return _TEXT
    one_line = len(whole.splitlines()) == 1
    folded = fold(body)
    if folded[0] == "/":
        return _slash(whole, body, one_line, words)
    if not one_line:
        return _TEXT
    grammar = _grammar(words)
    said = squeeze(folded)
    return (
        _choice(said, state, grammar)
        or _phrase(said, grammar, words)
        or _remember(whole, folded, grammar)
        or _switch(body, folded, grammar)
        or _TEXT
    )


def _slash(whole: str, body: str, one_line: bool, words: Words) -> Recognised:
    head = _SLASH.match(fold(body))
    if head is None:
        return _TEXT
    name, rest = head[1], body[head.end() :]
    if not one_line and name != "remember":
        return _TEXT
    match name:
        case "switch":
            return Recognised(Kind.SWITCH, words=rest)
        case "sessions":
            return Recognised(Kind.LIST, words=rest)
        case "stop" if not rest:
            return Recognised(Kind.STOP)
        case "unmute" if not rest:
            return Recognised(Kind.UNMUTE)
        case "mute":
            return _mute(parse_duration(rest, words)) if rest else Recognised(Kind.MUTE)
    takes_argument = SLASH_COMMANDS.get(name)
    # An agent has slash commands of its own, and "/why is the sky blue" is a question: both are text.
    if takes_argument is None or (rest and not takes_argument):
        return _TEXT
    return _engine_command(name, whole[head.end() :] if rest and name in _KEEPS_ITS_END else rest, words)


def _engine_command(name: str, argument: str, words: Words) -> Recognised:
    problem = ""
    if name == "lang":
        codes = {squeeze(fold(word)): code for word, code in words.languages}
        code = codes.get(squeeze(fold(argument)))
        argument, problem = (code, "") if code else (argument, "usage_lang")
    elif name in ("remember", "forget") and not argument:
        problem = f"usage_{name}"
    elif name in ("allow", "deny") and argument and not argument.isdecimal():
        problem = "usage_allow"  # as a text it would wait for the end of the turn, which waits for it
    return Recognised(Kind.ENGINE_COMMAND, command=name, argument=argument, problem=problem)


def _mute(seconds: float | None) -> Recognised:
    if not seconds:
        return Recognised(Kind.MUTE, problem="usage_mute")
    return Recognised(Kind.MUTE, seconds=seconds)


def _choice(said: str, state: State, grammar: _Grammar) -> Recognised | None:
    if state not in _WITH_SOMETHING_TO_END:
        return None
    if state is State.AWAITING_SELECTION:
        if found := grammar.number.fullmatch(said):
            digits = next(group for group in found.groups() if group is not None).lstrip("0") or "0"
            return Recognised(Kind.NUMBER, number=int(digits) if len(digits) < 10 else _HUGE)
        if said in grammar.cancel:
            return Recognised(Kind.CANCEL)
    return Recognised(Kind.STOP) if said in grammar.stop else None


def _phrase(said: str, grammar: _Grammar, words: Words) -> Recognised | None:
    if said in grammar.list:
        return Recognised(Kind.LIST)
    if said in grammar.unmute:
        return Recognised(Kind.UNMUTE)
    if said in grammar.mute:
        return Recognised(Kind.MUTE)
    if found := grammar.mute_for.match(said):
        seconds = parse_duration(said[found.end() :], words)
        # "安静的地方" only begins like a mute.
        return _mute(seconds) if seconds is not None else None
    return None


def _remember(whole: str, folded: str, grammar: _Grammar) -> Recognised | None:
    found = grammar.remember.match(folded)
    if found is None:
        return None
    fact = whole[found.end() :].lstrip(TRIMMED + ":：,，")
    if not fact.strip(TRIMMED + CLOSING) or fold(fact).startswith(grammar.remember_not):
        return None
    return Recognised(Kind.ENGINE_COMMAND, command="remember", argument=fact)


def _switch(body: str, folded: str, grammar: _Grammar) -> Recognised | None:
    if found := grammar.switch.match(folded):
        name, _ = _without_session(body[found.end() :], grammar)
        return Recognised(Kind.SWITCH, words=name)
    found = grammar.switch_if_found.match(folded)
    if found is None or found.end() == len(body):
        return None
    rest = body[found.end() :]
    may_be_certain = squeeze(folded[: found.end()]) in grammar.switch_with_session
    if may_be_certain and (before := grammar.session_first.match(fold(rest))):
        return Recognised(Kind.SWITCH, words=rest[before.end() :])
    name, dropped = _without_session(rest, grammar)
    if dropped and (article := grammar.article.match(fold(name))):
        name = name[article.end() :]
    return Recognised(Kind.SWITCH, words=name, only_if_matches=not (dropped and may_be_certain))


def _without_session(name: str, grammar: _Grammar) -> tuple[str, bool]:
    """``name`` without a closing "session", and whether one was dropped; the word alone stays."""
    folded = fold(name)
    for word in grammar.session:
        if not folded.endswith(word):
            continue
        kept = name[: -len(word)].rstrip(TRIMMED)
        glued = word[0].isascii() and re.search(r"[a-z0-9_./-]$", folded[: -len(word)])
        if kept and not glued:
            return kept, True
    return name, False


class _Grammar(Value):
    number: re.Pattern[str]
    switch: re.Pattern[str]
    switch_if_found: re.Pattern[str]
    switch_with_session: frozenset[str]
    session: tuple[str, ...]
    session_first: re.Pattern[str]
    article: re.Pattern[str]
    list: frozenset[str]
    cancel: frozenset[str]
    stop: frozenset[str]
    mute: frozenset[str]
    mute_for: re.Pattern[str]
    unmute: frozenset[str]
    remember: re.Pattern[str]
    remember_not: tuple[str, ...]


@lru_cache(maxsize=16)
def _grammar(words: Words) -> _Grammar:
    frames = (squeeze(fold(frame)).split("{}") for frame in words.number)
    numbers = "|".join(f"{re.escape(before)}([0-9]+){re.escape(after)}" for before, after in frames)
    return _Grammar(
        number=re.compile(numbers or "(?!)"),
        switch=_beginning(words.switch),
        switch_if_found=_beginning(words.switch_if_found),
        switch_with_session=_whole(words.switch_with_session),
        session=tuple(sorted(_whole(words.session), key=len, reverse=True)),
        session_first=re.compile(rf"(?:{_beginning(words.session).pattern})(?=.)"),
        article=re.compile(rf"(?:{_beginning(words.article).pattern})(?=.)"),
        list=_whole(words.list),
        cancel=_whole(words.cancel),
        stop=_whole(words.stop),
        mute=_whole(words.mute),
        mute_for=_beginning(words.mute_for),
        unmute=_whole(words.unmute),
        remember=_beginning(words.remember),
        remember_not=tuple(fold(word) for word in words.remember_not),
    )


def _whole(phrases: tuple[str, ...]) -> frozenset[str]:
    return frozenset(squeeze(fold(phrase.strip(TRIMMED).rstrip(CLOSING + TRIMMED))) for phrase in phrases)


def _beginning(phrases: tuple[str, ...]) -> re.Pattern[str]:
    """A pattern for any of ``phrases`` at the start, with the space behind it. One that ends in a
    letter needs a space, Chinese or nothing behind it, so that "switch to-do" is no "switch to"."""
    patterns = []
    for phrase in sorted(_whole(phrases), key=len, reverse=True):
        spelled = r"\s+".join(re.escape(part) for part in phrase.split())
        latin = phrase[-1].isascii() and phrase[-1].isalnum()
        patterns.append(spelled + (r"(?:\s+|(?=[^\x00-\u2e7f])|$)" if latin else r"\s*"))
    return re.compile("|".join(patterns) or "(?!)")
