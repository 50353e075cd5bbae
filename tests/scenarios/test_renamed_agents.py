"""A renamed agent keeps its lanes and its history; the window shown is the one of the entry it goes through."""

from pathlib import Path

from tests.platforms.feishu_server import FakeFeishu, message_event
from tests.platforms.model_server import ModelServer
from tests.scenarios.gateway import ENCRYPT_KEY, Inside, asked, feishu_entry, texts
from tests.waiting import until

OLD = "resume-optimise-agent"
NEW = {"description": "简历顾问", "prompt": "PROMPT-NEW", "aliases": [OLD], "intents": {"keywords": ["简历"]}}


async def test_what_was_said_under_the_old_name_goes_on(tmp_path: Path, model: ModelServer) -> None:
    async with Inside(tmp_path, model) as gateway:
        await gateway.chat("li", f"/agent {OLD}")
        await gateway.chat("li", "我叫张三")
    (tmp_path / "config" / "agents" / f"{OLD}.yaml").unlink()
    renamed = Inside(tmp_path, model, agents={"cv-agent": NEW})
    del renamed.agents[OLD]
    async with renamed as gateway:
        answer = await gateway.chat("li", "我叫什么？")
        assert answer.text == "你叫张三"
        assert answer.agent == "cv-agent", "the pinned choice follows the agent to its new name"
        assert "PROMPT-NEW" in model.requests[-1]["messages"][0]["content"]
        assert "cv-agent" in (await gateway.chat("li", "/status")).text
        assert "我叫张三" in (await gateway.chat("li", "/history")).text
        assert len(gateway.files()) == 1


async def test_the_window_shown_is_that_of_the_entry(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    window = {"context": {"window": {"max-messages": 4, "keep-recent": 2}}}
    over = {"channels": {"feishu-hr": feishu_entry(feishu) | {"kind": "feishu"} | window}}
    async with Inside(tmp_path, model, over) as gateway:
        for n in range(6):
            event = message_event(f"第{n}句", open_id="ou_li", chat_id="oc_li")
            await feishu.post_webhook(gateway.url("/feishu/feishu-hr"), event, encrypt_key=ENCRYPT_KEY)
            await until(lambda n=n: len(texts(feishu)) == n + 1)
            if n == 4:
                (item,) = (await gateway.get("/api/conversations"))[1]["conversations"]
                _, view = await gateway.get(f"/api/conversations/{item['id']}/window")
        assert asked(model)[-1][:-1] == [(each["role"], each["content"]) for each in view["messages"]]
        assert len(view["messages"]) == 2
        assert model.requests[-1]["messages"][0]["content"] == view["system"]["text"]
