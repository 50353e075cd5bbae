"""What no single key can tell: names that must exist elsewhere, values that do not go together."""

import importlib.util
import ipaddress
import zoneinfo
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from agents.model import ModelSettings
from agents.tools.mcp import grant_of, is_grant, problem_of
from agents.tools.registry import UnknownTool, load_tools
from channels.feishu.settings import FeishuSettings
from gateway.config.planned_channels import PLANNED
from gateway.config.problems import KeyPath, Problem, suggestion
from gateway.config.sections import Settings
from gateway.config.texts import DEFAULTS, placeholders
from gateway.config.unavailable import unavailable
from gateway.config.yaml_source import Document
from memory.context import ContextOverrides, ContextPreset, resolve
from memory.filters import is_named_so, load_filter
from memory.masking import MaskingRules


@dataclass(frozen=True, slots=True)
class Documents:
    """The files the settings were read from; agents' by the agents' names."""

    gateway: Document
    agents: Mapping[str, Document]


def cross_checks(settings: Settings, documents: Documents) -> list[Problem]:
    """Every problem between keys and files."""
    at = documents.gateway.problem
    found: list[Problem] = []
    for check in (
        _listeners,
        _timezone,
        _texts,
        _models,
        _main_model,
        _default_agent,
        _entries,
        _policies,
        _filters,
        _mcp_servers,
    ):
        found += [at(path, message) for path, message in check(settings)]
    for name, document in documents.agents.items():
        if name in settings.agents:
            found += [document.problem(path, message) for path, message in _agent(settings, name)]
    for each in unavailable(settings):
        document = documents.agents[each.agent] if each.agent else documents.gateway
        found.append(document.problem(each.path, each.message))
    return found


Found = Iterator[tuple[KeyPath, str]]


