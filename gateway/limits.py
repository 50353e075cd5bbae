"""Who may be answered: policies of the entry, how many messages a minute one person may send, how many tokens a day."""

from collections import OrderedDict, deque

from channels.channel import EntrySettings
from channels.message import InboundMessage

DAILY_LIMIT = "daily-limit"
"""The refusal, and the name of its text, of whoever used up `limits.tokens-per-day`."""
_MINUTE = 60.0
_PEOPLE = 10_000


def refused_by_policy(message: InboundMessage, entry: EntrySettings) -> bool:
    """Whether the entry's `dm-policy` keeps this person out of direct chats (an empty allow list allows nobody)."""
    if message.lane.group or entry.dm_policy == "open":
        return False
    if entry.dm_policy == "off":
        return True
    return message.platform_user not in entry.allow_from and message.user not in entry.allow_from


class RateLimit:
    """Counts messages per person over a sliding minute; remembers nobody longer, and no more than 10,000 people."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, deque[float]] = OrderedDict()

    def allows(self, user: str, per_minute: int, now: float) -> bool:
        """Counts one message at `now` (seconds); False when it is one too many. 0 = no limit.

        What was counted before the clock was set back counts no more.
        """
        if per_minute <= 0:
            return True
        times = self._seen.setdefault(user, deque())
        self._seen.move_to_end(user)
        while times and not 0 <= now - times[0] < _MINUTE:
            times.popleft()
        while len(self._seen) > _PEOPLE or self._is_over(next(iter(self._seen.values())), now):
            self._seen.popitem(last=False)
        if len(times) >= per_minute:
            return False
        times.append(now)
        return True

    @staticmethod
    def _is_over(times: deque[float], now: float) -> bool:
        """Whether nothing of it counts any more; those without any are about to get their first."""
        return bool(times) and not any(0 <= now - each < _MINUTE for each in times)


class OncePerMinute:
    """Lets one refusal a minute and person through, so that a flood is not answered with a flood."""

    def __init__(self) -> None:
        self._limit = RateLimit()

    def allows(self, user: str, now: float) -> bool:
        """Whether a refusal may be told to `user` now."""
        return self._limit.allows(user, 1, now)
