"""The commands that come with the engine: seeing and choosing sessions, being quiet, help."""

from __future__ import annotations

import re

from fsm.binding import resolve
from fsm.commands.registry import RESULT_CHARS, CommandContext, CommandError, Registry
from fsm.conversation import Bound, Conversation
from fsm.events import Choice, Opening
from fsm.language.context import format_context
from fsm.language.durations import parse_duration
from fsm.language.texts import duration, say, session_list
from fsm.language.titles import show_title
from fsm.ports import SessionInfo, SourceError
from fsm.sessions import session_id_for

BUILTIN = Registry()

CONTEXT_CHARS = RESULT_CHARS - 1_000
"""Characters of a context as a result: its oldest lines go, where the end of a result would be cut."""

_NUMBERS = re.compile(r"([0-9]{1,6})(?:\s*[-~–—]\s*([0-9]{1,6}))?")


@BUILTIN.command(zh="列出会话，最近活动的在前；WORDS 为筛选词")
async def list_sessions(ctx: CommandContext, words: str = "") -> str:
    """The sessions, most recently active first; WORDS narrows them."""
    listing = await ctx.sessions.search(ctx.agent, ctx.person, words)
    problems = "".join("\n" + str(problem) for problem in listing.problems)
    if not listing.sessions:
        key = "nothing_matches" if words else "no_sessions"
        return say(ctx.lang, key, words=ctx.foreign(words)) + problems
    limit = ctx.agent.limits.session_list_limit
    for session in listing.sessions[:limit]:
        ctx.foreign(session.title)
    ctx.listed = tuple(s.id for s in listing.sessions[:limit])
    return (
        session_list(
            listing.sessions, lang=ctx.lang, at=ctx.at, current=(await _current(ctx)).session, limit=limit, with_id=True
        )
        + problems
    )


@BUILTIN.command(zh="切换到会话 SESSION（id）")
async def switch_session(ctx: CommandContext, session: str) -> str:
    """Bind the session with that id."""
    found = await ctx.sessions.find(session)
    if found is None or not ctx.agent.may_see(ctx.person, found.source, found.id):
        raise CommandError(say(ctx.lang, "unknown_session", session=ctx.foreign(session)))
    return _bind(ctx, found)


@BUILTIN.command(zh="让对方从上次的列表里选：A-B 为编号范围，省略为全部；单个编号 N 则直接选定")
async def select_session(ctx: CommandContext, numbers: str = "") -> str:
    """Put numbers A-B of the last list before the person, or all of it; a single N picks that one."""
    listed = ctx.listed if ctx.listed is not None else ctx.now.listed
    if not listed:
        raise CommandError(say(ctx.lang, "no_list_yet"))
    found = _NUMBERS.fullmatch(numbers) if numbers else None
    if numbers and found is None:
        raise CommandError(say(ctx.lang, "number_expected", last=len(listed)))
    first, last = (1, len(listed)) if found is None else (int(found[1]), int(found[2] or found[1]))
    if not 1 <= first <= last <= len(listed):
        raise CommandError(say(ctx.lang, "number_expected", last=len(listed)))
    chosen = []
    for session_id in listed[first - 1 : last]:
        if (session := await ctx.sessions.find(session_id)) is not None:
            chosen.append(session)
    if not chosen:
        raise CommandError(say(ctx.lang, "session_gone"))
    if found is not None and found[2] is None:
        return _bind(ctx, chosen[0])
    ctx.opens = Opening(tuple(chosen))
    return say(ctx.lang, "selection_opened", many=len(chosen))


@BUILTIN.command(zh="现在绑定的会话和原因")
async def current_session(ctx: CommandContext) -> str:
    """The session that is bound now, and why."""
    current = await _current(ctx)
    ctx.foreign(current.title)
    return say(
        ctx.lang, "current_session", title=show_title(current.title), id=current.session, source=current.source or "-",
        kind=say(ctx.lang, "kind_" + current.kind.replace("-", "_")),
    )  # fmt: skip


@BUILTIN.command(zh="新建名为 TITLE 的会话并切换过去")
async def new_session(ctx: CommandContext, title: str) -> str:
    """Make a session of that title and bind it."""
    try:
        made = await ctx.sessions.create(
            ctx.agent, ctx.person, title, session_id=session_id_for(f"{ctx.message.ref}#{ctx.place}"), at=ctx.at
        )
    except SourceError as error:
        raise CommandError(str(error)) from error
    if made is None:
        raise CommandError(say(ctx.lang, "cannot_create"))
    return _bind(ctx, made)


@BUILTIN.command(zh="恢复自动绑定")
async def auto(ctx: CommandContext) -> str:
    """Go back to automatic binding."""
    ctx.choice = Choice(None)
    return say(ctx.lang, "bound_back")


@BUILTIN.command(zh="当前会话的最后 N 条消息")
async def context(ctx: CommandContext, n: int = 20) -> str:
    """The last N messages of the bound session."""
    if not 1 <= n <= ctx.agent.limits.recent_msg_limit:
        raise CommandError(say(ctx.lang, "number_expected", last=ctx.agent.limits.recent_msg_limit))
    lines = await ctx.sessions.context((await _current(ctx)).session, n, agent=ctx.agent.name)
    text = format_context(lines, user_label=ctx.agent.user_label, agent_label=ctx.agent.label,
                          max_chars=min(ctx.agent.limits.context_chars // 4, CONTEXT_CHARS))  # fmt: skip
    return "\n" + ctx.foreign(text) if text else say(ctx.lang, "no_messages")


@BUILTIN.command(zh="安静 DURATION（如 30m），默认 30 分钟")
async def mute(ctx: CommandContext, duration_: str = "") -> str:
    """Be quiet for a while (30m, 2h); half an hour where nothing is said."""
    seconds = parse_duration(duration_, ctx.agent.words) if duration_ else ctx.agent.limits.default_mute
    if seconds is None or seconds <= 0:
        raise CommandError(say(ctx.lang, "usage_mute"))
    ctx.mute = min(seconds, ctx.agent.limits.longest_mute)
    return say(ctx.lang, "muted", minutes=duration(ctx.lang, ctx.mute))


@BUILTIN.command(name="help", zh="这里可用的命令")
async def help_(ctx: CommandContext) -> str:
    """The commands that may be used here."""
    return "\n" + ctx.registry.help(ctx.agent, ctx.person, ctx.key.channel, ctx.lang)


async def _current(ctx: CommandContext) -> Bound:
    """What the next message would talk to: the choice made a moment ago in the same reply or turn, else
    the session of the turn."""
    manual = ctx.choice.bound if ctx.choice is not None else ctx.now.manual
    if manual is not None:
        return manual
    if ctx.choice is None and ctx.bound.kind != "manual":
        return ctx.bound
    found = await resolve(ctx.agent, ctx.key, Conversation(), ctx.sessions, at=ctx.at, lang=ctx.lang)
    return found.bound or ctx.bound


def _bind(ctx: CommandContext, session: SessionInfo) -> str:
    ctx.foreign(session.title)
    ctx.choice = Choice(Bound(session.id, "manual", session.title, session.source))
    return say(ctx.lang, "bound", title=show_title(session.title), source=session.source)
