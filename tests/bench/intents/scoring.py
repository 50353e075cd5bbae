"""The labelled messages, the shipped agents, and what the router makes of one with the other."""

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from agents.agent import AgentSettings
from agents.model import Completion, ModelRequest, ModelSettings, ModelTimeout
from agents.registry import Agents
from channels.message import InboundMessage
from gateway.config.settings import load_settings
from gateway.route import LaneState, Route
from gateway.turns.classifying import Routing
from memory.masking import Masking
from tests.shipped import shipped_config

MESSAGES = Path(__file__).parent / "messages.yaml"
NOW = 1_000.0


@dataclass(frozen=True, slots=True)
class Labelled:
    """A message, who may answer it, and who was just talking with its sender ("": nobody)."""

    kind: str
    text: str
    agents: tuple[str, ...]
    context: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a message went, and why."""

    message: Labelled
    route: Route

    @property
    def right(self) -> bool:
        """Whether it went to one of those who may answer it."""
        return self.route.agent in self.message.agents


def labelled() -> list[Labelled]:
    """All labelled messages. Blocking."""
    blocks = yaml.safe_load(MESSAGES.read_text(encoding="utf-8"))
    return [
        Labelled(block["class"], text, tuple(block["agents"]), block.get("context", ""))
        for block in blocks
        for text in block["messages"]
    ]


@lru_cache(maxsize=1)
def shipped_agents() -> Mapping[str, AgentSettings]:
    """The agents of the shipped config. Blocking."""
    return load_settings(shipped_config(), {}).agents


class Scripted:
    """A model by script: chooses as labelled, but for one message in `errs_every`, where it fails in some way.

    It says what a good classifier is worth here, and what is lost when it errs; it knows nothing of language.
    """

    settings = ModelSettings()

    def __init__(self, messages: Sequence[Labelled], errs_every: int = 0) -> None:
        self._right = {each.text: each.agents[0] for each in messages if not each.context}
        self._errs_every = errs_every
        self.asked = 0

    async def complete(
        self, request: ModelRequest, on_text: Callable[[str], None], *, within: float | None = None
    ) -> Completion:
        """The labelled agent of the quoted message; or nonsense, another agent, or a time-out."""
        self.asked += 1
        text = "\n".join(line[2:] for line in request.messages[1].content.splitlines() if line.startswith("> "))
        right = self._right[text]
        number = zlib.crc32(text.encode())
        if self._errs_every and number % self._errs_every == 0:
            match number // self._errs_every % 3:
                case 0:
                    raise ModelTimeout("scripted")
                case 1:
                    return Completion(text='{"agent": "nobody-agent"}', model="scripted")
                case _:
                    right = next(name for name in sorted(shipped_agents()) if name != right)
        return Completion(text=json.dumps({"agent": right, "reason": "按标注"}, ensure_ascii=False), model="scripted")


async def outcomes(messages: Sequence[Labelled], model: Scripted | None) -> list[Outcome]:
    """Where each message goes; without `model` by rules, stickiness and examples alone."""
    snapshot, routing = _snapshot(model), Routing(lambda: NOW)
    found = []
    for each in messages:
        lane = LaneState(each.context, NOW - 60) if each.context else LaneState()
        asked: Any = SimpleNamespace(agent=None, entry="web")
        message: InboundMessage = asked
        found.append(Outcome(each, await routing.route(each.text, message, lane, snapshot)))
    return found


def _snapshot(model: Scripted | None) -> Any:
    settings = shipped_agents()
    agents = Agents(settings, "general-agent")
    classify = SimpleNamespace(enabled=model is not None, model="main", timeout=3.0)
    return SimpleNamespace(
        agents=agents,
        rules={agent.name: agent.settings.intents for agent in agents},
        settings=SimpleNamespace(
            router=SimpleNamespace(sticky_for=1800.0, classify=classify),
            models={"main": ModelSettings()},
            model_name=str,
        ),
        strictest_masking=Masking(["id-card", "phone", "bank-card"]),
        default_agent=lambda entry: "general-agent",
        models=SimpleNamespace(client=lambda name: model or Scripted(())),
    )


def accuracy(found: Sequence[Outcome]) -> float:
    """The share of messages that went right."""
    return sum(each.right for each in found) / len(found)


def wrong_switches(found: Sequence[Outcome]) -> list[Outcome]:
    """Follow-ups that left the agent they belong to."""
    return [each for each in found if each.message.kind == "follow-up" and not each.right]


def table(found: Sequence[Outcome]) -> Iterator[str]:
    """One line per class, and one for all."""
    kinds = Counter(each.message.kind for each in found)
    for kind in (*kinds, ""):
        of_kind = [each for each in found if kind in ("", each.message.kind)]
        right = sum(each.right for each in of_kind)
        yield f"{kind or 'all':<12} {right:>4} / {len(of_kind):<4} {right / len(of_kind):6.1%}"
