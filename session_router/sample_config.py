"""The commented config that ``session-router init`` writes, in Chinese or English.

A line that is commented out shows a default, or an example where there is none; with the ``# `` off all of
them the config loads as well. Lines of explanation begin with ``##``.
"""

from __future__ import annotations

_COMMENTS = {
    "head": (
        "Session Router. Every key is optional; what is commented out shows its default or an example.",
        "Session Router 的配置。每个键都可以省略；注释掉的行是默认值或示例。",
    ),
    "environment": (
        "Any key can also come from the environment: SESSION_ROUTER_AGENTS__MOHE__TURN_TIMEOUT=60.",
        "每个键也可以写成环境变量：SESSION_ROUTER_AGENTS__MOHE__TURN_TIMEOUT=60。",
    ),
    "language": ("zh or en; by default that of the system.", "zh 或 en；默认跟随系统语言。"),
    "data": ("Where everything of ours is kept.", "本程序的数据放在哪里。"),
    "store": (
        "FULL survives a power cut, NORMAL only the process being killed.",
        "FULL 断电也不丢，NORMAL 只保证进程被杀时不丢。",
    ),
    "sources": (
        "Sessions to switch between: true for the usual place, a path, or false. journal is the folder of our own.",
        "可切换的会话从哪里读：true 为默认位置，也可写路径，或 false 不读。journal 是本程序自己的会话文件夹。",
    ),
    "titles": (
        'Titles of our own sessions: "first_message", or "model" for one short question after the first turn.',
        '本程序会话的标题："first_message" 为第一条消息，"model" 则在第一轮之后问模型一次。',
    ),
    "opencode_server": (
        "A running `opencode serve`: its sessions are then talked to through OpenCode itself, tools and all.",
        "正在运行的 `opencode serve`：它的会话就由 OpenCode 自己（带工具）来回答。",
    ),
    "hermes_gateway": (
        "The same for a running `hermes gateway`; the key is the API_SERVER_KEY that it was started with.",
        "同样用于正在运行的 `hermes gateway`；key 是启动它时的 API_SERVER_KEY。",
    ),
    "model": (
        "Without any of it: what a key in the environment, Ollama or vLLM offers, or the embedded one.",
        "不写则自动寻找：环境变量里的密钥、本机的 Ollama 或 vLLM、内置的小模型。",
    ),
    "key": (
        "The name of the variable that holds the key, never the key itself.",
        "写存放密钥的环境变量名，不要写密钥本身。",
    ),
    "words": ("Words that people may use beside the usual ones.", "除内置说法外，还认这些说法。"),
    "limits": (
        "Constants for all agents, in seconds and counts; an agent may set its own.",
        "对所有 agent 生效的常量（秒、个数）；每个 agent 也可以单独设置。",
    ),
    "agent": (
        "One table an agent. Adding an agent is adding its table.",
        "一个 agent 一张表；加一张表就是加一个 agent。",
    ),
    "nick": ("Its name in a group, and others it is called by.", "群里的昵称，以及其他称呼。"),
    "allow": (
        'Whose direct messages are answered ("*" for everybody). The terminal is always allowed.',
        '谁的私聊会得到回答（"*" 为所有人）。终端始终允许。',
    ),
    "run": (
        "For `run`: seconds that running turns have to end, and whether its log may hold what is written.",
        "用于 run：停止时给进行中的回合多少秒；日志里是否可以写消息内容。",
    ),
    "mirror": (
        "A copy of the active senders for other programs, in Hermes' state.db (true: its usual place).",
        "把 active sender 抄一份到 Hermes 的 state.db（true 为默认位置），供其他程序读取。",
    ),
    "examples": (
        "Three agents of one group, each with its session, its own HTTP port and its gateway. Passwords come",
        "同一个群里的三个 agent，各有自己的会话、HTTP 端口和网关。密码来自环境变量",
    ),
    "passwords": (
        "from the environment (password_env) or from a file (password_file).",
        "（password_env）或文件（password_file）。",
    ),
    "group": (
        "Whose messages are answered, by real JID or occupant id; the others' are context or nothing.",
        "群里回答谁的消息（真实 JID 或 occupant id）；其他人的消息作为上下文（context）或忽略（nothing）。",
    ),
    "nicks": (
        "true lets a bare nick count, which anybody can take.",
        "true 表示只凭昵称就算数，而昵称谁都可以取。",
    ),
}

