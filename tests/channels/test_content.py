"""What a message says: joined pieces, the fixed answer it gets, ids and quotes."""

import pytest

from channels.content import Content, marker
from channels.message import Notice
from channels.text import is_id, shortened


@pytest.mark.parametrize(
    ("content", "notice"),
    [
        (Content("问"), None),
        (Content(""), Notice.EMPTY),
        (Content("\u200b \u2800"), Notice.EMPTY),
        (marker("[图片]"), Notice.UNSUPPORTED),
        (marker(""), Notice.EMPTY),
        (Content.joined([marker("[图片]"), Content("这是什么")]), None),
        (Content.joined([marker("[图片]"), Content(" ")]), Notice.UNSUPPORTED),
        (Content.joined([]), Notice.EMPTY),
    ],
)
def test_the_fixed_answer(content: Content, notice: Notice | None) -> None:
    assert content.notice is notice


def test_pieces_keep_their_order() -> None:
    assert Content.joined((marker("[图片]"), Content("一"), Content("二")), "\n") == Content("[图片]\n一\n二")


def test_quotes_are_one_short_line() -> None:
    assert shortened("一\n 二\x00三") == "一 二 三"
    assert shortened("好" * 200) == "好" * 200
    assert shortened("好" * 201) == "好" * 200 + "…"


@pytest.mark.parametrize("text", ["", "a\nb", "a" * 201, "\u200b", "\x00"])
def test_what_can_be_no_id(text: str) -> None:
    assert not is_id(text)


def test_what_can_be_an_id() -> None:
    assert is_id("cid+/=:好")
    assert is_id("a" * 201, 512)
