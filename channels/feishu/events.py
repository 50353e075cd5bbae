"""An event of Feishu comes in, an `InboundMessage` goes out, or None for what is not for us. Pure.

Envelope and message: open.feishu.cn, 事件订阅 › 接收消息 (`im.message.receive_v1`, schema 2.0). What the platform
has authenticated is still untrusted in its shape: any JSON is read without an exception.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from channels.content import Content
from channels.feishu.content import Mention, read_content
from channels.feishu.origin import Origin
from channels.json_values import Object, list_at, object_at, text_at
from channels.message import InboundMessage
from channels.text import is_id
from memory.conversation import LaneKey, session_id, user_id

_log = logging.getLogger("sanqiao.channels.feishu")

MESSAGE_EVENT = "im.message.receive_v1"
_KEY = re.compile(r"@_[A-Za-z0-9_]{1,40}")
_EVERYONE = "@_all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bot:
    """Who receives: one app as this entry knows it. `open_id` is "" until the platform has told it."""

    entry: str
    app_id: str
    account: str
    open_id: str = ""
    group_policy: str = "mention"


@dataclass(frozen=True, slots=True)
class _Mentioned:
    key: str
    open_id: str
    name: str
    is_bot: bool


def read_event(envelope: Object, bot: Bot) -> InboundMessage | None:
    """The message for the bot in this envelope, or None: own, other bots', not addressed, other events, other app's."""
    header, event = object_at(envelope, "header"), object_at(envelope, "event")
    if text_at(header, "event_type") != MESSAGE_EVENT:
        return None
    if text_at(header, "app_id") not in ("", bot.app_id):
        _log.warning("feishu_foreign_app entry=%s", bot.entry)
        return None
    sender, message = object_at(event, "sender"), object_at(event, "message")
    speaker = text_at(object_at(sender, "sender_id"), "open_id")
    # Bots reach bots in groups: answering anything but people would let two of them talk for ever.
    if text_at(sender, "sender_type") != "user" or speaker == bot.open_id:
        return None
    return _read_message(message, speaker, bot)


def _read_message(message: Object, speaker: str, bot: Bot) -> InboundMessage | None:
    number, chat, thread = (text_at(message, key) for key in ("message_id", "chat_id", "thread_id"))
    if not (is_id(number) and is_id(chat) and is_id(speaker)) or (thread and not is_id(thread)):
        _log.warning("feishu_event_without_ids entry=%s", bot.entry)
        return None
    group = text_at(message, "chat_type") != "p2p"
    mentions = _mentions(list_at(message, "mentions"))
    own = _own(mentions, bot.open_id)
    if group and not _for_us(bot.group_policy, bool(own)):
        return None
    kind, raw = text_at(message, "message_type"), text_at(message, "content")
    if kind == "system" or not raw:  # a notice of the chat; a message recalled before it was delivered
        return None
    content = _without_mentions(kind, read_content(kind, raw, _at_elements(mentions, own, bot.open_id)), mentions, own)
    notice = content.notice
    if notice is not None:
        _log.info("feishu_message_without_text entry=%s type=%r notice=%s", bot.entry, kind[:40], notice)
    user = user_id("feishu", bot.account, speaker)
    return InboundMessage(
        entry=bot.entry,
        account=bot.account,
        id=number,
        lane=LaneKey(user, "feishu", session_id("feishu", bot.account, chat, thread), group),
        user=user,
        platform_user=speaker,
        text=content.text,
        chat=chat if group else "",
        reply=Origin(chat, number, thread).reply(),
        notice=notice,
    )


def _for_us(policy: str, mentioned: bool) -> bool:
    return policy == "all" or (policy == "mention" and mentioned)


def _mentions(items: Sequence[object]) -> tuple[_Mentioned, ...]:
    found = []
    for item in items:
        if not isinstance(item, dict) or not _KEY.fullmatch(text_at(item, "key")):
            continue
        # An object in events; a plain string, with `id_type` beside it, in answers of the message API.
        open_id = text_at(object_at(item, "id"), "open_id") or text_at(item, "id")
        name = " ".join(text_at(item, "name").split())[:64]
        found.append(_Mentioned(text_at(item, "key"), open_id, name, text_at(item, "mentioned_type") == "bot"))
    return tuple(found)


def _own(mentions: tuple[_Mentioned, ...], open_id: str) -> frozenset[str]:
    """Keys that stand for the bot itself: by id, never by name.

    Until the own id is known a sole mentioned bot is taken for ours: with the usual scope no other message arrives.
    """
    if open_id:
        return frozenset(mention.key for mention in mentions if mention.open_id == open_id)
    bots = {mention.open_id for mention in mentions if mention.is_bot}
    return frozenset(mention.key for mention in mentions if mention.is_bot) if len(bots) == 1 else frozenset()


def _shown(mentions: tuple[_Mentioned, ...], own: frozenset[str]) -> Mapping[str, str]:
    """For each key the text a person would read: nothing for the bot itself."""
    shown = {_EVERYONE: "@所有人"}
    for mention in mentions:
        if mention.key != _EVERYONE:
            shown[mention.key] = "" if mention.key in own else f"@{mention.name or '某人'}"
    return shown


def _at_elements(mentions: tuple[_Mentioned, ...], own: frozenset[str], open_id: str) -> Mention:
    """How an `at` element of a post reads; its `user_id` is a key, an open_id, or `all`."""
    shown = _shown(mentions, own)
    by_id = {mention.open_id: shown.get(mention.key, "") for mention in mentions if mention.open_id}

    def read(user: str, name: str) -> str:
        if user and user == open_id:
            return ""
        if user in ("all", _EVERYONE):
            return shown[_EVERYONE]
        text = shown.get(user, by_id.get(user))
        return f"@{' '.join(name.split())[:64] or '某人'}" if text is None else text

    return read


def _without_mentions(kind: str, content: Content, mentions: tuple[_Mentioned, ...], own: frozenset[str]) -> Content:
    """Replaces listed keys in one pass, the longest first: `@_user_1` begins `@_user_10`, and a name may hold a key."""
    if kind != "text":
        return Content(content.text.strip(), content.worded)
    shown = _shown(mentions, own)
    keys = "|".join(re.escape(key) for key in sorted(shown, key=len, reverse=True) if key != _EVERYONE)
    pattern = rf"({keys})([ \u00a0]?)|({_EVERYONE})(?![A-Za-z0-9_])" if keys else rf"()()({_EVERYONE})(?![A-Za-z0-9_])"

    def read(found: re.Match[str]) -> str:
        if found[3]:
            return shown[_EVERYONE]
        return shown[found[1]] + found[2] if shown[found[1]] else ""

    return Content(re.sub(pattern, read, content.text).strip(), content.worded)
