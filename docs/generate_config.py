"""Writes docs/config.md from the settings models: ``.venv/bin/python docs/generate_config.py``.

Keys, defaults, allowed values and what is not available yet come from the code; only the meanings are written here. A
test compares the file with what this makes, and a key without a meaning (or a meaning without a key) is an error.
"""

import re
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path

# This checkout's own packages, whichever checkout is installed.
sys.path.insert(0, str(Path(__file__).parent.parent))

import yaml
from pydantic import BaseModel, BeforeValidator, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from agents.agent import AgentSettings
from agents.model import ModelSettings
from agents.tools.mcp import McpServerSettings
from channels.channel import EntrySettings
from gateway.config.entries import KINDS
from gateway.config.sections import GatewayFile, Settings
from gateway.config.texts import DEFAULTS
from gateway.config.unavailable import remarks, unavailable
from memory.context import ContextOverrides
from memory.settings import SettingsModel, seconds

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "config.md"
AGENT_FILE = "agents/NAME.yaml"
LONGEST_DEFAULT = 60

HEAD = """\
# 配置

本页由 `docs/generate_config.py` 根据代码生成，请勿手改；测试会比较两者。带注释的完整示例是 [config/gateway.yaml](../config/gateway.yaml)。

- 配置目录默认为 `config/`，可用 `--config` 或环境变量 `SANQIAO_CONFIG` 另指；其中有 `gateway.yaml`、每个智能体一个的 `agents/名字.yaml`，以及可选的 `.env`。
- `${NAME}` 和 `${NAME:-默认值}` 取自环境变量，其次取自 `.env`（样例：[config/.env.example](../config/.env.example)）；要原样写出 `${`，请写 `$${`。
- 时长要带单位：`300ms`、`15s`、`30m`、`24h`、`7d`。开关只写 `true` 或 `false`。
- 不认识的键、重复的键、类型不对的值、已启用渠道缺少的密钥都是错误：`python -m gateway check` 一次列出全部，每个一行，写明文件、行号和改法；有错误时 `run` 不会启动。
- 保存后两秒内自动生效，不必重启；写错时继续使用原来的配置，并记入日志和 `/api/status`。需要重启的在各节注明。
- 标有「暂不可用」的键可以照抄，但这个版本还没有做到；一旦启用，`check` 和 `run` 会明确拒绝，或在启动时说明。
"""

SECTIONS: Mapping[str, tuple[str, str]] = {
    "server": ("平台回调的监听", "改后需重启。这个端口只接平台的回调和 `/healthz`。"),
    "console": ("控制台", "改后需重启。网页聊天、会话接口和指标都在这个端口，除登录页外都要登录。"),
    "timezone": ("时区", "改后需重启。"),
    "log": ("日志", "`log.format` 改后需重启。日志写到标准错误；INFO 级别不含消息正文，任何级别都不含密钥。"),
    "trace": (
        "轨迹",
        "每条消息发生过什么，存在工作目录的 `trace.db`：其中有每条消息的前 120 个字（隐去了号码；有自己的过滤器时不存）和发给模型的系统消息（含个人资料和摘要），所以与会话文件同样保管；删去它不影响别的。改小之后文件不会变小，空出的地方会再用。",
    ),
    "models": (
        "模型",
        "`models` 下的每一项是一个模型，名字任取；必有 `main`。没有 `api-key` 而 `base-url` 为默认值时：只启用网页聊天，"
        "`main` 由离线的演示模型代替，启动时会说明；启用了其他渠道，则拒绝启动。",
    ),
    "agent": ("智能体的默认值", "智能体文件和渠道可以用 `context` 逐项改写；越靠近使用处的越优先。"),
    "router": ("由谁回答", "依次看：本条消息指定的、用户用 `/agent` 选定的、规则、上一次的、例句、模型分类、默认的。"),
    "memory": ("记忆", "除 `memory.masking` 外，改后需重启。"),
    "cluster": ("多实例", "改后需重启。"),
    "conversations": ("对话", "`conversations.group-context` 改后需重启。"),
    "limits": ("限额", "对每个人分别计算；0 为不限。"),
    "tools": (
        "工具",
        "`tools.mcp` 下的每一项是一个 MCP 服务，名字任取（小写字母、数字、`-`）；智能体用 `mcp:名字/工具` 逐个选用，"
        "`mcp:名字/*` 为全部。要装 `mcp` 包，见 [README](../README.md#mcp-服务)。`command` 和 `url` 二者取一。",
    ),
    "texts": ("固定文字", "用户看到的固定文字，名字和默认值见文末。"),
    "admins": ("管理员", ""),
    "channels.NAME": (
        "渠道：每一项都可以写的键",
        "除 `agent`、`context`、`group-policy`、`dm-policy`、`allow-from` 外，改后需重启。同一平台的多个账号：名字任取，"
        "写明 `kind`，例如 `feishu-hr: {kind: feishu, …}`，webhook 地址为 `/feishu/feishu-hr`。",
    ),
    "channels.web": ("渠道 web：网页聊天", "没有自己的键；默认启用，页面由控制台提供。"),
    "channels.feishu": ("渠道 feishu：飞书", "设置步骤见 [README](../README.md#飞书机器人)。"),
    "channels.dingtalk": ("渠道 dingtalk：钉钉", "设置步骤见 [README](../README.md#钉钉机器人)。"),
    "channels.wechat": (
        "渠道 wechat：微信公众号",
        "回调地址为 `/wechat`；公众号没有群聊。设置步骤见 [README](../README.md#微信公众号)。",
    ),
    "channels.wecom-app": ("渠道 wecom-app：企业微信自建应用", ""),
    "channels.wecom-bot": (
        "渠道 wecom-bot：企业微信智能机器人",
        "设置步骤见 [README](../README.md#企业微信智能机器人)。",
    ),
    AGENT_FILE: (
        "智能体文件 agents/NAME.yaml",
        "文件名就是智能体的名字：小写字母、数字和 `-`，最多 48 个字符。它是会话编号的一部分，改名时把旧名字写进 `aliases`。",
    ),
}

