"""What a request to a model counts, by how it ended."""

import asyncio
from collections.abc import Callable

import pytest

from agents.model import (
    BlankAnswer,
    ChatMessage,
    Completion,
    ModelError,
    ModelMisconfigured,
    ModelRequest,
    ModelSettings,
    ModelTimeout,
    TokenUsage,
    ToolSpec,
)
from gateway.storage.token_use import Meter, Spent
from gateway.turns.metered_model import MeteredModel, request_tokens
from memory.conversation import ToolCall
from memory.tokens import estimate, message_tokens

REQUEST = ModelRequest(messages=(ChatMessage("system", "你是助手"), ChatMessage("user", "你好呀")))
ASKED = message_tokens("你是助手") + message_tokens("你好呀")


class Model:
    """Says `pieces`, then ends so; without an end it hangs."""

    settings = ModelSettings()

    def __init__(self, *pieces: str, end: Completion | ModelError | None = None) -> None:
        self._pieces, self._end = pieces, end

    async def complete(
        self, request: ModelRequest, on_text: Callable[[str], None], *, within: float | None = None
    ) -> Completion:
        assert within == 3
        for piece in self._pieces:
            on_text(piece)
        if self._end is None:
            await asyncio.Event().wait()
        if isinstance(self._end, Completion):
            return self._end
        assert self._end is not None
        raise self._end


async def test_what_the_server_tells_is_counted_and_added_up() -> None:
    meter, told = Meter(), list[str]()
    assert meter.spent("u1", "2026-11-30") is None
    end = Completion(text="好的", model="m", usage=TokenUsage(7, 2))
    model = MeteredModel(Model("好", "的", end=end), meter)
    for _ in range(2):
        assert await model.complete(REQUEST, told.append, within=3) == end
    assert told == ["好", "的"] * 2
    assert meter.spent("u1", "2026-11-30") == Spent("u1", "2026-11-30", 14, 4)


async def test_where_it_tells_nothing_it_is_estimated_with_the_calls() -> None:
    meter, call = Meter(), ToolCall("c1", "search_jobs", '{"city": "上海"}')
    await MeteredModel(Model(end=Completion(text="", model="m", tool_calls=(call,))), meter).complete(
        REQUEST, print, within=3
    )
    assert meter.prompt == ASKED
    assert meter.completion > estimate(call.name) + estimate(call.arguments)


@pytest.mark.parametrize(
    ("pieces", "error", "counted"),
    [
        ((), ModelMisconfigured("401"), (0, 0)),
        ((), ModelTimeout("no token"), (0, 0)),
        (("好", "的"), ModelTimeout("half an answer"), (ASKED, estimate("好的"))),
        ((), BlankAnswer("only thoughts"), (ASKED, 0)),
    ],
)
async def test_a_failure_counts_where_the_model_had_begun(
    pieces: tuple[str, ...], error: ModelError, counted: tuple[int, int]
) -> None:
    meter = Meter()
    with pytest.raises(type(error)):
        await MeteredModel(Model(*pieces, end=error), meter).complete(REQUEST, lambda _: None, within=3)
    assert (meter.prompt, meter.completion) == counted


async def test_one_that_is_cancelled_counts_as_far_as_it_got() -> None:
    meter, said = Meter(), asyncio.Event()
    model = MeteredModel(Model("好的"), meter)
    asking = asyncio.create_task(model.complete(REQUEST, lambda _: said.set(), within=3))
    await said.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (meter.prompt, meter.completion) == (ASKED, estimate("好的"))


def test_tools_are_part_of_a_request() -> None:
    tool = ToolSpec("search_jobs", "找岗位", '{"type": "object"}')
    assert request_tokens(ModelRequest(messages=REQUEST.messages, tools=(tool,))) > ASKED + estimate("找岗位")
