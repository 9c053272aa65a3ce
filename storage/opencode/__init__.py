"""OpenCode's sessions, read from its own database, which is never written, or through its server.

OpenCode 1.x keeps a session in ``session``, ``message`` and ``part``; sessions made through its
``/api`` routes have their messages in ``session_message`` instead; OpenCode 2.x keeps everything in
``session_v2`` and ``session_message``. One file may hold all three, and :class:`OpenCodeSource`
reads them as one list.

``files`` opens the file and says in one sentence why it cannot be read, ``schema`` tells which
generations are in it, ``reading`` holds the queries, ``source`` is the session source.

:class:`OpenCodeServer` is the other way to them: through ``opencode serve``, which also runs turns.
``wire`` is what is read of its answers, ``api`` makes the requests, ``history`` and ``answer`` make
sense of messages, ``turn`` runs one prompt, ``asks`` sees to what the agent asks meanwhile.
:class:`OpenCodeSessions` (``sessions``) is both as one: the server where it answers, else the database.
"""

from storage.opencode.files import default_path
from storage.opencode.reading import STILL_ANSWERING, Probe, SessionNotFound
from storage.opencode.server import OpenCodeServer
from storage.opencode.sessions import OpenCodeSessions
from storage.opencode.source import OpenCodeSource, extract_session_context

__all__ = ["STILL_ANSWERING", "OpenCodeServer", "OpenCodeSessions", "OpenCodeSource", "Probe", "SessionNotFound",
           "default_path", "extract_session_context"]
