"""What a Feishu message says: its type and content JSON come in, text with markers for what is no text goes out.

Shapes: open.feishu.cn, 消息 › 接收消息内容. Keys of images and files never reach the text.
"""

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from channels.json_values import Object, list_at, load_object, object_at, text_at
from channels.text import is_blank, one_line

_LOCALES = ("zh_cn", "en_us", "ja_jp")
_CODE_LANGUAGE = re.compile(r"[A-Za-z0-9+#_.-]{1,20}")

_MARKERS = {
    "image": "[图片]",
    "audio": "[语音]",
    "media": "[视频]",
    "sticker": "[表情]",
    "location": "[位置]",
    "folder": "[文件夹]",
    "share_chat": "[群名片]",
    "share_user": "[个人名片]",
    "merge_forward": "[合并转发]",
    "hongbao": "[红包]",
    "video_chat": "[视频会议]",
    "todo": "[任务]",
    "vote": "[投票]",
    "calendar": "[日程]",
    "share_calendar_event": "[日程]",
    "general_calendar": "[日程]",
}
_UNKNOWN = "[不支持的消息]"

Mention = Callable[[str, str], str]
"""Given the `user_id` and the `user_name` of an `at` element: the text that stands for it."""


@dataclass(frozen=True, slots=True)
class Content:
    """`text` with markers; `worded` tells whether a person's words are in it, not markers alone."""

    text: str
    worded: bool


def read_content(message_type: str, raw: str, mention: Mention) -> Content:
    """Reads `message.content`; what cannot be read is a marker without words. Mentions in text are left in place."""
    content = load_object(raw)
    if content is None:
        return Content(_UNKNOWN, False)
    match message_type:
        case "text":
            return Content(text_at(content, "text"), True)
        case "post":
            return _read_post(content, mention)
        case "interactive":
            return _read_card(content, mention)
        case "file":
            name = one_line(text_at(content, "file_name"))
            return Content(f"[文件: {name}]" if name else "[文件]", bool(name))
    return Content(_MARKERS.get(message_type, _UNKNOWN), False)


def _read_post(content: Object, mention: Mention) -> Content:
    post = _localised(object_at(content, "post") or content)
    paragraphs = [_paragraph(item, mention) for item in _paragraphs(list_at(post, "content"))]
    title = text_at(post, "title")
    lines = [title] if not is_blank(title) else []
    lines += [text for text, _ in paragraphs]
    return Content("\n".join(lines), not is_blank(title) or not paragraphs or any(worded for _, worded in paragraphs))


def _localised(post: Object) -> Object:
    """Received posts have no level for the language, sent ones do; both are read."""
    if "content" in post or "title" in post:
        return post
    named = [object_at(post, locale) for locale in _LOCALES]
    others = [value for value in post.values() if isinstance(value, dict)]
    return next((value for value in [*named, *others] if "content" in value or "title" in value), post)


def _paragraphs(content: Sequence[object]) -> list[list[Object]]:
    """Lists of elements; elements that stand flat, without a paragraph around them, are a paragraph each."""
    rows = [item if isinstance(item, list) else [item] for item in content]
    return [[element for element in row if isinstance(element, dict)] for row in rows]


def _paragraph(elements: list[Object], mention: Mention) -> tuple[str, bool]:
    pieces = [_element(element, mention) for element in elements]
    return "".join(text for text, _ in pieces), any(worded for _, worded in pieces)


def _element(element: Object, mention: Mention) -> tuple[str, bool]:
    """One element of a paragraph: its text, and whether these are words."""
    text = text_at(element, "text")
    match text_at(element, "tag"):
        case "a":
            return _link(text, text_at(element, "href")), True
        case "at":
            name = mention(text_at(element, "user_id"), text_at(element, "user_name"))
            return name, bool(name)
        case "img":
            return "[图片]", False
        case "media":
            return "[视频]", False
        case "emotion":
            emoji = one_line(text_at(element, "emoji_type"))
            return (f"[{emoji}]", True) if emoji else ("", False)
        case "hr":
            return "---", False
        case "code_block":
            language = text_at(element, "language").lower()
            tag = language if _CODE_LANGUAGE.fullmatch(language) else ""
            return f"```{tag}\n{text.rstrip()}\n```", not is_blank(text)
    if element.get("un_escape") is True:
        text = html.unescape(text)
    return text, not is_blank(text)


def _link(text: str, address: str) -> str:
    if not address or text == address:
        return text or address
    return f"[{text}]({address})" if text else address


def _read_card(content: Object, mention: Mention) -> Content:
    """A card arrives as its title and texts only; a button's label is no word of the sender."""
    rows = _paragraphs(list_at(content, "elements"))
    texts = [text_at(content, "title")]
    texts += [_paragraph([item for item in row if text_at(item, "tag") != "button"], mention)[0] for row in rows]
    text = "\n".join(text for text in texts if not is_blank(text))
    return Content(text, True) if text else Content("[卡片]", False)
