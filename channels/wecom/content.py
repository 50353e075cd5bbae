"""What a message to a WeCom bot says: its body comes in, text with markers for what is no text goes out. Pure.

Shapes: developer.work.weixin.qq.com, 智能机器人 › 接收消息. Addresses and keys of media never reach the text.
"""

import re

from channels.content import UNKNOWN, Content, marker
from channels.json_values import Object, list_at, object_at, text_at
from channels.text import is_blank, shortened

_MARKERS = {"image": "[图片]", "file": "[文件]", "video": "[视频]", "voice": "[语音]"}
_ANY_MENTION = re.compile(r"\s*@\S+(\s+|$)")


def read_content(body: Object, bot_name: str, *, group: bool) -> Content:
    """What the message says, its mention of the bot taken out, after one line of what it quotes.

    A command stands alone: its quote is dropped, for it would no longer be read as a command.
    """
    said = _say(body)
    text = without_mention(said.text, bot_name, group=group)
    quote = _say(object_at(body, "quote"))
    short = shortened(quote.text)
    if not short or text.startswith(("/", "／")):
        return Content(text, said.worded)
    return Content(f"> {short}\n{text}".rstrip(), said.worded or quote.worded)


def without_mention(text: str, bot_name: str, *, group: bool) -> str:
    """The text without the mention of the bot, which in groups stands in it as people see it: ``@Name ``.

    The configured name is taken out wherever it stands; where it is not found, one mention at the beginning.
    """
    name = r"\s+".join(re.escape(word) for word in bot_name.split())
    if name:
        for pattern in (rf"@{name}(?!\w)[^\S\n]*", rf"\A\s*@{name}\s*" if group else None):
            if pattern and re.search(pattern, text):
                return re.sub(pattern, "", text).strip()
    return (_ANY_MENTION.sub("", text, count=1) if group and _ANY_MENTION.match(text) else text).strip()


def _say(body: Object) -> Content:
    kind = text_at(body, "msgtype")
    match kind:
        case "":
            return marker("")
        case "text":
            return Content(text_at(object_at(body, "text"), "content"))
        case "voice":
            heard = text_at(object_at(body, "voice"), "content")
            return marker(_MARKERS[kind]) if is_blank(heard) else Content(heard)
        case "mixed":
            listed = [item for item in list_at(object_at(body, "mixed"), "msg_item") if isinstance(item, dict)]
            items = [_say(item) for item in listed if text_at(item, "msgtype") != kind]
            return Content.joined([item for item in items if item.text], "\n")
    return marker(_MARKERS.get(kind, UNKNOWN))
