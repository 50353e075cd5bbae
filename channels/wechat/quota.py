"""How many messages may still be sent to a person (developers.weixin.qq.com, 公众号 › 客服消息 › 下发条数限制). Pure."""

from collections import OrderedDict
from dataclasses import dataclass

MESSAGE_SENDS, MESSAGE_SECONDS = 5, 48 * 3600.0
EVENT_SENDS, EVENT_SECONDS = 3, 60.0
"""After a message of the person; after a click on the menu or a new follower."""

_MOST_PEOPLE = 20_000


@dataclass(slots=True)
class _Allowance:
    left: int
    until: float


class Quota:
    """What is left for each person. Of whom nothing is known (after a restart), the platform is asked. Times: seconds."""

    def __init__(self) -> None:
        self._people: OrderedDict[str, tuple[_Allowance, _Allowance]] = OrderedDict()

    def heard(self, user: str, now: float, *, event: bool) -> None:
        """The person wrote, or (an event) clicked or followed."""
        message, click = self._people.get(user, (_Allowance(0, 0.0), _Allowance(0, 0.0)))
        if event:
            click = _Allowance(EVENT_SENDS, now + EVENT_SECONDS)
        else:
            message = _Allowance(MESSAGE_SENDS, now + MESSAGE_SECONDS)
        self._people[user] = (message, click)
        self._people.move_to_end(user)
        if len(self._people) > _MOST_PEOPLE:
            self._people.popitem(last=False)

    def left(self, user: str, now: float) -> int:
        """How many sends are left."""
        allowances = self._people.get(user)
        if allowances is None:
            return MESSAGE_SENDS
        return sum(each.left for each in allowances if each.until > now)

    def take(self, user: str, now: float) -> bool:
        """Takes one send, of what ends first; False when none is left."""
        allowances = self._people.get(user)
        if allowances is None:
            self.heard(user, now, event=False)
            return self.take(user, now)
        usable = [each for each in allowances if each.left and each.until > now]
        if not usable:
            return False
        min(usable, key=lambda each: each.until).left -= 1
        return True

    def spent(self, user: str, now: float) -> None:
        """The platform says that nothing is left."""
        self._people[user] = (_Allowance(0, now), _Allowance(0, now))
