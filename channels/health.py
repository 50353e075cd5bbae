"""How a channel is: the troubles it has right now, by area, as one `Health`."""

import logging
from collections.abc import Callable

from channels.channel import Health

_log = logging.getLogger("sanqiao.channels")


class Troubles:
    """What is wrong with one channel entry, one line per area; a log line for each change and none for repeats."""

    def __init__(self, entry: str, clock: Callable[[], float]) -> None:
        self._entry = entry
        self._clock = clock
        self._open: dict[str, str] = {}
        self._since = clock()

    def report(self, area: str, detail: str, level: int = logging.WARNING) -> None:
        """The area is in trouble; `detail` names the thing and the remedy (Chinese, no secret)."""
        if self._open.get(area) == detail:
            return
        if not self._open:
            self._since = self._clock()
        self._open[area] = detail
        _log.log(level, "channel_trouble entry=%s area=%s detail=%s", self._entry, area, detail)

    def clear(self, area: str) -> None:
        """The area works again."""
        if self._open.pop(area, None) is None:
            return
        if not self._open:
            self._since = self._clock()
        _log.info("channel_recovered entry=%s area=%s", self._entry, area)

    def health(self) -> Health:
        """All troubles in one line; `since` is when the channel last became well or ill."""
        return Health(not self._open, "；".join(self._open.values()) or "正常", self._since)
