"""What a robot message says: its JSON comes in, text with markers for what is no text goes out. Pure.

Shapes: open.dingtalk.com, 机器人接收消息. What is quoted (`text.repliedMsg`) is documented nowhere; the shapes read
here were reported by users. Download codes never reach the text.
"""

import re

from channels.content import UNKNOWN, Content, marker
from channels.json_values import Object, list_at, object_at, text_at
from channels.text import is_blank, one_line, shortened

_MARKERS = {
    "picture": "[图片]",
    "image": "[图片]",
    "audio": "[语音]",
    "voice": "[语音]",
    "video": "[视频]",
    "file": "[文件]",
    "chatRecord": "[聊天记录]",
    "interactiveCard": "[卡片]",
    "emotion": "[表情]",
}
_BLANKS = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\u200b\u2060\ufeff"
)
"""What `str.strip` takes for blanks, and those of no width."""
_MENTION = re.compile(r"@[^\s@]+")
_DEEPEST_CARD = 12
_COMMAND = ("/", "／")


def read_content(message: Object, *, drop_mentions: bool) -> Content:
    """The text of a message with what it quotes above it; what cannot be read is a marker without words.

    `drop_mentions`: pieces of a richText that are nothing but a mention stand for the robot and are left out.
    """
    content = _read(text_at(message, "msgtype"), message, drop_mentions)
    said = Content(content.text.strip(_BLANKS), content.worded)
    quote = _quote(object_at(object_at(message, "text"), "repliedMsg"))
    if not quote or said.text.startswith(_COMMAND):
        return said
    return Content(f"> 引用：{quote}\n{said.text}".rstrip()) if said.worded else said


def _read(kind: str, message: Object, drop_mentions: bool) -> Content:
    content = object_at(message, "content")
    match kind:
        case "text" | "":
            if "text" in message or kind:
                return Content(text_at(object_at(message, "text"), "content"))
        case "richText":
            return _read_rich_text(content, drop_mentions)
        case "audio":
            heard = text_at(content, "recognition")
            return marker(_MARKERS[kind]) if is_blank(heard) else Content(heard)
        case "file":
            name = one_line(text_at(content, "fileName"))
            return Content(f"[文件: {name}]") if name else marker(_MARKERS[kind])
    return marker(_MARKERS.get(kind, UNKNOWN))


def _read_rich_text(content: Object, drop_mentions: bool) -> Content:
    items = [item for item in list_at(content, "richText") if isinstance(item, dict)]
    said = Content.joined(_read_piece(item, drop_mentions) for item in items)
    return said if items else Content("")


def _read_piece(piece: Object, drop_mentions: bool) -> Content:
    text = text_at(piece, "text") or text_at(piece, "content")
    if not text:
        return marker(_MARKERS.get(text_at(piece, "type") or text_at(piece, "msgType"), ""))
    return Content("" if drop_mentions and _MENTION.fullmatch(text.strip(_BLANKS)) else text)


def _quote(replied: Object) -> str:
    """What the message replies to, as one short line; "" where nothing of it can be read."""
    kind, content = text_at(replied, "msgType"), object_at(replied, "content")
    match kind:
        case "richText":
            text = _read_rich_text(content, drop_mentions=False).text
        case "interactiveCard":
            text = " ".join(_card_texts(content.get("cardContent"), _DEEPEST_CARD)) or _MARKERS[kind]
        case "audio" | "file":
            text = _read(kind, replied, drop_mentions=False).text
        case _:
            text = text_at(content, "text") or text_at(content, "content") or _MARKERS.get(kind, "")
    return shortened(text)


def _card_texts(node: object, depth: int) -> list[str]:
    """The texts in the tree of a card: `{elementType, value, children}`."""
    if depth == 0 or not isinstance(node, dict | list):
        return []
    if isinstance(node, list):
        return [text for child in node for text in _card_texts(child, depth - 1)]
    own = [text_at(node, "value")] if text_at(node, "elementType") == "TEXT" and text_at(node, "value") else []
    return own + _card_texts(node.get("children"), depth - 1)
