"""Half characters never reach a file, a model or a platform; whole ones stay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.sanitise import speakable, storable


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("简历\ud83d怎么改", "简历\ufffd怎么改"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d\ud83d\ude00\ude00", "\ufffd😀\ufffd"),
        ("👨‍👩‍👧‍👦 plain", "👨‍👩‍👧‍👦 plain"),
        ("", ""),
    ],
)
def test_storable(text: str, stored: str) -> None:
    assert storable(text) == stored


@given(st.text(st.characters(codec=None)))
def test_storable_can_be_encoded_and_changes_nothing_else(text: str) -> None:
    stored = storable(text)
    stored.encode("utf-8")
    assert storable(stored) == stored
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert stored == text


def test_speakable_has_no_nul() -> None:
    assert speakable("a\0b\ud83d\nc\t") == "ab\ufffd\nc\t"
