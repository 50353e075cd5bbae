"""Error codes of acknowledgements and what to do about each.

developer.work.weixin.qq.com, 全局错误码; those of the long connection (8466xx) as clients of the platform report them.
"""

from enum import Enum

STREAM_EXPIRED = 846608
"""The stream is older than six minutes, or ended."""


class Remedy(Enum):
    """What a frame that was not taken calls for."""

    SUBSCRIBE_AGAIN = "subscribe-again"
    SEND_ACTIVELY = "send-actively"
    WAIT = "wait"
    ASK_AGAIN = "ask-again"
    GIVE_UP = "give-up"


_REMEDIES = {
    Remedy.SUBSCRIBE_AGAIN: (846609,),  # not subscribed, although the socket is open
    Remedy.SEND_ACTIVELY: (846605, STREAM_EXPIRED),  # 846605: unknown req_id, after a reconnect
    Remedy.WAIT: (45009, 45033, 846607),
    Remedy.ASK_AGAIN: (-1, 50001),
}
_BY_CODE = {code: remedy for remedy, codes in _REMEDIES.items() for code in codes}


def remedy_for(code: int) -> Remedy:
    """What to do about a frame acknowledged with this code, which is not 0."""
    return _BY_CODE.get(code, Remedy.GIVE_UP)
