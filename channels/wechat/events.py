"""What the platform pushes becomes an `InboundMessage`, or None for what is not for us. Pure.

Shapes: developers.weixin.qq.com, 公众号 › 接收普通消息 and 接收事件推送. What the platform has authenticated is still
untrusted in its shape: any fields are read without an exception. Own reader, because wechatpy 1.8.18 raises half a
dozen kinds of exceptions on odd fields, some only when they are looked at, and gives each message without MsgId the
id 0.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from channels.content import UNKNOWN, Content, marker
from channels.message import InboundMessage, Notice
from channels.text import is_blank, is_id, one_line
from memory.conversation import LaneKey, session_id, user_id

_log = logging.getLogger("sanqiao.channels.wechat")

_LONGEST_ID = 200

_MARKERS = {
    "image": "[图片]",
    "voice": "[语音]",
    "video": "[视频]",
    "shortvideo": "[视频]",
    "file": "[文件]",
    "miniprogrampage": "[小程序]",
}


@dataclass(frozen=True, slots=True)
class Account:
    """Who receives: one 公众号 as this entry knows it."""

    entry: str
    account: str


def read_message(fields: Mapping[str, str], account: Account) -> InboundMessage | None:
    """The message for the bot in these fields, or None: an event nobody answers, or no sender."""
    speaker, kind = fields.get("FromUserName", "").strip(), fields.get("MsgType", "").strip()
    if not is_id(speaker) or not kind:
        _log.warning("wechat_message_without_sender entry=%s", account.entry)
        return None
    event = fields.get("Event", "").strip() if kind == "event" else ""
    welcome = event == "subscribe"
    content = _event(event, fields) if kind == "event" else _content(kind, fields)
    number = f"{speaker}:{_number(fields, kind)}"
    if content is None or not is_id(number, 3 * _LONGEST_ID):
        _log.info("wechat_not_for_us entry=%s type=%r event=%r", account.entry, kind[:40], event[:40])
        return None
    notice = Notice.WELCOME if welcome else content.notice
    if notice is not None:
        _log.info("wechat_message_without_text entry=%s type=%r notice=%s", account.entry, kind[:40], notice)
    user = user_id("wechat", account.account, speaker)
    return InboundMessage(
        entry=account.entry,
        account=account.account,
        id=number,
        lane=LaneKey(user, "wechat", session_id("wechat", account.account, speaker), False),
        user=user,
        platform_user=speaker,
        text=content.text,
        reply={"event": event} if event else {},
        notice=notice,
    )


def _number(fields: Mapping[str, str], kind: str) -> str:
    """What tells this message from the sender's others: the MsgId, not always a number; events have none."""
    number = fields.get("MsgId", "").strip()
    if kind != "event" and number:
        return number
    return ":".join(fields.get(key, "").strip() for key in ("CreateTime", "Event", "EventKey")).rstrip(":")


def _event(event: str, fields: Mapping[str, str]) -> Content | None:
    if event == "subscribe":
        return marker("")
    if event == "CLICK" and not is_blank(fields.get("EventKey", "")):
        return Content(fields["EventKey"].strip())
    return None


def _content(kind: str, fields: Mapping[str, str]) -> Content:
    match kind:
        case "text":
            return Content("" if is_blank(fields.get("Content", "")) else fields["Content"].strip())
        case "voice" if not is_blank(fields.get("Recognition", "")):
            return Content(fields["Recognition"].strip())
        case "location":
            return _location(fields)
        case "link":
            words = [_word(fields, key) for key in ("Title", "Description", "Url")]
            return Content(" ".join(["[链接]", *(word for word in words if word)]))
        case "file" | "miniprogrampage" if title := _word(fields, "Title"):
            return marker(f"{_MARKERS[kind][:-1]}: {title}]")
    return marker(_MARKERS.get(kind, UNKNOWN))


def _location(fields: Mapping[str, str]) -> Content:
    latitude, longitude = (_word(fields, key)[:20] for key in ("Location_X", "Location_Y"))
    place = [_word(fields, "Label"), f"({latitude}, {longitude})" if latitude and longitude else ""]
    words = " ".join(word for word in place if word)
    return Content(f"[位置] {words}") if words else marker("[位置]")


def _word(fields: Mapping[str, str], key: str) -> str:
    return one_line(fields.get(key, ""), 500)
