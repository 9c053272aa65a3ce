"""Hermes' sessions, read from its ``state.db``, and the few keys that are mirrored into it.

``files`` finds the file, ``schema`` tells which columns it has, ``reading`` holds the queries,
``own_lines`` tags what the agent itself said, ``source`` is the session source. ``mirror`` is apart
from them: the one place that writes.
"""

from storage.hermes.files import default_path
from storage.hermes.mirror import StateMetaMirror
from storage.hermes.own_lines import YOU, tag_own
from storage.hermes.reading import Probe, SessionNotFound
from storage.hermes.source import HermesSource

__all__ = ["YOU", "HermesSource", "Probe", "SessionNotFound", "StateMetaMirror", "default_path", "tag_own"]
