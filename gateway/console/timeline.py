"""A trace as lines a person reads: what happened, how long after the message came, how long it took. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.trace import Fact, Kind, Outcome, Step, Trace

LABELS: Mapping[str, str] = {
    Kind.RECEIVED: "收到",
    Kind.DUPLICATE: "重复投递",
    Kind.REFUSED: "拒绝",
    Kind.COMMAND: "命令",
    Kind.JOINED: "并入另一条",
    Kind.RESUMED: "重启后接着处理",
    Kind.ROUTED: "选智能体",
    Kind.WINDOW: "取窗口",
    Kind.MODEL: "模型回答",
    Kind.TOOL: "工具",
    Kind.ANSWERED: "答案写入文件",
    Kind.FAILED: "没能回答",
    Kind.SENT: "送达",
    Kind.RETRIED: "重新发送",
    Kind.UNSENT: "没有送达",
    Kind.SHELVED: "等用户来取",
    Kind.LEFT: "留在收件箱",
    Kind.EXPIRED: "过期",
}
OUTCOMES: Mapping[str, str] = {
    Outcome.WAITING: "在等",
    Outcome.ANSWERING: "正在回答",
    Outcome.ANSWERED: "已答，未送达",
    Outcome.DELIVERED: "已送达",
    Outcome.SHELVED: "等用户来取",
    Outcome.JOINED: "并入另一条",
    Outcome.COMMAND: "命令",
    Outcome.REFUSED: "拒绝",
    Outcome.FAILED: "没能回答",
    Outcome.UNSENT: "没有送达",
    Outcome.EXPIRED: "过期",
    Outcome.DUPLICATE: "重复投递",
}
_STATES: Mapping[str, str] = {
    **dict.fromkeys((Outcome.REFUSED, Outcome.FAILED, Outcome.UNSENT, Outcome.EXPIRED), "bad"),
    **dict.fromkeys((Outcome.DELIVERED, Outcome.COMMAND, Outcome.JOINED), "ok"),
}
_BAD = (Kind.REFUSED, Kind.FAILED, Kind.UNSENT, Kind.EXPIRED, Kind.RETRIED)
_FACTS: Mapping[str, str] = {
    "agent": "{}",
    "model": "{}",
    "name": "{}",
    "reason": "{}",
    "error": "错误 {}",
    "outcome": "结果 {}",
    "state": "第一次投递的状态 {}",
    "kept": "留下 {} 条",
    "dropped": "略去 {} 条",
    "prompt_tokens": "输入 {} tokens",
    "completion_tokens": "输出 {} tokens",
    "chars": "{} 字",
    "attempts": "试了 {} 次",
    "attempt": "第 {} 次",
    "into": "并入 {}",
    "platform_id": "平台编号 {}",
}


@dataclass(frozen=True, slots=True)
class TimedStep:
    """One line: `after` and `took` in milliseconds (None: it took no time worth telling); the bar is 1,000 wide."""

    kind: str
    label: str
    detail: str
    bad: bool
    after: float
    took: float | None
    x: float
    width: float


def outcome(name: str) -> str:
    """An outcome in Chinese."""
    return OUTCOMES.get(name, name)


def outcome_state(name: str) -> str:
    """How an outcome is coloured: ``ok``, ``bad`` or ``busy``."""
    return _STATES.get(name, "busy")


def timeline(trace: Trace) -> list[TimedStep]:
    """The steps in order. One that tells its length lies on the bar where it began."""
    if not trace.steps:
        return []
    whole = max(max(step.at for step in trace.steps) - trace.at, 0.001)
    return [_timed(step, trace.at, whole) for step in trace.steps]


def _timed(step: Step, start: float, whole: float) -> TimedStep:
    seconds = step.facts.get("seconds")
    took = float(seconds) if isinstance(seconds, float) and seconds > 0 else None
    after = max(step.at - start, 0.0)
    begin = max(after - (took or 0.0), 0.0)
    width = max(1000 * (took or 0.0) / whole, 6.0)
    return TimedStep(
        kind=step.kind,
        label=LABELS.get(step.kind, step.kind),
        detail=_detail(step.facts),
        bad=step.kind in _BAD or bool(step.facts.get("error")),
        after=1000 * after,
        took=None if took is None else 1000 * took,
        x=round(min(1000 * begin / whole, 1000 - min(width, 1000)), 1),
        width=round(min(width, 1000), 1),
    )


def _detail(facts: Mapping[str, Fact]) -> str:
    if facts.get("attempts") == 1:
        facts = {name: value for name, value in facts.items() if name != "attempts"}
    said = [form.format(facts[name]) for name, form in _FACTS.items() if facts.get(name) not in (None, "")]
    if isinstance(first := facts.get("first_token"), int | float):
        said.append(f"{1000 * first:.0f} ms 后第一个字")
    if facts.get("parts", 1) != 1 and "part" in facts:
        said.insert(0, f"第 {facts['part']} / {facts['parts']} 部分")
    if facts.get("stopped"):
        said.append("用户中途停下")
    if facts.get("told") is False:
        said.append("没有告诉用户（一分钟内说过）")
    return "；".join(said)
