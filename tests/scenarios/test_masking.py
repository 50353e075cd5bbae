"""Masking through the whole product: no number of a person in any file, log, Redis or request; own filters."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as redis_client

from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.model_server import ModelServer
from tests.platforms.redis_server import RedisServer
from tests.scenarios.gateway import ROOT, Inside, Process, texts
from tests.scenarios.test_forgetting import holding
from tests.waiting import until

RAW = {
    "11010519900307101X": "身份证",
    "110101199003078515": "数字身份证",
    "13812345678": "电话",
    "138 1234 5679": "分开的电话",
    "１３８１２３４５６７６": "全角电话",
    "6222021234567890128": "银行卡",
    "4111-1111-1111-1111": "分开的卡",
}
PIECES = ("19900307", "38123456", "12345678", "8 1234 56", "８１２３４５６", "1234567890", "1111-1111")
QUESTION = "，".join(f"{name} {number}" for number, name in RAW.items()) + "，编号 20231234567"


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture
async def gateway(tmp_path: Path, model: ModelServer, feishu: FakeFeishu, server: RedisServer) -> AsyncIterator[Inside]:
    """Everything that stores or sends on: Redis, summaries, the log at its most talkative."""
    over = {
        "memory": {"redis": {"url": server.url, "timeout": "20s"}},
        "log": {"level": "debug"},
        "agent": {"context": {"summary": {"enabled": True, "after-turns": 2, "every-messages": 2, "keep": 2}}},
    }
    async with Inside(tmp_path, model, over, feishu=feishu) as running:
        yield running


def redis_dump(server: RedisServer) -> str:
    client = redis_client.Redis.from_url(server.url)
    keys = list(client.scan_iter("*"))
    found = [client.lrange(key, 0, -1) if client.type(key) == b"list" else [client.get(key)] for key in keys]
    client.close()
    return "".join(json.dumps(json.loads(each), ensure_ascii=False) for values in found for each in values if each)


async def test_the_canaries(
    gateway: Inside,
    model: ModelServer,
    feishu: FakeFeishu,
    server: RedisServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    for _ in range(4):
        await gateway.feishu_says(QUESTION)
        await gateway.chat("u", QUESTION, name="小王13812345678")
    await gateway.chat("u", "/history")
    await until(lambda: list((gateway.workspace / "archives").rglob("chat-*.yaml")), what="a summary")
    (status, about), (_, listed) = await gateway.get("/api/status"), await gateway.get("/api/conversations")
    assert status == 200
    seen = json.dumps([about, listed], ensure_ascii=False)
    for each in listed["conversations"]:
        for path in ("", "/window"):
            seen += json.dumps((await gateway.get(f"/api/conversations/{each['id']}{path}"))[1], ensure_ascii=False)
    requests = json.dumps(model.requests, ensure_ascii=False)
    kept = await asyncio.to_thread(redis_dump, server)
    for place, text in (("console", seen), ("model", requests), ("redis", kept), ("log", caplog.text)):
        assert not [piece for piece in (*RAW, *PIECES) if piece in text], place
    for place, text in (("console", seen), ("model", requests), ("redis", kept)):
        assert "20231234567" in text, f"an ordinary number stays: {place}"
    for piece in (*RAW, *PIECES):
        names = {Path(path).name for path in await asyncio.to_thread(holding, gateway.workspace, piece)}
        assert names <= {"gateway.db", "gateway.db-wal"}, piece
    await gateway.stop()
    for piece in (*RAW, *PIECES):
        assert await asyncio.to_thread(holding, gateway.workspace, piece) == []
    await gateway.start()


async def test_raw_text_is_in_the_inbox_alone_and_only_until_it_is_answered(
    gateway: Inside, model: ModelServer, feishu: FakeFeishu
) -> None:
    async with model.held("问电话"):
        number = await gateway.feishu_event("问电话 13812345678")
        await until(lambda: model.requests)
        names = {Path(path).name for path in await asyncio.to_thread(holding, gateway.workspace, "13812345678")}
        assert names
        assert names <= {"gateway.db", "gateway.db-wal"}
    await until(lambda: texts(feishu, number))


async def test_after_the_stop_no_byte_of_the_database_has_it(tmp_path: Path, model: ModelServer) -> None:
    async with Process(tmp_path, model, {"log": {"level": "debug"}}) as gateway:
        for number in range(5):
            await gateway.chat(f"u{number}", QUESTION)
    for piece in (*RAW, *PIECES):
        assert await asyncio.to_thread(holding, gateway.workspace, piece) == []
        assert piece not in await asyncio.to_thread(gateway.output)


FILTERS = """
import time

