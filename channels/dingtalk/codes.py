"""DingTalk's error codes and what to do about each.

The session webhook answers 200 with a number (`errcode`), the API of v1.0 an HTTP status with a word (`code`): open
.dingtalk.com, 服务端错误码; 全局错误码. What is documented nowhere was reported by users.
"""

from enum import Enum


class Remedy(Enum):
    """What a failed call calls for."""

    NEW_TOKEN = "new-token"
    WAIT = "wait"
    ASK_AGAIN = "ask-again"
    UNKNOWN = "unknown"  # no answer came: the platform may have sent it, and nothing tells it that a repeat is one
    OTHER_WAY = "other-way"
    QUOTA = "quota"
    NO_RIGHT = "no-right"
    BAD_CREDENTIALS = "bad-credentials"
    GIVE_UP = "give-up"


PASSING = (Remedy.ASK_AGAIN, Remedy.UNKNOWN, Remedy.WAIT)
"""What passes by itself: nobody has to mend anything."""

_NO_ANSWER_BEHIND = (502, 504)
"""Something in front of the platform answers that it got no answer itself."""

_BY_ERRCODE = {
    -1: Remedy.ASK_AGAIN,
    # Too fast: one robot in one group, one application, one tenant, all tenants.
    130101: Remedy.WAIT,
    90018: Remedy.WAIT,
    90019: Remedy.WAIT,
    90002: Remedy.WAIT,
    90020: Remedy.QUOTA,
    90030: Remedy.QUOTA,
}

ADMIN_REMEDIES = {
    Remedy.QUOTA: "钉钉应用本月的接口调用量已用完，答复无法发出；请在钉钉开放平台提升额度",
    Remedy.NO_RIGHT: "钉钉应用缺少权限，请在开放平台为应用开通「企业内机器人发送消息」（qyapi_robot_sendmsg）并发布版本",
}
"""What only an admin can mend, as the health line says it."""


def webhook_remedy(status: int, errcode: int | None) -> Remedy:
    """What to do about an answer of a session webhook that is no success; `errcode` None: it had none (HTML …).

    300001 (session gone), 460101 and 101002 (too long) and all unknown codes say that this message was not taken
    here: the robot API may take it.
    """
    if errcode is not None:
        return _BY_ERRCODE.get(errcode, Remedy.OTHER_WAY)
    if status == 429:
        return Remedy.WAIT
    if status in _NO_ANSWER_BEHIND:
        return Remedy.UNKNOWN
    return Remedy.OTHER_WAY if 400 <= status < 500 and status not in (403, 408) else Remedy.ASK_AGAIN


def api_remedy(status: int, code: str) -> Remedy:
    """What to do about a v1.0 call that failed; over a limit and without a right are both 403, told apart by `code`."""
    word = code.lower()
    if "qps" in word or "throttling" in word or "flowcontrol" in word or status == 429:
        return Remedy.WAIT
    if "apicountlimit" in word:
        return Remedy.QUOTA
    if "permission" in word:
        return Remedy.NO_RIGHT
    if word.startswith("invalidauthentication") or status == 401:
        return Remedy.NEW_TOKEN
    if word.startswith(("invalidclient", "invalidappkey", "invalidappsecret")):
        return Remedy.BAD_CREDENTIALS
    if status in _NO_ANSWER_BEHIND and not code:
        return Remedy.UNKNOWN
    if status >= 500 or status == 408 or not code:  # an address that is banned for a while gets a page, not JSON
        return Remedy.ASK_AGAIN
    return Remedy.GIVE_UP
