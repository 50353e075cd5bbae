"""Which agent answers, and why."""

from functools import partial

import pytest
from hypothesis import given, strategies

from agents.agent import Intents
from agents.similarity import LEAST, MARGIN, Similarity
from gateway.route import By, LaneState, Route
from gateway.turns.router import by_examples, by_rules, settled
from tests.effort import effort

RULES = {
    "general": Intents(),
    "job": Intents(keywords=("推荐岗位", "找工作", "岗位", "Java"), patterns=(r"薪资.*\d+k",)),
    "resume": Intents(keywords=("简历", "CV")),
}


def choose(text: str, *, lane: LaneState | None = None, asked_for: str | None = None, now: float = 1000.0) -> Route:
    found = settled(text, rules=RULES, asked_for=asked_for, lane=lane or LaneState(), sticky_for=60, now=now)
    return found or Route("general", By.DEFAULT, "默认")


def test_a_rule_names_its_words() -> None:
    chosen = choose("帮我推荐岗位")
    assert (chosen.agent, chosen.by) == ("job", By.RULE)
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
    assert choose("25k 以上的", lane=lane) == Route("job", By.STICKY, "延续上一轮")
    assert choose("看看我的简历", lane=lane).agent == "resume"
    assert choose("25k 以上的", lane=lane, now=2000.0).agent == "general"


def test_an_explicit_choice_stands_above_rules_and_time() -> None:
    lane = LaneState("resume", 0.0, pinned=True)
    pinned, asked = choose("推荐岗位", lane=lane, now=1e9), choose("推荐岗位", lane=lane, asked_for="general")
    assert (pinned.agent, pinned.by) == ("resume", By.PINNED)
    assert (asked.agent, asked.by) == ("general", By.ASKED)


def test_agents_that_are_gone_count_as_none() -> None:
    assert choose("你好", lane=LaneState("gone", 999.0, pinned=True)).agent == "general"
    assert choose("你好", asked_for="gone").agent == "general"


def test_a_pattern_that_never_ends_holds_nobody_up() -> None:
    rules = {"slow": Intents(patterns=(r"(a|aa)+$",)), "general": Intents()}

    def settle() -> None:
        assert settled("a" * 1990 + "!", rules=rules, asked_for=None, lane=LaneState(), sticky_for=1, now=0) is None

    assert effort(settle) < 300


def test_a_keyword_inside_a_longer_one_of_another_agent_is_no_hit() -> None:
    rules = {"job": Intents(keywords=("求职",)), "resume": Intents(keywords=("求职信",))}
    assert [each.agent for each in (by_rules("求职信怎么写", rules), by_rules("我要求职", rules)) if each] == [
        "resume",
        "job",
    ]
    assert by_rules("求职信写好了，帮我求职", rules) is None, "both are said: a tie"


@pytest.mark.parametrize(
    "text", ["薪资 25k 以上的", "换一批", "再短一点", "好的", "1", "A", "上海的呢", "第二个说详细点", "不要外包"]
)
def test_no_follow_up_leaves_its_agent(text: str) -> None:
    rules = {**RULES, "resume": Intents(keywords=("简历",), examples=("再短一点", "换一批", "好的"))}
    found = settled(text, rules=rules, asked_for=None, lane=LaneState("job", 990.0), sticky_for=60, now=1000.0)
    assert found is not None
    assert found.agent == "job", "examples are not looked at while the lane is fresh"


# ---- likeness to examples

SAMPLES = {
    "general": ("讲个笑话", "翻译成英文"),
    "job": ("我想换个离家近一点的公司", "应届生去上海做运营有机会吗"),
    "resume": ("自我评价写得太空了，帮我改改", "Please review my resume"),
}


@pytest.mark.parametrize(
    ("text", "agent"),
    [
        ("想换一家离家近点的公司", "job"),
        ("应届生做运营有机会吗？", "job"),
        ("我的自我评价太空了，改改", "resume"),
        ("please REVIEW my ｒｅｓｕｍｅ!", "resume"),
        ("今天天气怎么样", None),
        ("", None),
        ("？！🙂", None),
    ],
)
def test_a_text_goes_where_examples_are_like_it(text: str, agent: str | None) -> None:
    found = by_examples(text, Similarity(SAMPLES))
    assert (found.agent if found else None) == agent


def test_the_reason_tells_score_and_second_and_nothing_of_the_text() -> None:
    samples = {"job": ("我想换个公司",), "resume": ("我想改简历",)}
    found = by_examples("我想换个公司", Similarity(samples))
    assert found is not None
    assert found.reason.startswith("与例句相似 1.00，其次 resume 0.")
    assert "公司" not in found.reason


def test_what_is_like_two_agents_is_not_clear() -> None:
    samples = {"job": ("帮我看看这个",), "resume": ("帮我看看那个",), "general": ()}
    similarity = Similarity(samples)
    (_, best), (_, second) = similarity.rank("帮我看看")
    assert best > LEAST
    assert best - second < MARGIN
    assert similarity.clearest("帮我看看") is None


@given(
    strategies.text(), strategies.lists(strategies.text(), max_size=4), strategies.lists(strategies.text(), max_size=4)
)
def test_likeness_is_a_cosine_and_does_not_depend_on_order(text: str, one: list[str], other: list[str]) -> None:
    ranked = Similarity({"one": one, "other": other}).rank(text)
    assert all(0 < score <= 1 + 1e-9 for _, score in ranked)
    turned = Similarity({"other": other[::-1], "one": one[::-1]}).rank(text)
    assert dict(ranked) == pytest.approx(dict(turned))
    if any(each.isalnum() for each in text[:100]):
        assert dict(Similarity({"one": [text]}).rank(text))["one"] == pytest.approx(1)


def test_likeness_is_quick() -> None:
    similarity = Similarity(
        {f"agent-{n}": [f"第 {n} 个智能体的例句，说的是 {n * k} 这件事" for k in range(10)] for n in range(5)}
    )
    for text in ("说的是这件事，第 3 个智能体", "长的消息，说的是这件事" * 1_000):
        assert min(effort(partial(similarity.clearest, text)) for _ in range(20)) < 0.3