MEANINGS: Mapping[str, str] = {
    "server.host": "监听地址。前面有反向代理时用默认值；直接对外时写 `0.0.0.0`",
    "server.port": "端口",
    "server.max-body-bytes": "单个请求的上限，单位字节；超出答 413",
    "server.drain": "停止时，最多等正在进行的回答这么久",
    "console.enabled": "是否开启控制台；关闭后网页聊天也不可用",
    "console.host": "监听地址。不是本机回环地址时，须填 `trusted-proxies` 或写 `allow-insecure: true`",
    "console.port": "端口，不能与 `server.port` 相同",
    "console.token": "登录令牌；留空则首次启动时生成，保存在工作目录的 `console-token`",
    "console.trusted-proxies": "前面的 TLS 反向代理，IP 或网段；只有来自它们的 `X-Forwarded-*` 才被采信",
    "console.allow-insecure": "允许不经 TLS 对外开放（不建议）",
    "timezone": "存储、日志和按天计数所用的时区",
    "log.level": "级别",
    "log.format": "格式",
    "trace.keep-days": "保留多少天",
    "trace.max-mb": "最多占多少 MB（约四万到十万条消息）；超出时从最旧的删起",
    "models.NAME.provider": "`openai` 指任何兼容 OpenAI 接口的服务；`demo` 是离线的演示模型",
    "models.NAME.base-url": "接口地址，到 `/v1` 这一级，不含 `/chat/completions`",
    "models.NAME.api-key": "密钥",
    "models.NAME.model": "模型的名字，以服务商的文档为准",
    "models.NAME.context-tokens": "模型的上下文长度，单位 token",
    "models.NAME.max-output-tokens": "一次回答的上限，单位 token，须小于 `context-tokens`",
    "models.NAME.timeout": "一次尝试中，等下一个字的最长时间",
    "models.NAME.total-timeout": "一个回答的总时间，含重试和后备模型",
    "models.NAME.history": "`messages` 逐条发送历史；`text` 把历史引用在系统消息里，供不支持多轮的模型使用",
    "models.NAME.max-concurrency": "同时进行的请求数，其余排队",
    "models.NAME.fallback": "后备模型的名字，在连不上、超时、密钥无效或答复不成样子时依次尝试；连续失败五次的模型歇一会儿再试，其间直接用后备的",
    "agent.default": "没有其他依据时由谁回答",
    "agent.context.window.max-messages": "一次请求最多带多少条，含当前问题",
    "agent.context.window.keep-recent": "超出 `max-tokens` 时，最近这么多条仍保留；不大于 `max-messages`",
    "agent.context.window.max-tokens": "历史的 token 预算；单条超过四分之一时，只给模型看首尾",
    "agent.context.window.filter-short-messages": "略去「收到」「谢谢」这类只表示知道了的话",
    "agent.context.window.short-message-threshold": "短于多少个字（英文按词）才可能略去",
    "agent.context.window.keep-answers": "「好的」「是」在回答助手的提问时保留",
    "agent.context.window.closers": "总是略去的词",
    "agent.context.window.assents": "不是在回答提问时略去的词",
    "agent.context.summary.enabled": "放不进窗口的对话写成摘要",
    "agent.context.summary.after-turns": "多少轮之后开始",
    "agent.context.summary.every-messages": "此后每多少条一次",
    "agent.context.summary.keep": "最近这么多条不写进摘要",
    "agent.context.summary.model": "`models` 中的名字；没有 `summary` 这一项时用 `main`",
    "agent.context.summary.max-chars": "摘要的上限，单位字符",
    "agent.policies": "预设的 `window` 和 `summary`，按名字在 `context.policy` 中选用；随附 `tech-support`、"
    "`customer-service`、`casual-chat`",
    "router.sticky-for": "没有命中别的智能体的规则时，多久之内仍由上次的智能体回答",
    "router.classify.enabled": "新的（或搁置已久的）对话，规则和例句都不能决定时，请模型从智能体中选一个；演示模型不问",
    "router.classify.model": "`models` 中的名字",
    "router.classify.timeout": "最多等这么久；超时或失败，由默认的智能体回答",
    "memory.masking": "存储和发给模型之前隐去的号码：`id-card` 身份证、`phone` 手机、`bank-card` 银行卡；`[]` 为不隐去。"
    "也可以写自己的过滤器 `模块:函数`：收到文字，交回改过的文字，交回 `None` 则拒绝这条消息；出错或超过 2 秒也拒绝。"
    "模块放在配置目录的上一级，或装在本程序的环境里；改了模块要重启",
    "memory.redis.url": "最近各轮的缓存，以文件为准，连不上时照常从文件回答；留空则不用",
    "memory.redis.prefix": "键的前缀",
    "memory.redis.ttl": "每次写入后保留多久",
    "memory.redis.cooldown": "连不上时，隔多久再试",
    "memory.redis.timeout": "一次操作最多等多久",
    "memory.long-term.enabled": "是否使用知识库",
    "memory.long-term.store": "向量存在哪里",
    "memory.long-term.uri": "Milvus 的地址，或 Milvus Lite 的文件",
    "memory.long-term.embedding": "向量模型在 `models` 中的名字；留空则按文字检索",
    "memory.long-term.top-k": "最多取几段",
    "memory.long-term.min-score": "低于此相似度的不取，只用于向量检索",
    "memory.durability": "会话写到什么程度才算完成：`sync` 已落盘；`batch` 0.05 秒内落盘；`none` 由系统决定",
    "cluster.enabled": "几个网关共用一个工作目录",
    "cluster.redis": "不得淘汰数据的 Redis",
    "conversations.group-context": "群聊中每人各有上下文（`member`），或全群共用一段对话（`shared`）：写明谁在说话，`/new` 只由管理员或最近提问的人执行",
    "conversations.debounce": "收到消息后再等多久，把连发的几条合为一问",
    "conversations.merge-queued": "回答期间到来的几条合为一问",
    "conversations.answer-after-restart": "重启后，多久以内的消息还要回答；一条回答也最多在这段时间内重试发送",
    "limits.messages-per-minute": "一个人每分钟的消息数，命令也算；`/stop` 和 `/forget` 超出后每分钟仍可发 3 条",
    "limits.tokens-per-day": "每天（按 `timezone`）的 token 数，以模型服务端报的为准，没有报的按估算；只计回答，不计分类和摘要；用完当次的回答照常给出，之后的消息得到固定的 `daily-limit`，命令不受影响",
    "limits.max-text-bytes": "单条消息的上限，单位字节（UTF-8，一个汉字 3 字节）；超出时请对方缩短",
    "texts": "按名字替换，例如 `{busy: 请稍后再试}`；花括号中的名字会被填入",
    "admins": "管理员的用户标识，发送 `/whoami` 查看；全群共用一段对话时，只有他们和最近提问的人可以 `/new`",
    "tools.mcp": "MCP 服务，每一项的键见下",
    "tools.mcp.NAME.command": "本机的程序和它的参数，例如 `[npx, -y, 包名]`；它用标准输入输出说话，随网关启动和结束。只继承 `PATH`、`HOME` 一类的环境变量",
    "tools.mcp.NAME.env": "给程序的环境变量",
    "tools.mcp.NAME.url": "streamable HTTP 的地址；里面的密钥不会显示，可以取自环境变量（随附文件的例子为 `AMAP_KEY`）",
    "tools.mcp.NAME.headers": "请求头，例如 `{Authorization: Bearer …}`",
    "tools.mcp.NAME.timeout": "一次调用最多多久",
    "channels.NAME.enabled": "是否启用（`web` 默认启用）",
    "channels.NAME.kind": "渠道的种类；不写则与名字相同",
    "channels.NAME.account-alias": "换了应用而要接续原来的对话时，写原应用的账号（飞书为 app-id）",
    "channels.NAME.agent": "此渠道默认的智能体；留空则用 `agent.default`",
    "channels.NAME.context": "此渠道的 `policy`、`window`、`summary`，例如 `{window: {max-messages: 10}}`",
    "channels.NAME.group-policy": "群聊：`mention` 被 @ 才回答；`all` 都回答；`off` 不回答",
    "channels.NAME.dm-policy": "私聊：`open` 都回答；`allowlist` 只回答 `allow-from` 中的人；`off` 不回答",
    "channels.NAME.allow-from": "允许私聊的人，写 `/whoami` 显示的标识或平台账号",
    "channels.NAME.proxy": "访问平台所用的 HTTP 代理，例如 `http://127.0.0.1:7890`",
    "channels.feishu.mode": "`websocket` 长连接，不需要公网地址；`webhook` 回调，地址为 `/feishu`",
    "channels.feishu.app-id": "应用凭证中的 App ID",
    "channels.feishu.app-secret": "应用凭证中的 App Secret",
    "channels.feishu.verification-token": "加密策略中的 Verification Token；`webhook` 必填",
    "channels.feishu.encrypt-key": "加密策略中的 Encrypt Key；`webhook` 必填",
    "channels.feishu.api-base-url": "国际版 Lark 写 `https://open.larksuite.com`",
    "channels.dingtalk.mode": "`stream` 长连接，不需要公网地址；`http` 回调，地址为 `/dingtalk`",
    "channels.dingtalk.client-id": "应用凭证中的 Client ID（AppKey）",
    "channels.dingtalk.client-secret": "应用凭证中的 Client Secret（AppSecret）",
    "channels.dingtalk.card-template-id": "AI 卡片的模板；留空则不用卡片",
    "channels.dingtalk.api-base-url": "新版接口的地址",
    "channels.dingtalk.oapi-base-url": "旧版接口的地址",
    "channels.wechat.mode": "服务器配置中的消息加解密方式：`safe` 安全模式（兼容模式也写它）；`plain` 明文模式，正文没有验真，不建议",
    "channels.wechat.app-id": "公众号的 AppID；启用时必填",
    "channels.wechat.app-secret": "公众号的 AppSecret；`active-send: off` 时可不填",
    "channels.wechat.token": "服务器配置中的 Token；启用时必填",
    "channels.wechat.encoding-aes-key": "服务器配置中的 EncodingAESKey；`safe` 必填",
    "channels.wechat.active-send": "是否用客服消息主动发送；`auto` 在平台拒绝后改为被动回复",
    "channels.wechat.api-base-url": "接口地址",
    "channels.wecom-app.corp-id": "企业 ID",
    "channels.wecom-app.agent-id": "应用的 AgentId",
    "channels.wecom-app.secret": "应用的 Secret",
    "channels.wecom-app.token": "接收消息设置中的 Token",
    "channels.wecom-app.encoding-aes-key": "接收消息设置中的 EncodingAESKey",
    "channels.wecom-app.api-base-url": "接口地址",
    "channels.wecom-bot.mode": "`websocket` 长连接，不需要公网地址；`webhook` 回调",
    "channels.wecom-bot.corp-id": "企业 ID；填写后，同一个人在这家企业的几个机器人中是同一个用户",
    "channels.wecom-bot.bot-id": "机器人的 Bot ID",
    "channels.wecom-bot.secret": "长连接的 Secret",
    "channels.wecom-bot.token": "回调的 Token",
    "channels.wecom-bot.encoding-aes-key": "回调的 EncodingAESKey",
    "channels.wecom-bot.bot-name": "机器人的名字；名字里有空格时填写，才能从消息中去掉对它的 @",
    "channels.wecom-bot.websocket-url": "长连接的地址",
    f"{AGENT_FILE}: description": "一句话说明，`/agents` 和网页会显示，模型分类时也以它为准",
    f"{AGENT_FILE}: prompt": "系统提示；必填",
    f"{AGENT_FILE}: model": "`models` 中的名字",
    f"{AGENT_FILE}: temperature": "采样温度；不写则由模型决定",
    f"{AGENT_FILE}: seed": "采样的种子，支持它的服务对同样的请求尽量给出同样的回答；服务不认它时去掉再问",
    f"{AGENT_FILE}: context": "这个智能体的 `policy`、`window`、`summary`",
    f"{AGENT_FILE}: masking": "不写则同 `memory.masking`",
    f"{AGENT_FILE}: intents.keywords": "出现这些词就可能由它回答",
    f"{AGENT_FILE}: intents.patterns": "同上，正则表达式，不分大小写，只看消息的前 2000 个字符",
    f"{AGENT_FILE}: intents.examples": "例句：新的对话与它明显相近时由它回答；模型分类时也给模型看前几句",
    f"{AGENT_FILE}: tools": "模型可以调用的工具：`search_jobs`、`update_profile`、`read_profile`、`recall`、`current_time`，自己的 `模块:函数`，或 `mcp:服务/工具`",
    f"{AGENT_FILE}: aliases": "以前的名字；原来的会话由它接续",
}


