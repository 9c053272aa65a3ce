"""What one agent does, as Prometheus counts it. Needs ``pip install ".[run]"`` (prometheus_client).

Every agent has a registry of its own, which its HTTP port shows: several ports of one process may be scraped without
counting anything twice. Every series carries the agent's name all the same.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from fsm.conversation import Conversation, Key
from fsm.effects import Disposition
from fsm.ports import Reply
from session_router.channel_makers import ChannelState

__all__ = ["CONTENT_TYPE_LATEST", "AgentMetrics"]

TURN_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 300)
CALL_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 120)

EVENTS = (
    "stale", "near_miss", "empty_reply", "asked_again", "model_retried", "failed_quietly", "send_retried",
    "undelivered", "record_retried", "unrecorded", "command",
)  # fmt: skip
"""What is counted beside messages and calls; shown from the start, at 0."""


class AgentMetrics:
    """``now`` in seconds, on the clock that turns are timed by."""

    def __init__(self, agent: str, now: Callable[[], float]) -> None:
        self._agent, self._now = agent, now
        self._registry = registry = CollectorRegistry()
        self._messages = Counter(
            "session_router_messages", "Inbound messages by what became of them", ["agent", "disposition"],
            registry=registry,
        )  # fmt: skip
        self._turns = Histogram(
            "session_router_turn_seconds", "From taking up a message until its turn has ended", ["agent"],
            buckets=TURN_SECONDS, registry=registry,
        ).labels(agent)  # fmt: skip
        self._calls = Counter(
            "session_router_model_calls", "Calls of the language model by outcome (ok, or the kind of failure)",
            ["agent", "outcome"], registry=registry,
        )  # fmt: skip
        self._call_seconds = Histogram(
            "session_router_model_call_seconds", "Time of one call of the language model", ["agent"],
            buckets=CALL_SECONDS, registry=registry,
        ).labels(agent)  # fmt: skip
        self._tokens = Counter(
            "session_router_model_tokens", "Tokens as the provider counts them; cached ones are among the input",
            ["agent", "kind"], registry=registry,
        )  # fmt: skip
        self._events = Counter(
            "session_router_events", "Rare things: late answers (stale), markers that nearly were some (near_miss), …",
            ["agent", "what"], registry=registry,
        )  # fmt: skip
        self._queued = Gauge(
            "session_router_queue_length", "Messages that wait behind a running turn", ["agent"], registry=registry
        ).labels(agent)
        self._running = Gauge(
            "session_router_running_turns", "Turns that run just now", ["agent"], registry=registry
        ).labels(agent)
        self._up = Gauge(
            "session_router_channel_up", "Whether the channel is connected and in its rooms", ["agent", "channel"],
            registry=registry,
        )  # fmt: skip
        self._reconnects = Counter(
            "session_router_reconnects", "Connections made after the first", ["agent", "channel"], registry=registry
        )
        for disposition in Disposition:
            if disposition.final:
                self._messages.labels(agent, disposition.value)
        for what in EVENTS:
            self._events.labels(agent, what)
        for kind in ("input", "output", "cached"):
            self._tokens.labels(agent, kind)
        self._calls.labels(agent, "ok")
        self._waiting: dict[Key, int] = {}
        self._begun: dict[Key, tuple[str, float]] = {}
        self._connects: dict[str, int] = {}

    def moved(self, key: Key, then: Conversation) -> None:
        turn, begun = then.turn, self._begun.get(key)
        if begun is not None and (turn is None or turn.id != begun[0]):
            del self._begun[key]
            self._turns.observe(max(0.0, self._now() - begun[1]))
        if turn is not None and key not in self._begun:
            self._begun[key] = (turn.id, turn.started)
        if then.queue:
            self._waiting[key] = len(then.queue)
        elif self._waiting:
            self._waiting.pop(key, None)

    def settled(self, disposition: Disposition) -> None:
        self._messages.labels(self._agent, disposition.value).inc()

    def model_called(self, seconds: float, reply: Reply | None, failure: str) -> None:
        self._calls.labels(self._agent, failure or "ok").inc()
        self._call_seconds.observe(max(0.0, seconds))
        if reply is not None:
            self._tokens.labels(self._agent, "input").inc(reply.input_tokens)
            self._tokens.labels(self._agent, "output").inc(reply.output_tokens)
            self._tokens.labels(self._agent, "cached").inc(reply.cached_tokens)

    def counted(self, what: str, many: int) -> None:
        self._events.labels(self._agent, what).inc(many)

    def channel_changed(self, channel: str, state: ChannelState) -> None:
        self._up.labels(self._agent, channel).set(state.up)
        reconnects = self._reconnects.labels(self._agent, channel)
        known = self._connects.get(channel, 1)
        if state.connects > known:
            reconnects.inc(state.connects - known)
        self._connects[channel] = max(known, state.connects)

    def channel_made(self, channel: str) -> None:
        """A new connection object counts its connects from the beginning."""
        self._connects.pop(channel, None)

    def text(self) -> bytes:
        """Everything, in the text format that Prometheus scrapes."""
        self._queued.set(sum(self._waiting.values()))
        self._running.set(len(self._begun))
        return generate_latest(self._registry)
