"""A robot message of DingTalk comes in, an `InboundMessage` goes out, or None for what is not for us. Pure.

The `data` of a frame and the body of an HTTP callback are the same object (open.dingtalk.com, 机器人接收消息).
What the platform has authenticated is still untrusted in its shape: any JSON is read without an exception.
"""

import logging
from dataclasses import dataclass

from channels.dingtalk.content import read_content
from channels.dingtalk.origin import Origin, milliseconds
from channels.json_values import Object, list_at, text_at
from channels.message import InboundMessage
from channels.text import is_id, one_line
from memory.conversation import LaneKey, session_id, user_id

_log = logging.getLogger("sanqiao.channels.dingtalk")

_LONGEST_ID = 512
_LONGEST_ADDRESS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Robot:
    """Who receives: one application's robot as this entry knows it."""

    entry: str
    client_id: str
    account: str
    group_policy: str = "mention"


def read_message(message: Object, robot: Robot, delivery: str = "") -> InboundMessage | None:
    """The message for the robot, or None: a robot's, not addressed, without ids.

    `delivery` is the id of the frame, which stands in for a missing `msgId`.
    """
    number, chat = text_at(message, "msgId") or delivery, text_at(message, "conversationId")
    sender, staff = text_at(message, "senderId"), text_at(message, "senderStaffId")
    speaker = staff or sender
    if not all(is_id(name, _LONGEST_ID) for name in (number, chat, speaker)):
        _log.warning("dingtalk_message_without_ids entry=%s", robot.entry)
        return None
    if _is_robot(message, sender, robot):
        return None
    group = str(message.get("conversationType")) != "1"
    others = _mentioned(message)
    if group and not _for_us(robot.group_policy, message, others):
        return None
    own = text_at(message, "chatbotUserId")
    content = read_content(message, drop_mentions=group and not (others - {own}))
    notice = content.notice
    if notice is not None:
        kind = text_at(message, "msgtype")[:40]
        _log.info("dingtalk_message_without_text entry=%s type=%r notice=%s", robot.entry, kind, notice)
    user = user_id("dingtalk", robot.account, speaker)
    return InboundMessage(
        entry=robot.entry,
        account=robot.account,
        id=number,
        lane=LaneKey(user, "dingtalk", session_id("dingtalk", robot.account, chat), group),
        user=user,
        platform_user=speaker,
        text=content.text,
        chat=chat if group else "",
        name=one_line(text_at(message, "senderNick"), 64),
        reply=_origin(message, robot, chat, staff).reply(),
        notice=notice,
    )


def _is_robot(message: Object, sender: str, robot: Robot) -> bool:
    """Whether a robot speaks, this one or another: answering could make two of them talk for ever."""
    own = {text_at(message, "chatbotUserId"), text_at(message, "robotCode"), robot.client_id} - {""}
    return sender in own or text_at(message, "senderStaffId") in own


def _mentioned(message: Object) -> frozenset[str]:
    """The `dingtalkId` of each one who is mentioned, the robot among them."""
    return frozenset(text_at(user, "dingtalkId") for user in list_at(message, "atUsers") if isinstance(user, dict))


def _for_us(policy: str, message: Object, mentioned: frozenset[str]) -> bool:
    """Whether a group message addresses the robot, by id; the platform pushes no others, with rare exceptions."""
    if policy != "mention":
        return policy == "all"
    if text_at(message, "chatbotUserId") in mentioned - {""}:
        return True
    told = message.get("isInAtList")
    return told if isinstance(told, bool) else "atUsers" not in message


def _origin(message: Object, robot: Robot, chat: str, staff: str) -> Origin:
    """The way back: the session webhook, unless it is no address or has no end."""
    address, ends = text_at(message, "sessionWebhook"), milliseconds(str(message.get("sessionWebhookExpiredTime")))
    usable = ends is not None and len(address) <= _LONGEST_ADDRESS
    return Origin(
        chat=chat,
        robot=text_at(message, "robotCode") or robot.client_id,
        staff=staff,
        webhook=address if usable else "",
        webhook_ends=ends or 0,
    )
