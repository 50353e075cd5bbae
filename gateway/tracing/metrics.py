"""Metrics in Prometheus' form: counted from the steps of messages, the rest looked at when somebody asks.

Labels are names of the configuration and words of our own: no id, no text, nothing a user or a model can make up.
"""

import asyncio
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from agents.tools.built_in import BUILT_IN
from channels.message import InboundMessage
from gateway.tracing.frames import Asked
from gateway.tracing.trace import Fact, Kind

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LAG_SECONDS = 0.25
"""How often it is looked whether the event loop keeps up."""

_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
_SHORT = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_TOKENS = (100, 250, 500, 1000, 2000, 4000, 8000, 16000, 32000, 64000)

_Metric = TypeVar("_Metric", Counter, Histogram)


@dataclass(frozen=True, slots=True)
class Levels:
    """How things stand at the moment. `waiting` messages, the oldest for `oldest` seconds; `redis` is its state."""

    waiting: int
    oldest: float
    unsent: int
    lanes: int
    redis: str
    channels: Mapping[str, bool]
    models: Mapping[str, bool]


class Metrics:
    """All metrics of one gateway. `step` is told what happens to messages; it never raises."""

    def __init__(self, servers: Callable[[], Container[str]] = tuple) -> None:
        """Reads /proc: before the event loop runs, or in a thread. `servers` are the names of the MCP servers now."""
        self._servers = servers
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry(auto_describe=True)
        self._counts = {
            Kind.RECEIVED: _counter(registry, "messages", "Messages accepted", "entry"),
            Kind.DUPLICATE: _counter(registry, "duplicates", "Repeated deliveries of accepted messages", "entry"),
            Kind.COMMAND: _counter(registry, "commands", "Commands run", "entry"),
            Kind.ANSWERED: _counter(registry, "answers", "Answers made", "entry"),
            Kind.SENT: _counter(registry, "sends", "Parts that arrived", "entry"),
            Kind.RETRIED: _counter(registry, "send_retries", "Sends tried again", "entry"),
            Kind.UNSENT: _counter(registry, "sends_failed", "Parts that will never arrive", "entry"),
            Kind.SHELVED: _counter(registry, "sends_shelved", "Answers that wait for the next contact", "entry"),
        }
        self._refusals = _counter(registry, "refusals", "Messages refused with a fixed answer", "reason")
        self._failures = _counter(registry, "failures", "Messages that got no answer", "reason")
        self._expired = _counter(registry, "expired", "Messages too old to be answered after a restart")
        self._rejected = _counter(registry, "rejected_requests", "Requests turned away unread", "route", "status")
        self._routes = _counter(registry, "routes", "Agents chosen", "agent", "by")
        self._drops = _counter(registry, "window_drops", "Turns left out of windows", "stage")
        self._tokens = _counter(registry, "model_tokens", "Tokens as the models' servers counted them", "model", "of")
        self._errors = _counter(registry, "model_errors", "Requests a model did not answer", "model", "error")
        self._tools = _counter(registry, "tool_calls", "Tool calls; those of an MCP server together", "tool", "outcome")
        self._window = _histogram(registry, "window_tokens", "Estimated tokens of the window", _TOKENS)
        self._model = _histogram(registry, "model_seconds", "From a request to its whole answer", _SECONDS, "model")
        self._first = _histogram(
            registry, "model_first_token_seconds", "From a request to the first word", _SECONDS, "model"
        )
        self._send = _histogram(registry, "send_seconds", "One part, with its retries", _SECONDS, "entry")
        self._lag = _histogram(registry, "loop_lag_seconds", "How late the event loop is", _SHORT)
        self._up = Gauge("sanqiao_up", "Whether the gateway runs", registry=registry)
        self._up.set(1)
        self._lanes = Gauge("sanqiao_lanes_active", "Lanes with work", registry=registry)
        self._waiting = Gauge("sanqiao_queue_messages", "Messages not answered yet", registry=registry)
        self._oldest = Gauge("sanqiao_queue_oldest_seconds", "Age of the oldest of them", registry=registry)
        self._unsent = Gauge("sanqiao_queue_unsent_parts", "Parts of answers not sent yet", registry=registry)
        self._redis = Gauge("sanqiao_redis_state", "1 for the state Redis is in", ["state"], registry=registry)
        self._channel_up = Gauge("sanqiao_channel_up", "Whether a channel is well", ["entry"], registry=registry)
        self._model_up = Gauge("sanqiao_model_up", "Whether a model is well", ["model"], registry=registry)
        self._children: dict[tuple[object, ...], Counter | Histogram] = {}
        ProcessCollector(namespace="sanqiao", registry=registry)

    # ---- what happens

    def step(self, message: InboundMessage, kind: Kind, facts: Mapping[str, Fact], asked: Asked | None = None) -> None:
        """Counts one step of a message."""
        counter = self._counts.get(kind)
        if counter is not None:
            self._of(counter, message.entry).inc()
            if kind is Kind.SENT and "seconds" in facts:
                self._of(self._send, message.entry).observe(_number(facts, "seconds"))
        elif kind is Kind.MODEL:
            self._asked(facts)
        elif kind is Kind.WINDOW:
            if asked is not None:
                self._window.observe(asked.window.tokens)
                for drop in asked.window.dropped:
                    self._of(self._drops, drop.stage).inc()
        elif kind is Kind.ROUTED:
            self._of(self._routes, facts.get("agent"), facts.get("by")).inc()
        elif kind is Kind.TOOL:
            self._tools.labels(self._tool(str(facts.get("name"))), facts.get("outcome")).inc()
        elif kind is Kind.REFUSED:
            self._refusals.labels(facts.get("reason")).inc()
        elif kind is Kind.FAILED:
            self._failures.labels(facts.get("text")).inc()
        elif kind is Kind.EXPIRED:
            self._expired.inc()

    def _asked(self, facts: Mapping[str, Fact]) -> None:
        model = facts.get("model")
        if facts.get("error"):
            self._errors.labels(model, facts["error"]).inc()
            return
        self._of(self._model, model).observe(_number(facts, "seconds"))
        if facts.get("first_token") is not None:
            self._of(self._first, model).observe(_number(facts, "first_token"))
        self._of(self._tokens, model, "prompt").inc(_number(facts, "prompt_tokens"))
        self._of(self._tokens, model, "completion").inc(_number(facts, "completion_tokens"))

    def _tool(self, name: str) -> str:
        """A tool's label; those of an MCP server share one, for their names are the server's (see function_name)."""
        server, underscore, _ = name.partition("_")
        return f"mcp:{server}" if underscore and server in self._servers() and name not in BUILT_IN else name

    def _of(self, metric: _Metric, *labels: object) -> _Metric:
        """One child of a metric; `labels` of the library takes several times as long."""
        key = (metric, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child  # type: ignore[return-value]

    def rejected(self, route: str, status: int) -> None:
        """A request was turned away unread."""
        self._rejected.labels(route, status).inc()

    async def watch_loop(self) -> None:
        """Measures how late the event loop is, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_SECONDS
            await asyncio.sleep(LAG_SECONDS)
            self._lag.observe(max(loop.time() - due, 0.0))

    # ---- asking

    async def text(self, levels: Levels) -> str:
        """All of them as Prometheus reads them."""
        self._waiting.set(levels.waiting)
        self._oldest.set(levels.oldest)
        self._unsent.set(levels.unsent)
        self._lanes.set(levels.lanes)
        for state in ("off", "ok", "down"):
            self._redis.labels(state).set(state == levels.redis)
        for gauge, states in ((self._channel_up, levels.channels), (self._model_up, levels.models)):
            gauge.clear()
            for name, well in states.items():
                gauge.labels(name).set(well)
        made = await asyncio.to_thread(generate_latest, self.registry)  # it reads /proc
        return made.decode()


def _counter(registry: CollectorRegistry, name: str, meaning: str, *labels: str) -> Counter:
    return Counter(f"sanqiao_{name}", meaning, labels, registry=registry)


def _histogram(
    registry: CollectorRegistry, name: str, meaning: str, buckets: tuple[float, ...], *labels: str
) -> Histogram:
    return Histogram(f"sanqiao_{name}", meaning, labels, registry=registry, buckets=buckets)


def _number(facts: Mapping[str, Fact], name: str) -> float:
    value = facts.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
