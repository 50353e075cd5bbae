"""What arrives: once however often it is delivered; what is no message asks nobody; long and odd answers go out whole."""

import asyncio
import re

import pytest

from tests.channels.conformance.conftest import ALL, SENDING, named
from tests.channels.conformance.platform import Platform
from tests.platforms.model_server import ModelServer
from tests.waiting import until


@pytest.mark.parametrize("kind", ALL, ids=named)
async def test_repeats_that_overlap_and_repeats_that_are_late(kind: type[Platform], opened, model: ModelServer) -> None:
    model.delay = lambda messages: 0.3
    async with opened(kind) as (platform, gateway):
        message = platform.message("问一次", "1")
        acks = await asyncio.gather(*(platform.deliver(gateway, message) for _ in range(4)))
        assert all(acks)
        await until(platform.answers, what="answer")
        for _ in range(2):
            assert await platform.deliver(gateway, message)
        assert await platform.deliver(gateway, platform.message("下一个", "2"))
        await until(lambda: len(platform.answers()) >= 2, what="answer")
        assert ["问一次" in answer for answer in platform.answers()] == [True, False]
        assert len(model.requests) == 2


@pytest.mark.parametrize("kind", SENDING, ids=named)
async def test_a_repeat_after_a_restart(kind: type[Platform], opened, model: ModelServer) -> None:
    async with opened(kind) as (platform, gateway):
        message = platform.message("问一次", "1")
        await platform.deliver(gateway, message)
        await until(platform.answers, what="answer")
        await gateway.stop()
        await gateway.start()
        await platform.connected()
        assert await platform.deliver(gateway, message)
        assert await platform.deliver(gateway, platform.message("下一个", "2"))
        await until(lambda: len(platform.answers()) >= 2, what="answer")
        assert (len(platform.answers()), len(model.requests)) == (2, 2)


@pytest.mark.parametrize("kind", ALL, ids=named)
async def test_what_is_no_message_asks_nobody(kind: type[Platform], opened, model: ModelServer) -> None:
    """B15: acknowledged, so that the platform does not repeat it for hours; nothing stored, nothing said."""
    async with opened(kind) as (platform, gateway):
        for payload in [*platform.events(), *platform.own()]:
            assert await platform.deliver(gateway, payload), payload
        assert await platform.deliver(gateway, platform.message("真的", "1"))
        await until(platform.answers, what="answer")
        assert ["真的" in answer for answer in platform.answers()] == [True]
        assert len(model.requests) == 1
        assert len(await asyncio.to_thread(gateway.files)) == 1


@pytest.mark.parametrize("kind", ALL, ids=named)
async def test_messages_nobody_can_read_get_a_fixed_answer(kind: type[Platform], opened, model: ModelServer) -> None:
    """B07: no model call, no turn in a file, no exception."""
    async with opened(kind) as (platform, gateway):
        for count, payload in enumerate(platform.unreadable(), 1):
            assert await platform.deliver(gateway, payload)
            await until(lambda: len(platform.answers()) >= count, what=f"answer to {payload}")  # noqa: B023
        assert not model.requests
        assert not await asyncio.to_thread(gateway.files)


@pytest.mark.parametrize("kind", SENDING, ids=named)
async def test_a_long_answer_is_whole_and_in_order(kind: type[Platform], opened, model: ModelServer) -> None:
    """B20: no part over the platform's limit, none lost, none out of order."""
    words = [f"第{number}条" for number in range(500)]
    model.answer = lambda messages: "，".join(words)
    async with opened(kind) as (platform, gateway):
        await platform.deliver(gateway, platform.message("列出来", "1"))
        await until(lambda: f"第{499}条" in "".join(platform.answers()), what="last part")
        assert all(len(answer.encode()) <= kind.part_bytes for answer in platform.answers())
        assert re.findall(r"第\d+条", "".join(platform.answers())) == words


ODD = """# 标题
**重点** <at user_id="all">所有人</at> <@all> [点](dtmd://dingtalkclient/sendMessage?content=1)
| 岗位 | 薪资 |
|---|---|
| Java | 25k |
a]]><MsgType>x</MsgType>\x08 &amp;
```python
print("<@all>", 1 < 2)  # **x**
```
![图](https://example.com/x.png)"""


@pytest.mark.parametrize("kind", SENDING, ids=named)
async def test_an_odd_answer_is_readable_and_mentions_nobody(kind: type[Platform], opened, model: ModelServer) -> None:
    model.answer = lambda messages: ODD
    async with opened(kind) as (platform, gateway):
        await platform.deliver(gateway, platform.message("随便说说", "1"))
        await until(platform.answers, what="answer")
        (answer,) = platform.answers()
    for kept in (
        "标题",
        "重点",
        "岗位",
        "Java",
        "25k",
        "a]]>",
        "&amp;",
        "# **x**",
        "1 < 2",
        "https://example.com/x.png",
    ):
        assert kept in answer, (kept, answer)
    assert "|---" not in answer
    assert "![" not in answer
    assert "](dtmd:" not in answer
    assert not re.search({"feishu": "<at", "wecom-bot": "<@", "wechat": "<a "}.get(kind.kind, "!\\["), answer)
