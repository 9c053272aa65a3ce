"""``sessions``, ``context``, ``conversations`` and ``why``: what there is, and how it came to be so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import click

from session_router.cli.conventions import (
    COUNT,
    FAILED,
    WRONG,
    Command,
    Option,
    agent_of,
    agent_option,
    complain,
    config_option,
    json_option,
    load_config,
    print_json,
    progress,
    remark,
    run,
    stop,
    styled,
)
from session_router.cli.spoken import Both, language, spoken

if TYPE_CHECKING:
    from fsm.conversation import Conversation, Key
    from session_router.config import Config
    from storage.sqlite import SqliteStore

SOURCES = ("opencode", "hermes", "journal")


@click.command(
    "sessions", cls=Command,
    says=Both(
        "List the sessions there are, most recently active first.\n\nWith WORDS those whose title or id they name. At "
        "most 15; --all shows the rest. Exit code 1 when there is none.",
        "列出会话，最近活动的在前。\n\n给出 WORDS 时只列标题或 id 与之相符的。"
        "最多 15 个；--all 显示全部。没有时退出码为 1。",
    ),
    examples=("sessions", "sessions weather", "sessions --source opencode --all", "sessions --json"),
)  # fmt: skip
@click.argument("words", nargs=-1)
@click.option("--source", type=click.Choice(SOURCES), cls=Option,
              says=Both("Only sessions of this source.", "只看这个来源的会话。"))
@click.option("--all", "show_all", is_flag=True, cls=Option, says=Both("All of them.", "全部列出。"))
@agent_option
@config_option
@json_option
def sessions(
    words: tuple[str, ...], source: str | None, show_all: bool, agent_name: str | None, config_file: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    config = load_config(config_file)
    settings = agent_of(config, agent_name)
    with progress("Reading sessions", "正在读取会话"):
        from fsm.language.texts import age
        from fsm.language.titles import show_title
        from session_router.clock import SystemClock
        from session_router.compose import user_name
        from session_router.reading import reading

        async def look() -> tuple[Any, int]:
            async with reading(config) as (_, found):
                names = [each.name for each in found.sources]
                listing = await found.search(settings.to_agent(), user_name(), " ".join(words))
            if source is not None and source not in names:
                known = ", ".join(names) or "-"
                stop(f"Sessions of {source} are not read here; the sources are: {known}.",
                     f"这里不读取 {source} 的会话；可用的来源：{known}。", WRONG)  # fmt: skip
            kept = [each for each in listing.sessions if source in (None, each.source)]
            limit = settings.to_agent().limits.session_list_limit
            return (kept if show_all else kept[:limit], listing.problems), len(kept)

        (shown, problems), total = run(look())
    for problem in problems:
        remark(spoken(f"Note: {problem}", f"注意：{problem}"))
    if as_json:
        print_json([_as_json(each) for each in shown])
        return 0 if shown else FAILED
    lang, now = language(), SystemClock().now()
    for number, each in enumerate(shown, start=1):
        title = styled(show_title(each.title, 60, lang=lang), bold=True)
        click.echo(f"{number:>2}. {title} · {each.source} · {age(lang, now - each.active_at)} · {each.id}")
    if not shown:
        if words:
            stop(f"No session matches “{' '.join(words)}”. Without words, all of them are listed.",
                 f"没有会话与「{' '.join(words)}」相符。不带词时列出全部会话。")  # fmt: skip
        stop("There are no sessions yet. Begin one with: session-router chat",
             "还没有会话。用 session-router chat 开始一个。")  # fmt: skip
    if len(shown) < total:
        remark(spoken(f"{len(shown)} of {total}; --all shows the rest.", f"{len(shown)} / {total}；--all 显示全部。"))
    return 0


def _as_json(session: Any) -> dict[str, Any]:
    return {"id": session.id, "title": session.title, "source": session.source, "active_at": session.active_at,
            "folder": session.folder}  # fmt: skip


@click.command(
    "context", cls=Command,
    says=Both("Show what the model would see of a session.", "显示模型会看到的会话内容。"),
    examples=("context ses_dd36b73a4ffeUI3Vros5ub9e1D", "context ses_dd36b73a4ffeUI3Vros5ub9e1D --limit 20 --json"),
)
@click.argument("session_id")
@click.option("--limit", type=COUNT, cls=Option,
              says=Both("Newest messages to show; by default as many as the model gets (200).",
                        "显示最新的几条消息；默认与模型看到的一样多（200）。"))  # fmt: skip
@agent_option
@config_option
@json_option
def context(session_id: str, limit: int | None, agent_name: str | None, config_file: str | None, as_json: bool) -> None:
    config = load_config(config_file)
    agent = agent_of(config, agent_name).to_agent()
    many = limit or agent.limits.recent_msg_limit
    with progress("Reading the session", "正在读取会话"):
        from fsm.language.context import format_context
        from session_router.reading import reading

        async def look() -> Any:
            async with reading(config) as (_, found):
                session = await found.find(session_id)
                return session, await found.context(session_id, many) if session is not None else ()

        session, lines = run(look())
    if session is None:
        stop(f"There is no session {session_id}. `session-router sessions` lists the ones there are.",
             f"没有 id 为 {session_id} 的会话。用 session-router sessions 查看有哪些。")  # fmt: skip
    text = format_context(
        lines, user_label=agent.user_label, agent_label=agent.label, max_chars=agent.limits.context_chars
    )
    if as_json:
        print_json({
            "session": _as_json(session),
            "lines": [{"role": each.role, "tag": each.tag, "text": each.text, "at": each.at} for each in lines],
            "text": text,
        })  # fmt: skip
    elif text:
        click.echo(text)
    else:
        remark(spoken("The session has no messages.", "这个会话还没有消息。"))


@click.command(
    "conversations", cls=Command,
    says=Both(
        "List the conversations and how each of them stands.\n\nExit code 1 when there is none, or one cannot be read.",
        "列出所有对话及其当前状态。\n\n没有对话或有读不出的对话时退出码为 1。",
    ),
    examples=("conversations", "conversations --json"),
)
@config_option
@json_option
def conversations(config_file: str | None, as_json: bool) -> int:
    config = load_config(config_file)
    with progress("Reading conversations", "正在读取对话"):
        from msgspec.structs import asdict

        from fsm.commands.engine import name_bound
        from fsm.conversation import deadlines
        from fsm.language.texts import age, say
        from session_router.clock import SystemClock
        from session_router.compose import Bindings
        from session_router.reading import reading

        at, lang = SystemClock().now(), language()

        async def look() -> tuple[list[tuple[Any, Any, Any]], list[Exception]]:
            async with reading(config) as (store, found):
                if store is None:
                    no_store(config)
                agents = {name: agent.to_agent() for name, agent in config.agents.items()}
                bindings = Bindings(agents, found, at, lang)
                known, unreadable = await store.all_conversations()
                rows = [(key, now, await bindings.of(key, now)) for key, now in known.items()]
                return rows, list(unreadable.values())

        rows, unreadable = run(look())
    for error in unreadable:
        complain(str(error))
    if as_json:
        print_json([
            {
                "agent": key.agent, "channel": key.channel, "sender": key.sender, "state": now.state.value,
                "bound": bound.session if bound else None, "binding": bound.kind if bound else None,
                "title": bound.title if bound else None, "source": bound.source if bound else None,
                "queued": len(now.queue), "muted_until": now.muted_until,
                "deadline": due[0].due if (due := deadlines(now)) else None,
                "last": asdict(now.trail[-1]) if now.trail else None,
            }
            for key, now, bound in rows
        ])  # fmt: skip
        return 0 if rows and not unreadable else FAILED
    if not rows and not unreadable:
        stop("There are no conversations yet. Begin one with: session-router chat",
             "还没有对话。用 session-router chat 开始一个。")  # fmt: skip
    for key, now, bound in rows:
        parts = [styled(now.state.value, bold=True), name_bound(bound, lang) if bound else say(lang, "none")]
        if now.queue:
            parts.append(spoken(f"queue {len(now.queue)}", f"排队 {len(now.queue)}"))
        if now.muted_until is not None and now.muted_until > at:
            parts.append(spoken("muted", "静音"))
        if now.trail:
            parts.append(age(lang, at - now.trail[-1].at))
        click.echo(f"{key.agent} {key.channel} {key.sender}: {' · '.join(parts)}")
    return FAILED if unreadable else 0


@click.command(
    "why", cls=Command,
    says=Both(
        "Say what became of a conversation's last messages, and why.\n\nBelow them the last steps of its machine. "
        "`conversations` lists channels and senders.",
        "说明一个对话最近的消息各有什么结果、为什么。\n\n下面是状态机最近的几步。channel 和 sender 见 conversations。",
    ),
    examples=("why console hmo", "why xmpp:team@muc.example.org hmo@example.org --agent mohe --json"),
)  # fmt: skip
@click.argument("channel")
@click.argument("sender")
@click.option("--limit", type=COUNT, default=10, cls=Option,
              says=Both("Messages to explain; 10 by default.", "说明最近几条消息；默认 10。"))  # fmt: skip
@agent_option
@config_option
@json_option
def why(
    channel: str, sender: str, limit: int, agent_name: str | None, config_file: str | None, as_json: bool
) -> None:
    config = load_config(config_file)
    with progress("Reading the conversation", "正在读取对话"):
        from msgspec.structs import asdict

        from fsm.commands.engine import explain
        from fsm.language.texts import say
        from session_router.clock import SystemClock
        from session_router.reading import reading

        async def look() -> tuple[Key, Conversation, Any]:
            async with reading(config) as (store, _):
                if store is None:
                    no_store(config)
                key, now = await find_conversation(store, channel, sender, agent_name)
                return key, now, await store.history(key, limit)

        key, now, rows = run(look())
    lang = language()
    if as_json:
        print_json({
            "agent": key.agent, "channel": key.channel, "sender": key.sender, "state": now.state.value,
            "messages": [
                {
                    "id": row.message.id, "at": row.message.at, "text": row.message.text,
                    "disposition": row.disposition, "reason": row.reason,
                    "because": say(lang, row.reason) if row.reason else "", "settled_at": row.settled_at,
                }
                for row in rows
            ],
            "trail": [asdict(edge) for edge in now.trail],
        })  # fmt: skip
        return
    click.echo(explain(rows, now.trail, SystemClock().now(), lang, row_names=True))


async def find_conversation(
    store: SqliteStore, channel: str, sender: str, agent: str | None
) -> tuple[Key, Conversation]:
    """The one conversation of that channel and sender; ends the command where there is none, or several.

    Raises:
        StoreError: it cannot be read.
    """
    known, unreadable = await store.all_conversations(agent, channel)
    for key, error in unreadable.items():
        if key.sender == sender:
            raise error
    found = [(key, now) for key, now in known.items() if key.sender == sender]
    if not found:
        stop(f"There is no conversation of {sender} on {channel}. `session-router conversations` lists them.",
             f"没有 {sender} 在 {channel} 上的对话。用 session-router conversations 查看有哪些。")  # fmt: skip
    if len(found) > 1:
        names = ", ".join(key.agent for key, _ in found)
        stop(f"{sender} talks on {channel} with {names}. Say which with --agent.",
             f"{sender} 在 {channel} 上与 {names} 都有对话。用 --agent 指明是哪个。", WRONG)  # fmt: skip
    return found[0]


def no_store(config: Config) -> NoReturn:
    """Ends the command: nobody has talked yet."""
    stop(f"There is no store at {config.store.path} yet. It is made by: session-router chat",
         f"{config.store.path} 还不存在。运行 session-router chat 时会创建。")  # fmt: skip
