"""`/stop`, draining, signals: what was said is kept, what was accepted is answered."""

import asyncio
import contextlib
import signal
import time
from pathlib import Path

import aiohttp
import pytest

from tests.platforms.feishu_server import FakeFeishu, message_event
from tests.platforms.model_server import Chunks, ModelServer, delta
from tests.scenarios.gateway import TOKEN, Fresh, Inside, Process, asked, id_of, texts
from tests.waiting import until, until_told


def slowly(*pieces: str, pause: float = 0.15) -> Chunks:
    """An answer that comes piece by piece."""
    return Chunks([delta(piece) for piece in pieces] + [delta(finish="stop")], pause=pause)


async def test_stop_in_the_middle_keeps_what_was_said_web(gateway: Inside, model: ModelServer) -> None:
    model.answers = [slowly(*"一二三四五六七八九十", pause=0.5)]
    streamed, last = "", ""
    async with contextlib.aclosing(gateway.stream("u", "数到十")) as events:
        async for name, data in events:
            if name == "delta":
                streamed += data["text"]
                if len(streamed) == 2:
                    assert (await gateway.chat("u", "/stop")).text == "已停止回答。"
            elif name == "done":
                last = data["text"]
    assert last == streamed
    assert last.startswith("一二")
    assert len(last) < 10
    items = await gateway.items()
    assert [(item.role, item.text) for item in items] == [("user", "数到十"), ("assistant", last)]
    assert items[1].meta["stopped"] is True
    await until(lambda: not model.running, what="the model's connection closed")
    await gateway.chat("u", "继续数")
    assert asked(model)[-1] == [("user", "数到十"), ("assistant", last), ("user", "继续数")]
    assert "stopped" not in (await gateway.items())[3].meta


async def test_stop_in_the_middle_keeps_what_was_said_feishu(
    gateway: Inside, model: ModelServer, feishu: FakeFeishu
) -> None:
    model.answers = [slowly(*"一二三四五六七八九十", pause=0.5)]
    question = await gateway.feishu_event("数到十")
    await until(lambda: model.running)
    await asyncio.sleep(1.2)
    assert await gateway.feishu_says("停止") == "已停止回答。"
    await until(lambda: texts(feishu, question))
    (answer,) = texts(feishu, question)
    assert "一二三四五六七八九十".startswith(answer)
    assert len(answer) < 10
    items = await gateway.items()
    assert (items[1].text, items[1].meta["stopped"]) == (answer, True)
    assert await gateway.feishu_says("/stop") == "现在没有正在进行的回答。"


async def test_stop_before_the_first_word_stores_no_answer(gateway: Inside, model: ModelServer) -> None:
    model.delay = lambda messages: 60.0 if "没完" in str(messages[-1]["content"]) else 0.0
    question = asyncio.create_task(gateway.chat("u", "没完没了"))
    await until(lambda: model.requests)
    assert (await gateway.chat("u", "/stop")).text == "已停止回答。"
    assert (await question).text == "已停止回答。"
    assert await gateway.said() == [("user", "没完没了")]
    await gateway.chat("u", "你还在吗")
    turns = [("user", "没完没了"), ("assistant", "（上一条未得到回答）"), ("user", "你还在吗")]
    assert asked(model)[-1] == turns
    assert [role for role, _ in await gateway.said()] == ["user", "user", "assistant"], "in the window only"


async def test_stop_ends_nobody_elses_answer(gateway: Inside, model: ModelServer) -> None:
    model.answers = [slowly("甲", "乙", "丙")]
    other = asyncio.create_task(gateway.chat("other", "慢慢说"))
    await until(lambda: model.running)
    assert (await gateway.chat("u", "/stop")).text == "现在没有正在进行的回答。"
    assert (await other).text == "甲乙丙"


async def test_draining_takes_nothing_finishes_what_runs_and_exits_0(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu
) -> None:
    headers, body = {"Authorization": f"Bearer {TOKEN}"}, {"user": "u", "text": "来晚了"}
    async with Fresh(tmp_path, model, {"server": {"drain": "60s"}}, feishu=feishu) as gateway:
        async with model.held("问"):
            question = await gateway.feishu_event("临终一问")
            reader = asyncio.create_task(gateway.chat("u", "网页也在问"))
            await until(lambda: len(model.requests) == 2)
            gateway.signal(signal.SIGTERM)
            await until_told(gateway.health, (503, "draining"))
            late = message_event("来晚了")
            assert not await gateway.deliver(late)
            async with (
                aiohttp.ClientSession(headers=headers) as session,
                session.post(gateway.console("/api/chat"), json=body) as response,
            ):
                assert response.status == 503
        assert (await reader).text == "答复：网页也在问"
        assert await gateway.ended() == 0
        assert texts(feishu, question) == texts(feishu) == ["答复：临终一问"]
        await gateway.start()
        assert await gateway.deliver(late), "the platform delivers again"
        await until(lambda: texts(feishu, id_of(late)))
        assert len(model.requests) == 3


