"""``chat``: talk on this terminal."""

from __future__ import annotations

import click

from session_router.cli.conventions import (
    FAILED,
    Command,
    Option,
    agent_of,
    agent_option,
    config_option,
    load_config,
    progress,
    remark,
    run,
    stop,
)
from session_router.cli.spoken import Both, environ, language, spoken


@click.command(
    "chat", cls=Command,
    says=Both(
        "Talk on this terminal.\n\nAt a terminal: the status line shows the state and the bound session with the "
        "reason; Ctrl-C stops an answer, Ctrl-D leaves. With piped input every line is a message, worked through "
        "in order; answers go to stdout, the status to stderr.",
        "在终端里对话。\n\n在终端中：状态行显示当前状态、绑定的会话和原因；Ctrl-C 停止回答，Ctrl-D 离开。"
        "输入来自管道时，每行是一条消息，按顺序处理；回答写到 stdout，状态写到 stderr。",
    ),
    examples=(
        "chat",
        "chat --agent mohe --session ses_dd36b73a4ffeUI3Vros5ub9e1D",
        "chat < questions.txt > answers.txt",
    ),
)  # fmt: skip
@agent_option
@click.option("--session", "session_id", metavar="ID", cls=Option,
              says=Both("The session to begin with; `sessions` lists them.", "一开始绑定的会话；用 sessions 查看。"))
@config_option
def chat(agent_name: str | None, session_id: str | None, config_file: str | None) -> int:
    config = load_config(config_file)
    settings = agent_of(config, agent_name)
    with progress("Getting ready", "正在准备"):
        from channels.console import open_console
        from session_router.choose_model import choose
        from session_router.compose import SessionNotThere, log_to_file
        from session_router.compose import chat as talk
    lang = language()
    console = open_console(lang, config.folder / "console-history")
    log = log_to_file(config.folder)

    async def everything() -> bool:
        with progress("Looking for a model", "正在寻找模型"):
            chosen = await choose(settings.model, environ())
        remark(spoken(f"Model: {chosen.label}, because {chosen.why}.",
                      f"模型：{chosen.label_in('zh')}，因为{chosen.why_in('zh')}。"))  # fmt: skip
        if chosen.demo:
            remark(spoken(
                "It shows how everything works; its answers are good for nothing else. For real ones put a key "
                "into the environment (such as OPENAI_API_KEY) or name a model in the config.",
                "它只用来演示流程，回答本身没有用处。要真正使用，请在环境变量里放密钥"
                "（如 OPENAI_API_KEY），或在配置里指定模型。",
            ))  # fmt: skip
        remark(spoken(f"Data: {config.store.path}", f"数据：{config.store.path}")
               + (spoken(f", log: {log}", f"，日志：{log}") if log else ""))  # fmt: skip
        remark(spoken("/help shows what can be said; /sessions lists the sessions.",
                      "/help 查看可用的说法；/sessions 列出会话。"))  # fmt: skip
        return await talk(config, settings, chosen, console, session=session_id, lang=lang)

    try:
        return 0 if run(everything()) else FAILED
    except SessionNotThere:
        stop(f"There is no session {session_id}. `session-router sessions` lists the ones there are.",
             f"没有 id 为 {session_id} 的会话。用 session-router sessions 查看有哪些。")  # fmt: skip


