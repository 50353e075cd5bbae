"""What a Feishu message says: its type and content JSON come in, text with markers for what is no text goes out.

Shapes: open.feishu.cn, 消息 › 接收消息内容. Keys of images and files never reach the text.
"""

import html
import re
from collections.abc import Callable, Sequence

from channels.content import UNKNOWN, Content, marker
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

Mention = Callable[[str, str], str]
"""Given the `user_id` and the `user_name` of an `at` element: the text that stands for it."""


def read_content(message_type: str, raw: str, mention: Mention) -> Content:
    """Reads `message.content`; what cannot be read is a marker without words. Mentions in text are left in place."""
    content = load_object(raw)
    if content is None:
        return marker(UNKNOWN)
    match message_type:
        case "text":
            return Content(text_at(content, "text"))
        case "post":
            return _read_post(content, mention)
        case "interactive":
            return _read_card(content, mention)
        case "file":
            name = one_line(text_at(content, "file_name"))
            return Content(f"[文件: {name}]" if name else "[文件]", bool(name))
    return marker(_MARKERS.get(message_type, UNKNOWN))


def _read_post(content: Object, mention: Mention) -> Content:
    post = _localised(object_at(content, "post") or content)
    paragraphs = [_paragraph(item, mention) for item in _paragraphs(list_at(post, "content"))]
    title = text_at(post, "title")
    said = Content.joined([*([] if is_blank(title) else [Content(title)]), *paragraphs], "\n")
    return said if paragraphs else Content(said.text)


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


def _paragraph(elements: list[Object], mention: Mention) -> Content:
    return Content.joined(_element(element, mention) for element in elements)


def _element(element: Object, mention: Mention) -> Content:
    """One element of a paragraph."""
    text = text_at(element, "text")
    match text_at(element, "tag"):
        case "a":
            return Content(_link(text, text_at(element, "href")))
        case "at":
            return Content(mention(text_at(element, "user_id"), text_at(element, "user_name")))
        case "img":
            return marker("[图片]")
        case "media":
            return marker("[视频]")
        case "emotion":
            emoji = one_line(text_at(element, "emoji_type"))
            return Content(f"[{emoji}]" if emoji else "")
        case "hr":
            return marker("---")
        case "code_block":
            language = text_at(element, "language").lower()
            tag = language if _CODE_LANGUAGE.fullmatch(language) else ""
            return Content(f"```{tag}\n{text.rstrip()}\n```", not is_blank(text))
    if element.get("un_escape") is True:
        text = html.unescape(text)
    return Content(text)


def _link(text: str, address: str) -> str:
    if not address or text == address:
        return text or address
    return f"[{text}]({address})" if text else address


def _read_card(content: Object, mention: Mention) -> Content:
    """A card arrives as its title and texts only; a button's label is no word of the sender."""
    rows = _paragraphs(list_at(content, "elements"))
    texts = [text_at(content, "title")]
    texts += [_paragraph([item for item in row if text_at(item, "tag") != "button"], mention).text for row in rows]
    text = "\n".join(text for text in texts if not is_blank(text))
    return Content(text) if text else marker("[卡片]")
