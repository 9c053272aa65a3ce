"""The prompt: what stays the same first, byte for byte, so that a provider's prompt cache works.

A turn's prompt is built once; a command loop appends to it and never rewrites it.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsm.agent import Agent
from fsm.conversation import Said
from fsm.language.context import format_context
from fsm.language.headings import NEW, RECENT
from fsm.language.inert import make_inert
from fsm.ports import ChatMessage, Line

PERSONA = {
    "zh": "你是{name}，正在通过聊天软件和人说话。回答简短、口语、直接，用对方的语言。",
    "en": "You are {name}, talking with people through a chat app. Answer briefly and plainly, in their language.",
}

COMMANDS = {
    "zh": (
        "你可以使用命令。命令写成 ##名称## 或 ##名称:参数##，单独占一行，系统会截下执行并把结果告诉你，"
        "对方看不到命令。需要时才用，不要在解释里写命令。可用的命令：\n{commands}"
    ),
    "en": (
        "You can use commands. Write one as ##name## or ##name:argument## on a line of its own; it is "
        "intercepted, run, and its result is told to you. People never see it. Use one only when needed and "
        "never write one in an explanation. Commands:\n{commands}"
    ),
}

ROOM = {
    "zh": (
        "你在一个群里旁听。群消息写作「[群聊] 昵称: 内容」，不论是否叫到你都会给你看。由你决定说不说话，"
        "用回答最开头的标记表示，标记是纯文本，大写，前后各两个下划线，不加任何格式：\n"
        "- 与你无关、别人刚说过同样的话（除非有人追问）、拿不准时：只写 __SILENT__\n"
        "- 有人叫你、问你，或是你自己正在进行的对话（不必每次都叫你）：写 __REPLY__ 然后写要说的话\n"
        "直接叫到你的消息必须回答。"
    ),
    "en": (
        "You are listening in a group. Its messages read “[群聊] nick: text” and all of them are shown to you, "
        "whether you are addressed or not. You decide whether to speak, with a marker at the very start of your "
        "answer: plain text, upper case, two underscores on each side, no formatting.\n"
        "- none of your business, somebody has just said the same (unless you are asked to go on), or in doubt: "
        "write only __SILENT__\n"
        "- you are mentioned or asked, or it goes on with your own conversation (no mention needed each time): "
        "write __REPLY__ and then what you say\n"
        "A message that addresses you must be answered."
    ),
}


def system_text(agent: Agent, command_help: str, *, room: bool) -> str:
    """The part that no message changes."""
    lang = "zh" if agent.language == "zh" else "en"
    parts = [agent.instructions or PERSONA[lang].format(name=agent.label), COMMANDS[lang].format(commands=command_help)]
    if room:
        parts.append(ROOM[lang])
    return "\n\n".join(parts)


def base_prompt(
    agent: Agent, system: str, context: Sequence[Line], message: str, *, memories: str = ""
) -> tuple[ChatMessage, ...]:
    """System text (and memories), then the context with the new message. ``message`` is inert already."""
    lang = "zh" if agent.language == "zh" else "en"
    history = ""
    if context:
        history = make_inert(
            format_context(
                context, user_label=agent.user_label, agent_label=agent.label, max_chars=agent.limits.context_chars
            )
        )
    if memories:
        system = system + "\n\n" + memories
    text = f"{RECENT[lang]}\n{history}\n\n{NEW[lang]}\n{message}" if history else message
    return ({"role": "system", "content": system}, {"role": "user", "content": text})


def with_exchange(base: tuple[ChatMessage, ...], exchange: Sequence[Said]) -> list[ChatMessage]:
    """The prompt of a later call in the turn: the first one with what came since appended."""
    later: list[ChatMessage] = [{"role": said.role, "content": said.text} for said in exchange]
    return [*base, *later]
