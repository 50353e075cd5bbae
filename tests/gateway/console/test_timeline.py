"""What is said in traces is shown to admins in Chinese: every name and every message that our code can leave there."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import gateway.intake
import gateway.pipeline
import gateway.tracing.traced_model
from agents import tool_loop
from agents.model import ModelError
from agents.refusal import ModelBusy
from channels.message import Notice
from gateway.console.timeline import _FACTS, _FLAGS, UNSAID, WORDS, reason, timeline
from gateway.storage.stored_message import State
from gateway.tracing.trace import FACTS, Kind, Outcome, Step, Trace
from memory.errors import StoreError

ROOT = Path(__file__).parents[3]
CHINESE = re.compile("[一-鿿]")
RAISED = re.compile(
    r"(Model\w+|NoPlace|ContextTooLong|OddAnswer|BlankAnswer|FilterFailed"
    r"|Send\w+|ApiError|NoAnswer|RequestFailed|ConnectionLost)$"
)
"""The errors whose messages get into traces."""
AIOHTTP = ("ClientConnectorError", "ConnectionTimeoutError", "ServerDisconnectedError", "ClientOSError", "InvalidURL")


def tree(module: ModuleType) -> ast.AST:
    assert module.__file__
    return ast.parse(Path(module.__file__).read_text("utf-8"))


def calls(module: ModuleType, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name:
            yield node


def strings(module: ModuleType, *nodes: ast.expr | None) -> set[str]:
    """The strings among these expressions, also those that stand behind a module's constant."""
    values = [node.value if isinstance(node, ast.Constant) else None for node in nodes]
    values += [getattr(module, node.id, None) for node in nodes if isinstance(node, ast.Name)]
    return {value for value in values if isinstance(value, str)}


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == name), None)


def kinds_of(error: type[Exception]) -> set[type[Exception]]:
    return {error}.union(*(kinds_of(each) for each in error.__subclasses__()))


def refusals() -> set[str]:
    found = {str(each) for each in Notice}
    for call in calls(gateway.intake, "Waiting"):
        found |= strings(gateway.intake, keyword(call, "refusal"))
    for call in calls(gateway.pipeline, "_refuse"):
        found |= strings(gateway.pipeline, *call.args)
    return found


def failures() -> set[str]:
    found = {error.text for error in kinds_of(ModelError)}  # type: ignore[attr-defined]
    for call in calls(gateway.pipeline, "_fail"):
        found |= strings(gateway.pipeline, *call.args)
    for call in calls(gateway.intake, "_note"):
        found |= strings(gateway.intake, keyword(call, "text"))
    return found


def errors() -> set[str]:
    ours = kinds_of(ModelError) | kinds_of(StoreError)
    found = {error.__name__ for error in ours if error.__module__.partition(".")[0] in ("agents", "memory", "gateway")}
    for call in calls(gateway.pipeline, "_fail"):
        found |= strings(gateway.pipeline, keyword(call, "error"))
    for call in calls(gateway.tracing.traced_model, "note"):
        found |= strings(gateway.tracing.traced_model, keyword(call, "error"))
    return found


def tool_outcomes() -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree(tool_loop)):
        if isinstance(node, ast.AsyncFunctionDef) and node.name == "_ran":
            for pair in ast.walk(node):
                if isinstance(pair, ast.Tuple) and isinstance(pair.ctx, ast.Load):
                    found |= strings(tool_loop, pair.elts[-1])
    return found


def messages() -> Iterator[tuple[str, str]]:
    """The beginnings of all errors that get into traces, with 7 in place of what is filled in, and where they stand."""
    for path in sorted([*ROOT.glob("agents/*.py"), *ROOT.glob("channels/**/*.py"), ROOT / "memory/filters.py"]):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and node.args and RAISED.match(ast.unparse(node.func))):
                continue
            match node.args[0]:
                case ast.Constant(value=str(text)):
                    yield text, path.name
                case ast.JoinedStr(values=parts):
                    filled = (str(part.value) if isinstance(part, ast.Constant) else "7" for part in parts)
                    yield "".join(filled), path.name


def trace(outcome: Outcome, why: str = "", *steps: Step) -> Trace:
    return Trace(seq=1, id="t", at=0.0, last=1.0, outcome=outcome, message="m", reason=why, steps=steps)


