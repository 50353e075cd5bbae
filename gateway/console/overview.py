"""The state of the gateway as the overview shows it: what needs attention first, then a line for each part. Pure."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.console.backend import AgentInfo
from gateway.console.timeline import outcome_state
from gateway.tracing.trace import Outcome, Trace


@dataclass(frozen=True, slots=True)
class Line:
    """One part: `state` is ``ok``, ``bad`` or ``off``; `detail` says how it is (Chinese), `age` for how many seconds."""

    name: str
    state: str
    detail: str
    age: float | None = None
    more: str = ""


@dataclass(frozen=True, slots=True)
class Tally:
    """How it went with some messages: how many, how many of them not as they should, half of the answers within `median`.

    `median` in milliseconds, None without an answer; `last` is when the newest came (unix seconds).
    """

    count: int
    failed: int
    median: float | None
    last: float


@dataclass(frozen=True, slots=True)
class Attention:
    """Something an admin should do: what is wrong, and the remedy."""

    what: str
    remedy: str
    link: str = ""


@dataclass(frozen=True, slots=True)
class Overview:
    """All of it; `attention` empty while all is well."""

    attention: Sequence[Attention]
    channels: Sequence[Line]
    models: Sequence[Line]
    servers: Sequence[Line]
    stores: Sequence[Line]
    waiting: int | None
    unsent: int | None
    lanes: int
    notes: Sequence[str]
    demo: bool


def tallies(traces: Iterable[Trace], key: Callable[[Trace], str]) -> dict[str, Tally]:
    """The traces by `key`; those for which it is "" are left out."""
    groups: dict[str, list[Trace]] = defaultdict(list)
    for trace in traces:
        if name := key(trace):
            groups[name].append(trace)
    return {name: _tally(group) for name, group in groups.items()}


def _tally(traces: Sequence[Trace]) -> Tally:
    took = [1000 * (trace.last - trace.at) for trace in traces if trace.outcome is Outcome.DELIVERED]
    return Tally(
        count=len(traces),
        failed=sum(outcome_state(trace.outcome) == "bad" for trace in traces),
        median=statistics.median(took) if took else None,
        last=max(trace.at for trace in traces),
    )


def agent_of(trace: Trace) -> str:
    """The agent that answered; "" where none was chosen."""
    return trace.conversation.rpartition(":")[2]


def agents_failing_first(agents: Sequence[AgentInfo], found: Mapping[str, Tally]) -> list[AgentInfo]:
    """The agents, those with failures first, then those that talk most."""

    def weight(agent: AgentInfo) -> tuple[int, int]:
        tally = found.get(agent.name)
        return (-tally.failed, -tally.count) if tally else (0, 0)

    return sorted(agents, key=weight)


def overview(status: Mapping[str, Any], now: float) -> Overview:
    """What `GET /api/status` says, sorted for eyes. `now` in unix seconds."""
    channels = _worst_first(_line(name, each, now) for name, each in status["channels"].items())
    models = _worst_first(
        _line(name, each, now, more=f"{each['provider']} · {each['model']}") for name, each in status["models"].items()
    )
    servers = _worst_first(
        _line(name, each, now, more=f"{len(each['tools'])} 个工具") for name, each in status.get("mcp", {}).items()
    )
    stores = [_inbox(status), _files(status), _redis(status)]
    config = status["config"]
    attention = [Attention("配置有误，仍在用原来的配置", problem, "/config") for problem in config["problems"]]
    for kind, lines in (("渠道", channels), ("模型", models), ("MCP 服务", servers), ("", stores)):
        attention += [Attention(f"{kind} {line.name}".strip(), line.detail) for line in lines if line.state == "bad"]
    if config["waiting_for_restart"]:
        keys = "、".join(config["waiting_for_restart"])
        attention.append(Attention("改动要重启才生效", f"{keys}；方便时重启网关", "/config"))
    queue = status["queue"]
    return Overview(
        attention=attention,
        channels=channels,
        models=models,
        servers=servers,
        stores=stores,
        waiting=queue["waiting"],
        unsent=queue["unsent"],
        lanes=queue["lanes"],
        notes=config["notes"],
        demo=status["demo"],
    )


def _worst_first(lines: Any) -> list[Line]:
    return sorted(lines, key=lambda line: line.state != "bad")


def _line(name: str, health: Mapping[str, Any], now: float, more: str = "") -> Line:
    if "ok" not in health:
        return Line(name, "off", "还没有用过", more=more)
    since = float(health["since"])
    return Line(name, "ok" if health["ok"] else "bad", health["detail"], max(now - since, 0) if since else None, more)


def _inbox(status: Mapping[str, Any]) -> Line:
    inbox = status["inbox"]
    return Line("收件箱", "ok", "正常") if inbox["state"] == "ok" else Line("收件箱", "bad", inbox["detail"])


def _files(status: Mapping[str, Any]) -> Line:
    files = status["memory"]
    if files["state"] == "ok" and not files["lost"]:
        return Line("会话文件", "ok", "正常")
    told = f"{files['waiting']} 条在等待写入，放弃了 {files['lost']} 条"
    return Line("会话文件", "bad", f"{told}；{files['remedy']}" if files["remedy"] else told)


def _redis(status: Mapping[str, Any]) -> Line:
    redis = status["redis"]
    match redis["state"]:
        case "off":
            return Line("Redis", "off", "没有配置")
        case "ok":
            return Line("Redis", "ok", "正常")
    return Line("Redis", "bad", f"{redis['remedy']}；{redis['cooldown_left']:.0f} 秒后再试，其间由文件回答")
