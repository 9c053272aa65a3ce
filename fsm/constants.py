"""The numbers of the first design of this router, in one place, under the names it gave them.

Each is a default: an agent's config may set any of them in lower case (``turn_timeout = 60``),
and the running engine reads them from :class:`Limits`, never from here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_LOOPS = 10
"""Command loops in one turn; one loop is one model call and the commands of its reply."""
SELECTION_TIMEOUT = 120.0
"""Seconds for which a numbered list can be answered with a number."""
RECENT_MSG_LIMIT = 200
"""Messages of a session that the model sees."""
SESSION_LIST_LIMIT = 15
"""Rows of a list of sessions."""
CMD_RE = re.compile(r"##\w+(?::[^#\n]*)?##")
"""What a command looks like in the model's text."""
DB_PATH = "~/.local/share/opencode/opencode.db"
"""Where OpenCode keeps its sessions unless the environment says otherwise."""
ACTIVE_SESSION_TTL = 3600.0
"""Seconds for which a session that spoke in a group from the command line leads there."""
TURN_TIMEOUT = 300.0
"""Seconds for one turn, from the moment its session is free."""
QUEUE_LIMIT = 20
"""Messages that may wait behind a running turn."""
SILENCE_TIMEOUT = 600.0
"""Seconds after which a silence that the model chose is forgotten."""
MODEL_RETRIES = 2
"""How often a failed model call is tried again."""
MODEL_BACKOFF = (1.0, 4.0)
"""Seconds before each of those tries; the last one stands for all later ones."""
MAX_RESUMES = 2
"""How often a turn that a crash cut off is taken up again."""
DELIVERY_TRIES = 5
"""Deliveries of one text before its message counts as failed."""
DELIVERY_BACKOFF = (1.0, 4.0, 15.0, 60.0)
"""Seconds between those deliveries."""
DEFAULT_MUTE = 1800.0
"""Seconds of a mute that names no time."""
LONGEST_MUTE = 86400.0
"""Seconds of the longest mute."""
CONTEXT_CHARS = 60_000
"""Characters of context in a prompt; the oldest lines go first."""
MESSAGE_CHARS = 16_000
"""Characters of one inbound message."""
RATE_LIMIT = 20
"""Messages a minute from one sender; 0 switches the limit off."""
COMMAND_TIMEOUT = 60.0
"""Seconds for one command."""
BOT_BUDGET = 3
"""Answers in a row to other bots in one room."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The constants above as one agent has them (seconds, counts and characters)."""

    max_loops: int = MAX_LOOPS
    selection_timeout: float = SELECTION_TIMEOUT
    recent_msg_limit: int = RECENT_MSG_LIMIT
    session_list_limit: int = SESSION_LIST_LIMIT
    active_session_ttl: float = ACTIVE_SESSION_TTL
    turn_timeout: float = TURN_TIMEOUT
    queue_limit: int = QUEUE_LIMIT
    silence_timeout: float = SILENCE_TIMEOUT
    model_retries: int = MODEL_RETRIES
    model_backoff: tuple[float, ...] = MODEL_BACKOFF
    max_resumes: int = MAX_RESUMES
    delivery_tries: int = DELIVERY_TRIES
    delivery_backoff: tuple[float, ...] = DELIVERY_BACKOFF
    default_mute: float = DEFAULT_MUTE
    longest_mute: float = LONGEST_MUTE
    context_chars: int = CONTEXT_CHARS
    message_chars: int = MESSAGE_CHARS
    rate_limit: int = RATE_LIMIT
    command_timeout: float = COMMAND_TIMEOUT
    bot_budget: int = BOT_BUDGET
