"""What the platform pushes becomes an `InboundMessage`, or None for what is not for us. Pure.

Shapes: developers.weixin.qq.com, 公众号 › 接收普通消息 and 接收事件推送. What the platform has authenticated is still
untrusted in its shape: any fields are read without an exception. Own reader, because wechatpy 1.8.18 raises half a
dozen kinds of exceptions on odd fields, some only when they are looked at, and gives each message without MsgId the
id 0.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

from channels.message import InboundMessage, Notice
from channels.text import is_blank
from memory.conversation import LaneKey, session_id, user_id

_log = logging.getLogger("sanqiao.channels.wechat")

_LONGEST_ID = 200
_SPACES = re.compile(r"\s+")

_MARKERS = {
    "image": "[图片]",
    "voice": "[语音]",
    "video": "[视频]",
    "shortvideo": "[视频]",
    "file": "[文件]",
    "miniprogrampage": "[小程序]",
}
_UNKNOWN = "[不支持的消息]"


@dataclass(frozen=True, slots=True)
class Account:
    """Who receives: one 公众号 as this entry knows it."""

    entry: str
    account: str


@dataclass(frozen=True, slots=True)
class _Content:
    text: str
    notice: Notice | None = None


def read_message(fields: Mapping[str, str], account: Account) -> InboundMessage | None:
    """The message for the bot in these fields, or None: an event nobody answers, or no sender."""
    speaker, kind = fields.get("FromUserName", "").strip(), fields.get("MsgType", "").strip()
    if not _is_id(speaker) or not kind:
        _log.warning("wechat_message_without_sender entry=%s", account.entry)
        return None
    event = fields.get("Event", "").strip() if kind == "event" else ""
    content = _event(event, fields) if kind == "event" else _content(kind, fields)
    number = f"{speaker}:{_number(fields, kind)}"
    if content is None or not _is_id(number, 3 * _LONGEST_ID):
        _log.info("wechat_not_for_us entry=%s type=%r event=%r", account.entry, kind[:40], event[:40])
        return None
    if content.notice is not None:
        _log.info("wechat_message_without_text entry=%s type=%r notice=%s", account.entry, kind[:40], content.notice)
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
        notice=content.notice,
    )


def _is_id(text: str, longest: int = _LONGEST_ID) -> bool:
    return 0 < len(text) <= longest and text.isprintable()


def _number(fields: Mapping[str, str], kind: str) -> str:
    """What tells this message from the sender's others: the MsgId, not always a number; events have none."""
    number = fields.get("MsgId", "").strip()
    if kind != "event" and number:
        return number
    return ":".join(fields.get(key, "").strip() for key in ("CreateTime", "Event", "EventKey")).rstrip(":")


def _event(event: str, fields: Mapping[str, str]) -> _Content | None:
    if event == "subscribe":
        return _Content("", Notice.WELCOME)
    if event == "CLICK" and not is_blank(fields.get("EventKey", "")):
        return _Content(fields["EventKey"].strip())
    return None


def _content(kind: str, fields: Mapping[str, str]) -> _Content:
    match kind:
        case "text":
            return _worded(fields.get("Content", ""))
        case "voice" if not is_blank(fields.get("Recognition", "")):
            return _worded(fields["Recognition"])
        case "location":
            return _location(fields)
        case "link":
            words = [_one_line(fields.get(key, "")) for key in ("Title", "Description", "Url")]
            return _Content(" ".join(["[链接]", *(word for word in words if word)]))
        case "file" | "miniprogrampage" if title := _one_line(fields.get("Title", "")):
            return _Content(f"{_MARKERS[kind][:-1]}: {title}]", Notice.UNSUPPORTED)
    return _Content(_MARKERS.get(kind, _UNKNOWN), Notice.UNSUPPORTED)


def _worded(text: str) -> _Content:
    return _Content("", Notice.EMPTY) if is_blank(text) else _Content(text.strip())


def _location(fields: Mapping[str, str]) -> _Content:
    latitude, longitude = (_one_line(fields.get(key, ""))[:20] for key in ("Location_X", "Location_Y"))
    place = [_one_line(fields.get("Label", "")), f"({latitude}, {longitude})" if latitude and longitude else ""]
    words = " ".join(word for word in place if word)
    return _Content(f"[位置] {words}") if words else _Content("[位置]", Notice.UNSUPPORTED)


def _one_line(text: str) -> str:
    return _SPACES.sub(" ", "".join(char if char.isprintable() else " " for char in text)).strip()[:500]
