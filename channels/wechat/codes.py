"""WeChat's error codes and what to do about each (developers.weixin.qq.com, 公众号 › 全局返回码; 发送客服消息)."""

from enum import Enum


class Remedy(Enum):
    """What a failed call calls for."""

    NEW_TOKEN = "new-token"
    ASK_AGAIN = "ask-again"
    UNKNOWN = "unknown"  # no answer came: the platform may have sent it, and nothing tells it that a repeat is one
    WAIT = "wait"
    SHORTEN = "shorten"
    NEXT_CONTACT = "next-contact"
    NO_RIGHT = "no-right"
    GIVE_UP = "give-up"


_REMEDIES = {
    Remedy.NEW_TOKEN: (40001, 40014, 41001, 42001),
    # 40164: this machine's address is not on the list; an admin can add it within the time a part is tried.
    Remedy.ASK_AGAIN: (-1, 40164, 61004),
    Remedy.WAIT: (45009, 45011),
    Remedy.SHORTEN: (45002,),
    # 45015: the person was silent for 48 h; 45047: too many messages since theirs.
    Remedy.NEXT_CONTACT: (45015, 45047),
    Remedy.NO_RIGHT: (48001,),
}
_BY_CODE = {code: remedy for remedy, codes in _REMEDIES.items() for code in codes}

PASSING = (Remedy.ASK_AGAIN, Remedy.UNKNOWN, Remedy.WAIT)
"""What passes by itself: nobody has to mend anything."""

ADMIN_REMEDIES = {
    40164: "本机 IP 不在公众号的 IP 白名单内，请在微信公众平台的「设置与开发 › 开发接口管理」中加入",
    61004: "本机 IP 不在公众号的 IP 白名单内，请在微信公众平台的「设置与开发 › 开发接口管理」中加入",
    45009: "客服消息接口今日的调用次数已用完，请在微信公众平台清零或等到次日",
    50002: "公众号被限制使用接口，请在微信公众平台查看原因",
}
"""What only an admin can mend, as the health line says it."""


def remedy_for(status: int, code: int) -> Remedy:
    """What to do about a call that ended in this HTTP status and code; nearly all errors come with status 200."""
    known = _BY_CODE.get(code)
    if known is not None:
        return known
    if status == 429:
        return Remedy.WAIT
    if status in (502, 504):  # something in front of the platform got no answer itself
        return Remedy.UNKNOWN
    return Remedy.ASK_AGAIN if status >= 500 else Remedy.GIVE_UP