def keys(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    """The keys of a model as they are written, sections inside it included."""
    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name.replace("_", "-"))
        annotation = field.annotation
        if (
            isinstance(annotation, type)
            and issubclass(annotation, SettingsModel)
            and annotation is not ContextOverrides
        ):
            yield from keys(annotation, f"{key}.")
        else:
            yield key, field


def all_keys() -> dict[str, FieldInfo]:
    """Every key of every file; ``NAME`` stands where an admin picks a name."""
    found = {key: field for key, field in keys(GatewayFile, "") if key != "models"}
    found |= dict(keys(ModelSettings, "models.NAME."))
    found |= dict(keys(McpServerSettings, "tools.mcp.NAME."))
    found |= dict(keys(EntrySettings, "channels.NAME."))
    found["channels.NAME.context"] = FieldInfo(annotation=dict, default={})
    for kind, model in KINDS.items():
        own = keys(model, f"channels.{kind}.")
        found |= {key: field for key, field in own if key.rpartition(".")[2].replace("-", "_") not in _shared()}
    return found | dict(keys(AgentSettings, f"{AGENT_FILE}: "))


def _shared() -> set[str]:
    return set(EntrySettings.model_fields)


def default(field: FieldInfo) -> str:
    """A default as it would be written in YAML."""
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return "（必填）"
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if any(isinstance(each, BeforeValidator) and each.func is seconds for each in field.metadata):
        text = _duration(value)
    elif value is None:
        return "（不写）"
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, tuple):
        text = f"[{', '.join(map(str, value))}]"
    elif isinstance(value, str):
        text = value or '""'
    else:
        text = str(value)
    return f"`{text}`" if len(text) <= LONGEST_DEFAULT else "见 config/gateway.yaml"


