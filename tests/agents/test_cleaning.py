"""Nothing of a model's reasoning is shown or stored, however the stream is cut; all else stays to the character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.cleaning import ThinkFilter, clean

FRAGMENTS = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<thinking>",
        "</THINKING>",
        "<thi",
        "<",
        ">",
        "`",
        " ",
        "\n",
        "\0",
        "答",
        "a",
        "\ud83d",
        "\ude00",
    ]
)
TEXTS = st.one_of(st.lists(FRAGMENTS, max_size=12).map("".join), st.text(st.characters(), max_size=40))


def fed(pieces: list[str]) -> tuple[str, str]:
    """What was shown on the way, and what is stored."""
    thinking = ThinkFilter()
    shown = "".join(thinking.feed(piece) for piece in pieces) + thinking.close()
    return shown, thinking.text


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("<think>内心</think>答案", "答案"),
        ("<think>内心</think>\n\n  答案", "答案"),
        ("\n<think>\n内心\n</think>\n答案\n", "\n答案\n"),
        ("<THINK>a</Think>b", "b"),
        ("<thinking>a</thinking>b", "b"),
        ("<think>没有结束", ""),
        ("前<think>内心</think>后", "前后"),
        ("内心，没有开头</think>\n答案", "答案"),
        ("标签 `<think>` 和 `</think>` 的用法", "标签 `<think>` 和 `</think>` 的用法"),
        ("a < b <th> c <thin", "a < b <th> c <thin"),
        ("\n  答 1\n\n", "\n  答 1\n\n"),
        ("  \n", ""),
        ("a\0b", "ab"),
        ("半个\ud83d字", "半个\ufffd字"),
        ("一对\ud83d\ude00", "一对😀"),
        ("👨‍👩‍👧 x\u202ey\ufeff", "👨‍👩‍👧 x\u202ey\ufeff"),
    ],
)
def test_what_is_left(said: str, left: str) -> None:
    assert clean(said) == left
    assert fed(list(said))[1] == left


@given(TEXTS, st.lists(st.integers(1, 7), max_size=60))
def test_the_cut_does_not_matter(text: str, sizes: list[int]) -> None:
    pieces, start = [], 0
    for size in [*sizes, len(text)]:
        pieces.append(text[start : start + size])
        start += size
    shown, stored = fed(pieces)
    assert stored == clean(text)
    assert shown.endswith(stored)
    shown.encode()
    assert "\0" not in shown


@given(st.text(st.characters(exclude_characters="<\0", exclude_categories=("Cs",)), max_size=80))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert clean(text) == (text if text.strip() else "")


@given(st.text("秘x<`/ \n", max_size=20), st.lists(st.integers(1, 4), max_size=40))
def test_reasoning_is_never_shown(secret: str, sizes: list[int]) -> None:
    text = f"<think>{secret}密</think>答案"
    pieces, start = [], 0
    for size in [*sizes, len(text)]:
        pieces.append(text[start : start + size])
        start += size
    if not secret.endswith("`"):
        assert fed(pieces) == ("答案", "答案")


@given(st.text("答案 x\n>`", min_size=1, max_size=30), st.lists(st.integers(1, 4), max_size=40))
def test_a_block_that_is_taken_as_begun(answer: str, sizes: list[int]) -> None:
    """Nothing is shown before its end; all of it, where it turns out to be no block."""
    for text, unopened in (
        (f"内心\n</think>\n\n{answer}", True),
        (f"<think>内心</think>{answer}", True),
        (answer, False),
    ):
        thinking, shown, start = ThinkFilter(begun=True), "", 0
        for size in [*sizes, len(text)]:
            shown += thinking.feed(text[start : start + size])
            start += size
        shown += thinking.close()
        assert "内心" not in shown
        assert shown == thinking.text
        assert shown.strip() == answer.strip()
        assert thinking.unopened == unopened


def test_a_block_taken_as_begun_that_was_cut_is_not_shown() -> None:
    thinking = ThinkFilter(begun=True)
    assert thinking.feed("想啊想") + thinking.close(cut=True) == thinking.text == ""
