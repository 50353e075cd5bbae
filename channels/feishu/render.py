"""An answer's text becomes the content of a Feishu message: a post with one `md` element, or plain text. Pure.

Text of a model or a user can mention nobody: tags are neutralised (open.feishu.cn, 发送消息 › 消息内容结构).
"""

import json

import regex

from channels.text import without_controls

PART_BYTES = 7000
"""One byte of text is at most four in the request (a quote, escaped twice), and a post may have 30 KB."""

_ANY_TAG = regex.compile(r"<(?=[\s\p{Cf}]*/?[\s\p{Cf}]*[A-Za-z!?])")
_MENTION = regex.compile(r"<(?=[\s\p{Cf}]*/?[\s\p{Cf}]*(?:at|person)\b)", regex.IGNORECASE)
_FENCE = regex.compile(r"[ \t]*(`{3,}|~{3,})(.*)")
_HEADING = regex.compile(r" {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*[ \t]*")
_IMAGE = regex.compile(r"!(?=\[[^\]\n]*\]\()")


def post_content(text: str) -> str:
    """The `content` of a `post` that shows this markdown; `md` knows neither headings nor images of the web."""
    element = {"tag": "md", "text": _markdown(without_controls(text))}
    return _json({"zh_cn": {"title": "", "content": [[element]]}})


def text_content(text: str) -> str:
    """The `content` of a `text` message that shows this text as it is."""
    return _json({"text": _ANY_TAG.sub("＜", without_controls(text))})


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _markdown(text: str) -> str:
    lines, fence = [], ""
    for line in text.split("\n"):
        found = _FENCE.fullmatch(line)
        inside = bool(fence)
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence) and not found[2].strip():
            fence = ""
        lines.append(line if inside else _prose(line))
    return str(_MENTION.sub("＜", "\n".join(lines)))  # in code too, and where a tag goes on over a line break


def _prose(line: str) -> str:
    heading = _HEADING.fullmatch(line)
    if heading and heading[1]:
        line = f"**{heading[1].replace('**', '')}**"
    # Odd pieces stand between backticks: code, shown as it is.
    pieces = line.split("`")
    pieces[::2] = [_IMAGE.sub("", _ANY_TAG.sub("＜", piece)) for piece in pieces[::2]]
    return "`".join(pieces)
