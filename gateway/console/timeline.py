"""A trace as lines a person reads: what happened, how long after the message came, how long it took. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from channels.feishu.codes import ADMIN_REMEDIES
from gateway.tracing.trace import Fact, Kind, Outcome, Step, Trace

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
    "error": "{}",
    "outcome": "{}",
    "state": "第一次投递{}",
    "finish": "{}",
    "kept": "留下 {} 条",
    "dropped": "略去 {} 条",
    "prompt_tokens": "输入 {} tokens",
    "completion_tokens": "输出 {} tokens",
    "chars": "{} 字",
    "attempts": "试了 {} 次",
    "attempt": "第 {} 次没有成功",
    "pause": "{} 秒后再发",
    "into": "并入 {}",
    "platform_id": "平台编号 {}",
}
_FLAGS: Mapping[tuple[str, bool], str] = {
    ("stopped", True): "用户中途停下",
    ("told", False): "没有告诉用户（一分钟内说过）",
    ("uncertain", True): "没有收到平台的回音，按已送达算",
    ("fetched", True): "用户来取的",
}
UNSAID = (
    "by",
    "conversation",
    "messages",
    "parts",
    "part",
    "seconds",
    "text",
    "tools",
    "trace",
    "waited",
    "first_token",
)
"""The facts that stand elsewhere in the page, or only in the API."""
_MODEL_DOWN = "模型服务连不上或中断；请检查 base-url、网络和模型服务"
_ODD = "模型的回答不是预期的形式；请检查 base-url 和 model"
_SLOW = "模型没有及时回答；请检查模型服务，或加大 timeout、total-timeout"
_NO_KEY = "模型的设置不对；请检查 api-key、base-url 和 model"
_FILTERED = "模型服务的内容审查不让回答；请换一种说法，或换模型"
_NO_ROOM = "问题太长，放不进模型的上下文；请缩短它，或核对 context-tokens"
_BUSY = "模型服务太忙或出错；请查看它的状态和配额，常见则加 fallback"
_BROKE_OFF = "回答到一半时连接断了；请检查网络和模型服务"
_DISK = "会话文件写不进去；请检查工作目录的磁盘和权限"

WORDS: Mapping[str, Mapping[str, str]] = {
    "refusal": {
        "refused-dm": "私聊不对此人开放；要开放，在渠道的 allow-from 里加上他，或改 dm-policy",
        "rate-limited": "一分钟内说得太多；常见则加大 limits.messages-per-minute",
        "daily-limit": "今天的用量用完了；不够则加大 limits.tokens-per-day",
        "too-long": "消息超过 limits.max-text-bytes；可以加大它，或请用户分几次发",
        "refused-by-filter": "自己的过滤器丢弃了它；不该丢的，请修改 masking 里的过滤器",
        "unsupported": "不是文字，没有交给模型；已请用户改发文字，无需处理",
        "empty": "没有文字，没有交给模型；已请用户写出问题，无需处理",
        "welcome": "用户打开了聊天，已发欢迎语，无需处理",
    },
    "text": {
        "failed": "没能回答；请按轨迹号查看日志",
        "busy": _BUSY,
        "unavailable": _MODEL_DOWN,
        "broke-off": _BROKE_OFF,
        "timeout": _SLOW,
        "too-long": _NO_ROOM,
        "refused-by-model": _FILTERED,
        "stopped": "提问的人要求删除资料，不再回答；无需处理",
        "not-stored": "收件箱写不进去，等平台再次投递；请检查磁盘",
    },
    "error": {
        "ModelError": "模型没有回答；请查看日志",
        "ModelTimeout": _SLOW,
        "ModelUnavailable": _MODEL_DOWN,
        "ModelBusy": _BUSY,
        "ModelBrokeOff": _BROKE_OFF,
        "NoPlace": "等不到空位；请加大 max-concurrency",
        "ModelResting": "模型接连失败，暂停提问；请先修好它，随后自动恢复",
        "ModelMisconfigured": _NO_KEY,
        "ModelRefused": _FILTERED,
        "ContextTooLong": _NO_ROOM,
        "OddAnswer": _ODD,
        "BlankAnswer": "模型的回答是空的；会思考的模型请加大 max-output-tokens",
        "QuestionTooLong": _NO_ROOM,
        "FilterFailed": "自己的过滤器出错，消息没有处理；请修正 masking 里的过滤器",
        "Forgotten": "提问的人要求删除资料，不再回答；无需处理",
        "StoreError": _DISK,
        "StoreFull": "磁盘或配额已满；请清理空间",
        "StoreBusy": "会话文件被别的程序占用；请关闭它",
        "StoreUnavailable": _DISK,
        "StoreClosed": "网关正在停止，重启后接着处理",
        "PersonFileTooLarge": "个人资料的文件太大；请删减它",
        "ProfileUnreadable": "个人资料读不出；请修正它的文件",
        "OperationalError": "数据库读写失败；请检查工作目录的磁盘和权限",
        "stopped": "中途停下：用户要求，或网关停止",
    },
    "state": {
        "accepted": "已收下，还在等",
        "taken": "正在回答",
        "answered": "已答，未送达",
        "delivered": "已送达",
        "refused": "已被拒绝",
        "command": "是命令，已执行",
        "expired": "已过期",
        "failed": "没能回答",
        "forgotten": "已按要求删除",
    },
    "outcome": {
        "done": "完成",
        "time-out": "没有按时完成；请检查它访问的服务",
        "refused": "没有做：参数不对或服务不可用，模型已知道",
        "failed": "出错；请按轨迹号查看日志",
        "filtered": "结果被自己的过滤器丢弃",
    },
    "finish": {"length": "到 max-output-tokens 被截断；常见则加大它"},
}
"""What the words in traces mean: by fact (a refusal's reason is ``refusal``), word → Chinese with the remedy."""

_MESSAGES: tuple[tuple[str, str], ...] = (
    # platforms, with another message in them
    (r"^no access token", "取不到平台的访问令牌；请在总览里看这个渠道"),
    (r"^half of it was sent", "发到一半没有了回音，可能只到了一部分"),
    # models: agents.openai_client, agents.refusal, agents.models, agents.tool_loop
    (r": the server refuses the key", "模型服务不认这个密钥；请检查 api-key"),
    (r": not found \(status 404\)", "模型服务没有这个地址或模型；请检查 base-url 和 model"),
    (r"no balance or quota left", "模型账号的余额或额度用完了；请充值"),
    (r": the server refuses the request", "模型服务不接受请求；请检查 model 和 base-url"),
    (r"longer than the model's context", _NO_ROOM),
    (r"the provider's content filter", _FILTERED),
    (r": not asked, it failed too often", WORDS["error"]["ModelResting"]),
    (r": no place in time", WORDS["error"]["NoPlace"]),
    (r": total-timeout is used up by tools", "工具用完了时间；请检查工具，或加大 total-timeout"),
    (r": no answer in time", _SLOW),
    (r": a blank answer", WORDS["error"]["BlankAnswer"]),
    (r": calls tools without end", "模型不停地调用工具；请改写提示词，或换模型"),
    (r": the answer is no JSON|answer without choices|an error instead of an answer|something else than a chat", _ODD),
    (r": (?:no|broken) connection \(|: the server broke off", _MODEL_DOWN),
    (r": status \d+$", _BUSY),
    # own filters: memory.filters
    (r"^filter=\S+ reason=time-out", "自己的过滤器超时，消息没有处理；请让它更快"),
    (r"^filter=\S+ reason=", WORDS["error"]["FilterFailed"]),
    # what a platform or the way to it says: the channels
    (r"\bcode 230002\b", "机器人不在这个群里；请把它加回群"),
    *((rf"^status 400 code {code}\b", remedy) for code, remedy in ADMIN_REMEDIES.items()),
    (
        r"^the (?:platform's limits were hit|person gets too many)|^too many messages",
        "平台限制发送的频率；等一等会再发",
    ),
    (r"^the message did not come from", "这条消息不是从这个渠道来的；请检查渠道的 kind 和账号"),
    (r"session webhook is gone", "会话的回复地址已失效，机器人又没有他的员工号；请他再发一条"),
    (r"is not known to this robot", "平台说机器人够不到这个人；请检查应用的可见范围"),
    (r"quota of this message|may not send by itself|takes no more until", "平台现在不让主动发；用户下次来时取走"),
    (r"waits for the next contact", "等用户下次来时取走，无需处理"),
    (r"^too late for a welcome|^welcome not sent", "欢迎语没有赶上平台的五秒，无需处理"),
    (r"^no answer within|^not acknowledged|^time-out$", "平台没有回音；请检查网络"),
    (
        r"^(?:no connection|not connected|closed)|connection was lost|^[A-Z]\w+(?:Error|URL)$",
        "连不上平台；请检查网络、代理和 api-base-url",
    ),
    (
        r"^session webhook status|^status \d+|^errcode ",
        "平台没有接受这次发送；请按它的错误码查平台的文档，看权限和群成员",
    ),
    (r"^bot info without", "平台的回答不完整；请检查应用是否启用了机器人"),
)
"""What the messages of errors in traces mean, the first that is found: pattern → Chinese with the remedy."""
_COMPILED = tuple((re.compile(pattern), meaning) for pattern, meaning in _MESSAGES)


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


def reason(trace: Trace) -> str:
    """Why a message was not answered: in Chinese with a remedy, in brackets the reason as it is in logs and API."""
    return _explained(trace.reason, trace.outcome is Outcome.REFUSED)


def _explained(said: str, refused: bool = False) -> str:
    """A reason in Chinese, with the raw one in brackets; as it is where it is unknown (most are Chinese already)."""
    meaning = WORDS["refusal" if refused else "text"].get(said) or next(
        (meaning for pattern, meaning in _COMPILED if pattern.search(said)), None
    )
    return f"{meaning}（{said}）" if meaning else said


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
        detail=_detail(step.kind, step.facts),
        bad=step.kind in _BAD or bool(step.facts.get("error")),
        after=1000 * after,
        took=None if took is None else 1000 * took,
        x=round(min(1000 * begin / whole, 1000 - min(width, 1000)), 1),
        width=round(min(width, 1000), 1),
    )


