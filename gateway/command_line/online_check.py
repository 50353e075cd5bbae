"""`check --online`: asks every enabled platform, every model in use and every MCP server whether they can be used."""

import asyncio
import contextlib
import importlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TextIO

from agents.model import (
    BlankAnswer,
    ChatMessage,
    ModelError,
    ModelMisconfigured,
    ModelRequest,
    ModelSettings,
    OddAnswer,
)
from agents.models import Models
from agents.tools.mcp import McpServerSettings, McpUnreachable
from channels.channel import EntrySettings
from channels.probe import Probe, shown
from gateway.config.sections import Settings
from memory.conversation import Role

log = logging.getLogger("sanqiao.check")

PROBE_SECONDS = 10.0
_NAMED_TOOLS = 20
_QUESTION = ModelRequest(messages=(ChatMessage("system", "只回答一个字。"), ChatMessage(Role.USER, "好")))


@dataclass(frozen=True, slots=True)
class _Question:
    key: str
    ask: Callable[[], Awaitable[Probe]]


async def online_check(settings: Settings, out: TextIO, *, seconds: float = PROBE_SECONDS) -> int:
    """Asks all at once, each for `seconds` at most; writes one line for each. Returns 1 if any cannot be used."""
    questions = list(_questions(settings))
    with _quiet():
        probes = await asyncio.gather(*(_asked(question, seconds) for question in questions))
    for question, probe in zip(questions, probes, strict=True):
        out.write(f"{'正常' if probe.ok else '失败'}  {question.key}：{probe.detail}\n")
    return 0 if all(probe.ok for probe in probes) else 1


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No channel logs what is wrong: the lines written say it."""
    ours = logging.getLogger("sanqiao")
    before = ours.level
    ours.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        ours.setLevel(before)


async def _asked(question: _Question, seconds: float) -> Probe:
    try:
        async with asyncio.timeout(seconds):
            return await question.ask()
    except TimeoutError:
        return Probe(False, f"{seconds:g} 秒内没有答复；请检查网络、防火墙与 proxy")
    except Exception as error:  # border of one question: the others are answered all the same
        log.critical("probe_failed key=%s error=%s", question.key, type(error).__name__)
        return Probe(False, f"检查时出现意料之外的错误（{type(error).__name__}）；请报告这一行，并直接启动试试")


def _questions(settings: Settings) -> Iterator[_Question]:
    for name, entry in settings.enabled_channels().items():
        ask = _channel_question(entry)
        if ask is not None:
            yield _Question(f"channels.{name}", ask)
    used = {settings.model_for(agent) for agent in settings.agents} | {"main"}
    used |= {other for name in used for other in settings.models[name].fallback}
    for name in sorted(used):
        yield _Question(f"models.{name}", _model_question(settings.models[name]))

    for name, server in settings.tools.mcp.items():
        yield _Question(f"tools.mcp.{name}", _mcp_question(server))


def _channel_question(entry: EntrySettings) -> Callable[[], Awaitable[Probe]] | None:
    """How to ask the platform of an entry; None for the web chat. Imports only what this entry needs."""
    match entry.kind:
        case "feishu":
            from channels.feishu import probe as feishu
            from channels.feishu.settings import FeishuSettings

            assert isinstance(entry, FeishuSettings)
            return lambda: feishu.probe(entry)
        case "dingtalk":
            from channels.dingtalk import probe as dingtalk
            from channels.dingtalk.settings import DingTalkSettings

            assert isinstance(entry, DingTalkSettings)
            return lambda: dingtalk.probe(entry)
        case "wechat":
            from channels.wechat import probe as wechat
            from channels.wechat.settings import WeChatSettings

            assert isinstance(entry, WeChatSettings)
            return lambda: wechat.probe(entry)
        case "wecom-bot":
            from channels.wecom import probe as wecom
            from channels.wecom.settings import WeComBotSettings

            assert isinstance(entry, WeComBotSettings)
            return lambda: wecom.probe(entry)
    return None


def _mcp_question(server: McpServerSettings) -> Callable[[], Awaitable[Probe]]:
    """One connection and the list of tools. Imports the package mcp, in a thread."""

    async def ask() -> Probe:
        session = await asyncio.to_thread(importlib.import_module, "agents.tools.mcp_session")
        try:
            async with session.opened(server, show_errors=False) as opened:
                tools, _ = await opened.tools()
        except McpUnreachable as error:
            return Probe(False, str(error))
        return Probe(True, f"{len(tools)} 个工具：{'、'.join(tool.name for tool in tools[:_NAMED_TOOLS])}")

    return ask


def _model_question(entry: ModelSettings) -> Callable[[], Awaitable[Probe]]:
    """One tiny request: whether the server is reached, takes the key and knows the model."""

    async def ask() -> Probe:
        if entry.provider == "demo":
            return Probe(True, "离线的演示模型，不需要网络")
        where = shown(entry.base_url)
        tiny = entry.model_copy(update={"max_output_tokens": 16, "fallback": ()})
        models = await asyncio.to_thread(Models, {"main": tiny})
        try:
            await models.client("main").complete(_QUESTION, lambda text: None, within=PROBE_SECONDS - 1)
        except BlankAnswer:
            pass  # thinking used up the few tokens: the key and the model are good
        except OddAnswer as error:
            return Probe(False, f"{where} 的答复不是聊天接口的（{error}）；请核对 base-url（常以 /v1 结尾）")
        except ModelMisconfigured as error:
            return Probe(False, f"{where} 拒绝了请求（{error}）；请核对 api-key、model 与 base-url")
        except ModelError as error:
            return Probe(False, f"{where} 没有回答（{error}）；请检查网络、base-url 与服务状态")
        finally:
            await models.close()
        return Probe(True, f"{entry.model} 可用")

    return ask
