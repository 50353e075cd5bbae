"""An answer's text becomes what a WeCom bot may say: Markdown in which a model or a user can mention nobody. Pure."""

import regex

PART_BYTES = 20_000
"""The platform takes 20,480 bytes of UTF-8 (developer.work.weixin.qq.com, 智能机器人 › 回复消息)."""

_CONTROL = regex.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SURROGATE = regex.compile(r"[\ud800-\udfff]")
_MENTION = regex.compile(r"<(?=[\s\p{Cf}]*@)")


def markdown(text: str) -> str:
    """The text without control characters, broken characters and mentions (``<@userid>``); stable when repeated."""
    text = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return str(_MENTION.sub("＜", _SURROGATE.sub("\ufffd", text)))


def beginning(text: str, size: int = PART_BYTES) -> str:
    """As much of the text as fits into `size` bytes, no character cut."""
    return text[:size].encode()[:size].decode("utf-8", "ignore")
