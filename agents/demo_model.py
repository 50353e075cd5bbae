"""The offline model ``demo``: answers from what it was told in this conversation, and says that it is no real model."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from agents.model import ChatMessage, Completion, ModelRequest, ModelSettings
from agents.tools.job_query import JobQuery, merged, query_of
from memory.conversation import Role, ToolCall

SIGN = "【演示模型】"
_HINT = "要接入真实模型，请在 config/.env 里写 OPENAI_BASE_URL、OPENAI_API_KEY 和 OPENAI_MODEL。"
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
_JOBS = re.compile(
    r"岗位|职位|找.{0,12}工作|换.{0,6}工作|推荐.{0,12}工作|招聘|招人|(?:薪资|工资|月薪|薪水).{0,6}\d|\d+\s*[kK]\s*以上|远程"
)
_EARLIER = 4
"""How many of the messages before are looked at for what was already said of the job looked for."""
_QUOTED_USER = re.compile(r"^> 用户：(.*)$", re.MULTILINE)


def demo_answer(messages: Sequence[ChatMessage]) -> str:
    """The answer to the last message, from the messages before it."""
    question, told, system = _parts(messages)
    if messages and messages[-1].role == Role.TOOL and (found := _postings(messages[-1].content)):
        return SIGN + found
    return SIGN + (_fact(question, told) or _about(question, system, told) or _echo(question, told))


def _parts(messages: Sequence[ChatMessage]) -> tuple[str, list[str], str]:
    """The question, what its asker told before it, and the system message."""
    system = "".join(message.content for message in messages if message.role == "system")
    told = [message.content for message in messages if message.role == Role.USER]
    question = told.pop() if told else ""
    return question, _QUOTED_USER.findall(system) + told, system


def job_search(request: ModelRequest) -> ToolCall | None:
    """The call of ``search_jobs`` by which to answer, where the question is about jobs and the tool is offered."""
    messages = request.messages
    if not messages or messages[-1].role != Role.USER or all(tool.name != "search_jobs" for tool in request.tools):
        return None
    question, told, _ = _parts(messages)
    if not _JOBS.search(question) or _fact(question, told):
        return None
    wanted = query_of(question)
    for text in reversed(told[-_EARLIER:]):
        if _JOBS.search(text):
            earlier = query_of(text)
            wanted = merged(replace(wanted, words=wanted.words or earlier.words), replace(earlier, words=()))
    return ToolCall("demo", "search_jobs", json.dumps(_arguments(wanted), ensure_ascii=False))


def _arguments(wanted: JobQuery) -> dict[str, object]:
    arguments = {
        "query": " ".join(wanted.words),
        "city": ",".join(wanted.cities),
        "min_salary": wanted.salary,
        "years": wanted.years,
        "remote": wanted.remote,
    }
    return {name: value for name, value in arguments.items() if value not in ("", None, False)}


def _postings(result: str) -> str | None:
    """What ``search_jobs`` found, as a list; None for a result of another form."""
    try:
        found = json.loads(result)
        lines = [
            f"{number}. {job['title']}｜{job['company']}｜{job['city']}｜{job.get('salary', '薪资面议')}"
            for number, job in enumerate(found["jobs"][:5], 1)
        ]
        head = f"岗位库里有 {found['total']} 个符合的。{found.get('note', '')}" if lines else str(found["note"])
        return "\n".join([head, *lines])
    except (ValueError, KeyError, TypeError):
        return None


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
        """Answers at once, in small pieces, of jobs after a look at the postings; never fails."""
        call = job_search(request)
        if call is not None:
            return Completion(text="", model="demo", finish="tool_calls", tool_calls=(call,))
        text = demo_answer(request.messages)
        for piece in _pieces(text):
            on_text(piece)
            await asyncio.sleep(self._pace)
        return Completion(text=text, model="demo")

    async def retire(self) -> None:
        """Nothing is held."""
