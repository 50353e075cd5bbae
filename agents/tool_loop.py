"""The tool loop: asks the model, runs the calls it answers with, asks again, until it answers with text. Bounded.

What happened is told to `keep` before anything goes on: the calls before they are run, the results before the model is
asked again. So a run that broke off is carried on from what was kept, and no call is given a second key.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from agents.model import (
    BlankAnswer,
    ChatMessage,
    Completion,
    ModelClient,
    ModelRequest,
    ModelTimeout,
    TokenUsage,
)
from agents.tools.tool import CallContext, Tool, ToolError
from memory.conversation import Role, ToolCall
from memory.sanitise import speakable
from memory.tokens import call_tokens, message_tokens, shortened

_log = logging.getLogger("sanqiao.tools")

ROUNDS = 6
"""How often the model may answer with calls; then it is asked once more, without tools."""
CALLS = 8
"""How many calls of one answer are run; the rest are told to come one after another."""
CALL_SECONDS = 20.0
MAX_RESULT = 8000
"""The most characters of one result."""
BROKEN_OFF = "（工具运行被中断）"
_LEAST_RESULT_TOKENS = 100


@dataclass(frozen=True, slots=True)
class ToolRound:
    """One answer with calls: the text beside them, and the results so far, by call id."""

    text: str
    calls: tuple[ToolCall, ...]
    results: tuple[tuple[str, str], ...] = ()
    model: str | None = None

    @property
    def open(self) -> tuple[ToolCall, ...]:
        """The calls that have no result yet."""
        done = {call for call, _ in self.results}
        return tuple(call for call in self.calls if call.id not in done)

    def messages(self) -> tuple[ChatMessage, ...]:
        """The round as the model sees it: every call with its result, in the order of the calls."""
        results = dict(self.results)
        told = (ChatMessage(Role.TOOL, results.get(call.id, BROKEN_OFF), call=call.id) for call in self.calls)
        return ChatMessage(Role.ASSISTANT, self.text, self.calls), *told


Keep = Callable[[int, ToolRound], Awaitable[None]]
"""Is told the round of that number (from 0) as it stands now: with its calls, then with all results."""

Ran = Callable[[str, str, int, float], None]
"""Is told of each call that was run: the tool, the outcome as it is logged, the characters and seconds it took."""


class ToolLoop:
    """One answer. `rounds` is what was done so far; `run` may be called again with a smaller request and goes on."""

    def __init__(
        self,
        client: ModelClient,
        tools: Sequence[Tool],
        context: Callable[[str], CallContext],
        keep: Keep,
        *,
        rounds: Sequence[ToolRound] = (),
        seconds: float = CALL_SECONDS,
        ran: Ran | None = None,
    ) -> None:
        """`context` makes the context of the call whose key is ``{number of the round}/{id of the call}``."""
        self._client = client
        self._tools = {tool.name: tool for tool in tools}
        self._context = context
        self._keep = keep
        self._rounds = list(rounds)
        self._resumed = len(rounds)
        self._seconds = seconds
        self._ran_tool = ran
        self._usage: TokenUsage | None = None
        self._deadline = asyncio.get_running_loop().time() + client.settings.total_timeout

    @property
    def rounds(self) -> tuple[ToolRound, ...]:
        """What was done so far."""
        return tuple(self._rounds)

    async def run(self, request: ModelRequest, on_text: Callable[[str], None]) -> Completion:
        """The answer to `request`, which holds everything but the rounds. Raises ModelError and what `keep` raises.

        All of it ends within `total-timeout`. Text beside calls is told to `on_text` like all other text, followed by
        a blank line; the completion holds the last answer's text alone, and the usage of all requests.
        """
        await self._close_open()
        while True:
            offered = bool(self._tools) and len(self._rounds) < ROUNDS
            completion = await self._client.complete(self._with_rounds(request, offered), on_text, within=self._left())
            if completion.usage:
                self._usage = completion.usage + self._usage
            if not completion.tool_calls or not offered:
                if not completion.text.strip():
                    raise BlankAnswer(f"{completion.model}: calls tools without end, or such as it was not offered")
                return replace(completion, usage=self._usage, tool_calls=(), finish=_finish(completion))
            if completion.text.strip():
                on_text("\n\n")
            round_ = ToolRound(completion.text.strip(), _distinct(completion.tool_calls), model=completion.model)
            number = len(self._rounds)
            await self._keep(number, round_)
            self._rounds.append(round_)
            await self._run_calls(number, self._room(request))

    def _left(self) -> float:
        left = self._deadline - asyncio.get_running_loop().time()
        if left <= 0:
            raise ModelTimeout(f"{self._client.settings.model}: total-timeout is used up by tools")
        return left

    def _with_rounds(self, request: ModelRequest, offered: bool) -> ModelRequest:
        done = tuple(message for round_ in self._rounds for message in round_.messages())
        tools = tuple(tool.spec for tool in self._tools.values()) if offered else ()
        return replace(request, messages=request.messages + done, tools=tools)

    def _room(self, request: ModelRequest) -> int:
        """How many tokens are left for results in the model's context."""
        settings = self._client.settings
        sent = self._with_rounds(request, True)
        used = sum(message_tokens(each.content) + sum(map(call_tokens, each.tool_calls)) for each in sent.messages)
        used += spec_tokens(self._tools.values())
        return settings.context_tokens - settings.max_output_tokens - used

    # ---- the calls

    async def _close_open(self) -> None:
        """Gives every call of a run that broke off its result: what can be run again is, the rest is told so."""
        for number, round_ in enumerate(self._rounds[: self._resumed]):
            if not round_.open:
                continue
            again = {call.id for call in round_.open if (tool := self._tools.get(call.name)) and tool.repeatable}
            broken = tuple((call.id, BROKEN_OFF) for call in round_.open if call.id not in again)
            self._rounds[number] = replace(round_, results=round_.results + broken)
            await self._run_calls(number, self._client.settings.context_tokens // 4)
        self._resumed = 0

    async def _run_calls(self, number: int, room: int) -> None:
        """Runs a round's open calls side by side, and keeps the round with its results."""
        round_ = self._rounds[number]
        open_calls = round_.open
        longest = max(room // max(len(open_calls), 1), _LEAST_RESULT_TOKENS)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._result(number, call, refused=place >= CALLS))
                for place, call in enumerate(open_calls)
            ]
        fresh = tuple(
            (call.id, shortened(task.result(), longest)[0]) for call, task in zip(open_calls, tasks, strict=True)
        )
        results = dict(round_.results + fresh)
        self._rounds[number] = replace(round_, results=tuple((call.id, results[call.id]) for call in round_.calls))
        await self._keep(number, self._rounds[number])

    async def _result(self, number: int, call: ToolCall, *, refused: bool) -> str:
        """What the model is told of one call; never blank, never over `MAX_RESULT` characters."""
        if refused:
            return f"错误：一次最多调用 {CALLS} 个工具，这个没有运行；需要时请再调用"
        tool = self._tools.get(call.name)
        if tool is None:
            return f"错误：没有名为 {call.name[:64]} 的工具；可用：{'、'.join(self._tools) or '无'}"
        context = self._context(f"{number}/{call.id}")
        arguments = _parsed(call.arguments)
        if arguments is None:
            return "错误：参数应为一个 JSON 对象，请改正后重新调用"
        started = asyncio.get_running_loop().time()
        seconds = min(tool.seconds or self._seconds, max(self._deadline - started, 0))
        text, outcome = await self._ran(tool, context, arguments, seconds)
        seconds = asyncio.get_running_loop().time() - started
        _log.info("tool.%s tool=%s chars=%d seconds=%.2f", outcome, tool.name, len(text), seconds)
        if self._ran_tool is not None:
            self._ran_tool(tool.name, outcome, len(text), seconds)
        return text

    async def _ran(
        self, tool: Tool, context: CallContext, arguments: dict[str, object], seconds: float
    ) -> tuple[str, str]:
        try:
            async with asyncio.timeout(seconds):
                text = await context.filtered(speakable(await tool.run(context, arguments)))
        except TimeoutError:
            return f"错误：{tool.name} 在 {seconds:.0f} 秒内没有完成", "time-out"
        except ToolError as error:
            return f"错误：{error}"[:MAX_RESULT], "refused"
        except Exception as error:  # border: one tool; the model answers without it
            _log.warning("tool.failed tool=%s error=%s", tool.name, type(error).__name__)
            _log.debug("tool.failed", exc_info=True)
            return f"错误：{tool.name} 出错了，这次没有结果", "failed"
        if text is None:
            return "（结果被过滤）", "filtered"
        if len(text) > MAX_RESULT:
            mark = "\n（结果过长，已截断）"
            return text[: MAX_RESULT - len(mark)] + mark, "done"
        return (text, "done") if text.strip() else ("（没有结果）", "done")


def spec_tokens(tools: Iterable[Tool]) -> int:
    """Tokens that offering these tools adds to a request."""
    return sum(tool.tokens for tool in tools)


def _parsed(arguments: str) -> dict[str, object] | None:
    """A call's arguments; nothing at all stands for none. None where they are no JSON object."""
    try:
        parsed = json.loads(arguments or "{}")
        if isinstance(parsed, str):  # some servers encode twice
            parsed = json.loads(parsed or "{}")
    except (ValueError, RecursionError):
        return None
    return {} if parsed is None else parsed if isinstance(parsed, dict) else None


def _distinct(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """The calls with ids that are all different within one answer, as some servers number each from nought."""
    seen: set[str] = set()
    made = []
    for call in calls:
        id_, count = call.id, 1
        while id_ in seen:
            count += 1
            id_ = f"{call.id}-{count}"
        seen.add(id_)
        made.append(replace(call, id=id_))
    return tuple(made)


def _finish(completion: Completion) -> str:
    return "stop" if completion.finish == "tool_calls" else completion.finish
