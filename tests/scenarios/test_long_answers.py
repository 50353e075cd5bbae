"""Answers longer than one message of Feishu takes: all of it, in order, code kept whole; B20, B21."""

import itertools

import pytest

from channels.feishu.render import PART_BYTES
from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.model_server import ModelServer
from tests.scenarios.gateway import Inside, texts
from tests.waiting import until


async def parts_of(gateway: Inside, model: ModelServer, answer: str) -> list[str]:
    """The texts in which this answer arrives; the file holds it whole."""
    assert gateway.feishu is not None
    model.answers = [answer]
    number = await gateway.feishu_event("说吧")
    await gateway.feishu_says("就这些？")  # what comes next is behind the last part
    parts = texts(gateway.feishu, number)
    assert (await gateway.items())[1].text == answer
    assert all(0 < len(part.encode()) <= PART_BYTES for part in parts)
    assert all("\ufffd" not in part for part in parts)
    assert texts(gateway.feishu)[: len(parts)] == parts
    return parts


@pytest.mark.parametrize(
    "answer",
    ["好" * 7500, "x" + "好" * 5000, "a" * (PART_BYTES + 1), "🙂" * 4000, "一句话。" * 3000, "段落\n\n" * 2500],
    ids=["chinese", "odd offset", "one byte more", "emoji", "sentences", "paragraphs"],
)
async def test_everything_arrives_in_order(gateway: Inside, model: ModelServer, answer: str) -> None:
    parts = await parts_of(gateway, model, answer)
    assert len(parts) > 1
    assert "".join("".join(parts).split()) == "".join(answer.split())


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        ("看：\n\n```python\n" + "".join(f"print({n}, '{'-' * 40}')\n" for n in range(300)) + "```\n完", 300),
        ("```text\n" + "x" * 20_000 + "\n```", 1),
        ("好" * ((PART_BYTES - 3) // 3) + "\n```python\nprint(1)\n```", 1),
        ("".join(f"第 {n} 段\n\n```sh\necho {n} {'y' * 900}\n```\n\n" for n in range(12)), 12),
    ],
    ids=["300 lines", "one long line", "fence at the edge", "many blocks"],
)
async def test_code_stays_code(gateway: Inside, model: ModelServer, answer: str, lines: int) -> None:
    parts = await parts_of(gateway, model, answer)
    assert len(parts) > 1
    for part in parts:
        fences = [line for line in part.split("\n") if line.startswith("```")]
        assert len(fences) % 2 == 0, fences
        assert set(fences[::2]) <= {"```python", "```text", "```sh"}
        assert set(fences[1::2]) <= {"```"}
    code = [line for line in "\n".join(parts).split("\n") if line.startswith(("print(", "x", "echo "))]
    original = [line for line in answer.split("\n") if line.startswith(("print(", "x", "echo "))]
    assert "".join(code) == "".join(original)
    assert len(original) == lines


@pytest.mark.parametrize("code", [(500, 2200), (429, 99991400), (400, 230020)])
async def test_a_part_that_fails_is_sent_again_before_the_next(
    gateway: Inside, model: ModelServer, feishu: FakeFeishu, code: tuple[int, int]
) -> None:
    answer = "".join(f"第{n:04d}句。" for n in range(1500))
    feishu.faults = [("/reply", *code, "try again")]
    parts = await parts_of(gateway, model, answer)
    assert "".join(parts) == answer
    assert not feishu.faults


async def test_a_chat_that_is_gone_ends_this_answer_and_no_other(
    gateway: Inside, model: ModelServer, feishu: FakeFeishu
) -> None:
    model.answers = ["好" * 7500]
    feishu.faults = [("im/v1/messages", 400, 230002, "bot is not in the chat")]
    number = await gateway.feishu_event("说吧")
    await until(lambda: not feishu.faults)
    assert await gateway.feishu_says("你好呀", "ou_li") == "答复：你好呀"
    assert await gateway.feishu_says("还在吗") == "答复：还在吗"
    assert texts(feishu, number) == [], "never the rest without its beginning"


async def test_parts_of_two_chats_do_not_mix(gateway: Inside, model: ModelServer, feishu: FakeFeishu) -> None:
    model.answer = lambda messages: f"{messages[-1]['content']}。" * 2500
    one, two = await gateway.feishu_event("甲甲", "ou_a"), await gateway.feishu_event("乙乙", "ou_b")
    expected = {one: "甲甲。" * 2500, two: "乙乙。" * 2500}
    await until(lambda: all("".join(texts(feishu, number)) == text for number, text in expected.items()))
    assert len(list(itertools.chain(*(texts(feishu, number) for number in expected)))) > 4