def test_every_name_that_a_trace_can_hold_is_in_the_table() -> None:
    found = {
        "refusal": refusals(),
        "text": failures(),
        "error": errors(),
        "state": {str(each) for each in State},
        "outcome": tool_outcomes(),
    }
    assert {"rate-limited", "daily-limit", "refused-dm", "refused-by-filter", "welcome"} <= found["refusal"]
    assert {"not-stored", "stopped", "too-long"} <= found["text"]
    assert {ModelBusy.__name__, "StoreFull", "QuestionTooLong", "FilterFailed", "Forgotten", "stopped"} <= found[
        "error"
    ]
    assert {"done", "time-out", "refused", "failed", "filtered"} == found["outcome"]
    for fact, names in found.items():
        assert names <= set(WORDS[fact]), f"{fact}: {names - set(WORDS[fact])}"
    assert all(CHINESE.search(meaning) for words in WORDS.values() for meaning in words.values())


def test_every_message_of_an_error_is_shown_in_chinese_with_the_message_in_brackets() -> None:
    found = [*messages(), *((name, "aiohttp") for name in AIOHTTP)]
    assert len(found) > 50
    for text, place in found:
        if CHINESE.search(text):
            continue  # raised for summaries alone, and already what admins read
        shown = reason(trace(Outcome.FAILED, text))
        assert CHINESE.match(shown), f"{place}: {text}"
        assert shown.endswith(f"（{text}）")


@pytest.mark.parametrize(
    ("outcome", "why", "shown"),
    [
        (Outcome.REFUSED, "refused-dm", "私聊不对此人开放"),
        (Outcome.REFUSED, "too-long", "limits.max-text-bytes"),
        (Outcome.FAILED, "too-long", "context-tokens"),
        (Outcome.FAILED, "通义: status 503", "模型服务太忙或出错"),
        (Outcome.FAILED, "gpt: the server refuses the key (status 401); check api-key", "api-key"),
        (Outcome.FAILED, "filter=my:redact reason=time-out seconds=2", "过滤器超时"),
        (Outcome.FAILED, "filter=my:redact reason=KeyError", "过滤器出错"),
        (Outcome.UNSENT, "status 400 code 230002", "加回群"),
        (Outcome.UNSENT, "status 400 code 99991672", "im:message:send_as_bot"),
        (Outcome.UNSENT, "errcode 48002", "错误码"),
        (Outcome.UNSENT, "no access token: status 500", "访问令牌"),
        (Outcome.UNSENT, "half of it was sent: no answer within 10 s", "只到了一部分"),
    ],
)
def test_a_reason_says_what_to_do(outcome: Outcome, why: str, shown: str) -> None:
    told = reason(trace(outcome, why))
    assert shown in told
    assert told.endswith(f"（{why}）")


def test_what_nobody_knows_is_shown_as_it_is() -> None:
    for why in ("24 小时内没有人来取", "something new", ""):
        assert reason(trace(Outcome.UNSENT, why)) == why


def detail(kind: Kind, **facts: Any) -> str:
    (line,) = timeline(trace(Outcome.WAITING, "", Step(kind, 0.0, facts)))
    return line.detail


def test_steps_say_it_in_chinese_once() -> None:
    assert detail(Kind.FAILED, text="too-long", error="QuestionTooLong").endswith("（QuestionTooLong）")
    assert detail(Kind.FAILED, text="failed", error="KeyError") == "出错；请按轨迹号查看日志（KeyError）"
    both = detail(Kind.MODEL, model="gpt", error="ModelBusy", reason="gpt: status 503")
    assert both == "gpt；模型服务太忙或出错；请查看它的状态和配额，常见则加 fallback（gpt: status 503）"
    assert detail(Kind.DUPLICATE, state="delivered") == "第一次投递已送达"
    assert detail(Kind.TOOL, name="recall", outcome="done", chars=3) == "recall；完成；3 字"
    assert "没有按时完成" in detail(Kind.TOOL, name="recall", outcome="time-out")
    assert detail(Kind.MODEL, model="m", finish="stop") == "m"
    assert "max-output-tokens" in detail(Kind.MODEL, model="m", finish="length")
    assert "1.5 秒后再发" in detail(Kind.RETRIED, part=1, parts=1, attempt=1, pause=1.5, reason="status 502")
    assert "没有收到平台的回音" in detail(Kind.SENT, part=1, parts=1, attempts=2, uncertain=True)
    routed = detail(Kind.ROUTED, agent="a", reason="规则：gpt: status 503")
    assert routed == "a；规则：gpt: status 503", "what people wrote is explained by nobody"


def test_every_fact_is_shown_or_left_out_on_purpose() -> None:
    assert set(FACTS) == set(Kind)
    known = frozenset().union(*FACTS.values())
    assert known == {*_FACTS, *(name for name, _ in _FLAGS), *UNSAID}
