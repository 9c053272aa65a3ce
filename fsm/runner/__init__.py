"""The embedded runner: one process, one event loop, one store.

Everything that is about running here and not about conversations lives in this package: mailboxes,
transactions, timers, delivery. Another runner replaces it and keeps the step and the desk.
"""

from fsm.runner.engine import Engine
from fsm.runner.observer import Observer
from fsm.runner.receipt import Receipt

__all__ = ["Engine", "Observer", "Receipt"]
