"""What the stored messages of a session say about one call: whether it was made, and how far it came.

Hermes 0.19 stores what the user says before it asks its model, each call of a tool before it runs it, and
an answer when it is whole, with ``stop`` as the reason that it ended. A turn that was interrupted leaves
whatever text there was without a reason; one whose model failed, or that died with the gateway, leaves
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from storage.hermes.api import Row

GO_ON = ("[Session Router: the answer to the message above was cut off before it arrived. Finish what is left to do, "
         "do not repeat steps that were already taken, and give the whole answer.]")
"""Said in the place of a message that the session holds already, to get the answer that it still lacks."""
BETWEEN = "\n\n"
_OWN = "[System:"  # Hermes itself, under the user's role, when an answer broke off and it asks for the rest


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the answer to a message is.

    ``asked``: the message is stored. ``passed``: somebody else wrote after it. ``finished``: the answer is
    whole, and ``text`` is it. ``over``: whole or not, nothing works on it any more, as far as can be seen.
    """

    asked: bool = False
    passed: bool = False
    finished: bool = False
    over: bool = False
    text: str = ""


def progress(rows: Sequence[Row], after: int, said: str) -> Progress:
    """``rows`` oldest first; only those with an id beyond ``after`` can belong to the message ``said``.

    The last match counts: a session that was compressed begins with copies of old messages under new ids.
    """
    later = [row for row in rows if row.id > after and row.role in ("user", "assistant", "tool")]
    wanted = said.strip()
    start = max((at for at, row in enumerate(later) if _is(row, wanted)), default=None)
    if start is None:
        return Progress()
    passed = False
    last: Row | None = None
    texts: list[str] = []
    for row in later[start + 1 :]:
        text = visible(row.content).strip()
        if row.role == "user":
            if text == GO_ON:
                texts.clear()  # the whole answer is given again
            elif not text.startswith(_OWN):
                passed = True
                break
        elif row.role == "assistant" and text:
            texts.append(text)
        last = row
    over = ended(last)
    finished = over and last is not None and last.finish_reason == "stop"
    return Progress(True, passed, finished, over or passed, BETWEEN.join(texts) if finished else "")


def ended(row: Row | None) -> bool:
    """Whether a turn whose newest message this is has come to an end: an answer, whole or broken off."""
    return row is not None and row.role == "assistant" and not row.tool_calls


def newest(rows: Iterable[Row], after: int) -> Row | None:
    """The newest message beyond ``after``."""
    return max((row for row in rows if row.id > after), key=lambda row: row.id, default=None)


def visible(content: object) -> str:
    """The text of a message's content."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if isinstance(part, dict) and part.get("text"))
    return ""


def _is(row: Row, wanted: str) -> bool:
    # A compression may have put its summary before the message that it kept.
    return row.role == "user" and visible(row.content).strip().endswith(wanted)