def _duration(value: float) -> str:
    for unit, length in (("h", 3600), ("m", 60), ("s", 1)):
        if value >= length and value % length == 0:
            return f"{value / length:g}{unit}"
    return f"{value * 1000:g}ms" if value else "0s"


def choices(field: FieldInfo) -> tuple[str, ...]:
    """The only values a key takes; none where it takes others too."""
    if typing.get_origin(field.annotation) is typing.Literal:
        return typing.get_args(field.annotation)
    patterns = (re.fullmatch(r"\^\(([\w|-]+)\)\$", str(getattr(each, "pattern", ""))) for each in field.metadata)
    return next((tuple(found[1].split("|")) for found in patterns if found), ())


def bounds(field: FieldInfo) -> str:
    """The lowest and the highest number a key takes."""
    signs = (("ge", "≥"), ("gt", ">"), ("le", "≤"))
    said = ((sign, getattr(each, name, None)) for each in field.metadata for name, sign in signs)
    return "，".join(f"{sign} {_number(bound)}" for sign, bound in said if bound is not None)


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:g}"


def not_yet() -> dict[str, str]:
    """The keys that can ask for what the program does not do yet; what to write instead where it says so."""
    more = {"dingtalk": {"card_template_id": "x"}, "wecom-bot": {"mode": "webhook"}}
    asked = {
        "channels": {
            kind: model(kind=kind).model_copy(update={"enabled": True, **more.get(kind, {})})
            for kind, model in KINDS.items()
        },
        "agents": {"a": AgentSettings(prompt="-", tools=("current_time",))},
        "memory": {
            "redis": {"url": "redis://x"},
            "long-term": {"store": "milvus", "embedding": "x", "uri": "x", "top-k": 1, "min-score": 0.1},
        },
        "cluster": {"enabled": True},
        "conversations": {"group-context": "shared"},
    }
    refused = {
        (f"{AGENT_FILE}: " if each.agent else "") + ".".join(map(str, each.path)): each.remedy
        for each in unavailable(Settings.model_validate(asked))
    }
    remarked = [text for text in remarks(Settings()) if "暂不可用" in text]
    return refused | {key: "" for text in remarked for key in re.findall(r"（([\w.-]+)）", text)}