async def test_a_long_connection_is_closed_first_and_the_answer_still_sent(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu
) -> None:
    gateway = await Inside(tmp_path, model, feishu=feishu, mode="websocket").start()
    async with model.held("临终"):
        question = await gateway.feishu_event("临终一问")
        stopping = asyncio.create_task(gateway.stop())
        await until(lambda: not feishu.connections)
        assert not texts(feishu, question)
    await stopping
    assert texts(feishu, question) == ["答复：临终一问"]


@pytest.mark.parametrize("minutes", [29, 31])
async def test_what_waited_too_long_for_the_next_start_is_not_answered(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu, caplog: pytest.LogCaptureFixture, minutes: int
) -> None:
    """`answer-after-restart`: nobody gets an answer out of the blue."""
    answered = minutes < 30
    model.delay = lambda messages: 60.0 if not gone else 0.0
    gone = False
    gateway = await Inside(tmp_path, model, {"server": {"drain": "0s"}}, feishu=feishu).start()
    question = await gateway.feishu_event("要想很久")
    await until(lambda: model.requests)
    await gateway.stop()
    gone = True
    gateway.clock = lambda: time.time() + 60 * minutes
    async with gateway:
        assert await gateway.feishu_says("还在吗") == "答复：还在吗"
        assert bool(texts(feishu, question)) is answered
        assert ("expired seq=1" in caplog.text) is not answered
        assert await gateway.deliver(message_event("要想很久", open_id="ou_zhang", message_id=question)), "known"
        assert len(model.requests) == (3 if answered else 2)


async def test_what_does_not_end_in_time_is_answered_after_the_next_start(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu
) -> None:
    model.delay = lambda messages: 60.0
    async with Process(tmp_path, model, {"server": {"drain": "300ms"}}, feishu=feishu) as gateway:
        question = await gateway.feishu_event("要想很久")
        await until(lambda: model.requests)
        begun = time.monotonic()
        assert await gateway.stop() == 0
        assert time.monotonic() - begun < 30
        model.delay = lambda messages: 0.0
        await gateway.start()
        await until(lambda: texts(feishu, question))
        assert texts(feishu) == ["答复：要想很久"]
        assert await gateway.said() == [("user", "要想很久"), ("assistant", "答复：要想很久")]


async def test_a_second_signal_stops_at_once_and_loses_nothing(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu
) -> None:
    model.delay = lambda messages: 60.0
    async with Process(tmp_path, model, {"server": {"drain": "60s"}}, feishu=feishu) as gateway:
        question = await gateway.feishu_event("要想很久")
        await until(lambda: model.requests)
        gateway.signal(signal.SIGTERM)
        await until_told(gateway.health, (503, "draining"))
        begun = time.monotonic()
        gateway.signal(signal.SIGTERM)
        assert await gateway.ended() != 0, "it did not drain"
        assert time.monotonic() - begun < 30
        model.delay = lambda messages: 0.0
        await gateway.start()
        await until(lambda: texts(feishu, question))
        assert len(model.requests) == 2


async def test_one_gateway_owns_a_workspace(tmp_path: Path, model: ModelServer) -> None:
    async with Fresh(tmp_path, model) as gateway:
        code, printed = await gateway.run("run")
        assert code == 2
        assert gateway.process is not None
        assert str(gateway.process.pid) in printed, "it says who holds it"
        assert len(printed.strip().splitlines()) == 1, printed
        assert (await gateway.chat("u", "还在吗")).text == "答复：还在吗"
        await gateway.kill()
        await gateway.start()
        assert (await gateway.chat("u", "还在吗")).text == "答复：还在吗", "a lock of the dead holds nobody up"


@pytest.mark.parametrize("reader", ["stays", "leaves"])
async def test_an_answer_does_not_depend_on_its_reader(gateway: Inside, model: ModelServer, reader: str) -> None:
    model.answers = [slowly(*"一二三四", pause=0.05)]
    async with contextlib.aclosing(gateway.stream("u", "数到四")) as events:
        async for name, _ in events:
            if name == "delta" and reader == "leaves":
                break
    await until(lambda: not model.running)
    assert (await gateway.chat("u", "/history")).text.count("一二三四") == 1
    assert await gateway.said() == [("user", "数到四"), ("assistant", "一二三四")]
