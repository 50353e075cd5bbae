"""Tokens of a text, estimated without network or vocabulary."""

import math
import re

from memory.conversation import ToolCall

_HAN = re.compile("[\u3400-\u9fff]+")


def estimate(text: str) -> int:
    """Tokens of a text."""
    rest, runs = _HAN.subn(" ", text)
    return 2 * (len(text) - len(rest) + runs) + math.ceil(1.3 * len(rest.split()))


def message_tokens(text: str) -> int:
    """Tokens of a text as one message of a request."""
    return estimate(text) + 10


def call_tokens(call: ToolCall) -> int:
    """Tokens that one tool call adds to its message."""
    return estimate(call.name) + estimate(call.arguments) + 8


def shortened(text: str, longest: int) -> tuple[str, int]:
    """A text of at most `longest` tokens: head and tail with a marker between; and how many tokens were left out."""
    total = estimate(text)
    if total <= longest:
        return text, 0
    chars = len(text)
    size = total
    while True:
        chars = chars * longest // (size + 1)
        head, tail = text[: chars - chars // 3], text[len(text) - chars // 3 :]
        left_out = total - estimate(head) - estimate(tail)
        short = f"{head}\n……（此处省略约 {left_out} tokens）……\n{tail}"
        size = estimate(short)
        if size <= longest or not chars:
            return short, left_out
