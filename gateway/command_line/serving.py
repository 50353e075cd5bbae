"""``run``: the gateway from start to SIGTERM, and what it prints for the person who started it."""

import asyncio
import gc
import os
import signal
import sys
from pathlib import Path
from zoneinfo import ZoneInfo

from gateway import logs
from gateway.app import App
from gateway.command_line import interruptible
from gateway.config.live_settings import LiveSettings

_YOUNG, _OLDER, _OLDEST = 20_000, 20, 50
"""How many new objects make the collector look through the youngest, and how often that makes it look at older ones."""
_SWITCH_SECONDS = 0.001

_CHANNEL_NAMES = {
    "feishu": "飞书",
    "dingtalk": "钉钉",
    "wechat": "微信公众号",
    "wecom-app": "企业微信应用",
    "wecom-bot": "企业微信智能机器人",
    "web": "网页聊天",
}


def serve(live: LiveSettings, config: Path, workspace: Path) -> int:
    """Serves until SIGTERM or SIGINT; returns 0 after draining.

    Raises WorkspaceError, ListenFailed, TokenUnusable, sqlite3.Error, OSError, also in groups.
    """
    logs.configure(live.current.log, zone=ZoneInfo(live.current.timezone))
    return interruptible.run(_serve(App(live, workspace), config))


def settle() -> None:
    """What makes a burst no standstill; once, when all is imported and built.

    The garbage collector is told that what is there stays, and to look seldom: a thousand messages at once are no
    garbage, and looking through all of them stops everything for a fifth of a second. Threads that want the
    interpreter are let in sooner, each for a shorter time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _OLDER, _OLDEST)
    sys.setswitchinterval(_SWITCH_SECONDS)


async def _serve(app: App, config: Path) -> int:
    settle()
    stop = asyncio.Event()
    _stop_on_signals(stop)
    async with app.running():
        print(_welcome(app, config), flush=True)
        await stop.wait()
    return 0


def _stop_on_signals(stop: asyncio.Event) -> None:
    """The first signal drains, a second one stops at once: what was accepted is on disk either way."""

    def on_signal() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)


def _welcome(app: App, config: Path) -> str:
    settings = app.live.current
    lines = ["", "三桥已启动。"]
    if settings.console.enabled:
        lines.append(f"  网页聊天：{app.login_link()}（一次有效，十分钟内）")
    off = [name for name, entry in settings.channels.items() if not entry.enabled]
    missing = [kind for kind in _CHANNEL_NAMES if kind not in settings.channels]
    if off or missing:
        names = "、".join(f"{_CHANNEL_NAMES.get(name, name)}（{name}）" for name in dict.fromkeys([*off, *missing]))
        lines.append(f"  未启用的渠道：{names}；在 {config}/gateway.yaml 的 channels 下打开")
    if settings.demo_stands_in:
        lines += [
            "  现在由离线的演示模型回答。接入真实模型：在 "
            f"{config}/.env 写入 OPENAI_BASE_URL、OPENAI_API_KEY、OPENAI_MODEL，两秒内生效",
            "    例如 DeepSeek：https://api.deepseek.com/v1，通义千问：https://dashscope.aliyuncs.com/compatible-mode/v1",
        ]
    lines += [f"  提示：{note}" for note in settings.notes]
    lines.append("  按 Ctrl-C 停止。")
    return "\n".join(lines)
