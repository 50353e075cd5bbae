"""The demo model: honest about what it is, and useful for what it was told."""

import pytest

from agents.demo_model import DemoClient, demo_answer
from agents.model import ChatMessage, ModelRequest, ModelSettings


def asked(*said: str, system: str = "你是求职顾问，帮人找工作。") -> str:
    *past, question = said
    messages = [ChatMessage("system", system)]
    for text in past:
        messages += [ChatMessage("user", text), ChatMessage("assistant", "答")]
    return demo_answer([*messages, ChatMessage("user", question)])


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (("我叫孙八", "我叫什么？"), "孙八"),
        (("我叫孙八", "我叫李九，不叫孙八", "我叫什么"), "李九"),
        (("我叫孙八", "我叫什么？", "我叫什么？"), "孙八"),
        (("我叫孙八，我叫什么？",), "孙八"),
        (("我住在上海，想换工作", "我住在哪里？"), "上海"),
        (("我想找Java后端", "我想找什么来着"), "Java后端"),
        (("我叫什么？",), "没有告诉"),
        (("第一句", "第二句", "你记得几轮？"), "2 段"),
        (("第一句", "我刚才说了什么"), "第一句"),
        (("你是谁",), "求职顾问"),
        (("今天天气如何",), "今天天气如何"),
    ],
)
def test_it_answers_from_what_it_was_told(said: tuple[str, ...], told: str) -> None:
    answer = asked(*said)
    assert told in answer
    assert "演示模型" in answer


def test_history_as_text_is_remembered_too() -> None:
    assert "孙八" in asked("我叫什么？", system="你是助手。\n\n> 用户：我叫孙八\n> 助手：好")


def test_a_long_question_is_not_repeated_whole() -> None:
    assert len(asked("长" * 5000)) < 300


async def test_it_streams_in_small_pieces() -> None:
    pieces: list[str] = []
    client = DemoClient(ModelSettings(provider="demo"), pace=0)
    done = await client.complete(ModelRequest(messages=(ChatMessage("user", "你好"),)), pieces.append)
    assert "".join(pieces) == done.text
    assert len(pieces) > 5
    assert done.model == "demo"
