"""Feishu's error codes and what to do about each (open.feishu.cn, 通用错误码; 消息 › 发送消息 › 错误码)."""

from enum import Enum


class Remedy(Enum):
    """What a failed call calls for."""

    NEW_TOKEN = "new-token"
    WAIT_APP = "wait-app"
    WAIT_CHAT = "wait-chat"
    ASK_AGAIN = "ask-again"
    SEND_TO_CHAT = "send-to-chat"
    LEAVE_THREAD = "leave-thread"
    PLAIN_TEXT = "plain-text"
    GIVE_UP = "give-up"


_REMEDIES = {
    Remedy.NEW_TOKEN: (99991661, 99991663, 99991664, 99991665, 99991668, 99991671, 99991677),
    Remedy.WAIT_APP: (99991400,),
    Remedy.WAIT_CHAT: (230020, 11232, 11233),
    # 230049: the same uuid is being sent; the rest are failures of the platform.
    Remedy.ASK_AGAIN: (230049, 1, 1500, 5000, 1000040343),
    # The question was recalled or deleted: its answer goes to the chat.
    Remedy.SEND_TO_CHAT: (230011, 230110, 231003),
    Remedy.LEAVE_THREAD: (230019, 230071),
    Remedy.PLAIN_TEXT: (230001, 230025, 230099, 99992402),
}
_BY_CODE = {code: remedy for remedy, codes in _REMEDIES.items() for code in codes}

ADMIN_REMEDIES = {
    99991672: "应用缺少权限，请在飞书开放平台为应用开通 im:message:send_as_bot 并发布版本",
    99991679: "应用缺少用户权限，请在飞书开放平台开通后发布版本",
    99991401: "本机 IP 不在飞书应用的 IP 白名单内，请在开放平台的安全设置中加入",
    230006: "应用未启用机器人能力，请在飞书开放平台开启后发布版本",
}
"""What only an admin can mend, as the health line says it."""


def remedy_for(status: int, code: int) -> Remedy:
    """What to do about a call that ended in this HTTP status and code; most errors come with status 400."""
    known = _BY_CODE.get(code)
    if known is not None:
        return known
    if status == 429:
        return Remedy.WAIT_APP
    return Remedy.ASK_AGAIN if status >= 500 else Remedy.GIVE_UP
