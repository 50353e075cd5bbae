"""One reply: its bytes, its hints, the order of what is in it; the parts of an answer."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from channels.wechat.reply import ACTIVE_BYTES, PASSIVE_BYTES, Words, compose, parts, with_hint
from gateway.config.texts import DEFAULTS, Texts
from tests.channels.wechat_stage import LATER, MORE

texts = Texts().get
words = st.builds(Words, st.text(min_size=1, max_size=1200).map(str.strip).filter(bool), st.booleans())


@given(st.none() | words, words, st.booleans(), st.booleans())
def test_a_reply_holds_what_it_says(first: Words | None, own: Words, has_own: bool, coming: bool) -> None:
    given_own = own if has_own or first is None else None
    reply = compose(first, given_own, coming=coming, texts=texts)
    oldest = first or own
    assert reply.text.startswith(oldest.text)
    if len(oldest.text.encode("utf-8", "replace")) <= PASSIVE_BYTES:
        assert len(reply.text.encode("utf-8", "replace")) <= PASSIVE_BYTES
    if first is not None and reply.with_own:
        assert not first.more, "nothing overtakes what waits"
        assert reply.text.startswith(f"{first.text}\n\n{own.text}")


@pytest.mark.parametrize(
    ("first", "own", "coming", "text"),
    [
        (None, Words("甲", False), False, "甲"),
        (None, Words("甲", True), False, f"甲\n\n{MORE}"),
        (Words("旧", False), None, False, "旧"),
        (Words("旧", True), None, True, f"旧\n\n{MORE}"),
        (Words("旧", False), None, True, f"旧\n\n{LATER}"),
        (Words("旧", False), Words("甲", False), False, "旧\n\n甲"),
        (Words("旧", False), Words("甲", True), False, f"旧\n\n甲\n\n{MORE}"),
        (Words("旧", True), Words("甲", False), False, f"旧\n\n{MORE}"),
        (Words("旧" * 600, False), Words("甲" * 82, False), False, "旧" * 600 + "\n\n" + MORE),
        (Words("旧" * 600, False), Words("甲" * 81, False), False, "旧" * 600 + "\n\n" + "甲" * 81),
    ],
)
def test_hints_say_what_follows(first: Words | None, own: Words | None, coming: bool, text: str) -> None:
    assert compose(first, own, coming=coming, texts=texts).text == text


@given(st.text(alphabet="好a \n。`😀", max_size=9000), st.sampled_from([ACTIVE_BYTES, PASSIVE_BYTES]))
@example("好" * 1500, PASSIVE_BYTES)
@example("好" * 683, PASSIVE_BYTES)
@example("x" + "好" * 1000, PASSIVE_BYTES)
@example("x" * 2049, ACTIVE_BYTES)
def test_every_part_has_room_for_a_hint(text: str, limit: int) -> None:
    pieces = parts(text, "…", limit, texts)
    for piece in pieces:
        assert piece.strip()
        for hint in ("more", "later"):
            hinted = with_hint(piece, hint, texts, limit)
            assert hinted.endswith(DEFAULTS[hint])
            assert len(hinted.encode()) <= limit


@pytest.mark.parametrize("text", ["好" * 1500, "好" * 683, "x" * 2047, "x" * 2048, "x" * 2049, "x" + "好" * 1000])
def test_no_character_is_lost(text: str) -> None:
    assert "".join(parts(text, "…", PASSIVE_BYTES, texts)) == text


def test_markdown_is_flattened() -> None:
    assert parts("# 标题\n\n**粗** [名](https://e.cn/1)", "…", PASSIVE_BYTES, texts)[0].count("*") == 0


def test_a_very_long_hint_leaves_room_for_answers() -> None:
    def long(name: str) -> str:
        return "很长的提示" * 200

    (first, *_) = parts("好" * 1500, "…", PASSIVE_BYTES, long)
    assert len(first.encode()) > 1000
    assert len(with_hint(first, "more", long).encode()) <= PASSIVE_BYTES