def late(key: str, field: FieldInfo, refused: Mapping[str, str]) -> str:
    """What is to be said of a key that is of no effect yet, or stands in a section that is not."""
    sections = {each.removesuffix(".enabled").removesuffix(".url") for each in refused if each.count(".") < 3}
    if any(key.startswith(f"{each}.") for each in sections) or (key in refused and not choices(field)):
        return "**暂不可用**"
    return f"**暂时只能{refused[key]}**" if key in refused else ""


def environment() -> dict[str, str]:
    """Which keys the shipped file takes from which variable of the environment."""
    shipped = yaml.safe_load((ROOT / "config" / "gateway.yaml").read_text(encoding="utf-8"))
    return dict(_variables(shipped, ""))


def _variables(node: object, prefix: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _variables(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(node, str) and (found := re.match(r"\$\{(\w+)", node)):
        yield prefix.replace("models.main.", "models.NAME."), found[1]


def section_of(key: str) -> str:
    """The heading a key stands under."""
    if key.startswith(AGENT_FILE):
        return AGENT_FILE
    parts = key.split(".")
    return ".".join(parts[:2]) if parts[0] == "channels" else parts[0]


def page() -> str:
    """The whole of docs/config.md. Raises ValueError for a key without a meaning or a meaning without a key."""
    found, variables, refused = all_keys(), environment(), not_yet()
    if found.keys() != MEANINGS.keys():
        raise ValueError(f"MEANINGS and keys differ: {sorted(found.keys() ^ MEANINGS.keys())}")
    lines = [HEAD]
    for section, (title, intro) in SECTIONS.items():
        rows = [key for key in found if section_of(key) == section]
        said = {key: late(key, found[key], refused) for key in rows}
        nothing = bool(rows) and all(said.values())
        lines += [f"## {title}{'（暂不可用）' if nothing else ''}", ""]
        lines += [intro, ""] if intro else []
        lines += ["| 键 | 默认 | 含义 |", "| --- | --- | --- |"] if rows else []
        for key in rows:
            notes = [MEANINGS[key], bounds(found[key])]
            if any(f"`{choice}`" not in MEANINGS[key] for choice in choices(found[key])):
                notes.append(" / ".join(f"`{choice}`" for choice in choices(found[key])))
            notes += [f"随附文件取自 `{variables[key]}`"] if key in variables else []
            notes += [] if nothing else [said[key]]
            lines.append(f"| `{key}` | {default(found[key])} | {'。'.join(filter(None, notes))} |")
        lines += [""] if rows else []
    return "\n".join([*lines, *_texts()])


def _texts() -> list[str]:
    lines = ["## texts 的名字和默认值", "", "| 名字 | 默认 |", "| --- | --- |"]
    lines += [f"| `{name}` | {text.replace('|', '／').replace(chr(10), '<br>')} |" for name, text in DEFAULTS.items()]
    return [*lines, ""]


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