def redact(text):
    if "绝密" in text:
        return None
    if "出错" in text:
        raise RuntimeError(text)
    if "慢" in text:
        time.sleep(3)
    return text.replace("项目甲", "［项目］")
"""


def beside(root: Path, module: str) -> None:
    root.mkdir(parents=True, exist_ok=True)
    (root / f"{module}.py").write_text(FILTERS, encoding="utf-8")


async def test_own_filters_change_drop_and_fail_closed(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(beside, tmp_path, "filters_of_scenario_one")
    over = {"memory": {"masking": ["phone", "filters_of_scenario_one:redact"]}}
    agents = {"job-recommend-agent": {"masking": ["phone"]}}
    async with Inside(tmp_path, model, over, agents, feishu=feishu) as gateway:
        assert await gateway.feishu_says("问项目甲 13812345678") == "答复：问［项目］ 138****5678"
        assert await gateway.feishu_says("这是绝密") == "抱歉，这条消息含有不能处理的内容，请修改后再发。"
        assert await gateway.feishu_says("这里出错") == "抱歉，刚才出了点问题，请稍后再试。"
        assert await gateway.feishu_says("这里很慢") == "抱歉，刚才出了点问题，请稍后再试。"
        assert (await gateway.chat("u", "绝密")).error == "抱歉，这条消息含有不能处理的内容，请修改后再发。"
        said = await gateway.chat("u", "找工作，项目甲", agent="job-recommend-agent")
        assert said.text == "答复：找工作，项目甲", "an agent's own list replaces the common one"
        failed = [record.getMessage() for record in caplog.records if "filter failed" in record.getMessage()]
        assert [("RuntimeError" in line, "time-out" in line) for line in failed] == [(True, False), (False, True)]
        assert not any("出错" in line or "很慢" in line for line in failed)
        requests = json.dumps(model.requests, ensure_ascii=False)
        assert not [word for word in ("绝密", "出错", "很慢") if word in requests]
    for word in ("绝密", "这里出错", "这里很慢"):
        assert await asyncio.to_thread(holding, gateway.workspace, word) == []


def test_the_filter_in_the_readme_does_what_it_says() -> None:
    (source,) = re.findall(
        r"```python\n(def redact.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    names: dict[str, Any] = {}
    exec(source, names)
    assert names["redact"]("项目甲的绝密") is None
    assert names["redact"]("项目甲") == "［项目］"


async def test_a_filter_that_cannot_be_used_is_a_problem_of_the_config(tmp_path: Path, model: ModelServer) -> None:
    gateway = Process(tmp_path, model, {"memory": {"masking": ["filters_of_nobody:redact"]}})
    await asyncio.to_thread(gateway.write)
    code, out = await gateway.run("check")
    assert code == 1
    (line,) = out.strip().splitlines()
    assert "memory.masking: " in line
    assert "filters_of_nobody" in line
    assert (await gateway.run("run"))[0] == 2


async def test_a_filter_is_taken_over_while_running(tmp_path: Path, model: ModelServer) -> None:
    await asyncio.to_thread(beside, tmp_path, "filters_of_scenario_two")
    async with Inside(tmp_path, model) as gateway:
        assert (await gateway.chat("u", "项目甲")).text == "答复：项目甲"
        await gateway.change({"memory": {"masking": ["filters_of_scenario_two:redact"]}})
        await until(lambda: gateway.app.live.current.memory.masking == ("filters_of_scenario_two:redact",))
        await asyncio.sleep(0.1)
        assert (await gateway.chat("u", "项目甲")).text == "答复：［项目］"
