"""Metrics: names, bounded labels, what is counted when nobody asks, and levels when somebody does."""

import asyncio
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.route import By
from gateway.tracing import metrics as measuring
from gateway.tracing.metrics import Levels, Metrics
from gateway.tracing.trace import Kind
from tests.gateway.messages import message


@pytest.fixture
def metrics() -> Metrics:
    """Made before the event loop runs, as the application does."""
    return Metrics()


LEVELS = Levels(
    waiting=3,
    oldest=12.5,
    unsent=1,
    lanes=2,
    redis="down",
    channels={"web": True, "feishu": False},
    models={"main": True},
)


async def values(metrics: Metrics, levels: Levels = LEVELS) -> dict[str, float]:
    families = text_string_to_metric_families(await metrics.text(levels))
    return {
        f"{sample.name}{sorted(sample.labels.items())}" if sample.labels else sample.name: sample.value
        for family in families
        for sample in family.samples
    }


async def test_levels_are_as_they_are_when_asked(metrics: Metrics) -> None:
    found = await values(metrics)
    assert (found["sanqiao_queue_messages"], found["sanqiao_queue_oldest_seconds"]) == (3, 12.5)
    assert found["sanqiao_redis_state[('state', 'down')]"] == 1
    assert found["sanqiao_redis_state[('state', 'ok')]"] == 0
    assert found["sanqiao_channel_up[('entry', 'feishu')]"] == 0
    later = await values(metrics, Levels(0, 0.0, 0, 0, "ok", {"web": True}, {}))
    assert "sanqiao_channel_up[('entry', 'feishu')]" not in later, "an entry that is gone is told no longer"
    assert later["sanqiao_up"] == 1
    assert later["sanqiao_process_cpu_seconds_total"] > 0


async def test_two_gateways_in_one_process_count_apart(metrics: Metrics) -> None:
    one, other = metrics, await asyncio.to_thread(Metrics)
    one.step(message(), Kind.RECEIVED, {})
    assert (await values(one))["sanqiao_messages_total[('entry', 'feishu')]"] == 1
    assert "sanqiao_messages_total[('entry', 'feishu')]" not in await values(other)


@pytest.mark.parametrize("kind", list(Kind))
async def test_no_fact_that_a_person_or_model_makes_up_is_a_label(metrics: Metrics, kind: Kind) -> None:
    who = message("独角兽", user="ou_secret")
    for number in range(3):
        free = f"规则：独角兽 {number}"
        reason = free if kind is Kind.ROUTED else "too-long"
        metrics.step(who, kind, {"reason": reason, "agent": "a", "by": By.RULE.value, "platform_id": free})
    text = await metrics.text(LEVELS)
    for never in ("独角兽", "ou_secret", who.user, who.id, str(who.lane)):
        assert never not in text
    assert all(re.match(r"#|sanqiao_", line) for line in text.splitlines())


@pytest.mark.parametrize("by", list(By))
async def test_routes_are_counted_by_what_chose_them_however_that_is_worded(metrics: Metrics, by: By) -> None:
    for reason in ("规则：简历", "谁知道"):
        metrics.step(message(), Kind.ROUTED, {"agent": "general-agent", "by": by.value, "reason": reason})
    assert (await values(metrics))[f"sanqiao_routes_total[('agent', 'general-agent'), ('by', '{by}')]"] == 2


async def test_models_are_timed_and_their_tokens_counted(metrics: Metrics) -> None:
    facts = {"model": "m", "seconds": 1.5, "first_token": 0.5, "prompt_tokens": 100, "completion_tokens": 20}
    metrics.step(message(), Kind.MODEL, facts)
    metrics.step(message(), Kind.MODEL, {"model": "m", "seconds": 2.0, "prompt_tokens": None})
    metrics.step(message(), Kind.MODEL, {"model": "m", "seconds": 60.0, "error": "ModelTimeout"})
    found = await values(metrics)
    assert found["sanqiao_model_seconds_count[('model', 'm')]"] == 2
    assert found["sanqiao_model_seconds_sum[('model', 'm')]"] == 3.5
    assert found["sanqiao_model_first_token_seconds_count[('model', 'm')]"] == 1
    assert found["sanqiao_model_tokens_total[('model', 'm'), ('of', 'prompt')]"] == 100
    assert found["sanqiao_model_errors_total[('error', 'ModelTimeout'), ('model', 'm')]"] == 1


async def test_the_tools_of_an_mcp_server_share_a_label() -> None:
    servers = ["files", "search", "get"]
    metrics = await asyncio.to_thread(Metrics, lambda: servers)
    for name in ("files_read", "files_独角兽", "search_jobs", "recall", "files", "old_read"):
        metrics.step(message(), Kind.TOOL, {"name": name, "outcome": "done"})
    text = await metrics.text(LEVELS)
    found = re.findall(r'sanqiao_tool_calls_total\{.*tool="([^"]+)"\} ([0-9.]+)', text)
    assert dict(found) == {"mcp:files": "2.0", "search_jobs": "1.0", "recall": "1.0", "files": "1.0", "old_read": "1.0"}


async def test_a_loop_that_is_held_up_shows(metrics: Metrics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "LAG_SECONDS", 0.01)
    watching = asyncio.create_task(metrics.watch_loop())
    await asyncio.sleep(0.03)
    loop = asyncio.get_running_loop()
    end = loop.time() + 0.1
    while loop.time() < end:  # what a blocking call does
        pass
    await asyncio.sleep(0.03)
    watching.cancel()
    found = await values(metrics)
    assert found["sanqiao_loop_lag_seconds_count"] >= 2
    assert found["sanqiao_loop_lag_seconds_sum"] > 0.05
