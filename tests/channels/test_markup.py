"""One markdown in, each platform's best out: words kept, code unchanged, nobody mentioned, no text too odd."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import markup
from channels.markdown import Code, Kind, Prose, Table, blocks, cells, clean, spans
from tests.effort import effort

MARKED = (markup.feishu, markup.dingtalk, markup.wecom)
ALL = (markup.plain, *MARKED)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("# 标题\n正文\n### 三级 ###", "【标题】\n正文\n【三级】"),
        ("## **粗** 的 `x`", "【粗 的 x】"),
        ("# 【已有】", "【已有】"),
        ("#标签 不是标题", "#标签 不是标题"),
        ("# 学习 C#\n# 尾 ##  \n#  #", "【学习 C#】\n【尾】\n"),
        ("这是**重点**，*斜体*，_也是_，***都是***，~~删~~", "这是重点，斜体，也是，都是，删"),
        ("使用Python**高级**特性，__粗__", "使用Python高级特性，粗"),
        ("2**3**4 与 2*3*4，__init__ 和 snake_case_name", "2**3**4 与 2*3*4，__init__ 和 snake_case_name"),
        ("**没有结束，* 也是，a * b", "**没有结束，* 也是，a * b"),
        ("- 一\n  - 二\n* 三\n+ 四\n1. 五\n2) 六", "· 一\n  · 二\n· 三\n· 四\n1. 五\n2) 六"),
        ("- [ ] 待办\n- [x] 做完", "☐ 待办\n☑ 做完"),
        ("[官网](https://x.com/a_b_(c))", "官网（https://x.com/a_b_(c)）"),
        ('[官网](<https://x.com/a b> "题")', "官网（https://x.com/a b）"),
        ("[https://x.com](https://x.com) <https://y.com>", "https://x.com https://y.com"),
        ("**[粗](https://x.com/__y__)**", "粗（https://x.com/__y__）"),
        ("![图](https://h/x.png)![](https://h/y.png)", "图（https://h/x.png）图片（https://h/y.png）"),
        ("> 引**用**\n>> 再引", "> 引用\n> > 再引"),
        ("用 `a*b*c` 和 ``x`y``", "用 a*b*c 和 x`y"),
        ("`没有结束 **粗**", "`没有结束 粗"),
        (r"\*不是\* \# 1\.", "*不是* # 1."),
        ("一<br>二", "一\n二"),
        ("---\n***", "————————\n————————"),
        ("```python\n# 注释 **x**\n\n<div>\n```\n**后**", "# 注释 **x**\n\n<div>\n后"),
        ("~~~\n```\n~~~", "```"),
        ("```\n没有结束 **x**", "没有结束 **x**"),
        ("> ```\n> **x**\n**y**", "> **x**\ny"),
        ("说明：\n\n    indented **code**", "说明：\n\n    indented **code**"),
        ("- 项\n\n    续段 **粗**", "- 项\n\n    续段 粗".replace("- ", "· ")),
    ],
)
def test_plain(text: str, want: str) -> None:
    assert markup.plain(text) == want


TABLE = "| 岗位 | **薪资** |\n|---|:-:|\n| Java | 25k<br>起 |\n| `a|b` |  |\n| x\\|y | 1 | 多 |\n完"


def test_tables_become_lines() -> None:
    assert markup.plain(TABLE) == "· 岗位：Java\n  薪资：25k 起\n· 岗位：a|b\n· 岗位：x|y\n  薪资：1\n  多\n完"
    for dialect in (markup.feishu, markup.wecom):
        assert dialect(TABLE) == (
            "- **岗位**：Java；**薪资**：25k 起\n- **岗位**：`a|b`\n- **岗位**：x|y；**薪资**：1；多\n完"
        )
    for no_table in ("a | b", "a | b\n还有 | 一行", "a | b | c\n---|---", "```\na|b\n-|-\n```"):
        assert markup.wecom(no_table) == no_table


def test_a_head_without_rows_is_not_lost() -> None:
    assert markup.plain("| 岗位 | 薪资 |\n|--|--|") == "· 岗位\n  薪资"
    for dialect in MARKED:
        assert dialect("| 岗位 | 薪资 |\n|--|--|") == "- 岗位；薪资"
        assert dialect("|-|-|\n|-|-|") == "- -；-"
        assert dialect("| |\n|-|") == ""


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("第一行\n第二行\n\n第三行", "第一行  \n第二行\n\n第三行"),
        ("# 标题\n正文\n- 一\n- 二\n  续", "# 标题\n正文\n- 一\n- 二  \n  续"),
        ("```\n一\n二\n```\n三\n四", "```\n一\n二\n```\n三  \n四"),
        ("一<br/>二", "一  \n二"),
        ("![图](https://h/x.png)", "[图](https://h/x.png)"),
    ],
)
def test_dingtalk_keeps_line_breaks_visible(text: str, want: str) -> None:
    assert markup.dingtalk(text) == want


def test_feishu_has_no_headings() -> None:
    assert markup.feishu("# 标题 **粗** `**x**`\n#标签") == "**标题 粗 `**x**`**\n#标签"


@pytest.mark.parametrize("dialect", MARKED)
def test_only_the_web_and_mail_stay_links(dialect) -> None:
    for kept in ("[x](https://a/b)", "[x](mailto:a@b.c)", "[`a[0]`](http://h)"):
        assert dialect(kept) == kept
    for scheme in ("dtmd://dingtalkclient/sendMessage?content=1", "lark://x", "javascript:alert(1)", "//h/x", "x.md"):
        assert dialect(f"[点]({scheme})") == f"点（{scheme}）"
    assert dialect("[![图](https://a/i.png)](https://a/b)") == "[[图](https://a/i.png)](https://a/b)"


@pytest.mark.parametrize("dialect", MARKED)
def test_tags_outside_of_code_are_shown(dialect) -> None:
    assert dialect("用 `List<String>` 和 <b>x</b>，1 < 2") == "用 `List<String>` 和 ＜b>x＜/b>，1 < 2"


ATTACKS = [
    '<at user_id="all">everyone</at>',
    "<AT id=all></at>",
    "< at user_id=all>",
    "<\nat user_id=all>",
    "<\u200bat user_id=all>",
    "<\x00at user_id=all>",
    "<person id=all>",
    "<@zhangsan>",
    "<\u200b@zhangsan>",
    "<\n@zhangsan>",
    '<a href="weixin://bizmsgmenu?msgmenucontent=x&msgmenuid=1">',
    "<\u200ba href=x>",
]
OF_PLATFORM = {
    markup.feishu: r"<[\s\u200b\x00]*/?[\s\u200b\x00]*(at|person)\b",
    markup.wecom: r"<[\s\u200b\x00]*@",
    markup.plain: r"<[\s\u200b\x00]*/?[\s\u200b\x00]*a\b",
}


@pytest.mark.parametrize(
    "frame", ["看 {}", "`{}`", "```\n{}\n```", "| {} | b |\n|-|-|\n| {} | {} |", "[{}](x)", "# {}"]
)
@pytest.mark.parametrize("attack", ATTACKS)
def test_nobody_is_mentioned(frame: str, attack: str) -> None:
    for dialect, pattern in OF_PLATFORM.items():
        shown = dialect(frame.replace("{}", attack))
        assert not re.search(pattern, shown, re.IGNORECASE), (dialect.__name__, shown)


PIECES = [
    *ATTACKS,
    *("`", "``", "```", "~~~", "```py", "\n", "\n\n", "    ", "\t", "> ", "- ", "1. ", "# ", "|", "|-|-|", "---"),
    *("*", "**", "_", "__", "~~", "\\", "[", "]", "(", ")", "![", "](", "<", ">", "<br>", "https://h/x_y_", "dtmd://x"),
    *("文", "word", " ", "2", "。", "\ufdd0", "\ud83d", "\u2028", "\r"),
]
MESSY = st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.text(max_size=200)


@given(MESSY)
def test_any_text_has_a_form_and_mentions_nobody(text: str) -> None:
    for dialect in ALL:
        shown = dialect(text)
        shown.encode()
        assert "\ufdd0" not in shown
        if dialect in OF_PLATFORM:
            assert not re.search(OF_PLATFORM[dialect], shown, re.IGNORECASE)


@given(MESSY)
def test_what_is_read_is_what_was_written(text: str) -> None:
    text = clean(text)
    for line in text.split("\n"):
        assert "".join(span.source for span in spans(line)) == line
    lines: list[str] = []
    tables = False
    for block in blocks(text):
        match block:
            case Prose():
                lines.append(block.line)
            case Code():
                lines += block.source
            case Table():
                tables = True
    assert tables or "\n".join(lines) == text


CODE = st.text(st.sampled_from("bc *_#|`~->\\[](){}<=\n\t字"), max_size=80)


@given(MESSY, CODE, MESSY)
def test_code_is_never_changed(before: str, code: str, after: str) -> None:
    """A block after whatever stands before it: its lines come out one by one as they were."""
    before = re.sub("`{3,}|~{3,}", "", before)  # no block is open
    fence = "~" * (max((len(run) for run in re.findall("~+", code)), default=0) + 3)
    text = f"{before}\n\n文\n{fence}\n{code}\n{fence}\n{after}"
    for dialect in ALL:
        assert f"\n{code}\n" in "\n" + dialect(text) + "\n", dialect.__name__


@given(MESSY)
def test_inline_code_is_never_changed(before: str) -> None:
    line = (
        before.replace("`", "").replace("\n", " ").replace("\r", " ").strip(" \t\\[(|>~-<!") + " `a*b*<c>_d_[e](f)` 完"
    )
    for dialect in ALL:
        assert "a*b*<c>_d_[e](f)" in dialect("文" + line)


@pytest.mark.parametrize("dialect", MARKED)
@given(text=MESSY)
def test_twice_is_once(dialect, text: str) -> None:
    once = dialect(text.replace("<br>", ""))  # a line that a tag has begun may be a heading the second time
    assert dialect(once) == once


@pytest.mark.parametrize(
    "unit",
    [
        "**a ",
        "*a",
        "[",
        "[a](",
        "`a ``b ",
        "<",
        "|",
        "> ",
        "__a ",
        "~~a ",
        "![[a](b) ",
        "\\",
        "- ",
        "https://a_",
        "（(",
    ],
)
def test_long_odd_texts_take_no_time(unit: str) -> None:
    text = unit * (20_000 // len(unit))
    assert effort(lambda: [dialect(text) for dialect in ALL]) < 800


@pytest.mark.parametrize("blank", [" ", "\n", "\u200b", "\t\u200d", "#", "-", "- "])
@pytest.mark.parametrize(
    "frame", ["看 <{}x", "# a{}b", "a|b\n{}|x", "a|b\n|{}x", "[a]({}x", "> {}x", "- {}x", "    {}x"]
)
def test_long_runs_take_no_time(frame: str, blank: str) -> None:
    text = frame.replace("{}", blank * (12_000 // len(blank)))
    assert effort(lambda: [dialect(text) for dialect in ALL]) < 400


def test_cells() -> None:
    assert cells("| a | `b|c` | d\\|e |  |") == ("a", "`b|c`", "d|e", "")
    assert cells("a | b") == ("a", "b")


def test_spans() -> None:
    kinds = [span.kind for span in spans("a `b` [c](d) ![e](f) https://g. <br> \\*")]
    assert [kind for kind in kinds if kind is not Kind.TEXT] == [
        *(Kind.CODE, Kind.LINK, Kind.IMAGE, Kind.ADDRESS, Kind.BREAK, Kind.ESCAPE)
    ]
