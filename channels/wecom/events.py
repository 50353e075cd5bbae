"""A callback of the long connection comes in, an `InboundMessage` goes out, or None for what is not for us. Pure.

developer.work.weixin.qq.com, 智能机器人 › 接收消息 and 接收事件. What the platform has authenticated is still
untrusted in its shape: any JSON is read without an exception.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from channels.json_values import Object, int_at, object_at, text_at
from channels.message import InboundMessage, Notice
from channels.text import is_blank
from channels.wecom.content import Content, read_content
from channels.wecom.frame import EVENT, MESSAGE, Frame
from memory.conversation import LaneKey, session_id, user_id

_log = logging.getLogger("sanqiao.channels.wecom")

_LONGEST_ID = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Bot:
    """Who receives: one bot as this entry knows it. `run` names this process, in which a `req_id` can be answered."""

    entry: str
    account: str
    user_account: str
    name: str
    run: str
    group_policy: str = "mention"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a message came from, as its `reply` carries it: the way back.

    `chat` is a chatid or, in direct chats, the userid as the platform writes it; `at` (unix seconds) when it came.
    """

    chat: str
    group: bool
    req_id: str
    run: str
    at: float
    welcome: bool = False

    def reply(self) -> Mapping[str, str]:
        """What `InboundMessage.reply` keeps."""
        kept = {"chat": self.chat, "group": "1" if self.group else "0", "req": self.req_id, "run": self.run}
        return kept | {"at": f"{self.at:.3f}", "welcome": "1" if self.welcome else "0"}

    @classmethod
    def of(cls, message: InboundMessage) -> "Origin":
        """Reads it back; what is missing (the entry was of another kind when the message came) is empty."""
        chat, group, req_id, run, at, welcome = map(message.reply.get, ("chat", "group", "req", "run", "at", "welcome"))
        return cls(chat or "", group == "1", req_id or "", run or "", float(at or 0), welcome == "1")


def read_callback(frame: Frame, bot: Bot, now: float) -> InboundMessage | None:
    """The message for the bot in this frame, which came at `now`; None for other events and unwanted groups."""
    body = frame.body
    group, speaker = text_at(body, "chattype") == "group", text_at(object_at(body, "from"), "userid")
    welcome = frame.event == "enter_chat"
    if not (frame.cmd == MESSAGE or welcome):
        return None
    number = text_at(body, "msgid") or (_event_id(body, speaker) if frame.cmd == EVENT else "")
    chat = text_at(body, "chatid") if group else speaker
    if not all(map(_is_id, (number, chat, speaker))):
        _log.warning("wecom_callback_without_ids entry=%s cmd=%s", bot.entry, frame.cmd)
        return None
    if group and bot.group_policy == "off":
        return None
    content = Content("", False) if welcome else read_content(body, bot.name, group=group)
    notice = Notice.WELCOME if welcome else _notice(content)
    if notice is not None:
        kind = text_at(body, "msgtype")[:40]
        _log.info("wecom_message_without_text entry=%s type=%r notice=%s", bot.entry, kind, notice)
    # The platform takes user ids in any case, and does not always give them back in the same.
    user = user_id("wecom", bot.user_account, speaker.lower())
    session = session_id("wecom", bot.account, chat if group else chat.lower())
    return InboundMessage(
        entry=bot.entry,
        account=bot.account,
        id=number,
        lane=LaneKey(user, "wecom", session, group),
        user=user,
        platform_user=speaker,
        text=content.text,
        chat=chat if group else "",
        reply=Origin(chat, group, frame.req_id, bot.run, now, welcome).reply(),
        notice=notice,
    )


def _is_id(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_ID and text.isprintable()


def _event_id(body: Object, speaker: str) -> str:
    """What tells an event without a msgid from others."""
    return f"enter_chat:{speaker}:{int_at(body, 'create_time', 0)}" if speaker else ""


def _notice(content: Content) -> Notice | None:
    if is_blank(content.text):
        return Notice.EMPTY
    return None if content.worded else Notice.UNSUPPORTED
