"""Fail closed: nothing but the platform's own requests reaches the gateway, and no refusal says more than a status."""

import asyncio
from pathlib import Path

import pytest
import yaml

from gateway.config.problems import ConfigProblems
from gateway.config.settings import load_settings
from tests.channels.conformance.conftest import ALL, WEBHOOKS, named
from tests.channels.conformance.platform import Platform, Webhook
from tests.platforms.model_server import ModelServer
from tests.waiting import until


@pytest.mark.parametrize("kind", WEBHOOKS, ids=named)
async def test_forged_requests_are_refused(kind: type[Webhook], opened, model: ModelServer) -> None:
    async with opened(kind) as (platform, gateway):
        for name, request in platform.forgeries().items():
            status, body = await request.send(gateway)
            assert 400 <= status < 500, (name, status, body)
            assert len(body) < 64, (name, body)
            assert "伪造" not in body
            if name == "over the limit":
                assert status == 413, status
        status, _ = await platform.request(platform.message("真的", "1")).send(gateway)
        assert status == 200
        await until(lambda: len(platform.answers()) == 1, what="answer")
        assert "真的" in platform.answers()[0]
        assert len(model.requests) == 1
        assert not model.asked("伪造")


@pytest.mark.parametrize("kind", WEBHOOKS, ids=named)
async def test_a_replayed_request_is_a_repeat(kind: type[Webhook], opened, model: ModelServer) -> None:
    """The platform repeats itself, perhaps to the byte: it hears that all is well, and nothing is done twice."""
    async with opened(kind) as (platform, gateway):
        request = platform.request(platform.message("一次", "1"))
        for _ in range(3):
            assert (await request.send(gateway))[0] == 200
        await until(platform.answers, what="answer")
        await platform.deliver(gateway, platform.message("之后", "2"))
        await until(lambda: len(platform.answers()) >= 2, what="answer")
        assert len(model.requests) == len(platform.answers()) == 2


@pytest.mark.parametrize("kind", WEBHOOKS, ids=named)
async def test_other_methods_and_paths_are_nothing(kind: type[Webhook], opened, model: ModelServer) -> None:
    async with opened(kind) as (platform, gateway):
        right = platform.request(platform.message("伪造", "1"))
        for method, path in (("PUT", right.path), ("DELETE", right.path), ("POST", right.path + "/other")):
            status, _ = await type(right)(path, right.body, right.headers, right.query, method).send(gateway)
            assert status in (404, 405), (method, path, status)
        assert not model.requests


async def problems_of(config: Path, kind: str, entry: dict) -> list[str]:
    """What the config check says of this entry."""
    return await asyncio.to_thread(_problems_of, config, kind, entry)


def _problems_of(config: Path, kind: str, entry: dict) -> list[str]:
    (config / "agents").mkdir(parents=True, exist_ok=True)
    (config / "agents" / "general-agent.yaml").write_text("prompt: 你好\n", encoding="utf-8")
    settings = {"models": {"main": {"provider": "demo"}}, "channels": {kind: entry}}
    (config / "gateway.yaml").write_text(yaml.safe_dump(settings, allow_unicode=True), encoding="utf-8")
    try:
        load_settings(config, {})
    except ConfigProblems as problems:
        return [str(problem) for problem in problems.problems]
    return []


@pytest.mark.parametrize("kind", ALL, ids=named)
async def test_an_empty_secret_is_refused_before_the_start(kind: type[Platform], tmp_path: Path) -> None:
    async with kind() as platform:
        entry = platform.entry()
    assert await problems_of(tmp_path, kind.kind, entry) == []
    for key in kind.secrets:
        for empty in ("", "  "):
            problems = await problems_of(tmp_path, kind.kind, {**entry, key: empty})
            assert len(problems) == 1, (key, problems)
            assert f"channels.{kind.kind}" in problems[0]
            assert key in problems[0]


@pytest.mark.parametrize("length", [42, 44])
async def test_a_malformed_aes_key_is_refused_before_the_start(tmp_path: Path, length: int) -> None:
    """B06: the problem names the field and the rule, not what was written."""
    async with WEBHOOKS[2]() as platform:
        entry = platform.entry()
    (problem,) = await problems_of(tmp_path, "wechat", {**entry, "encoding-aes-key": "k" * length})
    assert "encoding-aes-key" in problem
    assert "43" in problem
    assert "kkkk" not in problem
