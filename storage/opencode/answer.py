"""What a list of messages says about one prompt: how far its answer is, and why there is none.

OpenCode answers a prompt with one assistant message for each step (a tool call, then text), and each
names the prompt as its parent. When the context grows too long in the middle, OpenCode writes messages
under the user's role itself: one that asks for a summary, and one that makes it go on, which is the
parent from there on. Nothing here goes by ids: their time field wraps.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fsm.language.redact import redact
from fsm.ports import ModelError, Reply
from storage.opencode.wire import Failure, Message, Tokens

BETWEEN = "\n\n"
"""Stands between the texts of an answer, which are separated by tool calls."""
_NO_REPLY = Reply("")
_GOES_ON = frozenset({"tool-calls", "unknown"})
_LETTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase


def message_id(session_id: str, call_id: str) -> str:
    """The id under which the prompt of a call is stored, the same whenever the call is repeated. The
    session is part of it, because no two messages of a server may have one id.

    OpenCode's own ids are ``msg_``, 12 hexadecimal digits of time and 14 letters and digits. OpenCode
    1.18 takes the order of messages from their times, so that these digits need not be a time.
    """
    name = f"{session_id}\n{call_id}".encode("utf-8", "surrogatepass")
    number = int.from_bytes(hashlib.sha256(name).digest(), "big")
    number, head = divmod(number, 16**12)
    letters = []
    for _ in range(14):
        number, at = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[at])
    return f"msg_{head:012x}{''.join(letters)}"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the answer to a prompt is.

    ``asked``: the prompt is among the messages. ``passed``: somebody wrote after it, so OpenCode would
    answer that instead. ``finished``: the answer ends as one should; OpenCode may add to it while it is at
    work, after making a summary. ``stuck``: it is not, nor will be without a
    new start, because its last step was cut off (by the end of the server) or never came. ``unknown``
    counts the steps that ended without a reason. ``failure`` is the error of the last step.
    """

    asked: bool = False
    passed: bool = False
    finished: bool = False
    stuck: bool = False
    unknown: int = 0
    failure: Failure | None = None
    texts: tuple[tuple[str, str], ...] = ()
    """(part id, text) of every step that did not fail, in order."""
    steps: frozenset[str] = frozenset()
    """Ids of the messages that answer."""
    reply: Reply = _NO_REPLY


def progress(messages: Iterable[Message], prompt_id: str) -> Progress:
    """``messages`` oldest first; those before the prompt do not matter."""
    parents, own_text = {prompt_id}, ""
    asked = passed = compacted = False
    steps: list[Message] = []
    for message in messages:
        info = message.info
        if info.id == prompt_id:
            asked, own_text = True, _text(message)
        elif info.role == "assistant":
            if info.parent in parents and not info.is_summary:
                steps.append(message)
        elif not asked:
            continue
        elif any(part.type == "compaction" for part in message.parts):
            parents.add(info.id)
            compacted = True
        elif compacted and _text(message) in ("", own_text):  # OpenCode's "go on", or the prompt once more
            parents.add(info.id)
            compacted = False
        else:
            passed = True
    if not steps:
        return Progress(asked, passed, stuck=True)
    last = steps[-1].info
    finished = last.error is None and last.finish is not None and last.finish not in _GOES_ON
    # Some providers say "stop" and call a tool nevertheless; OpenCode runs it and asks again.
    finished = finished and not any(part.type == "tool" for part in steps[-1].parts)
    texts = tuple((part.id, part.visible) for step in steps if step.info.error is None
                  and step.info.time.completed is not None for part in step.parts if part.visible)
    return Progress(
        asked, passed, finished,
        stuck=last.time.completed is None,
        unknown=sum(step.info.finish == "unknown" for step in steps),
        failure=last.error,
        texts=texts,
        steps=frozenset(step.info.id for step in steps),
        reply=_reply([text for _, text in texts], [step.info.tokens for step in steps]),
    )  # fmt: skip


def _text(message: Message) -> str:
    return "\n".join(part.visible for part in message.parts if part.visible)


def _reply(texts: Sequence[str], counts: Iterable[Tokens | None]) -> Reply:
    read = written = cached = 0.0
    for tokens in filter(None, counts):
        cached += tokens.cache.read
        read += tokens.input + tokens.cache.read + tokens.cache.write
        written += tokens.output + tokens.reasoning
    return Reply(BETWEEN.join(texts), int(read), int(written), int(cached))


_KINDS = {  # of OpenCode's errors: (kind, whether asking again can help)
    "ProviderAuthError": ("auth", False),
    "ContextOverflowError": ("context", False),
    "ContentFilterError": ("rejected", False),
    "MessageOutputLengthError": ("bad_reply", True),
    "StructuredOutputError": ("bad_reply", True),
    "MessageAbortedError": ("aborted", False),
}
_STATUSES = {401: ("auth", False), 402: ("quota", False), 403: ("auth", False), 404: ("not_found", False),
             408: ("timeout", True), 429: ("rate_limit", True)}


def model_error(failure: Failure, secrets: Iterable[str] = ()) -> ModelError:
    """An error of the model behind OpenCode, in the kinds of every other model's."""
    kind, again = _KINDS.get(failure.name, ("error", True))
    if failure.name == "APIError" and isinstance(failure.data, dict):
        status = failure.data.get("statusCode")
        retryable = failure.data.get("isRetryable") is True or (isinstance(status, int) and status >= 500)
        kind, again = ("server", True) if retryable else ("rejected", False)
        if isinstance(status, int) and status in _STATUSES:
            kind, again = _STATUSES[status]
    elif "not found" in failure.message:  # a model or an agent that OpenCode does not have
        kind, again = "config", False
    words = redact(failure.message or failure.name, secrets)[:600]
    return ModelError(f"opencode: {kind}: {failure.name}: {words}", kind=kind, retryable=again)
