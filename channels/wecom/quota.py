"""How much one conversation may still be sent: 30 frames a minute and 1,000 an hour, answers before refreshes. Pure."""

from channels.pace import Pace

_MINUTE_RATE, _MINUTE_BURST = 20 / 60, 10
_HOUR_RATE, _HOUR_BURST = 900 / 3600, 100
_MINUTE_RESERVE, _HOUR_RESERVE = 12.0, 120.0
"""In seconds of the rates above: four and thirty places that refreshes leave to answers."""


class Quota:
    """Counts every frame of a conversation: whether refreshes of a stream count is not documented.

    Times are seconds of one monotonic clock, given by the caller.
    """

    def __init__(self) -> None:
        self._minute = Pace(_MINUTE_RATE, _MINUTE_BURST)
        self._hour = Pace(_HOUR_RATE, _HOUR_BURST)

    def wait(self, chat: str, now: float) -> float:
        """How many seconds an answer has to wait."""
        return max(self._minute.wait(chat, now), self._hour.wait(chat, now))

    def wait_to_refresh(self, chat: str, now: float) -> float:
        """How many seconds a mere refresh has to wait, so that places are left for answers."""
        return max(self._minute.wait(chat, now - _MINUTE_RESERVE), self._hour.wait(chat, now - _HOUR_RESERVE))

    def take(self, chat: str, now: float) -> None:
        """One frame goes out."""
        self._minute.take(chat, now)
        self._hour.take(chat, now)

    def pause(self, chat: str, now: float, seconds: float) -> None:
        """The platform asked for a rest."""
        self._minute.pause(chat, now, seconds)
