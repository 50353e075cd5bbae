"""A callback of the long connection comes in, an `InboundMessage` goes out, or None for what is not for us. Pure.

developer.work.weixin.qq.com, 智能机器人 › 接收消息 and 接收事件. What the platform has authenticated is still
untrusted in its shape: any JSON is read without an exception.
"""

import logging
from dataclasses import dataclass

from channels.content import marker
from channels.json_values import Object, int_at, object_at, text_at
from channels.message import InboundMessage, Notice
from channels.text import is_id
from channels.wecom.content import read_content
from channels.wecom.frame import EVENT, MESSAGE, Frame
from channels.wecom.origin import Origin
from memory.conversation import LaneKey, session_id, user_id

_log = logging.getLogger("sanqiao.channels.wecom")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bot:
    """Who receives: one bot as this entry knows it. `run` names this process, in which a `req_id` can be answered."""

    entry: str
    account: str
    user_account: str
    name: str
    run: str
    group_policy: str = "mention"


def read_callback(frame: Frame, bot: Bot, now: float) -> InboundMessage | None:
    """The message for the bot in this frame, which came at `now`; None for other events and unwanted groups."""
    body = frame.body
    group, speaker = text_at(body, "chattype") == "group", text_at(object_at(body, "from"), "userid")
    welcome = frame.event == "enter_chat"
    if not (frame.cmd == MESSAGE or welcome):
        return None
    number = text_at(body, "msgid") or (_event_id(body, speaker) if frame.cmd == EVENT else "")
    chat = text_at(body, "chatid") if group else speaker
    if not all(map(is_id, (number, chat, speaker))):
        _log.warning("wecom_callback_without_ids entry=%s cmd=%s", bot.entry, frame.cmd)
        return None
    if group and bot.group_policy == "off":
        return None
    content = marker("") if welcome else read_content(body, bot.name, group=group)
    notice = Notice.WELCOME if welcome else content.notice
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


def _event_id(body: Object, speaker: str) -> str:
    """What tells an event without a msgid from others."""
    return f"enter_chat:{speaker}:{int_at(body, 'create_time', 0)}" if speaker else ""
