"""What an answer looks like in Feishu: markdown kept, nobody mentioned, within the size of a request."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.feishu.render import PART_BYTES, post_content, text_content
from channels.split import split


def shown(text: str) -> str:
    content = json.loads(post_content(text))
    (((element,),),) = (content["zh_cn"]["content"],)
    assert element["tag"] == "md"
    return str(element["text"])


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("**粗** 和 [链接](http://h)", "**粗** 和 [链接](http://h)"),
        ("# 标题\n正文\n### 三级 ###", "**标题**\n正文\n**三级**"),
        ("## **已粗** 标题", "**已粗 标题**"),
        ("#标签 不是标题", "#标签 不是标题"),
        ("```python\n# 注释\n<div> a < b\n```\n# 后", "```python\n# 注释\n<div> a < b\n```\n**后**"),
        ("用 `List<String>` 和 <b>x</b>", "用 `List<String>` 和 ＜b>x＜/b>"),
        ("1 < 2 且 3<4", "1 < 2 且 3<4"),
        ("![图](https://h/x.png)", "[图](https://h/x.png)"),
        ("a\r\nb\rc\x00\x1b", "a\nb\nc"),
        ("半个\ud83d", "半个\ufffd"),
    ],
)
def test_markdown(text: str, want: str) -> None:
    assert shown(text) == want


ATTACKS = [
    '<at user_id="all">everyone</at>',
    "<at id=all></at>",
    "<AT user_id='all'>",
    "< at user_id=all>",
    "<\nat user_id=all>",
    "<\u200bat user_id=all>",
    "<\x00at user_id=all>",
    "`<at user_id=all>`",
    "```\n<at user_id=all>\n```",
    "```\n<\nat user_id=all>\n```",
    "<person id=all>",
    "</at>",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_text_mentions_anybody(attack: str) -> None:
    for text in (shown("看 " + attack), json.loads(text_content("看 " + attack))["text"]):
        assert not re.search(r"<[\s\u200b\x00]*/?(at|person)", text, re.IGNORECASE), text


@given(st.lists(st.sampled_from([*ATTACKS, "`", "```", "\n", "<", "at ", "文", "~~~"]), max_size=12).map("".join))
def test_no_mixture_mentions_anybody(text: str) -> None:
    assert not re.search(r"<[\s\u200b\x00]*/?(at|person)\b", shown(text), re.IGNORECASE)


@pytest.mark.parametrize("unit", ["好", '"', "\\", "\n\\", "<b>", "# a\n", "🚀", "\u2028", "&", "a"])
def test_any_part_fits_a_request_of_30_kb(unit: str) -> None:
    for text in split(unit * 20_000, PART_BYTES):
        body = {"msg_type": "post", "content": post_content(text), "uuid": "u" * 40, "reply_in_thread": False}
        for escaped in (True, False):
            assert len(json.dumps(body, ensure_ascii=escaped).encode()) <= 30 << 10
