"""Own filters: found beside the config, changed and dropped texts, and every way in which one may fail."""

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from memory.filters import AT_ONCE, Filter, FilterFailed, is_named_so, load_filter, look_in
from memory.masking import Masking
from tests.waiting import until


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of the admin's, as it is after its import."""
    made = ModuleType("own_filters_under_test")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def named(module: ModuleType, function: object) -> str:
    module.f = function  # type: ignore[attr-defined]
    return f"{module.__name__}:f"


async def test_a_filter_changes_drops_or_leaves(module: ModuleType) -> None:
    def redact(text: str) -> str | None:
        return None if "机密" in text else text.replace("项目甲", "［项目］")

    masking = Masking(["phone", named(module, redact)])
    assert await masking.apply("项目甲 找 13812345678") == "［项目］ 找 138****5678"
    assert await masking.apply("机密") is None
    assert await masking.apply("") == ""


async def test_filters_see_masked_text_in_their_order_and_what_they_give_is_masked(module: ModuleType) -> None:
    seen: list[str] = []

    def first(text: str) -> str:
        seen.append(text)
        return text + " 1381234" + "5678"

    def second(text: str) -> str:
        seen.append(text)
        return text + "\ud800"

    module.first, module.second = first, second  # type: ignore[attr-defined]
    names = (f"{module.__name__}:first", f"{module.__name__}:second")
    masking = Masking([*names, "phone"])
    assert masking.names == ("phone", *names)
    assert await masking.apply("13912345678") == "139****5678 138****5678\ufffd"
    assert seen == ["139****5678", "139****5678 138****5678"]


async def test_an_error_is_told_without_the_text(module: ModuleType) -> None:
    def breaks(text: str) -> str:
        raise ValueError(f"cannot read {text}")

    with pytest.raises(FilterFailed) as caught:
        await Masking([named(module, breaks)]).apply("秘密")
    assert "ValueError" in str(caught.value)
    assert "秘密" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("given", [b"x", 1, ["x"], True])
async def test_what_is_no_text_is_a_failure(module: ModuleType, given: object) -> None:
    with pytest.raises(FilterFailed, match=f"gave-{type(given).__name__}"):
        await Masking([named(module, lambda text: given)]).apply("x")


async def test_a_filter_that_exits_does_not_end_the_process(module: ModuleType) -> None:
    with pytest.raises(FilterFailed, match="SystemExit"):
        await Masking([named(module, lambda text: sys.exit(3))]).apply("x")


async def test_a_slow_one_fails_closed_and_holds_up_nothing(module: ModuleType) -> None:
    release = threading.Event()

    def slow(text: str) -> str:
        release.wait(60)
        return text

    one = Filter(named(module, slow), seconds=0.1)
    begun = time.monotonic()
    results = await asyncio.gather(*(one.apply("x") for _ in range(3 * AT_ONCE)), return_exceptions=True)
    assert all(isinstance(each, FilterFailed) and "time-out" in str(each) for each in results)
    assert time.monotonic() - begun < 30
    assert sum(thread.name.startswith("filter-") for thread in threading.enumerate()) <= AT_ONCE
    release.set()
    async with asyncio.timeout(30):
        while True:
            try:
                assert await one.apply("x") == "x"
                return
            except FilterFailed:
                await asyncio.sleep(0.01)


async def test_it_does_not_block_the_loop(module: ModuleType) -> None:
    begun, release = threading.Event(), threading.Event()

    def busy(text: str) -> str:
        begun.set()
        assert release.wait(30)
        return text

    working = asyncio.create_task(Filter(named(module, busy), seconds=60.0).apply("x"))
    await until(begun.is_set)
    await asyncio.sleep(0.02)
    assert not working.done()
    release.set()
    assert await working == "x"


async def test_a_cancelled_caller_gives_its_place_back(module: ModuleType) -> None:
    release = threading.Event()

    def slow(text: str) -> str:
        release.wait(60)
        return text

    one = Filter(named(module, slow))
    callers = [asyncio.create_task(one.apply("x")) for _ in range(AT_ONCE)]
    await asyncio.sleep(0.05)
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    release.set()
    assert await one.apply("y") == "y"


@pytest.mark.parametrize("name", ["a:b", "my_filters:redact", "a.b.c:d", "_x:_y"])
def test_names(name: str) -> None:
    assert is_named_so(name)


@pytest.mark.parametrize("name", ["", "a", "a:", ":b", "a:b:c", "a.:b", "a b:c", "../a:b", "a:b.c", "甲:乙", "1a:b"])
def test_no_names(name: str) -> None:
    assert not is_named_so(name)
    with pytest.raises(ValueError, match="模块:函数"):
        load_filter(name)


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Path]:
    """A folder that modules are found in, until the test ends."""
    path, modules = list(sys.path), set(sys.modules)
    look_in(tmp_path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("source", "function", "problem"),
    [
        (None, "redact", "找不到"),
        ("import a_module_that_is_not_there", "redact", "a_module_that_is_not_there 找不到"),
        ("def redact(text)", "redact", "导入时出错（SyntaxError）"),
        ("1 / 0", "redact", "导入时出错（ZeroDivisionError）"),
        ("raise SystemExit", "redact", "导入时出错（SystemExit）"),
        ("redact = 'x'", "redact", "没有可调用的 redact"),
        ("def other(text): return text", "redact", "没有可调用的 redact"),
    ],
)
def test_one_that_cannot_be_used_is_told_of(beside: Path, source: str | None, function: str, problem: str) -> None:
    if source is not None:
        (beside / "filters_told_of.py").write_text(source, encoding="utf-8")
    with pytest.raises(ValueError, match=problem) as caught:
        load_filter(f"filters_told_of:{function}")
    assert "\n" not in str(caught.value)


def test_what_lies_beside_the_config_hides_nothing(beside: Path) -> None:
    (beside / "json.py").write_text("raise SystemExit", encoding="utf-8")
    (beside / "filters_beside.py").write_text("def redact(text): return text.upper()", encoding="utf-8")
    assert load_filter("filters_beside:redact")("a") == "A"
    assert load_filter("json:loads")("1") == 1
