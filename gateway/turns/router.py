"""Which agent answers, and why: a pure function of the text, the agents' rules and what the lane remembers."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import regex

from agents.agent import Intents
from agents.similarity import Similarity
from gateway.route import By, LaneState, Route

log = logging.getLogger("sanqiao.router")

RULE_CHARACTERS = 2_000
"""Patterns see at most this much of a text: no message can keep a regular expression busy."""


@dataclass(frozen=True, slots=True)
class RuleScore:
    """How well the rules of one agent fit a text, and the words (or numbers of patterns) that did."""

    agent: str
    score: int
    hits: tuple[str, ...]


_PATTERN_SECONDS = 0.05


@lru_cache(maxsize=1_000)
def _compiled(pattern: str) -> "regex.Pattern[str]":
    return regex.compile(pattern, regex.IGNORECASE)


def _fits(pattern: str, text: str) -> bool:
    try:
        # Not concurrent: to let other threads run for some microseconds costs far more than it gives them.
        return _compiled(pattern).search(text, timeout=_PATTERN_SECONDS, concurrent=False) is not None
    except TimeoutError:  # a pattern that backtracks without end counts as no hit
        log.warning("pattern too slow pattern=%r", pattern)
        return False


def _stands_alone(word: str, said: Collection[str], seen: str) -> bool:
    """Whether `word` occurs in `seen` otherwise than inside a longer keyword."""
    for longer in said:
        if word != longer and word in longer:
            seen = seen.replace(longer, "\n")
    return word in seen


@lru_cache(maxsize=256)
def _folded(keywords: tuple[str, ...]) -> Mapping[str, str]:
    """The keywords, each once, with what they are found by."""
    return {word: word.casefold() for word in keywords}


def scores(text: str, rules: Mapping[str, Intents]) -> list[RuleScore]:
    """The agents whose rules fit `text`, best first.

    A keyword that is part of another hit of the same agent counts once: 「推荐岗位」 and 「岗位」 are one hit. One that
    occurs only inside a longer keyword of another agent is no hit: 「求职信」 says nothing of 「求职」.
    """
    seen = text[:RULE_CHARACTERS].casefold()
    said = {low for intents in rules.values() for low in _folded(intents.keywords).values() if low in seen}
    found = []
    for agent, intents in rules.items():
        hit = {word: low for word, low in _folded(intents.keywords).items() if low in said} if said else {}
        longest = {w: low for w, low in hit.items() if not any(w != other and low in hit[other] for other in hit)}
        words = [word for word, low in longest.items() if _stands_alone(low, said, seen)]
        fits = [f"句式 {n}" for n, p in enumerate(intents.patterns, 1) if _fits(p, text[:RULE_CHARACTERS])]
        hits = (*words, *fits)
        if hits:
            found.append(RuleScore(agent, len(hits), hits))
    return sorted(found, key=lambda s: -s.score)


def by_rules(text: str, rules: Mapping[str, Intents]) -> RuleScore | None:
    """The one agent whose rules fit best; None where none does or several do equally well."""
    return _clear(scores(text, rules))


def _clear(best: Sequence[RuleScore]) -> RuleScore | None:
    if not best or (len(best) > 1 and best[0].score == best[1].score):
        return None
    return best[0]


def settled(
    text: str,
    *,
    rules: Mapping[str, Intents],
    asked_for: str | None,
    lane: LaneState,
    sticky_for: float,
    now: float,
) -> Route | None:
    """Chooses in the order: asked for with this message; chosen by ``/agent``; rules; sticky. None where none decides.

    `rules` holds every agent that exists; a lane's agent that is gone counts as none. Only a rule takes a fresh lane
    from its agent: 「25k 以上的」 or 「再短一点」 mean something to the agent that was just talking and, without what
    was said before, nothing to examples or a classifier. Those are for new lanes and stale ones.
    """
    if asked_for in rules and asked_for is not None:
        return Route(asked_for, By.ASKED, "本条消息指定")
    if lane.pinned and lane.agent in rules:
        return Route(lane.agent, By.PINNED, "用户用 /agent 选定")
    found = scores(text, rules)
    if rule := _clear(found):
        second = f"；其次 {found[1].agent} {found[1].score} 处" if len(found) > 1 else ""
        return Route(rule.agent, By.RULE, f"规则：{'、'.join(rule.hits)}（{rule.score} 处命中{second}）")
    if lane.agent in rules and now - lane.at <= sticky_for:
        return Route(lane.agent, By.STICKY, "延续上一轮")
    return None


def by_examples(text: str, similarity: Similarity) -> Route | None:
    """The agent whose examples the text is clearly like; None where none is, or two are."""
    found = similarity.clearest(text)
    if found is None:
        return None
    second = f"，其次 {found.second} {found.second_score:.2f}" if found.second else ""
    return Route(found.name, By.EXAMPLES, f"与例句相似 {found.score:.2f}{second}")