def _detail(kind: Kind, facts: Mapping[str, Fact]) -> str:
    told = {name: _told(kind, name, value) for name, value in facts.items() if value not in (None, "")}
    if facts.get("attempts") == 1:
        told.pop("attempts", None)
    if told.get("reason"):
        told.pop("error", None)  # it says the same, less precisely
    said = [form.format(told[name]) for name, form in _FACTS.items() if told.get(name)]
    if isinstance(first := facts.get("first_token"), int | float):
        said.append(f"{1000 * first:.0f} ms 后第一个字")
    if facts.get("parts", 1) != 1 and "part" in facts:
        said.insert(0, f"第 {facts['part']} / {facts['parts']} 部分")
    said += [text for (name, value), text in _FLAGS.items() if name in facts and facts[name] is value]
    return "；".join(said)


def _told(kind: Kind, name: str, value: Fact) -> str:
    """One fact as it is shown; "" where it says nothing worth it."""
    text = str(value)
    if name == "reason":
        return text if kind is Kind.ROUTED else _explained(text, kind is Kind.REFUSED)
    if name == "finish":
        return WORDS[name].get(text, "")
    meaning = WORDS.get(name, {}).get(text)
    if name == "error":
        return f"{meaning or '出错；请按轨迹号查看日志'}（{text}）"
    return meaning or text
