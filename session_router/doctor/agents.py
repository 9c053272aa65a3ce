"""The agents: whom they answer, and whether they can log in and enter their rooms."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping

from fsm.language.redact import redact
from fsm.ports import SessionRouterError
from session_router.config import AgentConfig, Config, ConfigError
from session_router.doctor.finding import Finding, open_secret, spoken, wrong_setting

LOGIN_TIMEOUT = 15.0
"""Seconds for logging in and entering every room."""
OCCUPANT_ID = 16
"""Characters that an occupant id has at least; a shorter word is rather a nick."""


def agent_rules(name: str, agent: AgentConfig, environ: Mapping[str, str]) -> Iterable[Finding]:
    what = f"agent {name}"
    if agent.jid:
        yield from _account(what, agent, environ)
        if not agent.allow:
            yield Finding(
                "warning",
                what,
                spoken(
                    "its allow list is empty, so nobody is answered in a direct chat",
                    "allow 是空的，私聊里谁也不会得到回答",
                ),
                spoken(
                    'List addresses under allow, such as ["hmo@example.org"], or ["*"] for everybody.',
                    '在 allow 里列出地址，如 ["hmo@example.org"]，或用 ["*"] 表示所有人。',
                ),
            )
    for room in agent.all_rooms:
        yield from _room(spoken(f"{what} in {room}", f"{what}，群 {room}"), agent, room)


def _account(what: str, agent: AgentConfig, environ: Mapping[str, str]) -> Iterable[Finding]:
    try:
        if agent.secret(environ) is None:
            yield Finding(
                "problem",
                what,
                spoken(f"{agent.jid} has no password", f"{agent.jid} 没有密码"),
                spoken(
                    "Name a variable as password_env, or a file as password_file.",
                    "用 password_env 写环境变量名，或用 password_file 写文件。",
                ),
            )
    except ConfigError as error:
        yield wrong_setting(what, error)
    yield from open_secret(what, agent.password_file, "password", "密码")


async def logins(config: Config, environ: Mapping[str, str]) -> Iterable[Finding]:
    """All accounts at once; one that has no password is told elsewhere."""
    agents = [agent for agent in config.agents.values() if agent.jid and _has_password(agent, environ)]
    found = await asyncio.gather(*(_login(agent, environ) for agent in agents))
    return [finding for findings in found for finding in findings]


def _has_password(agent: AgentConfig, environ: Mapping[str, str]) -> bool:
    try:
        return agent.secret(environ) is not None
    except ConfigError:
        return False


def _xmpp_mend() -> str:
    return spoken(
        'In the folder of Session Router, run pip install ".[xmpp]".',
        '在 Session Router 的文件夹里执行 pip install ".[xmpp]"。',
    )


async def _login(agent: AgentConfig, environ: Mapping[str, str]) -> list[Finding]:
    from channels.xmpp import Standing, State
    from session_router.clock import SystemClock
    from session_router.xmpp import second_connection

    what = spoken(f"login of {agent.name}", f"{agent.name} 的登录")
    # The running one keeps its resource, or each would put the other out.
    resource = f"doctor-{secrets.token_hex(3)}"
    try:
        async with second_connection(agent, environ, SystemClock(), resource, LOGIN_TIMEOUT) as channel:
            now = channel.connection
    except ConfigError as error:
        return [wrong_setting(what, error)]
    except SessionRouterError as error:  # the library is not there
        return [Finding("problem", what, str(error), _xmpp_mend())]
    if now.state not in (State.JOINING, State.JOINED):
        reason = redact(now.reason) or spoken(
            f"no session within {LOGIN_TIMEOUT:.0f} s", f"{LOGIN_TIMEOUT:.0f} 秒内没有登录成功"
        )
        return [
            Finding(
                "problem",
                what,
                f"{agent.jid}: {reason}",
                spoken(
                    "Check the address, the password and that the server can be reached from here.",
                    "检查地址、密码，以及从这里能否连到服务器。",
                ),
            )
        ]
    found = [Finding("ok", what, spoken(f"{agent.jid} logged in", f"{agent.jid} 已登录"))]
    for room in now.rooms:
        where = f"{what}: {room.address}"
        if room.standing is not Standing.IN:
            reason = redact(room.reason) or spoken(
                f"not entered within {LOGIN_TIMEOUT:.0f} s", f"{LOGIN_TIMEOUT:.0f} 秒内没有进入"
            )
            found.append(
                Finding(
                    "problem",
                    where,
                    reason,
                    spoken(
                        "Check the room's address, and let its owner admit this account.",
                        "检查群地址，并请群主接纳这个账号。",
                    ),
                )
            )
        elif room.created:
            found.append(
                Finding(
                    "warning",
                    where,
                    spoken("it did not exist, so entering it has made it", "原来没有这个群，进入时已建立"),
                    spoken(
                        "Check its address; if it is right, set the room up with a client.",
                        "检查地址；没错的话，用客户端设置这个群。",
                    ),
                )
            )
        else:
            found.append(Finding("ok", where, spoken("entered", "已进入")))
    return found


def _room(what: str, agent: AgentConfig, room: str) -> Iterable[Finding]:
    group = agent.groups.get(room)
    allow = group.allow - {"*"} if group else frozenset()
    if not allow:
        star = spoken(" (`*` does not count in a room)", "（在群里 `*` 不算）") if group and group.allow else ""
        yield Finding(
            "warning",
            what,
            spoken(
                f"its allow list is empty, so nobody is answered there{star}",
                f"allow 是空的，那里谁也不会得到回答{star}",
            ),
            spoken(
                f'List real addresses in [agents.{agent.name}.groups."{room}"] as allow.',
                f'在 [agents.{agent.name}.groups."{room}"] 的 allow 里列出真实地址。',
            ),
        )
    elif group and group.nicks:
        yield Finding(
            "warning",
            what,
            spoken("nicks are trusted there, and anybody can take a nick", "那里认昵称，而昵称谁都能用"),
            spoken(
                "List real addresses or occupant ids and write nicks = false.",
                "列出真实地址或 occupant id，并写 nicks = false。",
            ),
        )
    elif short := sorted(who for who in allow if "@" not in who and len(who) < OCCUPANT_ID):
        yield Finding(
            "warning",
            what,
            spoken(
                f"{', '.join(short)}: neither an address nor an occupant id, so it admits nobody",
                f"{'、'.join(short)}：既不是地址也不是 occupant id，谁也放不进来",
            ),
            spoken(
                "Write the real address, such as hmo@example.org, or nicks = true if the nick has to do.",
                "写真实地址，如 hmo@example.org；只能用昵称时写 nicks = true。",
            ),
        )
