"""The tool loop: order, bounds, every kind of fault, and going on after a run that broke off."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.model import (
    BlankAnswer,
    ChatMessage,
    Completion,
    ContextTooLong,
    ModelRequest,
    ModelSettings,
    ModelTimeout,
    TokenUsage,
)
from agents.tool_loop import BROKEN_OFF, CALLS, MAX_RESULT, ROUNDS, ToolLoop, ToolRound
from agents.tools.jobs import JobBoard
from agents.tools.tool import Arguments, CallContext, Tool, ToolError
from agents.wire import Dialect, body
from memory.conversation import ConversationId, Role, ToolCall
from memory.profile import Profiles

CONVERSATION = ConversationId.parse("uu3r7qbo6l6i3:web:b759cea3338c:0:job-recommend-agent")
REQUEST = ModelRequest(messages=(ChatMessage("system", "你是顾问"), ChatMessage(Role.USER, "问")))
NOWHERE = Path("/nonexistent")


class NoPast:
    async def others(self, conversation: ConversationId) -> Sequence[Any]:
        return ()


async def unchanged(text: str) -> str | None:
    return text


def context(key: str, workspace: Path = NOWHERE, **over: Any) -> CallContext:
    given_: dict[str, Any] = {
        "conversation": CONVERSATION,
        "key": key,
        "now": datetime(2026, 11, 30, 8, tzinfo=UTC),
        "generation": 0,
        "jobs": JobBoard(workspace),
        "profiles": Profiles(workspace),
        "past": NoPast(),
        "filtered": unchanged,
        "filtered_for_all": unchanged,
    }
    return CallContext(**{**given_, **over})


def calls(*names: str | tuple[str, str], text: str = "", ids: Sequence[str] = ()) -> Completion:
    """An answer that calls these tools; a pair is a name and its arguments."""
    pairs = [(name, "{}") if isinstance(name, str) else name for name in names]
    made = tuple(ToolCall(ids[n] if ids else f"c{n}", name, given_) for n, (name, given_) in enumerate(pairs))
    return Completion(text=text, model="m", usage=TokenUsage(10, 1), finish="tool_calls", tool_calls=made)


def says(text: str) -> Completion:
    return Completion(text=text, model="m", usage=TokenUsage(10, 1))


class Script:
    """A model client that gives these answers in turn, the last one for ever."""

    def __init__(self, *answers: Completion | Exception, **settings: Any) -> None:
        self.settings = ModelSettings(**settings)
        self.answers = list(answers)
        self.requests: list[ModelRequest] = []
        self.within: list[float | None] = []

    async def complete(
        self, request: ModelRequest, on_text: Callable[[str], None], *, within: float | None = None
    ) -> Completion:
        self.requests.append(request)
        self.within.append(within)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if answer.text:
            on_text(answer.text)
        return answer


class Bench:
    """A loop over a script; `log` is what happened in order, `kept` the rounds as they were kept."""

    def __init__(self, client: Script, *tools: Tool, **over: Any) -> None:
        self.log: list[str] = []
        self.kept: dict[int, ToolRound] = {}
        self.keys: list[str] = []
        self.said: list[str] = []
        self.client = client
        self.loop = ToolLoop(client, [*tools, self.tool("note", "记下")], self._context, self._keep, **over)

    def tool(self, name: str, result: str, **more: Any) -> Tool:
        async def run(call: CallContext, arguments: Arguments) -> str:
            self.log.append(f"run {name}")
            return result

        return Tool(name, "…", {"type": "object", "properties": {}}, run, **more)

    def _context(self, key: str) -> CallContext:
        self.keys.append(key)
        return context(key)

    async def _keep(self, number: int, round_: ToolRound) -> None:
        self.kept[number] = round_
        self.log.append(f"keep {number} {len(round_.results)}")

    async def run(self) -> Completion:
        return await self.loop.run(REQUEST, self.said.append)


def tool(name: str, run: Callable[[CallContext, Arguments], Any], **more: Any) -> Tool:
    return Tool(name, "…", {"type": "object", "properties": {}}, run, **more)


def results(request: ModelRequest) -> list[str]:
    return [message.content for message in request.messages if message.role == Role.TOOL]


async def test_an_answer_without_calls_is_passed_on() -> None:
    bench = Bench(Script(says("好")))
    assert (await bench.run()).text == "好"
    assert [tool.name for tool in bench.client.requests[0].tools] == ["note"]
    assert bench.log == []


@pytest.mark.parametrize("told", [(True, False), (False, True), (False, False)])
async def test_a_round_without_usage_adds_nothing_to_that_of_the_others(told: tuple[bool, bool]) -> None:
    rounds = [calls("note"), says("好")]
    bench = Bench(
        Script(*(each if tells else replace(each, usage=None) for each, tells in zip(rounds, told, strict=True)))
    )
    assert (await bench.run()).usage == (TokenUsage(10, 1) if any(told) else None)


async def test_calls_are_kept_before_they_run_and_results_before_the_model_is_asked_again() -> None:
    bench = Bench(Script(calls("note", text="我看看"), says("记下了")))
    done = await bench.run()
    assert bench.log == ["keep 0 0", "run note", "keep 0 1"]
    assert done.text == "记下了"
    assert "".join(bench.said) == "我看看\n\n记下了"
    assert done.usage == TokenUsage(20, 2)
    assert bench.client.requests[1].messages[2:] == (
        ChatMessage(Role.ASSISTANT, "我看看", (ToolCall("c0", "note", "{}"),)),
        ChatMessage(Role.TOOL, "记下", call="c0"),
    )


async def test_the_calls_of_one_answer_run_side_by_side_and_keep_their_order() -> None:
    both = asyncio.Barrier(2)

    async def slow(call: CallContext, arguments: Arguments) -> str:
        await both.wait()  # never ends, did the other not run meanwhile
        await asyncio.sleep(0.02)
        return "慢"

    async def quick(call: CallContext, arguments: Arguments) -> str:
        await both.wait()
        return "快"

    bench = Bench(Script(calls("slow", "quick"), says("好")), tool("slow", slow), tool("quick", quick))
    await bench.run()
    assert results(bench.client.requests[1]) == ["慢", "快"]


async def fails(call: CallContext, arguments: Arguments) -> str:
    raise RuntimeError("sk-secret")


async def refuses(call: CallContext, arguments: Arguments) -> str:
    raise ToolError("今天不行")


async def hangs(call: CallContext, arguments: Arguments) -> str:
    await asyncio.sleep(60)
    return ""


async def echoes(call: CallContext, arguments: Arguments) -> str:
    return json.dumps(arguments, ensure_ascii=False)


async def long_(call: CallContext, arguments: Arguments) -> str:
    return "长" * (MAX_RESULT + 1)


async def blank(call: CallContext, arguments: Arguments) -> str:
    return "\0 \n"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("nope", "{}"), "没有名为 nope"),
        (("echoes", "{bad json"), "JSON"),
        (("echoes", "[1]"), "JSON"),
        (("echoes", "[" * 100_000), "JSON"),
        (("echoes", ""), "{}"),
        (("echoes", "null"), "{}"),
        (("echoes", '"{\\"a\\": 1}"'), '{"a": 1}'),
        (("fails", "{}"), "出错了"),
        (("refuses", "{}"), "今天不行"),
        (("hangs", "{}"), "没有完成"),
        (("blank", "{}"), "没有结果"),
    ],
)
async def test_every_fault_is_told_to_the_model(call: tuple[str, str], told: str) -> None:
    tools = [tool(each.__name__, each) for each in (fails, refuses, hangs, echoes, blank)]
    bench = Bench(Script(calls(call), says("好")), *tools, seconds=0.05)
    assert (await bench.run()).text == "好"
    (result,) = results(bench.client.requests[1])
    assert told in result
    assert "secret" not in result


async def test_a_result_is_capped_in_characters_and_in_what_the_model_can_take() -> None:
    bench = Bench(Script(calls("long_"), says("好"), context_tokens=100_000), tool("long_", long_))
    await bench.run()
    (result,) = results(bench.client.requests[1])
    assert len(result) == MAX_RESULT
    bench = Bench(Script(calls("long_"), says("好"), context_tokens=3000), tool("long_", long_))
    await bench.run()
    (result,) = results(bench.client.requests[1])
    assert len(result) < 1500


async def test_what_may_not_be_stored_is_told_to_nobody() -> None:
    async def drops(text: str) -> str | None:
        return None

    bench = Bench(Script(calls("echoes"), says("好")), tool("echoes", echoes))
    bench.loop._context = lambda key: context(key, filtered=drops)
    await bench.run()
    assert results(bench.client.requests[1]) == ["（结果被过滤）"]


async def test_the_rounds_are_bounded_and_the_last_request_is_without_tools() -> None:
    bench = Bench(Script(*[calls("note")] * ROUNDS, says("够了")))
    assert (await bench.run()).text == "够了"
    assert [bool(request.tools) for request in bench.client.requests] == [True] * ROUNDS + [False]


async def test_calls_without_end_are_no_answer() -> None:
    bench = Bench(Script(calls("note")))
    with pytest.raises(BlankAnswer):
        await bench.run()
    assert len(bench.client.requests) == ROUNDS + 1


async def test_an_agent_without_tools_that_is_answered_with_calls_gets_an_error() -> None:
    loop = ToolLoop(Script(calls("note")), (), context, Bench(Script(says("-")))._keep)
    with pytest.raises(BlankAnswer):
        await loop.run(REQUEST, print)


async def test_too_many_calls_at_once_are_told_so() -> None:
    bench = Bench(Script(calls(*["note"] * (CALLS + 2)), says("好")))
    await bench.run()
    told = results(bench.client.requests[1])
    assert told.count("记下") == CALLS
    assert sum("一次最多" in each for each in told) == 2


async def test_ids_that_repeat_are_told_apart_within_an_answer_and_between_answers() -> None:
    bench = Bench(Script(calls("note", "note", ids=["x", "x"]), calls("note", ids=["x"]), says("好")))
    await bench.run()
    assert bench.keys == ["0/x", "0/x-2", "1/x"]
    assert len(results(bench.client.requests[2])) == 3


async def test_all_rounds_together_end_within_the_total_time() -> None:
    async def naps(call: CallContext, arguments: Arguments) -> str:
        bench.loop._deadline -= 70  # as if it took so long
        return "好"

    bench = Bench(Script(calls("naps"), total_timeout=120), tool("naps", naps))
    with pytest.raises(ModelTimeout):
        await bench.run()
    first, second = bench.client.within
    assert first is not None
    assert second is not None
    assert second <= first - 70


async def test_a_cancelled_answer_ends_its_tools() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def waits(call: CallContext, arguments: Arguments) -> str:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return ""

    bench = Bench(Script(calls("waits")), tool("waits", waits))
    running = asyncio.create_task(bench.run())
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


async def test_a_context_that_is_too_long_is_asked_again_without_running_anything_twice() -> None:
    bench = Bench(Script(calls("note"), ContextTooLong("m"), says("好")))
    with pytest.raises(ContextTooLong):
        await bench.run()
    assert (await bench.run()).text == "好"
    assert bench.log.count("run note") == 1


@pytest.mark.parametrize(
    ("repeatable", "result", "runs"), [(False, BROKEN_OFF, []), (True, "新", ["run again"])], ids=["told", "made again"]
)
async def test_a_call_that_was_broken_off(repeatable: bool, result: str, runs: list[str]) -> None:
    done = ToolCall("a", "again", "{}")
    open_ = ToolCall("b", "again", "{}")
    before = ToolRound("", (done, open_), (("a", "旧"),))
    bench = Bench(Script(says("好")))
    again = bench.tool("again", "新", repeatable=repeatable)
    bench.loop = ToolLoop(bench.client, [again], bench._context, bench._keep, rounds=[before])
    assert (await bench.run()).text == "好"
    assert results(bench.client.requests[0]) == ["旧", result]
    assert [each for each in bench.log if each.startswith("run")] == runs
    assert bench.kept[0].results == (("a", "旧"), ("b", result))
    assert set(bench.keys) <= {"0/b"}


async def test_rounds_done_before_count_among_the_rounds() -> None:
    done = ToolRound("", (ToolCall("a", "note", "{}"),), (("a", "旧"),))
    bench = Bench(Script(says("好")), rounds=[done] * ROUNDS)
    await bench.run()
    assert bench.client.requests[0].tools == ()


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(["a", "b", "nope"]), st.text(max_size=8)), min_size=1, max_size=10),
        max_size=8,
    )
)
def test_whatever_is_called_every_call_has_its_result_right_behind_it(rounds: list[list[tuple[str, str]]]) -> None:
    async def go() -> None:
        answers = [calls(*each, ids=[name for name, _ in each]) for each in rounds]
        bench = Bench(Script(*answers, says("好")), tool("a", echoes), tool("b", fails))
        try:
            await bench.run()
        except BlankAnswer:
            assert len(rounds) > ROUNDS
        for request in bench.client.requests:
            _check(request.messages[2:])
        assert len(bench.client.requests) <= ROUNDS + 1

    asyncio.run(go())


def _check(messages: Sequence[ChatMessage]) -> None:
    left = list(messages)
    while left:
        asking = left.pop(0)
        assert asking.role == Role.ASSISTANT
        ids = [call.id for call in asking.tool_calls]
        assert len(set(ids)) == len(ids)
        assert [message.call for message in left[: len(ids)]] == ids
        assert all(message.content.strip() for message in left[: len(ids)])
        del left[: len(ids)]


def test_a_tool_is_what_the_model_is_told() -> None:
    spec = tool("a", echoes).spec
    told: Mapping[str, Any] = json.loads(spec.parameters)
    assert (spec.name, told["type"]) == ("a", "object")


@pytest.mark.parametrize(
    ("reason", "without"),
    [
        ('{"error":{"message":"registry.ollama.ai/library/gemma:2b does not support tools"}}', True),
        ('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', True),
        ("Unrecognized request argument supplied: tools", True),
        ("This model does not support function calling", True),
        ('{"detail":[{"type":"extra_forbidden","loc":["body","tools"]}]}', False),
        ("messages with role 'tool' must be a response to a preceding message with 'tool_calls'", False),
        ("An assistant message with 'tool_calls' must be followed by tool messages", False),
        ("maximum context length exceeded", False),
    ],
)
def test_servers_that_take_no_tools_are_known_by_what_they_say(reason: str, without: bool) -> None:
    dialect = Dialect().after_refusal(reason)
    assert (dialect is not None and not dialect.tools) == without
    if dialect is not None:
        spec = tool("a", echoes).spec
        asked = ModelRequest(messages=REQUEST.messages, tools=(spec,))
        assert "tools" not in body(asked, ModelSettings(), dialect)


def test_arguments_that_are_no_json_are_not_sent_back_to_strict_servers() -> None:
    messages = tuple(
        ChatMessage(Role.ASSISTANT, "", (ToolCall("c", "a", written),)) for written in ('{"a": 1}', "{bad", "[1]", "")
    )
    sent: Any = body(ModelRequest(messages=messages), ModelSettings(), Dialect())["messages"]
    assert [each["tool_calls"][0]["function"]["arguments"] for each in sent] == ['{"a": 1}', "{}", "{}", "{}"]
