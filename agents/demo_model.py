"""The offline model ``demo``: answers from what it was told in this conversation, and says that it is no real model."""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence

from agents.model import ChatMessage, Completion, ModelRequest, ModelSettings
from memory.conversation import Role

SIGN = "【演示模型】"
_HINT = "要接入真实模型，请在 config/gateway.yaml 的 models.main 里填写 base-url、api-key 和 model。"
_WORD = r"([^\s，。,.!！?？、；;：:]{1,12})"

# What is asked, how it was told, and how it is told back.
_FACTS: tuple[tuple[str, str, str], ...] = (
    (r"我叫什么|我的名字|我是谁", rf"(?:我叫|我的名字(?:是|叫)){_WORD}", "你叫{}。"),
    (r"我(?:住|人)?在(?:哪|什么地方)|我的城市", rf"我(?:住|人)?在{_WORD}", "你在{}。"),
    (r"我想(?:找|做)什么|我要找什么", rf"我(?:想|要)(?:找|做){_WORD}", "你想找{}。"),
    (r"我会(?:些)?什么|我的技能", rf"我会{_WORD}", "你会{}。"),
)
_QUESTION_WORDS = ("什么", "哪", "谁")
_AGENT = re.compile(r"(你是[^\n。！？!?]{1,40})")
_QUOTED_USER = re.compile(r"^> 用户：(.*)$", re.MULTILINE)


def demo_answer(messages: Sequence[ChatMessage]) -> str:
    """The answer to the last message, from the messages before it."""
    question = messages[-1].content if messages else ""
    system = "".join(message.content for message in messages if message.role == "system")
    told = _QUOTED_USER.findall(system)
    told += [message.content for message in messages[:-1] if message.role == Role.USER]
    return SIGN + (_fact(question, told) or _about(question, system, told) or _echo(question, told))


def _fact(question: str, told: Sequence[str]) -> str | None:
    """What was told before (or in the same breath), when the question asks for it."""
    for asks, tells, answer in _FACTS:
        asked = re.search(asks, question)
        if asked:
            known = _newest(tells, [*told, question[: asked.start()]])
            return answer.format(known) if known else "这个你还没有告诉过我。"
    return None


def _newest(tells: str, texts: Sequence[str]) -> str | None:
    for text in reversed(texts):
        for found in reversed(re.findall(tells, text)):
            if not any(word in found for word in _QUESTION_WORDS):
                return str(found)
    return None


def _about(question: str, system: str, told: Sequence[str]) -> str | None:
    """Who answers, and how much it remembers."""
    if re.search(r"你是谁|你是什么|你叫什么|介绍.{0,4}自己|哪个智能体", question):
        role = _AGENT.search(system)
        who = f"这个智能体的设定是「{role[1]}」。" if role else ""
        return f"{who}我离线运行，不会思考，只会复述你在本次对话里告诉我的事。{_HINT}"
    if re.search(r"几轮|记得|(?:刚才|上一句|之前).{0,6}(?:说|聊|问)", question):
        if not told:
            return "这是本次对话的第一句，前面还没有内容。"
        return f"我能看到你之前说的 {len(told)} 段话，最近一段是「{_short(told[-1])}」。"
    return None


def _echo(question: str, told: Sequence[str]) -> str:
    seen = f"这次对话里我还能看到你之前说的 {len(told)} 段话。" if told else _HINT
    return f"收到：「{_short(question)}」。{seen}"


def _short(text: str, most: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[:most] + "…"


def _pieces(text: str, size: int = 4) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


class DemoClient:
    """One entry under `models` with provider ``demo``; `pace` is the pause between two pieces, in seconds."""

    def __init__(self, settings: ModelSettings, *, pace: float = 0.01) -> None:
        self._settings = settings
        self._pace = pace

    @property
    def settings(self) -> ModelSettings:
        """The entry this client was made from."""
        return self._settings

    async def complete(
        self, request: ModelRequest, on_text: Callable[[str], None], *, within: float | None = None
    ) -> Completion:
        """Answers at once, in small pieces; never fails."""
        text = demo_answer(request.messages)
        for piece in _pieces(text):
            on_text(piece)
            await asyncio.sleep(self._pace)
        return Completion(text=text, model="demo")

    async def retire(self) -> None:
        """Nothing is held."""
