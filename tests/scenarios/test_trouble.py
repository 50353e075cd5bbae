"""What needs an admin shows: a database that cannot write, a workspace that is gone, a model nobody reaches."""

import contextlib
import shutil
from pathlib import Path

import aiohttp
import pytest

from gateway import app
from tests.platforms.feishu_server import FakeFeishu, message_event
from tests.platforms.model_server import ModelServer
from tests.scenarios.gateway import ENCRYPT_KEY, TOKEN, Inside
from tests.waiting import until, until_told


async def state(gateway: Inside) -> dict[str, object]:
    status, told = await gateway.get("/api/status")
    assert status == 200
    return dict(told)


async def refused(gateway: Inside) -> str:
    """What the web chat says of a message that it does not take."""
    headers, question = {"Authorization": f"Bearer {TOKEN}"}, {"user": "li", "text": "在吗"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(gateway.console("/api/chat"), json=question) as response,
    ):
        assert response.status == 503
        return str((await response.json())["error"])


async def test_a_database_that_cannot_write_is_told_and_recovers(gateway: Inside, feishu: FakeFeishu) -> None:
    database = gateway.app._database
    await database.run(lambda db: db.execute("PRAGMA query_only = ON") and None)
    event = message_event("记住", open_id="ou_li", chat_id="oc_li")
    answer, _, _ = await feishu.post_webhook(gateway.url("/feishu"), event, encrypt_key=ENCRYPT_KEY)
    assert answer == 503, "the platform delivers it again"
    told = await state(gateway)
    assert told["status"] == "degraded"
    assert "请检查磁盘空间" in str(told["inbox"])
    assert (await gateway.health())[1] == "degraded"
    assert "请检查磁盘空间" in await refused(gateway)
    await database.run(lambda db: db.execute("PRAGMA query_only = OFF") and None)
    answer, _, _ = await feishu.post_webhook(gateway.url("/feishu"), event, encrypt_key=ENCRYPT_KEY)
    assert answer == 200
    await until(gateway.files)
    told = await state(gateway)
    assert (told["status"], told["inbox"]) == ("ok", {"state": "ok", "detail": ""})


async def test_a_workspace_that_is_gone_takes_no_more_messages(
    tmp_path: Path,
    model: ModelServer,
    feishu: FakeFeishu,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(app, "_LOOK_SECONDS", 0.05)
    async with Inside(tmp_path, model, feishu=feishu) as gateway:
        workspace, aside = tmp_path / "workspace", tmp_path / "aside"
        workspace.rename(aside)

        async def delivered() -> int:
            event = message_event("在吗", open_id="ou_li", chat_id="oc_li")
            return (await feishu.post_webhook(gateway.url("/feishu"), event, encrypt_key=ENCRYPT_KEY))[0]

        await until_told(delivered, 503)
        await until(lambda: "workspace gone" in caplog.text)
        assert "工作区" in str((await state(gateway))["inbox"])
        assert await gateway.health() == (200, "degraded")
        assert await refused(gateway) == "消息没有收下：工作区已被移走、替换或删除；请放回原处，或重新启动"

        def put_back() -> bool:
            shutil.rmtree(workspace, ignore_errors=True)  # the gateway may just make a folder there
            with contextlib.suppress(OSError):
                aside.rename(workspace)
            return not aside.exists()

        await until(put_back)
        await until_told(delivered, 200)

        async def status() -> object:  # an answer made meanwhile may still wait for its file
            return (await state(gateway))["status"]

        await until_told(status, "ok")


async def test_a_model_nobody_reaches_is_told_and_recovers(gateway: Inside, model: ModelServer) -> None:
    model.fail = [(401, {"error": {"message": "bad key"}}, {})]
    await gateway.chat("li", "你好")
    told = await state(gateway)
    assert told["status"] == "degraded"
    assert "请检查 base-url、api-key" in str(told["models"])
    await gateway.chat("li", "你好")
    assert (await state(gateway))["status"] == "ok"


async def test_an_answer_of_nothing_but_calls_is_no_answer(gateway: Inside, model: ModelServer) -> None:
    call = {"id": "x", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    model.answer = lambda messages: {"role": "assistant", "content": None, "tool_calls": [call]}
    answer = await gateway.chat("li", "你好")
    assert answer.error or answer.text
    assert "已停止" not in (answer.error or answer.text)
    assert all(text.strip() for role, text in await gateway.said() if role == "assistant")


async def test_text_nobody_can_see_is_empty_wherever_it_comes_from(gateway: Inside, model: ModelServer) -> None:
    answer = await gateway.chat("li", "\u200b\u2060\ufe0f\u3164")
    assert "没有收到文字" in (answer.error or answer.text)
    assert not model.requests
