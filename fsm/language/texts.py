"""What the engine itself says, in Chinese and English, and the reasons that ``/why`` gives.

One entry a sentence; ``say(lang, key, …)`` fills it in. A key or a language that is missing is an
error of ours and fails in the tests.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsm.language.headings import SYSTEM
from fsm.language.titles import show_title
from fsm.ports import SessionInfo

LANGUAGES = ("zh", "en")

TEXTS: dict[str, tuple[str, str]] = {
    # -- choosing a session
    "bound": ("已切换到「{title}」（{source}）。", "Now talking to “{title}” ({source})."),
    "bound_back": ("已恢复自动绑定。", "Back to automatic binding."),
    "nothing_matches": (
        "没有会话与「{words}」相符。发送 /sessions 看全部会话。",
        "No session matches “{words}”. Send /sessions to see them all.",
    ),
    "no_sessions": (
        "还没有会话。发送 /new 标题 新建一个。",
        "There are no sessions yet. Send /new TITLE to make one.",
    ),
    "which": (
        "要切换到哪个会话？例如：切换到 deploy，或发送 /sessions 看列表。",
        "Switch to which session? For example: switch to session deploy, or send /sessions for the list.",
    ),
    "list_head": ("会话（最近活动的在前）：", "Sessions, most recently active first:"),
    "list_head_cut": (
        "会话（最近活动的在前，{shown} / 共 {total}，即 {shown} of {total}）：",
        "Sessions, most recently active first ({shown} of {total}):",
    ),
    "list_current": ("← 当前", "← current"),
    "list_foot": (
        "回复数字选择，{seconds} 秒内有效；回复「取消」放弃。",
        "Answer with a number within {seconds} s, or say cancel.",
    ),
    "list_gone": ("列表已过期，选择已取消。", "The list has expired; the selection is cancelled."),
    "out_of_range": ("请回复 1 到 {last} 之间的数字。", "Please answer with a number from 1 to {last}."),
    "session_gone": (
        "这个会话已经不在了，绑定没有改变。发送 /sessions 看现在的列表。",
        "That session is gone; nothing was changed. Send /sessions for the list as it is now.",
    ),
    "cancelled": ("已取消。", "Cancelled."),
    # -- muting and stopping
    "muted": ("好，先安静 {minutes}。", "All right, quiet for {minutes}."),
    "unmuted": ("好，我可以说话了。", "All right, I may speak again."),
    "nothing_to_undo": ("现在没有静音。", "I am not muted."),
    "nothing_to_stop": ("现在没有正在进行的事。", "Nothing is running just now."),
    "stopped": ("已停止。", "Stopped."),
    # -- a turn
    "fallback": (
        "抱歉，这次没有得到可用的回答，请换个说法再试一次。",
        "Sorry, I have no usable answer to that. Please try again in other words.",
    ),
    "model_failed": (
        "抱歉，模型暂时没有回应，请稍后再试。",
        "Sorry, the model did not answer just now. Please try again in a moment.",
    ),
    "timed_out": (
        "抱歉，这次处理超过了 {seconds} 秒，已经停下。请再试一次。",
        "Sorry, this took longer than {seconds} s and was given up. Please try again.",
    ),
    "cut_off": (
        "抱歉，处理这条消息时程序多次中断，已经放弃。请再发一次。",
        "Sorry, the program was cut off several times over this message and has given up. Please send it again.",
    ),
    "internal": (
        "抱歉，程序处理这条消息时出错了，请再试一次。",
        "Sorry, something went wrong here over this message. Please try again.",
    ),
    "queue_full": (
        "排队的消息已满（{limit} 条），这条没有收下。请等前面的处理完再发。",
        "There are {limit} messages waiting already, so this one was not taken. Please send it again later.",
    ),
    "limit_reached": (
        "（已达到 {loops} 轮命令上限，先停在这里。）",
        "(The limit of {loops} command loops was reached, so this is where it stops.)",
    ),
    "ask_again": (
        SYSTEM["zh"] + "这条消息是直接对你说的，必须回答。请直接写出给对方的答复，不要沉默，也不要留空。",
        SYSTEM["en"] + " This message was said to you directly and needs an answer. Write the answer itself; "
        "do not stay silent and do not leave it empty.",
    ),
    "results": (SYSTEM["zh"] + "命令结果：", SYSTEM["en"] + " Command results:"),
    "unknown_outcome": (
        "结果不明：命令开始后程序中断了，没有再执行一次。",
        "Outcome unknown: the program was cut off after the command had started, and it was not run again.",
    ),
    # -- commands
    "unknown_command": (
        "没有名为 {name} 的命令，什么都没有执行。",
        "There is no command named {name}; nothing was run.",
    ),
    "commands_are": ("可用的命令：\n{commands}", " Commands:\n{commands}"),
    "not_permitted": ("[{name}] 这个人在这里不能用这个命令。", "[{name}] This person may not use that command here."),
    "bad_argument": (
        "[{name}] 没有执行：{problem}",
        "[{name}] Not run: {problem}",
    ),
    "usage": (" 用法：{usage}", " Usage: {usage}"),
    "result_cut": (
        "（结果共 {chars} 个字符，只给出前 {shown} 个。）",
        "(Only the first {shown} of {chars} characters of this result are shown.)",
    ),
    "result_left_out": (
        "[{name}] 结果略去：这次回复的命令结果已满 {limit} 个字符，后面的都略去。",
        "[{name}] Its result is left out, as are all that follow: results of one reply may have {limit} characters.",
    ),
    "left_out_too": ("[{name}] …", "[{name}] …"),
    "command_failed": ("[{name}] 执行失败，详情在日志里。", "[{name}] Failed; the log says why."),
    "command_timed_out": ("[{name}] 超过 {seconds} 秒，已经停下。", "[{name}] Stopped after {seconds} s."),
    "takes_no_argument": ("这个命令不带参数。", "it takes no argument."),
    "argument_missing": ("缺少参数 {argument}。", "the argument {argument} is missing."),
    "argument_wrong": ("参数 {argument} 应为 {expected}。", "the argument {argument} must be {expected}."),
    "unknown_session": (
        "没有 id 为 {session} 的会话；用 list_sessions 查看。",
        "there is no session with the id {session}; see list_sessions.",
    ),
    "no_list_yet": (
        "还没有列出过会话；先用 list_sessions。",
        "no list has been made yet; use list_sessions first.",
    ),
    "number_expected": (
        "需要 1 到 {last} 之间的编号。",
        "a number from 1 to {last} is needed.",
    ),
    "selection_opened": (
        "已把 {many} 个会话列给对方选择。",
        "{many} sessions were put before the person to choose from.",
    ),
    "current_session": (
        "{title}（id {id}，来源 {source}，{kind}）",
        "{title} (id {id}, source {source}, {kind})",
    ),
    "cannot_create": ("这里不能新建会话。", "no session can be made here."),
    "no_messages": ("（还没有消息）", "(no messages yet)"),
    "kind_manual": ("手动选择", "chosen by hand"),
    "kind_active_sender": ("命令行刚在群里说过话", "it spoke in the group from the command line"),
    "kind_auto": ("最近活动", "most recently active"),
    "kind_default": ("默认会话", "the agent's default"),
    # -- engine commands
    "help": (
        "切换会话：切换到 名称 · 列表：/sessions · 新建：/new 标题 · 自动绑定：/auto\n"
        "安静：/mute 30m · 恢复：/unmute · 停止：/stop · 状态：/status · 原因：/why · 语言：/lang zh|en\n"
        "智能体要你同意时：/allow 编号 · /deny 编号",
        "Switch: /switch NAME, or “switch to session NAME” · list: /sessions · new: /new TITLE · automatic: /auto\n"
        "Quiet: /mute 30m · speak again: /unmute · stop: /stop · state: /status · why: /why · language: /lang zh|en\n"
        "When an agent asks for leave: /allow NUMBER · /deny NUMBER",
    ),
    "status": (
        "状态：{state}\n会话：{session}\n排队：{queue}\n静音：{muted}",
        "State: {state}\nSession: {session}\nQueue: {queue}\nMuted: {muted}",
    ),
    "status_session": ("{title}（{source}，{kind}）", "{title} ({source}, {kind})"),
    "status_away": ("联系不上它的智能体，只读", "its agent is away, reading only"),
    "status_busy": ("正在处理，第 {loops} 轮", "working, loop {loops}"),
    "away": (
        "这个会话的智能体现在联系不上，由本程序的模型回答，内容不会进入它自己的记录：{problem}",
        "The session's own agent cannot be reached, so a model of ours answers, and what is said stays out of its "
        "record: {problem}",
    ),
    "none": ("无", "none"),
    "new_with_the_next": ("下一条消息会新建会话", "a new one with your next message"),
    "yes_for": ("还有 {minutes}", "for another {minutes}"),
    "no": ("否", "no"),
    "why_head": ("最近的消息：", "The last messages:"),
    "why_row": ("{age}「{text}」→ {disposition}：{reason}", "{age} “{text}” → {disposition}: {reason}"),
    "why_nothing": ("还没有消息。", "No messages yet."),
    "lang_set": ("好，之后用中文。", "All right, English from now on."),
    "memory_off": (
        "这里没有启用记忆。",
        "Memory is not switched on here.",
    ),
    "nothing_asked": ("现在没有等待批准的请求。", "Nothing is waiting for permission."),
    "usage_mute": ("用法：/mute 30m（最长 24 小时）。", "Usage: /mute 30m (24 hours at most)."),
    "usage_lang": ("用法：/lang zh 或 /lang en。", "Usage: /lang zh or /lang en."),
    "usage_allow": ("用法：/allow 编号，或 /deny 编号。", "Usage: /allow NUMBER or /deny NUMBER."),
    "usage_new": ("用法：/new 标题。", "Usage: /new TITLE."),
    "usage_remember": ("用法：/remember 内容。", "Usage: /remember TEXT."),
    "usage_forget": ("用法：/forget 名称。", "Usage: /forget NAME."),
    "context_unreadable": (
        "抱歉，会话的历史现在读不到，所以没有回答。请稍后再试，或用 /sessions 换一个会话。",
        "Sorry, the history of the session cannot be read just now, so I did not answer. "
        "Try again later, or choose another session with /sessions.",
    ),
    # -- an agent that asks for leave
    "ask": (
        "智能体想做这件事，要你同意：{what}\n回复 /allow {number} 同意，/deny {number} 拒绝；不答就当拒绝。",
        "The agent asks for leave: {what}\nAnswer /allow {number} or /deny {number}; without an answer it is refused.",
    ),
    "asks": (
        "在等你答复的：\n{asks}\n请带上编号：/allow 编号，或 /deny 编号。",
        "Waiting for your answer:\n{asks}\nSay which: /allow NUMBER or /deny NUMBER.",
    ),
    "ask_over": (
        "这件事现在不在等答复：{what}\n如果智能体还需要，会再问一次。",
        "Nobody waits for an answer to this just now: {what}\nIf the agent still needs one, it asks again.",
    ),
    "ask_answered": ("对这件事的答复正在送给智能体：{what}", "An answer to this is on its way to the agent: {what}"),
    "ask_failed": (
        "智能体没有确认收到你的答复：{what}\n如果它还在等，请再说一次：/allow {number} 或 /deny {number}。",
        "The agent has not confirmed your answer: {what}\n"
        "If it still waits, say it again: /allow {number} or /deny {number}.",
    ),
    "allowed": ("好，已同意：{what}", "All right, allowed: {what}"),
    "denied": ("好，已拒绝：{what}", "All right, refused: {what}"),
    # -- refusals
    "no_session": (
        "没有可用的会话。发送 /new 标题 新建一个，或检查会话来源（session-router doctor）。",
        "There is no session to talk to. Send /new TITLE to make one, or check the sources (session-router doctor).",
    ),
    "turn_aborted": (
        "这一轮在智能体那边停了：在它自己的终端被停下，或者它要做的事被拒绝了。",
        "The turn has ended over at the agent: it was stopped there, or something that it asked for was refused.",
    ),
    "turn_away": (
        "「{title}」的智能体现在联系不上，所以没有回答。等它恢复后请再说一次。",
        "The agent of “{title}” cannot be reached just now, so there is no answer. Say it again once it is back.",
    ),
    "turn_vanished": (
        "会话「{title}」在处理时不见了，所以没有回答。发送 /sessions 另选一个，或 /auto 恢复自动绑定。",
        "The session “{title}” went away in the middle of this, so there is no answer. Send /sessions to choose "
        "another, or /auto to go back to automatic binding.",
    ),
    "sessions_unreadable": (
        "有会话来源现在读不到，不知道该接着哪个会话，所以没有处理。"
        "请稍后再试，或用 /sessions 选一个，或用 /new 标题 新建。",
        "A source of sessions cannot be read just now, so I do not know which session to go on with and did nothing. "
        "Try again later, choose one with /sessions, or make one with /new TITLE.",
    ),
    "vanished": (
        "你选的会话「{title}」已经不在了。发送 /sessions 另选一个，或 /auto 恢复自动绑定。",
        "The session that you chose, “{title}”, is gone. Send /sessions to choose another, "
        "or /auto to go back to automatic binding.",
    ),
    "not_visible": (
        "你不能再使用会话「{title}」。发送 /sessions 另选一个，或 /auto 恢复自动绑定。",
        "You may not use the session “{title}” any more. Send /sessions to choose another, "
        "or /auto to go back to automatic binding.",
    ),
    "too_long": (
        "这条消息有 {chars} 个字符，超过 {limit} 的上限，没有收下。",
        "This message has {chars} characters, more than the {limit} allowed, and was not taken.",
    ),
    "too_many": (
        "消息太快了（每分钟最多 {limit} 条），这条没有收下。",
        "That is more than {limit} messages a minute; this one was not taken.",
    ),
    # -- edges, for /why: states by their value, events by their name
    "why_edge": ("{event}：{went_from} → {went_to}", "{event}: {went_from} → {went_to}"),
    "state_idle": ("空闲", "idle"),
    "state_awaiting_selection": ("等你选择", "waiting for your choice"),
    "state_command_looping": ("处理中", "working"),
    "state_silenced": ("安静", "quiet"),
    "TextArrived": ("来了一条消息", "a message came"),
    "SwitchAsked": ("要求切换会话", "a switch was asked for"),
    "ListAsked": ("要求列出会话", "a list was asked for"),
    "NumberGiven": ("来了一个编号", "a number came"),
    "CancelSaid": ("说了取消", "the choice was cancelled"),
    "StopSaid": ("说了停", "a stop was asked for"),
    "MuteAsked": ("要求安静", "quiet was asked for"),
    "UnmuteAsked": ("可以说话了", "it may speak again"),
    "EngineCommandGiven": ("来了一个斜杠命令", "a slash command came"),
    "SessionFree": ("轮到了会话", "the session was free"),
    "ModelReplied": ("模型回答了", "the model answered"),
    "ModelFailed": ("模型调用失败", "the model call failed"),
    "PermissionAsked": ("智能体请求同意", "the agent asked for leave"),
    "PermissionLapsed": ("智能体不再等同意", "the agent waited no more for leave"),
    "PermissionAnswered": ("智能体得到了答复", "the agent had its answer"),
    "BackoffOver": ("等待后再试", "the wait before another try was over"),
    "CommandsDone": ("命令执行完了", "the commands were done"),
    "TurnExpired": ("超过了一轮的时限", "the turn took too long"),
    "TurnResumed": ("程序重新启动", "the program started again"),
    "SelectionExpired": ("列表到期", "the list expired"),
    "SilenceExpired": ("安静到时", "the quiet was over"),
    "DeliveryFailed": ("有消息未能送达", "a text could not be delivered"),
    # -- reasons, for /why
    "why_replied": ("模型回答了", "the model answered"),
    "why_switched": ("切换了会话", "a session was chosen"),
    "why_listed": ("列出了会话", "a list was shown"),
    "why_told": ("引擎直接回答了", "the engine answered itself"),
    "why_fallback": ("模型没有给出内容，发送了备用答复", "the model said nothing, so the fallback text was sent"),
    "why_silent": ("模型选择沉默", "the model chose silence"),
    "why_empty": ("模型没有给出内容，也不必回答", "the model said nothing and no answer was owed"),
    "why_muted": ("静音中，且不必回答", "muted, and no answer was owed"),
    "why_queued": ("前一条还在处理，排队等候", "waiting behind the message before"),
    "why_running": ("正在处理", "being worked on"),
    "why_queue_full": ("排队已满", "the queue was full"),
    "why_model_failed": ("模型调用失败", "the model call failed"),
    "why_timed_out": ("超过了一轮的时限", "the turn took too long"),
    "why_cut_off": ("程序多次中断", "the program was cut off too often"),
    "why_stopped": ("被要求停止", "it was stopped on request"),
    "why_undelivered": ("答复多次未能送达", "the answer could not be delivered"),
    "why_capped": ("达到命令轮数上限", "the command loop reached its limit"),
    "why_no_session": ("没有可用的会话", "there was no session to talk to"),
    "why_duplicate": ("同一条消息已经收到过", "the same message had come before"),
    "why_aborted": ("这一轮在智能体那边停了", "the turn was ended over at the agent"),
    "why_not_allowed": ("发送者不在允许名单里", "the sender is not on the allowlist"),
    "why_unproven": ("房间没有给出发送者的真实地址，且名单不认昵称",
                     "the room does not show who the sender is, and a nick proves nothing"),
    "why_too_long": ("消息太长", "the message was too long"),
    "why_too_many": ("消息太快", "too many messages a minute"),
    "why_bot_budget": ("连续回答其他机器人的次数已满", "enough answers in a row to other bots"),
    "why_internal": ("程序出错，详情在日志里", "an error in the program; the log says which"),
    "why_blank": ("消息没有内容", "the message was empty"),
    "why_edited": ("这是对旧消息的修改", "it is an edit of an earlier message"),
}  # fmt: skip


def say(lang: str, key: str, **values: object) -> str:
    """The sentence ``key`` in ``lang`` (``zh``, or English for anything else)."""
    chinese, english = TEXTS[key]
    return (chinese if lang == "zh" else english).format(**values)


def duration(lang: str, seconds: float) -> str:
    """Seconds as a person says them: whole minutes from two minutes on, seconds below."""
    if seconds < 120:
        return f"{seconds:g} 秒" if lang == "zh" else f"{seconds:g} seconds"
    if seconds < 7200 or seconds % 3600:
        minutes = round(seconds / 60)
        return f"{minutes} 分钟" if lang == "zh" else f"{minutes} minutes"
    hours = round(seconds / 3600)
    return f"{hours} 小时" if lang == "zh" else f"{hours} hours"


def age(lang: str, seconds: float) -> str:
    """How long ago, in the coarsest unit that is not zero."""
    seconds = max(0.0, seconds)
    if seconds < 60:
        return "刚刚" if lang == "zh" else "just now"
    for size, chinese, english in ((86400, "天", "d"), (3600, "小时", "h"), (60, "分钟", "min")):
        if seconds >= size:
            many = int(seconds // size)
            return f"{many} {chinese}前" if lang == "zh" else f"{many} {english} ago"
    raise AssertionError(seconds)


def session_row(
    number: int, session: SessionInfo, *, lang: str, at: float, current: str | None, with_id: bool = False
) -> str:
    """``2. weather-api · opencode · 3 min ago ← current``; the model also needs the id."""
    parts = [show_title(session.title), session.source, age(lang, at - session.active_at)]
    if with_id:
        parts.insert(1, session.id)
    mark = " " + say(lang, "list_current") if session.id == current else ""
    return f"{number}. " + " · ".join(parts) + mark


def session_list(
    sessions: Sequence[SessionInfo], *, lang: str, at: float, current: str | None, limit: int, with_id: bool = False
) -> str:
    """The numbered list: at most ``limit`` rows, and how many there are in all where it was cut."""
    shown = sessions[:limit]
    head = (
        say(lang, "list_head")
        if len(shown) == len(sessions)
        else say(lang, "list_head_cut", shown=len(shown), total=len(sessions))
    )
    rows = [session_row(n, s, lang=lang, at=at, current=current, with_id=with_id) for n, s in enumerate(shown, start=1)]
    return "\n".join([head, *rows])
