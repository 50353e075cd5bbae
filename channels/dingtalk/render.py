"""An answer's text becomes what DingTalk takes: markdown with a title, the asker mentioned where that is wanted. Pure.

open.dingtalk.com, 机器人发送消息的类型. What the text says mentions nobody: see channels.markup.
"""

from channels import markup
from channels.json_values import to_json
from channels.text import shortened

PART_BYTES = 4500
"""About 1,500 Chinese characters, a screen or two; also what fits both ways however much of it is escaped.

A session webhook takes 20,000 bytes of JSON, the robot API 15,000 of `msgParam`; parts are cut before the way is
known, and a byte of text is at most two of either.
"""

_TITLE = 40
_NO_TITLE = "回复"


def webhook_body(text: str, mention: str = "") -> str:
    """The JSON a session webhook takes; `mention` is the staff id of who is mentioned above the text."""
    shown = f"@{mention}\n\n{text}" if mention else text  # seen only where the text names the id as well
    body: dict[str, object] = {"msgtype": "markdown", "markdown": {"title": _title(text), "text": shown}}
    if mention:
        body["at"] = {"atUserIds": [mention], "isAtAll": False}
    return to_json(body)


def message_parameters(text: str) -> str:
    """The `msgParam` of a `sampleMarkdown` message of the robot API, which mentions nobody."""
    return to_json({"title": _title(text), "text": text})


def _title(text: str) -> str:
    """The start of the text, without its marks, for the list of chats and for notifications."""
    lines = (shortened(line, _TITLE) for line in markup.plain(text[: 10 * _TITLE]).split("\n"))
    return next(filter(None, lines), _NO_TITLE)
