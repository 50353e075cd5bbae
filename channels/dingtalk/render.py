"""An answer's text becomes what DingTalk shows: markdown with a title, the asker mentioned where that is wanted. Pure.

open.dingtalk.com, 机器人发送消息的类型: a line break counts only after two blanks or as a blank line.
"""

import json
import re

from channels.text import without_controls

PART_BYTES = 4500
"""About 1,500 Chinese characters, a screen or two; also what fits both ways however much of it is escaped.

A session webhook takes 20,000 bytes of JSON, the robot API 15,000 of `msgParam`, and parts are cut before the way is
known. A byte is at most two and a half once line breaks are marked and quotes are escaped.
"""

_TITLE = 40
_NO_TITLE = "回复"
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)")
_IMAGE = re.compile(r"!(?=\[[^\]\n]*\]\()")
_LINK = re.compile(r"\[([^\]\n]*)\]\([^)\n]*\)")
_LEADING = re.compile(r"\A(?:\s|>|#{1,6}\s|[*+-]\s|\d{1,3}[.)、]\s?)+")
_MARKS = re.compile(r"[*_`~#|]+")


def markdown(text: str, mention: str = "") -> tuple[str, str]:
    """Title and text of a markdown message; `mention` is the staff id of whom it mentions.

    Pictures of the web become links: showing one would tell its server who reads it, and whatever stands in its
    address.
    """
    text = without_controls(text)
    shown = _broken_lines(text)
    return _title(text), f"@{mention}\n\n{shown}" if mention else shown


def webhook_body(title: str, text: str, mention: str = "") -> str:
    """The JSON a session webhook takes."""
    body: dict[str, object] = {"msgtype": "markdown", "markdown": {"title": title, "text": text}}
    if mention:
        body["at"] = {"atUserIds": [mention], "isAtAll": False}
    return to_json(body)


def message_parameters(title: str, text: str) -> str:
    """The `msgParam` of a `sampleMarkdown` message."""
    return to_json({"title": title, "text": text})


def to_json(value: object) -> str:
    """Compact JSON, characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _title(text: str) -> str:
    """The start of the text, without its marks, for the list of chats and for notifications."""
    for line in text.split("\n"):
        if not _FENCE.fullmatch(line):
            title = _MARKS.sub("", _LEADING.sub("", _LINK.sub(r"\1", line))).strip()
            if title:
                return title if len(title) <= _TITLE else title[: _TITLE - 1] + "…"
    return _NO_TITLE


def _broken_lines(text: str) -> str:
    """Outside of code each line break is marked as one, and no picture is shown."""
    lines, fence = text.split("\n"), ""
    shown = []
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        found = _FENCE.fullmatch(line)
        if fence or found:
            shown.append(line)
            if found and not fence:
                fence = found[1]
            elif found and found[1].startswith(fence) and not found[2].strip():
                fence = ""
            continue
        prose = _without_images(line)
        shown.append(prose.rstrip() + "  " if prose.strip() and after.strip() else prose)
    return "\n".join(shown)


def _without_images(line: str) -> str:
    # Odd pieces stand between backticks: code, shown as it is.
    pieces = line.split("`")
    pieces[::2] = [_IMAGE.sub("", piece) for piece in pieces[::2]]
    return "`".join(pieces)
