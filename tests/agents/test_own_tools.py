"""The admin's own functions as tools: schema, threads, faults, names."""

import asyncio
import json
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

import pytest

from agents.tools.built_in import BUILT_IN
from agents.tools.registry import UnknownTool, load_tool, load_tools
from agents.tools.tool import BadArguments, CallContext, Tool, ToolError
from tests.agents.test_tool_loop import context

Made = Callable[..., ModuleType]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("shop_tools")
    monkeypatch.setitem(__import__("sys").modules, "shop_tools", made)
    return made


async def test_a_function_says_itself_what_it_takes(module: ModuleType) -> None:
    def stock(product: str, count: int = 1, where: Literal["上海", "北京"] = "上海") -> str:
        """查库存。"""
        assert threading.current_thread() is not threading.main_thread()
        return f"{product} {count} {where}"

    module.stock = stock  # type: ignore[attr-defined]
    tool = load_tool("shop_tools:stock")
    assert (tool.name, tool.description, tool.repeatable) == ("stock", "查库存。", False)
    schema = json.loads(tool.spec.parameters)
    assert schema["required"] == ["product"]
    assert schema["properties"]["count"] == {"type": "integer", "default": 1}
    assert await tool.run(context("k"), {"product": "灯", "count": "2", "more": 1}) == "灯 2 上海"
    with pytest.raises(BadArguments, match="count"):
        await tool.run(context("k"), {"product": "灯", "count": "两个"})
    with pytest.raises(BadArguments, match="product"):
        await tool.run(context("k"), {})


async def test_a_coroutine_gets_the_context_when_it_asks_for_it(module: ModuleType) -> None:
    async def who(call: CallContext, title: str = "") -> str:
        return f"{call.conversation.lane.user} {call.key}"

    module.who = who  # type: ignore[attr-defined]
    tool = load_tool("shop_tools:who")
    assert list(json.loads(tool.spec.parameters)["properties"]) == ["title"]
    assert await tool.run(context("k9"), {}) == "uu3r7qbo6l6i3 k9"


async def test_what_a_function_raises_is_not_passed_on_but_a_tool_error(module: ModuleType) -> None:
    def broken() -> str:
        raise KeyError("sk-secret")

    def closed() -> str:
        raise ToolError("店已关门")

    def number() -> Any:
        return 3

    module.broken, module.closed, module.number = broken, closed, number  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match=r"^KeyError$"):
        await load_tool("shop_tools:broken").run(context("k"), {})
    with pytest.raises(ToolError, match="店已关门"):
        await load_tool("shop_tools:closed").run(context("k"), {})
    with pytest.raises(TypeError):
        await load_tool("shop_tools:number").run(context("k"), {})


async def test_a_function_that_hangs_holds_up_nobody(module: ModuleType) -> None:
    end = threading.Event()

    def hangs() -> str:
        end.wait(20)
        return ""

    module.hangs = hangs  # type: ignore[attr-defined]
    tool = load_tool("shop_tools:hangs")
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await tool.run(context("k"), {})
    finally:
        end.set()


def test_a_tool_that_is_ready_made_is_taken_as_it_is(module: ModuleType) -> None:
    async def run(call: CallContext, arguments: Any) -> str:
        return ""

    module.made = Tool("made", "…", {}, run, repeatable=True)  # type: ignore[attr-defined]
    assert load_tool("shop_tools:made") is module.made


def test_wrong_names_say_what_to_write(module: ModuleType) -> None:
    def anything(*many: str) -> str:
        return ""

    def search_jobs(query: str) -> str:
        return ""

    module.anything, module.search_jobs, module.text = anything, search_jobs, "x"  # type: ignore[attr-defined]
    for name, said in {
        "serch_jobs": "search_jobs",
        "no_such_module_at_all:f": "上一级目录",
        "shop_tools:nope": "nope",
        "shop_tools:text": "text",
        "shop_tools:anything": "类型",
        "shop-tools:f": "模块:函数",
    }.items():
        with pytest.raises(UnknownTool, match=said):
            load_tool(name)
    with pytest.raises(UnknownTool, match="都叫 search_jobs"):
        load_tools(["search_jobs", "shop_tools:search_jobs"])
    assert load_tools(["recall", "recall"]) == (BUILT_IN["recall"],)


def test_the_built_in_ones_are_five_and_those_of_one_person_are_for_direct_chats() -> None:
    assert set(BUILT_IN) == {"search_jobs", "update_profile", "read_profile", "recall", "current_time"}
    direct = {name for name, tool in BUILT_IN.items() if tool.direct_only}
    assert direct == {"update_profile", "read_profile", "recall"}