def is_loopback(host: str) -> bool:
    """Whether a listener on this host is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _listeners(settings: Settings) -> Found:
    console = settings.console
    if console.enabled and console.port == settings.server.port:
        yield ("console", "port"), f"与 server.port 相同（{console.port}）；请写另一个端口"
    for number, proxy in enumerate(console.trusted_proxies):
        try:
            ipaddress.ip_network(proxy, strict=False)
        except ValueError:
            yield ("console", "trusted-proxies", number), "应为 IP 地址或网段；例如 10.0.0.1 或 10.0.0.0/8"
    if console.enabled and not (is_loopback(console.host) or console.trusted_proxies or console.allow_insecure):
        yield (
            ("console", "host"),
            f"{console.host} 可从其他机器访问，却没有 TLS；请写 127.0.0.1，或填 trusted-proxies（前面有 TLS 代理），"
            "或写 allow-insecure: true",
        )


def _timezone(settings: Settings) -> Found:
    try:
        zoneinfo.ZoneInfo(settings.timezone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        if not zoneinfo.available_timezones():
            yield ("timezone",), "系统没有时区数据；请安装系统的 tzdata 包（或 pip install tzdata）"
        else:
            yield ("timezone",), f"没有时区 {settings.timezone}；请写 Asia/Shanghai 这样的名字"


def _texts(settings: Settings) -> Found:
    for name, text in settings.texts.items():
        if name not in DEFAULTS:
            yield ("texts", name), f"没有这个名字；{suggestion(name, DEFAULTS)}"
            continue
        known = placeholders(DEFAULTS[name])
        for unknown in sorted(placeholders(text) - known):
            remedy = "、".join(f"{{{each}}}" for each in sorted(known)) or "不带花括号的文字"
            yield ("texts", name), f"没有 {{{unknown}}} 可填；可用：{remedy}"
        if not text.strip():
            yield ("texts", name), "不能为空；写出文字，或删去这个键以用默认的"


def _unknown_model(settings: Settings, name: str) -> str | None:
    if settings.model_name(name) in settings.models:
        return None
    return f"没有名为 {name} 的模型；{suggestion(name, settings.models)}"


def is_keyless(model: ModelSettings) -> bool:
    """Whether it would be asked at the default address, which wants a key, without one."""
    default = ModelSettings.model_fields["base_url"].default
    asks_default = model.base_url.rstrip("/") == str(default)
    return model.provider == "openai" and asks_default and not model.api_key.get_secret_value()


def _models(settings: Settings) -> Found:
    for name, model in settings.models.items():
        path: KeyPath = ("models", name)
        url = urlsplit(model.base_url)
        if url.scheme not in ("http", "https") or not url.netloc:
            yield (*path, "base-url"), "应以 http:// 或 https:// 开头；例如 https://api.openai.com/v1"
        elif url.path.rstrip("/").endswith("/chat/completions"):
            yield (*path, "base-url"), "应写到 /v1 这一级；请去掉末尾的 /chat/completions"
        if model.max_output_tokens >= model.context_tokens:
            yield (
                (*path, "max-output-tokens"),
                f"{model.max_output_tokens} 应小于 context-tokens（{model.context_tokens}）；请改小",
            )
        for number, fallback in enumerate(model.fallback):
            if fallback == name:
                yield (*path, "fallback", number), f"{name} 不能是自己的后备；请写另一个模型"
            elif fallback not in settings.models:
                yield (
                    (*path, "fallback", number),
                    f"没有名为 {fallback} 的模型；{suggestion(fallback, settings.models)}",
                )
        if name != "main" and is_keyless(model):
            yield path, "缺少 api-key；请写出，或写自己的 base-url"
    if settings.router.classify.enabled and (message := _unknown_model(settings, settings.router.classify.model)):
        yield ("router", "classify", "model"), message
    embedding = settings.memory.long_term.embedding
    if embedding and embedding not in settings.models:
        yield (
            ("memory", "long-term", "embedding"),
            f"没有名为 {embedding} 的模型；{suggestion(embedding, settings.models)}",
        )


def _main_model(settings: Settings) -> Found:
    """A parrot must not answer a company: the demo model stands in for the web chat only."""
    lacking = settings.demo_stands_in or is_keyless(settings.models["main"])
    platforms = [name for name, entry in settings.enabled_channels().items() if entry.kind not in {"web", *PLANNED}]
    if lacking and platforms:
        yield (
            ("models", "main"),
            f"缺少 api-key，而渠道 {'、'.join(platforms)} 已启用；请设置 OPENAI_API_KEY（或写 api-key），"
            "只想试用请写 provider: demo",
        )


def _agent_names(settings: Settings) -> set[str]:
    return {*settings.agents}.union(*(agent.aliases for agent in settings.agents.values()))


def _unknown_agent(settings: Settings, name: str) -> str:
    return f"没有名为 {name} 的智能体（config/agents/{name}.yaml）；{suggestion(name, _agent_names(settings))}"


def _default_agent(settings: Settings) -> Found:
    if not settings.agents:
        yield (), "没有智能体；请在 agents/ 下放一个文件，例如 agents/general-agent.yaml"
    elif settings.agent.default not in _agent_names(settings):
        yield ("agent", "default"), _unknown_agent(settings, settings.agent.default)


def _entries(settings: Settings) -> Found:
    accounts: dict[str, str] = {}
    web = [name for name, entry in settings.channels.items() if entry.kind == "web"]
    for name in web[1:]:
        yield ("channels", name), f"网页聊天只能有一个，已有 {web[0]}；请删去一个"
    for name, entry in settings.channels.items():
        if entry.agent and settings.agents and entry.agent not in _agent_names(settings):
            yield ("channels", name, "agent"), _unknown_agent(settings, entry.agent)
        if isinstance(entry, FeishuSettings) and entry.enabled and entry.account:
            other = accounts.setdefault(entry.account, name)
            if other != name:
                yield ("channels", name, "app-id"), f"与 channels.{other} 是同一个应用；请只启用一处"
    for name, overrides in settings.entry_context.items():
        path: KeyPath = ("channels", name, "context")
        yield from _summary_model(settings, overrides, path)
        for agent in settings.agents.values():
            message = _unresolved(settings, agent.context, overrides)
            if message and not _unresolved(settings, agent.context):
                yield path, message
                break


def _policies(settings: Settings) -> Found:
    summary = settings.agent.context.summary
    if summary.enabled and (message := _unknown_model(settings, summary.model)):
        yield ("agent", "context", "summary", "model"), message
    for name, preset in settings.agent.policies.items():
        path: KeyPath = ("agent", "policies", name)
        yield from _summary_model(settings, preset, path)
        if message := _unresolved(settings, ContextOverrides(policy=name)):
            yield path, message


def _summary_model(settings: Settings, preset: ContextPreset, path: KeyPath) -> Found:
    if preset.summary.model is not None and (message := _unknown_model(settings, preset.summary.model)):
        yield (*path, "summary", "model"), message


def _unresolved(settings: Settings, *overrides: ContextOverrides) -> str | None:
    try:
        resolve(settings.agent.context, settings.agent.policies, *overrides)
    except ValidationError as error:
        return "；".join(each["msg"] for each in error.errors())
    except ValueError as error:
        return f"{error}；请改写"
    return None


def _filters(settings: Settings) -> Found:
    if message := _unloaded(settings.memory.masking):
        yield ("memory", "masking"), message


def _mcp_servers(settings: Settings) -> Found:
    servers = settings.tools.mcp
    if servers and importlib.util.find_spec("mcp") is None:
        yield (
            ("tools", "mcp"),
            "没有安装 mcp 包；请运行 .venv/bin/pip install -c constraints.txt -e '.[mcp]'，或删去这一段",
        )
    for name, server in servers.items():
        if message := problem_of(name, server):
            yield ("tools", "mcp", name), message


def _grant(settings: Settings, name: str) -> str | None:
    """What keeps a name such as ``mcp:SERVER/TOOL`` from meaning anything."""
    try:
        server = grant_of(name).server
    except ValueError as error:
        return str(error)
    if server in settings.tools.mcp:
        return None
    if not settings.tools.mcp:
        return f"没有名为 {server} 的 MCP 服务；请在 gateway.yaml 的 tools.mcp 下添加"
    return f"没有名为 {server} 的 MCP 服务（gateway.yaml 的 tools.mcp）；{suggestion(server, settings.tools.mcp)}"


def _unloaded(names: Iterable[str]) -> str | None:
    """What keeps the first of these own filters that cannot be used from being used."""
    for name in names:
        if is_named_so(name):
            try:
                load_filter(name)
            except ValueError as error:
                return str(error)
    return None


_masking_rules: TypeAdapter[tuple[str, ...]] = TypeAdapter(MaskingRules)


def _agent(settings: Settings, name: str) -> Found:
    agent = settings.agents[name]
    if message := _unknown_model(settings, agent.model):
        yield ("model",), message
    policy = agent.context.policy
    if policy is not None and policy not in settings.agent.policies:
        yield ("context", "policy"), f"没有名为 {policy} 的预设；{suggestion(policy, settings.agent.policies)}"
    elif message := _unresolved(settings, agent.context):
        yield ("context",), message
    yield from _summary_model(settings, agent.context, ("context",))
    try:
        _masking_rules.validate_python(agent.masking or ())
    except ValidationError as error:
        yield ("masking",), "；".join(str(each.get("ctx", {}).get("error", "")) for each in error.errors())
    else:
        if message := _unloaded(agent.masking or ()):
            yield ("masking",), message
    try:
        load_tools(agent.tools)
    except UnknownTool as error:
        yield ("tools",), str(error)
    for number, tool in enumerate(agent.tools):
        if is_grant(tool) and (message := _grant(settings, tool)):
            yield ("tools", number), message
    for number, alias in enumerate(agent.aliases):
        holders = [other for other, each in settings.agents.items() if other == alias or alias in each.aliases]
        if holders != [name]:
            others = "、".join(other for other in holders if other != name) or "自己"
            yield ("aliases", number), f"{alias} 已属于 {others}；请只在一处保留"


def without_repeats(problems: Iterable[Problem], *more: Problem) -> list[Problem]:
    """The problems, and of `more` those whose key has none yet: one mistake is told once.

    So it is with an MCP server that lacks an address because the one it has is no address.
    """
    first = list(problems)
    told = {(problem.file, problem.key) for problem in first}
    told |= {(file, key.rpartition(".")[0]) for file, key in told if key.startswith("tools.mcp.")}
    return first + [problem for problem in more if (problem.file, problem.key) not in told]
