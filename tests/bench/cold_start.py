"""Cold start: from exec to the first good /healthz, with every channel on that the platforms call by HTTP."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.deliveries import FeishuWebhook, WeChatPassive
from tests.bench.subject import FLOOR, PRODUCT, Places, running


@dataclass(frozen=True)
class ColdStart:
    """Medians: seconds to /healthz, MiB then."""

    seconds: float
    rss: float


def called_by_http(platform: str) -> Mapping[str, Mapping[str, Any]]:
    """Feishu, 公众号 and DingTalk in HTTP mode, all on."""
    dingtalk = {"enabled": True, "mode": "http", "client-id": "dingbench", "client-secret": "secret"}
    at = {"api-base-url": platform, "oapi-base-url": platform}
    found: dict[str, Mapping[str, Any]] = {each.name: each.entry(platform) for each in (FeishuWebhook, WeChatPassive)}
    return found | {"dingtalk": dingtalk | at}


async def cold_start(model: str, platform: str, folder: Path, *, rounds: int) -> Mapping[str, ColdStart]:
    """Product and floor in turn, `rounds` times each after one that only fills the caches of bytecode and files.

    Each start finds a new workspace. Raises SubjectFailed.
    """
    seen: dict[str, list[tuple[float, float]]] = {PRODUCT: [], FLOOR: []}
    channels = called_by_http(platform)
    for number in range(rounds + 1):
        for kind, found in seen.items():
            # The floor has DingTalk's long connection only.
            places = Places(model, platform, channels if kind == PRODUCT else {"feishu": {}, "wechat": {}})
            async with running(kind, places, folder / f"{kind}{number}") as subject:
                found.append((subject.started, subject.rss()))
    return {
        kind: ColdStart(*(statistics.median(each[place] for each in found[1:]) for place in (0, 1)))
        for kind, found in seen.items()
    }