_TEMPLATE = """\
## {head}
## {environment}

## {language}
{language_line}
## {data}
# data_dir = "~/.local/share/session-router"
## {run}
# drain_timeout = 20
# log_bodies = false

[store]
# path = "engine.db"
## {store}
# synchronous = "FULL"
## {mirror}
# mirror = false

[sources]
## {sources}
# opencode = true
# hermes = true
# journal = true
## {titles}
# titles = "first_message"
## {opencode_server}
# [sources.opencode_server]
# url = "http://127.0.0.1:4096"
# password_env = "OPENCODE_SERVER_PASSWORD"
# model = "anthropic/claude-haiku-4-5"
# agent = "plan"
# turn_timeout = 300
# ask_timeout = 120
## {hermes_gateway}
# [sources.hermes_gateway]
# url = "http://127.0.0.1:8642"
# key_env = "API_SERVER_KEY"

## {model}
[model]
# provider = "deepseek"
# model = "deepseek-flash"
## {key}
# api_key_env = "DEEPSEEK_API_KEY"

## {words}
[words]
# stop = ["{stop}"]

## {limits}
[limits]
# selection_timeout = 120
# turn_timeout = 300
# max_loops = 10
# recent_msg_limit = 200
# active_session_ttl = 3600
# rate_limit = 20

## {agent}
[agents.assistant]
## {nick}
# nick = "assistant"
# aliases = ["{alias}"]
# instructions = "{instructions}"
## {allow}
# allow = ["hmo@example.org"]

## {examples}
## {passwords}
"""

_AGENT = """
# [agents.{name}]
# jid = "{name}@yoin.fun"
# password_env = "{variable}_PASSWORD"
# nick = "{name}"
# default_session = "{session}"
# http_port = {http}
# [agents.{name}.model]
# base_url = "http://127.0.0.1:{gateway}/v1"
"""

_GROUP = """\
## {group}
# [agents.{name}.groups."coregroup@conference.yoin.fun"]
# allow = ["hmo@yoin.fun", "xxm@yoin.fun"]
# others = "context"
## {nicks}
# nicks = false
"""

# name, default session, HTTP port, gateway port
_AGENTS = (
    ("mohe", "xmpp-mohe-v2", 5804, 8642),
    ("zhiwei", "xmpp-zhiwei", 5805, 8643),
    ("xiaoguo", "xmpp-xiaoguo", 5806, 8645),
)


def sample(language: str) -> str:
    """A TOML config that loads as it is, with comments in ``zh`` or, for anything else, in English."""
    chinese = language == "zh"
    comments = {name: both[chinese] for name, both in _COMMENTS.items()}
    text = _TEMPLATE.format(
        **comments,
        language_line=f'language = "{"zh" if chinese else "en"}"',
        stop="等一下" if chinese else "hold on",
        alias="小助手" if chinese else "helper",
        instructions="你说话简短。" if chinese else "You keep it short.",
    )
    for name, session, http, gateway in _AGENTS:
        text += _AGENT.format(name=name, variable=name.upper(), session=session, http=http, gateway=gateway)
        text += _GROUP.format(name=name, **comments)
    return text


def uncommented(text: str) -> str:
    """The sample with every example in force; explanations stay comments."""
    return "".join(
        line.removeprefix("# ") if line.startswith("# ") else line for line in text.splitlines(keepends=True)
    )
