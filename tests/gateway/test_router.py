"""Which agent answers, and why."""

import time

from agents.agent import Intents
from gateway.router import LaneState, Route, by_rules, settled

RULES = {
    "general": Intents(),
    "job": Intents(keywords=("推荐岗位", "找工作", "岗位", "Java"), patterns=(r"薪资.*\d+k",)),
    "resume": Intents(keywords=("简历", "CV")),
}


def choose(text: str, *, lane: LaneState | None = None, asked_for: str | None = None, now: float = 1000.0) -> Route:
    found = settled(text, rules=RULES, asked_for=asked_for, lane=lane or LaneState(), sticky_for=60, now=now)
    return found or Route("general", "默认")


def test_a_rule_names_its_words() -> None:
    chosen = choose("帮我推荐岗位")
    assert chosen.agent == "job"
    assert "推荐岗位" in chosen.reason


def test_a_keyword_inside_another_counts_once() -> None:
    best = by_rules("推荐岗位", RULES)
    assert best is not None
    assert (best.agent, best.score) == ("job", 1)


def test_case_does_not_matter_and_patterns_count() -> None:
    assert choose("JAVA").agent == "job"
    assert choose("薪资要 30K 以上").agent == "job"


def test_a_tie_leaves_it_to_the_lane_or_the_default() -> None:
    assert choose("岗位和简历").agent == "general"
    assert choose("岗位和简历", lane=LaneState("resume", 990.0)).agent == "resume"


def test_sticky_while_fresh_and_no_rule_says_otherwise() -> None:
    lane = LaneState("job", 990.0)
    assert choose("25k 以上的", lane=lane) == Route("job", "延续上一轮")
    assert choose("看看我的简历", lane=lane).agent == "resume"
    assert choose("25k 以上的", lane=lane, now=2000.0).agent == "general"


def test_an_explicit_choice_stands_above_rules_and_time() -> None:
    lane = LaneState("resume", 0.0, pinned=True)
    assert choose("推荐岗位", lane=lane, now=1e9).agent == "resume"
    assert choose("推荐岗位", lane=lane, asked_for="general").agent == "general"


def test_agents_that_are_gone_count_as_none() -> None:
    assert choose("你好", lane=LaneState("gone", 999.0, pinned=True)).agent == "general"
    assert choose("你好", asked_for="gone").agent == "general"


def test_a_pattern_that_never_ends_holds_nobody_up() -> None:
    rules = {"slow": Intents(patterns=(r"(a|aa)+$",)), "general": Intents()}
    began = time.perf_counter()
    assert settled("a" * 1990 + "!", rules=rules, asked_for=None, lane=LaneState(), sticky_for=1, now=0) is None
    assert time.perf_counter() - began < 1
