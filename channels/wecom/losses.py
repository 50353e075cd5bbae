"""Why there is no connection, what an admin is told of it, and how long to wait before the next one."""

from collections import Counter
from collections.abc import Callable
from typing import ClassVar

from channels.wecom.codes import Remedy, remedy_for


class Loss(Exception):
    """The connection broke or could not be made. The message is for logs.

    `detail` is what an admin reads (Chinese, with the remedy). The pauses double from `first` to `longest` (s) and
    begin anew after a connection that lasted `stable` seconds.
    """

    detail = "与企业微信的长连接断开，正在重连；请检查网络与 websocket-url"
    first: ClassVar[float] = 1.0
    longest: ClassVar[float] = 30.0
    stable: ClassVar[float] = 30.0


class Refused(Loss):
    """The platform refuses the subscription, which it also does to those who ask too often."""

    first = 30.0
    longest = 600.0

    def __init__(self, code: int) -> None:
        super().__init__(f"subscribe refused with code {code}")
        if remedy_for(code) in (Remedy.WAIT, Remedy.ASK_AGAIN):
            self.detail = f"企业微信暂不接受订阅（错误码 {code}），稍后自动重试；请确认没有别的程序在反复连接此机器人"
        else:
            self.detail = (
                f"企业微信拒绝订阅（错误码 {code}），请核对 bot-id 与 secret，并确认机器人的 API 模式为「长连接」"
            )


class TakenOver(Loss):
    """Another program subscribed with the same bot id. Connecting at once would only throw it out in turn."""

    detail = "另一个程序用同一 bot-id 建立了长连接，本网关已让出并暂停接收；请停掉多余的一方，然后重启本网关（否则稍后自动重试）"
    first = 300.0
    longest = 3600.0
    stable = 3600.0


class Backoff:
    """How long to wait after each loss: each kind doubles on its own, up to a quarter more at random."""

    def __init__(self, rng: Callable[[], float]) -> None:
        self._rng = rng
        self._counts: Counter[type[Loss]] = Counter()

    def pause(self, loss: Loss, lasted: float) -> float:
        """Seconds to wait after `loss` of a connection that lasted `lasted` seconds (0 = never subscribed)."""
        for kind in [kind for kind in self._counts if lasted >= kind.stable]:
            del self._counts[kind]
        kind = type(loss)
        pause = min(kind.longest, kind.first * 2.0 ** min(self._counts[kind], 20))
        self._counts[kind] += 1
        return pause * (1 + 0.25 * self._rng())
