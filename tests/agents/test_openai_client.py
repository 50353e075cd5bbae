"""The model client against a real server on a socket: what it sends, what it makes of odd answers, how long it takes."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from agents.model import (
    BlankAnswer,
    ChatMessage,
    Completion,
    ContextTooLong,
    ModelBrokeOff,
    ModelError,
    ModelMisconfigured,
    ModelRefused,
    ModelRequest,
    ModelSettings,
    ModelTimeout,
    ModelUnavailable,
    OddAnswer,
    TokenUsage,
    ToolSpec,
)
from agents.openai_client import CUT_MARK, TRIES, OpenAIClient
from memory.conversation import ToolCall
from tests.platforms.model_server import Answer, Chunks, ModelServer, Raw, delta
from tests.waiting import until

KEY = "sk-test-123"


@dataclass
class Asker:
    """A client of its own server, and what it was told."""

    server: ModelServer
    client: OpenAIClient
    told: list[str] = field(default_factory=list)

    async def ask(self, text: str = "你好", **more: Any) -> Completion:
        return await self.ask_with(
            ModelRequest(messages=(ChatMessage("system", "你是助手"), ChatMessage("user", text))), **more
        )

    async def ask_with(self, request: ModelRequest, **more: Any) -> Completion:
        self.told.clear()
        return await self.client.complete(request, self.told.append, **more)

    @property
    def shown(self) -> str:
        return "".join(self.told)


Make = Callable[..., Asker]


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def make(server: ModelServer) -> AsyncIterator[Make]:
    made: list[OpenAIClient] = []

    def make(**keys: Any) -> Asker:
        settings = {"base_url": server.base_url, "api_key": KEY, "model": "fake", "timeout": 20, "total_timeout": 40}
        client = OpenAIClient(ModelSettings(**{**settings, **keys}), jitter=lambda: 0.0, first_pause=0.02)
        made.append(client)
        return Asker(server, client)

    yield make
    for client in made:
        await client.retire()


@pytest.fixture
def asker(make: Make) -> Asker:
    return make()


# ------------------------------------------------------------------ what is sent
async def test_a_streamed_answer(asker: Asker) -> None:
    done = await asker.ask("你好，世界，今天怎么样")
    assert done == Completion(text="答复：你好，世界，今天怎么样", model="fake", usage=TokenUsage(10, 5))
    assert asker.shown == done.text
    assert len(asker.told) > 1
    (body,) = asker.server.requests
    assert body == {
        "model": "fake",
        "messages": [{"role": "system", "content": "你是助手"}, {"role": "user", "content": "你好，世界，今天怎么样"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 1024,
    }
    assert asker.server.headers[0]["Authorization"] == f"Bearer {KEY}"


async def test_tools_temperature_and_the_calls_of_past_turns_go_over_the_wire(asker: Asker) -> None:
    call = ToolCall("c1", "search_jobs", '{"city": "上海"}')
    messages = (
        ChatMessage("system", "s"),
        ChatMessage("user", "找"),
        ChatMessage("assistant", "", (call,)),
        ChatMessage("tool", "[]", (), "c1"),
        ChatMessage("assistant", "没有"),
        ChatMessage("user", "再找"),
    )
    tool = ToolSpec("search_jobs", "找岗位", '{"type": "object", "properties": {}}')
    await asker.ask_with(ModelRequest(messages=messages, temperature=0.0, tools=(tool,)))
    (body,) = asker.server.requests
    assert body["temperature"] == 0.0
    assert body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "search_jobs",
                "description": "找岗位",
                "parameters": {"type": "object", "properties": {}},
            },
        }
    ]
    assert body["messages"][2:4] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "search_jobs", "arguments": '{"city": "上海"}'}}
            ],
        },
        {"role": "tool", "content": "[]", "tool_call_id": "c1"},
    ]


async def test_the_seed_goes_along_until_a_server_refuses_it(asker: Asker) -> None:
    asked = ModelRequest(messages=(ChatMessage("user", "问"),), seed=7)
    asker.server.answers = [Chunks([delta("很长的"), delta("", "length")]), "答案"]
    assert (await asker.ask_with(asked)).text == "很长的答案"
    assert [body["seed"] for body in asker.server.requests] == [7, 7]
    asker.server.refuses_keys = {"seed"}
    assert (await asker.ask_with(asked)).text == (await asker.ask_with(asked)).text == "答复：问"
    assert ["seed" in body for body in asker.server.requests[2:]] == [True, False, False]
    await asker.ask()
    assert "seed" not in asker.server.requests[-1]


async def test_half_an_emoji_is_replaced_and_a_whole_one_stays(asker: Asker) -> None:
    done = await asker.ask("简历\ud83d怎么改 👨‍👩‍👧 \ud83d\ude00")
    assert done.text == "答复：简历\ufffd怎么改 👨‍👩‍👧 😀"


async def test_an_empty_key_is_fine_for_servers_that_want_none(make: Make) -> None:
    assert (await make(api_key="").ask()).text == "答复：你好"


# ------------------------------------------------------------------ odd answers that are answers
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("\n  答 1\n\n", "\n  答 1\n\n"),
        ("<think>内心</think>答案", "答案"),
        ({"content": "答案", "reasoning_content": "内心独白，很长很长"}, "答案"),
        (Chunks([delta("<th"), delta("ink>内"), delta("心</thi"), delta("nk>\n\n答"), delta("案", "stop")]), "答案"),
        (Chunks([delta("答"), delta(None), {"choices": [{"delta": {"content": "案"}}]}, {"choices": []}]), "答案"),
        (Chunks([delta("答"), {"choices": None}, {}, delta("案"), delta(None, "stop")]), "答案"),
        (Chunks([": keep-alive\n\n", delta("答案", "stop")]), "答案"),
        (Chunks([delta("一对\ud83d"), delta("\ude00", "stop")]), "一对😀"),
        (Chunks([delta("半个\ud83d"), delta("字\0", "stop")]), "半个\ufffd字"),
        (Chunks([delta([{"type": "text", "text": "答"}, {"type": "text", "text": "案"}], "stop")]), "答案"),  # type: ignore[arg-type]
        (Raw('{"choices": [{"message": {"content": "答案"}, "finish_reason": "stop"}]}', "application/json"), "答案"),
        (Raw("\n\n \n" * 9 + '{"choices": [{"message": {"content": "答案"}}]}\n', "application/json"), "答案"),
        (Chunks(["\n", "\n\n", delta("答"), " \n\n", delta("案", "stop")]), "答案"),
        (Raw("data: " + '{"choices": [{"delta": {"content": "答案"}}]}' + "\n\n", "text/plain"), "答案"),
    ],
)
async def test_odd_but_good_answers(asker: Asker, answer: Answer, text: str) -> None:
    asker.server.answers = [answer]
    done = await asker.ask()
    assert done.text == asker.shown == text
    assert len(asker.server.requests) == 1


async def test_a_server_that_never_ends_its_stream_after_the_finish_is_not_waited_for(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.openai_client._PATIENCE_AFTER_FINISH", 0.05)
    slow = Chunks([delta("答案", "stop"), *[": still here\n\n"] * 300], pause=0.1)
    asker.server.answers = [slow]
    start = time.monotonic()
    assert (await asker.ask()).text == "答案"
    assert time.monotonic() - start < 15


async def test_usage_comes_without_being_asked_for(asker: Asker) -> None:
    last = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    asker.server.answers = [Chunks([delta("答"), last]), Chunks([delta("答"), {"usage": {"prompt_tokens": "?"}}])]
    assert (await asker.ask()).usage == TokenUsage(3, 4)
    assert (await asker.ask()).usage is None


# ------------------------------------------------------------------ odd answers that are none
@pytest.mark.parametrize(
    "answer",
    [
        "",
        "   \n",
        {"content": None},
        "<think>没有结束",
        "<think>只有内心</think>\n",
        {"content": None, "reasoning_content": "只有内心"},
        Chunks([]),
        Chunks([{"choices": []}]),
        Chunks(["data: no json\n\n"]),
        Chunks(["data: [1, 2]\n\n"]),
        Chunks([{"error": {"message": f"boom {KEY}"}}]),
        Raw("<html><body>登录</body></html>"),
        Raw('{"error": {"message": "boom sk-test-123"}}', "application/json"),
        Raw('{"choices": []}', "application/json"),
        Raw('{"choices": null}', "application/json"),
        Raw('{"choices": [{"message": null}]}', "application/json"),
        Raw("[]", "application/json"),
        Raw("not json", "application/json"),
        Raw(b"\xff\xfe\xff", "application/json"),
        Raw("", "text/plain"),
    ],
)
async def test_what_is_no_answer_is_odd_and_nothing_is_shown(asker: Asker, answer: Answer) -> None:
    asker.server.answers = [answer]
    with pytest.raises(OddAnswer) as caught:
        await asker.ask()
    assert asker.told == []
    assert KEY not in str(caught.value)
    assert len(asker.server.requests) == 1
    assert (await asker.ask()).text == "答复：你好", "the next one is answered"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Chunks([delta("", "content_filter")]), ModelRefused),
        (Chunks([delta("不该"), delta("", "content_filter")]), ModelRefused),
        (Chunks([delta("", "sensitive")]), ModelRefused),
        (Chunks([{"error": {"code": 400, "message": "maximum context length is 10"}}]), ContextTooLong),
        (Chunks([{"error": {"code": "content_filter"}}]), ModelRefused),
        (Raw('{"error": {"code": 401}}', "application/json"), ModelMisconfigured),
        (Raw("", status=307), ModelMisconfigured),
    ],
)
async def test_refusals_inside_an_answer(asker: Asker, answer: Answer, kind: type[ModelError]) -> None:
    asker.server.answers = [answer]
    with pytest.raises(kind):
        await asker.ask()
    assert len(asker.server.requests) == 1


async def test_thinking_without_a_tag_that_opens_it_is_shown_once_at_most(asker: Asker) -> None:
    """As of servers whose template writes the tag itself: the first answer teaches it."""
    asker.server.answer = lambda messages: "内心独白，没有开头</think>\n\n答案"
    assert (await asker.ask()).text == "答案"
    for _ in range(2):
        assert (await asker.ask()).text == asker.shown == "答案"
    asker.server.answers = [Chunks([delta("想个没完"), delta("", "length")]), "内心</think>答案"]
    with pytest.raises(BlankAnswer):
        await asker.ask()
    assert asker.told == [], "a block that was cut has no end, and is a block all the same"
    assert (await asker.ask()).text == asker.shown == "答案"
    asker.server.answer = lambda messages: "不再想了，直接回答"
    for _ in range(2):
        assert (await asker.ask()).text == asker.shown == "不再想了，直接回答"
    assert len(asker.told) > 1, "and is streamed again"


async def test_thinking_that_used_up_all_tokens_says_so_to_the_admin(asker: Asker) -> None:
    asker.server.answers = [Chunks([delta(None, reasoning_content="想个没完"), delta(None, "length")])]
    with pytest.raises(BlankAnswer, match="max-output-tokens"):
        await asker.ask()


# ------------------------------------------------------------------ answers that are cut
async def test_a_cut_answer_is_continued_once(asker: Asker) -> None:
    asker.server.answers = [Chunks([delta("很长的"), delta("", "length")]), Chunks([delta("答案", "stop")])]
    done = await asker.ask("问")
    assert done.text == asker.shown == "很长的答案"
    assert done.finish == "stop"
    again = asker.server.requests[1]["messages"]
    assert [message["role"] for message in again] == ["system", "user", "assistant", "user"]
    assert again[2]["content"] == "很长的"


async def test_an_answer_cut_twice_says_so(asker: Asker) -> None:
    asker.server.answer = lambda messages: Chunks([delta("很长"), delta("", "length", usage=None)])
    done = await asker.ask()
    assert done.text == asker.shown == "很长很长" + CUT_MARK
    assert "（回答过长，已截断）" in done.text
    assert done.finish == "length"
    assert len(asker.server.requests) == 2


async def test_a_server_that_knows_no_bound_is_not_read_on(make: Make) -> None:
    asker = make(max_output_tokens=100)
    asker.server.answer = lambda messages: Chunks([delta("长" * 1000)] * 300)
    done = await asker.ask()
    assert done.text == asker.shown
    assert done.text.endswith(CUT_MARK)
    assert len(done.text) <= 2 * (100 * 64 + 1000) + len(CUT_MARK)


@pytest.mark.parametrize("second", [Raw("", status=401), Chunks([delta("半截")], cut=True), ""])
async def test_a_cut_answer_that_can_not_be_continued_is_kept_and_marked(asker: Asker, second: Answer) -> None:
    asker.server.answers = [Chunks([delta("很长", "length")]), second, "", ""]
    done = await asker.ask()
    assert done.text == asker.shown
    assert done.text.startswith("很长")
    assert done.text.endswith(CUT_MARK)


# ------------------------------------------------------------------ tool calls
@pytest.mark.parametrize(
    "pieces",
    [
        [
            {"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a"'}},
            {"index": 0, "function": {"arguments": ": 1}"}},
        ],
        [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}}],
        [{"id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}}],
        [{"id": "c1", "function": {"name": "f", "arguments": ""}}, {"function": {"arguments": '{"a": 1}'}}],
        [{"id": "c1", "function": {"name": "f", "arguments": {"a": 1}}}],
    ],
)
async def test_tool_calls_in_every_cut(asker: Asker, pieces: list[dict[str, Any]]) -> None:
    chunks = [delta(None, tool_calls=[piece]) for piece in pieces]
    asker.server.answers = [Chunks([*chunks, delta(None, "stop")])]
    done = await asker.ask()
    assert done.tool_calls == (ToolCall("c1", "f", '{"a": 1}'),)
    assert done.finish == "tool_calls"
    assert done.text == ""


async def test_several_calls_with_and_without_index(asker: Asker) -> None:
    whole = [{"id": name, "function": {"name": name, "arguments": "{}"}} for name in ("a", "b")]
    nameless = [
        {"index": 0, "function": {"name": "f", "arguments": ""}},
        {"index": 1, "function": {"arguments": "x"}},
        "?",
    ]
    asker.server.answers = [
        Chunks([delta(None, tool_calls=whole)]),
        Chunks([delta(None, tool_calls=nameless)]),
        {
            "content": "我查一下",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"q": "很长很长很长"}'}}
            ],
        },
    ]
    assert [call.name for call in (await asker.ask()).tool_calls] == ["a", "b"]
    assert (await asker.ask()).tool_calls == (ToolCall("call_0", "f", "{}"),)
    done = await asker.ask()
    assert (done.text, done.tool_calls[0].arguments) == ("我查一下", '{"q": "很长很长很长"}')


# ------------------------------------------------------------------ trying again
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
async def test_it_tries_again_after_what_may_pass(asker: Asker, status: int) -> None:
    asker.server.fail = [(status, {"error": {"message": "slow down"}}, {})] * (TRIES - 1)
    assert (await asker.ask()).text == "答复：你好"
    assert len(asker.server.requests) == TRIES


async def test_it_gives_up_after_a_few_tries(asker: Asker) -> None:
    asker.server.fail = [(500, {}, {})] * 10
    with pytest.raises(ModelUnavailable):
        await asker.ask()
    assert len(asker.server.requests) == TRIES


async def test_a_retry_after_that_fits_is_honoured(asker: Asker) -> None:
    asker.server.fail = [(429, {}, {"Retry-After": "0.3"})]
    start = time.monotonic()
    assert (await asker.ask()).text == "答复：你好"
    assert time.monotonic() - start >= 0.3


async def test_a_retry_after_that_does_not_fit_ends_it_at_once(asker: Asker) -> None:
    asker.server.fail = [(429, {}, {"Retry-After": "3600"})]
    start = time.monotonic()
    with pytest.raises(ModelUnavailable):
        await asker.ask()
    assert time.monotonic() - start < 15
    assert len(asker.server.requests) == 1


async def test_with_a_fallback_it_does_not_wait_long(make: Make) -> None:
    asker = make(fallback=("other",), timeout=20, total_timeout=40)
    asker.server.fail = [(429, {}, {"Retry-After": "25"})]
    start = time.monotonic()
    with pytest.raises(ModelUnavailable):
        await asker.ask()
    assert time.monotonic() - start < 15


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405])
async def test_what_only_an_admin_can_mend_is_not_tried_again(
    asker: Asker, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "sanqiao")
    asker.server.fail = [(status, {"error": {"message": f"Incorrect API key provided: {KEY}"}}, {})] * 3
    with pytest.raises(ModelMisconfigured) as caught:
        await asker.ask()
    assert len(asker.server.requests) == 1
    assert KEY not in str(caught.value) + repr(caught.value) + caplog.text + repr(asker.client.settings)
    assert caught.value.__cause__ is None, "a chained error would show the body in a traceback"


async def test_context_too_long_is_told_apart(asker: Asker) -> None:
    asker.server.fail = [(400, {"error": {"code": "context_length_exceeded", "message": "x"}}, {})]
    with pytest.raises(ContextTooLong):
        await asker.ask()
    assert (await asker.ask()).text == "答复：你好"


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "http://no-such-host.invalid/v1"])
async def test_nobody_there(make: Make, url: str) -> None:
    start = time.monotonic()
    with pytest.raises(ModelUnavailable):
        await make(base_url=url).ask()
    assert time.monotonic() - start < 15


@pytest.mark.parametrize(
    "greeting", [b"", b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"]
)
async def test_somebody_else_there(make: Make, greeting: bytes) -> None:
    asked = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.read(100)
        writer.write(greeting)
        writer.close()

    other = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with other:
        port = other.sockets[0].getsockname()[1]
        with pytest.raises(ModelUnavailable):
            await make(base_url=f"http://127.0.0.1:{port}/v1").ask()
    assert asked == TRIES


async def test_a_connection_that_breaks_before_the_first_word_is_tried_again(asker: Asker) -> None:
    asker.server.answers = [Chunks([delta("")], cut=True)]
    assert (await asker.ask()).text == "答复：你好"
    assert len(asker.server.requests) == 2


async def test_a_connection_that_breaks_after_the_first_word_is_not(asker: Asker) -> None:
    asker.server.answers = [Chunks([delta("半截")], cut=True)]
    with pytest.raises(ModelBrokeOff):
        await asker.ask()
    assert asker.shown == "半截"
    assert len(asker.server.requests) == 1


async def test_a_server_that_breaks_off_is_tried_again(asker: Asker) -> None:
    asker.server.answers = [Chunks([delta("", "insufficient_system_resource")])]
    assert (await asker.ask()).text == "答复：你好"


# ------------------------------------------------------------------ keys that a server does not take
async def test_a_server_without_stream_options_is_asked_without_them_ever_after(asker: Asker) -> None:
    asker.server.refuses_keys = {"stream_options"}
    assert (await asker.ask("一")).text == "答复：一"
    assert (await asker.ask("二")).text == "答复：二"
    assert ["stream_options" in body for body in asker.server.requests] == [True, False, False]


async def test_a_server_with_other_names_for_keys(asker: Asker) -> None:
    asker.server.fail = [
        (400, {"error": {"message": "'max_tokens' is not supported. Use 'max_completion_tokens' instead."}}, {}),
        (400, {"error": {"message": "Unsupported value: 'temperature'"}}, {}),
        (422, {"detail": [{"loc": ["body", "stream_options"], "type": "extra_forbidden"}]}, {}),
    ]
    request = ModelRequest(messages=(ChatMessage("user", "好"),), temperature=0.3)
    assert (await asker.ask_with(request)).text == "答复：好"
    last = asker.server.requests[-1]
    assert set(last) == {"model", "messages", "stream", "max_completion_tokens"}


async def test_a_server_that_refuses_for_ever_is_not_asked_for_ever(asker: Asker) -> None:
    asker.server.fail = [(400, {"error": {"message": "stream_options temperature max_completion_tokens"}}, {})] * 20
    with pytest.raises(ModelMisconfigured):
        await asker.ask()
    assert len(asker.server.requests) <= 4


# ------------------------------------------------------------------ time
async def test_silence_ends_after_timeout_and_is_not_tried_again(make: Make) -> None:
    asker = make(timeout=0.5)
    asker.server.delay = lambda messages: 60.0
    start = time.monotonic()
    with pytest.raises(ModelTimeout):
        await asker.ask()
    assert time.monotonic() - start < 15
    assert len(asker.server.requests) <= 1


async def test_timeout_is_the_wait_for_the_next_sign_of_thought_not_for_the_whole(make: Make) -> None:
    """What it thinks is life, however long it takes to the first word; nothing of it is shown."""
    asker = make(timeout=8)
    thoughts = [delta(reasoning_content="想" * 5), delta(None, reasoning="想"), delta(reasoning_content="想")]
    asker.server.answers = [Chunks([*thoughts, delta("答"), delta("案", "stop")], pause=2.0)]
    begun = time.monotonic()
    done = await asker.ask()
    assert time.monotonic() - begun > 8
    assert done.text == asker.shown == "答案"


async def test_signs_of_life_that_are_no_token_do_not_count(make: Make) -> None:
    """A queue that only sends comments and blank lines is no answer, and ends after `timeout`."""
    asker = make(timeout=0.3)
    asker.server.answers = [Chunks([": keep-alive\n\n", "\n", " \n\n"] * 400, pause=0.05)]
    with pytest.raises(ModelTimeout):
        await asker.ask()


async def test_silence_in_the_middle_ends_it_too(make: Make) -> None:
    asker = make(timeout=4)
    asker.server.answers = [Chunks([delta("一"), *[": ping\n\n"] * 600, delta("二")], pause=0.05)]
    with pytest.raises(ModelTimeout):
        await asker.ask()
    assert asker.shown == "一"


async def test_total_timeout_is_over_all(make: Make) -> None:
    asker = make(total_timeout=0.4)
    asker.server.answers = [Chunks([delta("字")] * 1000, pause=0.05)]
    start = time.monotonic()
    with pytest.raises(ModelTimeout):
        await asker.ask()
    assert time.monotonic() - start < 15


async def test_less_time_may_be_left(asker: Asker) -> None:
    asker.server.delay = lambda messages: 60.0
    start = time.monotonic()
    with pytest.raises(ModelTimeout):
        await asker.ask(within=0.2)
    assert time.monotonic() - start < 15


async def test_cancelling_frees_the_place(make: Make) -> None:
    asker = make(max_concurrency=1)
    asker.server.delay = lambda messages: 60.0
    task = asyncio.create_task(asker.ask())
    await until(lambda: asker.server.running)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    asker.server.delay = lambda messages: 0.0
    assert (await asker.ask()).text == "答复：你好"


# ------------------------------------------------------------------ many at once
async def test_no_more_than_max_concurrency_at_once_and_all_are_answered(make: Make) -> None:
    asker = make(max_concurrency=3)
    async with asker.server.held() as released:
        asking = [asyncio.create_task(asker.ask(str(n))) for n in range(12)]
        await until(lambda: asker.server.running == 3)
        await asyncio.sleep(0.05)
        assert asker.server.running == 3
        released.set()
        done = await asyncio.gather(*asking)
    assert [each.text for each in done] == [f"答复：{n}" for n in range(12)]
    assert asker.server.most_running == 3


async def test_waiting_for_a_place_counts(make: Make) -> None:
    asker = make(max_concurrency=1)
    async with asker.server.held():
        first = asyncio.create_task(asker.ask("一"))
        await until(lambda: asker.server.running)
        with pytest.raises(ModelUnavailable, match="max-concurrency"):
            await asker.ask("二", within=0.1)
    assert (await first).text == "答复：一"
    assert len(asker.server.requests) == 1


# ------------------------------------------------------------------ the end
async def test_a_retired_client_ends_when_idle_and_answers_even_then(make: Make) -> None:
    asker = make()
    async with asker.server.held():
        running = asyncio.create_task(asker.ask("一"))
        await until(lambda: asker.server.running)
        await asker.client.retire()
    assert (await running).text == "答复：一"
    assert asker.client._http._session is None
    assert (await asker.ask("二")).text == "答复：二"
    assert asker.client._http._session is None
