"""A model that is slow now and then, refuses, breaks off, hangs; and keeps what may never happen to it."""

import asyncio
import collections
import random
from typing import Any

from aiohttp import web

from tests.faults.record import FETCH, speakers
from tests.platforms.model_server import Chunks, ModelServer, Raw, delta, remembering

MOODS = {"429": 4, "500": 4, "reset": 4, "half": 3, "hang": 2, "slow": 7}
"""Of a hundred answers."""

_LIFE = "-of-life-"


def key_of_a_life(key: str) -> str:
    """What the config has as the model's key, if each life of the gateway is to have its own."""
    return f"{key}{_LIFE}${{LIFE}}"


class MoodyModel(ModelServer):
    """The key tells in which of its lives the gateway asks (`key_of_a_life`). `calm` ends the moods; `excused` are questions it ever failed at."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self.calm = False
        self.excused: set[str] = set()
        self.broken: list[str] = []
        self.moods: collections.Counter[str] = collections.Counter()
        self.asked_for: dict[str, str] = {}
        self._under_way: collections.Counter[str] = collections.Counter()
        self._answered: set[tuple[str, str]] = set()

    async def _respond(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        question = str(body["messages"][-1]["content"])
        # Not the one that runs now: what a life that was killed has asked may be read when the next one runs.
        life = request.headers["Authorization"].rpartition(_LIFE)[2]
        self._look(body["messages"], question, life)
        self._under_way[question] += 1
        try:
            return await self._moody(request, body, question, life)
        finally:
            self._under_way[question] -= 1

    def excuse(self) -> None:
        """Whoever asks now may not hear the answer in time: the asker is held up."""
        self.excused |= set(+self._under_way)

    async def _moody(self, request: web.Request, body: dict[str, Any], question: str, life: str) -> web.StreamResponse:
        mood = self._mood()
        self.moods[mood] += 1
        if mood not in ("good", "slow"):
            self.excused.add(question)
        await asyncio.sleep({"hang": 8.6, "slow": 0.6}.get(mood, self._rng.random() * 0.1))
        if mood == "reset":
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        self.answers = [self._answer(mood, body)]
        response = await super()._respond(request, body)
        if mood in ("good", "slow"):
            self._answered.add((life, question))
        return response

    def _mood(self) -> str:
        if self.calm:
            return "good"
        names, weights = list(MOODS), list(MOODS.values())
        return self._rng.choices([*names, "good"], [*weights, 100 - sum(weights)])[0]

    @staticmethod
    def _answer(mood: str, body: dict[str, Any]) -> Any:
        if mood in ("429", "500"):
            return Raw('{"error": {"message": "later"}}', "application/json", int(mood))
        text = remembering(body["messages"])
        if mood == "half":
            return Chunks([delta(text[: len(text) // 2])], cut=True)
        return text

    def _look(self, messages: list[dict[str, Any]], question: str, life: str) -> None:
        """One person's words in a request; a turn stays the turn it was; what was answered is not asked again."""
        people = set().union(*(speakers(str(message["content"])) for message in messages))
        if len(people) > 1:
            self.broken.append(f"words of {people} in one request")
        for text in question.split("\n"):
            if text != FETCH and self.asked_for.setdefault(text, question) != question:
                self.broken.append(f"{text} in another turn than before")
        if (life, question) in self._answered and FETCH not in question:
            self.broken.append(f"asked again after its answer: {question}")
