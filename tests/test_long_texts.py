"""What people, platforms and models write takes time linear in its length: nobody's long text keeps the others waiting."""

import json
import time
from collections.abc import Callable
from functools import partial

import pytest

from agents import cleaning, prompt, wire
from channels import markdown, markup, text
from channels.dingtalk import content as dingtalk
from channels.feishu import content as feishu
from channels.split import split
from channels.wecom import content as wecom
from gateway import logs
from gateway.commands import parse, said
from memory import sanitise
from memory.acknowledgement import ASSENTS, CLOSERS, acknowledgements, asks
from memory.masking import RULES, Masking
from memory.tokens import estimate, shortened
from tests.effort import effort

UNITS = (
    *(
        " ",
        "\n",
        "\t",
        "\r\n",
        "\u200b",
        "\u3000",
        " \n",
        "a ",
        ".",
        "。",
        "…",
        "!",
        "?",
        "，",
        ":",
        "：",
        "-",
        "- ",
        "1. ",
    ),
    *(
        "(",
        "（",
        "[",
        "](",
        "<",
        "<a ",
        "</",
        "&",
        "&lt;",
        "@",
        "@a ",
        "@_",
        "*",
        "**",
        "_",
        "`",
        "```",
        "~~~",
        "~",
        "#",
        ">",
    ),
    *(
        "> ",
        "|",
        "| ",
        "+",
        '"',
        "'",
        "/",
        "\\",
        '\\"',
        "\\u",
        "$",
        "{",
        "}",
        "%",
        "0",
        "1-",
        "86 ",
        "a",
        "A",
        "中",
        "a)",
    ),
    *("①", "😀", "\u0301", "http://", "<think>", "<|", "|>", "[INST]"),
)
AROUND = (("", ""), ("x", "x"), ("(", ")"), ("/", ""))

masking = Masking(RULES)
words = acknowledgements(CLOSERS, ASSENTS, 3)
READERS: dict[str, Callable[[str], object]] = {
    "parse": parse,
    "said": said,
    "is_blank": text.is_blank,
    "one_line": text.one_line,
    "split": lambda told: split(told, 2000),
    "clean": markdown.clean,
    "blocks": lambda told: list(markdown.blocks(told)),
    "spans": lambda told: list(markdown.spans(told)),
    "plain": markup.plain,
    "feishu": markup.feishu,
    "dingtalk": markup.dingtalk,
    "wecom": markup.wecom,
    "without_tags": markup.without_tags,
    "without thoughts": cleaning.clean,
    "storable": sanitise.storable,
    "speakable": sanitise.speakable,
    "sent": wire.sent_text,
    "arguments": wire.sent_arguments,
    "tokens": estimate,
    "shortened": lambda told: shortened(told, 500),
    "section": partial(prompt.section, "x"),
    "asks": asks,
    "kind": words.kind,
    "masked": masking.mask,
    "log": logs.one_line,
    "dingtalk text": lambda told: dingtalk.read_content(
        {"msgtype": "text", "text": {"content": told}}, drop_mentions=True
    ),
    "dingtalk rich text": lambda told: dingtalk.read_content(
        {"msgtype": "richText", "content": {"richText": [{"text": told}]}}, drop_mentions=True
    ),
    "wecom text": lambda told: wecom.read_content({"msgtype": "text", "text": {"content": told}}, "三桥", group=True),
    "feishu text": lambda told: feishu.read_content("text", json.dumps({"text": told}), lambda user, name: name),
    "feishu post": lambda told: feishu.read_content(
        "post", json.dumps({"content": [[{"tag": "text", "text": told}]]}), lambda user, name: name
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_long_texts_take_no_longer_than_they_are(name: str) -> None:
    read = READERS[name]
    for unit in UNITS:
        for head, tail in AROUND:
            some, many = (head + unit * (size // len(unit)) + tail for size in (4_000, 16_000))
            start = time.thread_time()
            read(some)
            if time.thread_time() - start > 0.01:  # what is quadratic takes five times that and more
                assert min(effort(partial(read, many)) for _ in range(3)) < 60, (unit, head, tail)
