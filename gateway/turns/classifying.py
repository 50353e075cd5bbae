"""A turn's text and what its lane remembers → the agent that answers: rules, examples, then a model, within bounds.

The model is a last resort that nothing depends on: it sees masked text, has little time, few places and an answer from
a closed list; whatever goes wrong, the default agent answers and the reason says so.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from agents.classify import Candidate, Choice, classify
from agents.model import ModelClient, ModelError, ModelTimeout
from agents.similarity import Similarity
from channels.message import InboundMessage
from gateway.route import By, LaneState, Route
from gateway.snapshot import Snapshot
from gateway.turns.router import by_examples, settled
from memory.filters import FilterFailed

log = logging.getLogger("sanqiao.router")

AT_ONCE = 16
"""How many texts are classified at a time; waiting for a place counts into `router.classify.timeout`."""
KEPT, KEPT_SECONDS = 1_000, 600.0
"""How many answers are kept for texts that come again, and how long."""
FAILURES, PAUSE = 3, 30.0
"""After so many failures in a row the model is left alone for so many seconds: a dead one must not slow everybody."""

_DEFAULT = "默认"


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What one snapshot needs for choosing. `mark` changes with anything a kept answer depends on."""

    snapshot: Snapshot
    similarity: Similarity
    candidates: tuple[Candidate, ...]
    mark: str


def _prepared(snapshot: Snapshot) -> _Prepared:
    settings = {agent.name: agent.settings for agent in snapshot.agents}
    candidates = tuple(Candidate(name, each.description, each.intents.examples) for name, each in settings.items())
    samples = {each.name: (*each.examples, each.description) for each in candidates}
    model = snapshot.settings.models[snapshot.settings.model_name(snapshot.settings.router.classify.model)]
    mark = repr((candidates, snapshot.strictest_masking, model.base_url, model.model))
    return _Prepared(snapshot, Similarity(samples), candidates, mark)


class Routing:
    """Chooses the agent of a turn; see `gateway.turns.router.settled` for what comes before examples and model."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives unix seconds."""
        self._clock = clock
        self._ready: _Prepared | None = None
        self._places = asyncio.Semaphore(AT_ONCE)
        self._kept: OrderedDict[bytes, tuple[float, Choice]] = OrderedDict()
        self._failures = 0
        self._failed_at = 0.0

    async def route(self, text: str, message: InboundMessage, lane: LaneState, snapshot: Snapshot) -> Route:
        """The agent for `text` (raw, of the turn whose newest message is `message`), and why. Never fails."""
        asked_for = message.agent or ""
        found = settled(
            text,
            rules=snapshot.rules,
            asked_for=snapshot.agents.get(asked_for).name if asked_for in snapshot.agents else None,
            lane=lane,
            sticky_for=snapshot.settings.router.sticky_for,
            now=self._clock(),
        )
        if found:
            return found
        ready = self._ready
        if ready is None or ready.snapshot is not snapshot:
            self._failures = 0  # the admin may have mended it
            ready = self._ready = _prepared(snapshot)
        return by_examples(text, ready.similarity) or await self._by_model(text, ready, message.entry)

    async def _by_model(self, text: str, ready: _Prepared, entry: str) -> Route:
        snapshot, default = ready.snapshot, ready.snapshot.default_agent(entry)
        settings = snapshot.settings.router.classify
        client = snapshot.models.client(settings.model)
        if not settings.enabled or client.settings.provider == "demo" or len(ready.candidates) < 2:
            return Route(default, By.DEFAULT, _DEFAULT)
        try:
            async with asyncio.timeout(settings.timeout):
                choice = await self._choice(client, text, ready, default)
        except Exception as error:  # border of the classifier: without it the default agent answers
            return Route(default, By.CLASSIFIER_FAILED, f"{_DEFAULT}（{self._failed(error)}）")
        if isinstance(choice, str):
            if not choice:
                return Route(default, By.DEFAULT, _DEFAULT)
            return Route(default, By.CLASSIFIER_FAILED, f"{_DEFAULT}（{choice}）")
        return Route(choice.agent, By.CLASSIFIER, f"模型分类：{choice.reason}" if choice.reason else "模型分类")

    async def _choice(self, client: ModelClient, text: str, ready: _Prepared, default: str) -> Choice | str:
        """What the model chooses, or why it chose nothing ("" where there was nothing to be asked)."""
        masked = await ready.snapshot.strictest_masking.apply(text)
        if masked is None or not masked.strip():
            return ""
        key = hashlib.sha256(repr((ready.mark, default, masked)).encode()).digest()
        choice = self._known(key)
        if choice is not None:
            return choice
        if self._pausing():
            return "模型分类连续失败，暂停中"
        async with self._places:
            choice = await classify(client, masked, ready.candidates, default)
        self._failures = 0
        if choice is None:
            return "模型分类没有给出清单里的智能体"
        self._keep(key, choice)
        return choice

    # ---- failures

    def _failed(self, error: Exception) -> str:
        """Counts and logs a failure; what the reason says of it."""
        if isinstance(error, FilterFailed):  # no fault of the model's; the turn will meet the same filter
            log.error("classify.unfiltered %s", error)
            return "过滤器失败，未作模型分类"
        self._failures += 1
        self._failed_at = self._clock()
        why = str(error) if isinstance(error, ModelError) else "-"
        log.warning("classify.failed failures=%d error=%s reason=%r", self._failures, type(error).__name__, why)
        return "模型分类超时" if isinstance(error, (TimeoutError, ModelTimeout)) else "模型分类失败"

    def _pausing(self) -> bool:
        return self._failures >= FAILURES and 0 <= self._clock() - self._failed_at < PAUSE

    # ---- kept answers

    def _known(self, key: bytes) -> Choice | None:
        at, choice = self._kept.get(key, (0.0, None))
        if choice is None or not 0 <= self._clock() - at < KEPT_SECONDS:
            self._kept.pop(key, None)
            return None
        self._kept.move_to_end(key)
        return choice

    def _keep(self, key: bytes, choice: Choice) -> None:
        self._kept[key] = (self._clock(), choice)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
