"""What an answer looks like in Feishu: markdown kept, nobody mentioned, within the size of a request."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels import markup
from channels.feishu.render import PART_BYTES, post_content, text_content
from channels.split import split


def shown(text: str) -> str:
    content = json.loads(post_content(markup.feishu(text)))
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


MENTION = re.compile(r"<[\s\u200b\x00]*/?[\s\u200b\x00]*(at|person)\b", re.IGNORECASE)
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
        assert not MENTION.search(text), text


PIECES = [
    *ATTACKS,
    *(
        "<",
        "</",
        "at ",
        "at",
        "person ",
        " user_id=all>",
        "[",
        "](x)",
        "](<at>)",
        "](https://h)",
        "![",
        "<br>",
        "**",
        "\\",
    ),
    *("`", "```", "```x<", "~~~", "~~~<", "\n", "# ", "- ", "|", "\n|-|-|\n", " ", "\u200b", "文", "<https://h>"),
]


@settings(max_examples=1000)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_no_mixture_mentions_anybody_whole_or_in_parts(text: str) -> None:
    """Once through the markup is enough, also where a link that is unwrapped or a cut brings the pieces together."""
    once = markup.feishu(text)
    assert not MENTION.search(once)
    for part in split(once, 40):
        assert not MENTION.search(json.loads(post_content(part))["zh_cn"]["content"][0][0]["text"]), part


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ('<[at](x) user_id="all">', '＜at（x） user_id="all">'),
        ("<[b](javascript:x)>", "＜b（javascript:x）>"),
        ("<<br>at id=all>", "＜\nat id=all>"),
        ("# <**at** id=all>", "**＜at id=all>**"),
        ("`<`b>", "`<`b>"),
    ],
)
def test_what_is_unwrapped_makes_no_tag(text: str, want: str) -> None:
    assert shown(text) == want


@pytest.mark.parametrize("unit", ["好", '"', "\\", "\n\\", "<b>", "# a\n", "🚀", "\u2028", "&", "a"])
def test_any_part_fits_a_request_of_30_kb(unit: str) -> None:
    for text in split(unit * 20_000, PART_BYTES):
        body = {"msg_type": "post", "content": post_content(text), "uuid": "u" * 40, "reply_in_thread": False}
        for escaped in (True, False):
            assert len(json.dumps(body, ensure_ascii=escaped).encode()) <= 30 << 10
