"""The one splitter: bytes, places to cut, fences."""

import re

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from channels.split import split


def size(text: str) -> int:
    return len(text.encode())


def squeezed(text: str) -> str:
    """What is left of a text without blanks and fence lines."""
    lines = [line for line in text.split("\n") if not re.match(r"[ \t]*(```|~~~)", line)]
    return re.sub(r"\s+", "", "".join(lines))


def fence_lines(part: str) -> int:
    return sum(1 for line in part.split("\n") if line.strip().startswith("```"))


def check(text: str, limit: int, most: int = 10_000) -> list[str]:
    parts = split(text, limit, most)
    assert all(0 < size(part) <= limit and part.strip() for part in parts), [size(part) for part in parts]
    assert squeezed("".join(part + "\n" for part in parts)) == squeezed(text)
    assert "\ufffd" not in "".join(parts)
    return parts


@pytest.mark.parametrize(
    "text", ["好" * 1500, "好" * 683, "a" * 2047, "a" * 2048, "a" * 2049, "a" + "好" * 1000, "👨‍👩‍👧" * 300]
)
def test_parts_hold_at_most_the_limit_in_bytes(text: str) -> None:
    parts = check(text, 2048)
    assert "".join(parts) == text
    assert len(parts) == -(-size(text) // 2048)


def test_a_short_text_stays_whole_and_a_blank_one_is_nothing() -> None:
    assert split("你好\n\n再见", 100) == ["你好\n\n再见"]
    assert split(" \n\t\n", 100) == []
    assert split("x" * 9999, 0) == ["x" * 9999]


def test_it_cuts_at_a_paragraph_before_a_line_before_a_sentence() -> None:
    assert split("a" * 30 + "\n" + "b" * 15 + "\n\n" + "c" * 20 + "\n" + "d" * 20, 80) == [
        "a" * 30 + "\n" + "b" * 15,
        "c" * 20 + "\n" + "d" * 20,
    ]
    assert split("a" * 30 + "\n" + "b" * 30 + "\n" + "c" * 30, 80) == ["a" * 30 + "\n" + "b" * 30, "c" * 30]
    assert split("第一句话说完了。" * 4 + "这一句很长还没有说完", 100) == [
        "第一句话说完了。" * 4,
        "这一句很长还没有说完",
    ]
    assert split("It is about 3.14 here. " + "x" * 50, 40)[0] == "It is about 3.14 here."


def test_graphemes_stay_whole() -> None:
    family = "👨‍👩‍👧‍👦"
    for part in check(family * 50, 64):
        assert set(regex.findall(r"\X", part)) == {family}
    assert all(part.count("e\u0301") * 2 == len(part) for part in check("e\u0301" * 100, 50))


def test_a_grapheme_longer_than_a_part_is_cut_all_the_same() -> None:
    check("e" + "\u0301" * 500, 64)


def test_code_is_closed_and_opened_again_with_its_language() -> None:
    code = "```python\n" + "\n".join(f"print({number})  # {'x' * 20}" for number in range(300)) + "\n```"
    parts = check("看代码：\n\n" + code + "\n\n完", 2048)
    assert len(parts) > 3
    for part in parts[1:-1]:
        assert part.startswith("```python\n")
        assert part.endswith("\n```")
    assert all(fence_lines(part) % 2 == 0 for part in parts)
    assert parts[-1].endswith("完")


@pytest.mark.parametrize(
    "text",
    [
        "```\n" + "x" * 10_000 + "\n```",
        "```" + "x" * 10_000,
        "```js\n" + "x" * 10_000,
        "a" * 2045 + "```\ncode\n```",
        "a" * 2044 + "\n```\ncode\n```",
        "a" * 2040 + "\n```python\n" + "b\n" * 3000 + "```\nend",
        "~~~sh\n" + "y\n" * 3000 + "~~~",
        "```\n" + "\n" * 5000 + "x\n```",
        "- 列表\n    ```go\n" + "    z\n" * 2000 + "    ```\n",
        "````md\n```\ninner\n```\n" + "w\n" * 3000 + "````",
    ],
)
def test_hard_code_blocks_end_within_the_limit(text: str) -> None:
    parts = split(text, 2048, 10_000)
    assert all(0 < size(part) <= 2048 for part in parts)
    if "````" not in text:
        assert all(fence_lines(part) % 2 == 0 for part in parts), parts
    letters = re.sub(r"[`~\s]", "", text)
    assert set(letters) <= set("".join(parts))
    assert "".join(parts).count("x") >= text.count("x")


def test_text_beyond_the_most_parts_is_announced() -> None:
    parts = split("长" * 10_000, 300, most=5, notice="（未完）")
    assert len(parts) == 5
    assert all(size(part) <= 300 for part in parts)
    assert parts[-1].endswith("\n\n（未完）")
    assert not any("未完" in part for part in parts[:-1])
    assert len(split("长" * 100, 300, most=1, notice="（未完）")) == 1


def test_a_limit_no_text_fits_into_is_refused() -> None:
    with pytest.raises(ValueError, match="too small"):
        split("x" * 100, 10)


def test_a_huge_text_costs_no_more_than_its_parts() -> None:
    parts = split("很长" * 500_000, 7000)
    assert len(parts) == 20


PIECES = st.sampled_from(
    [
        "一句话。",
        "word ",
        "\n",
        "\n\n",
        "长" * 30,
        "x" * 50,
        "👩🏽‍🚀",
        "\n- 项\n",
        "  ",
        "3.5",
        "“引”！",
        "\t",
        "e\u0301",
    ]
)
CODE = st.builds(
    lambda tag, lines: f"\n```{tag}\n" + "\n".join(lines) + "\n```\n",
    st.sampled_from(["", "python", "c++"]),
    st.lists(st.sampled_from(["a = 1", "    return x", "y" * 60, "", "# 注释" * 10]), min_size=1, max_size=12),
)


@given(st.lists(PIECES | CODE, max_size=40).map("".join), st.integers(64, 400))
def test_whatever_the_text_is(text: str, limit: int) -> None:
    parts = check(text, limit)
    assert all(fence_lines(part) % 2 == 0 for part in parts), parts


@given(st.text(max_size=400), st.integers(40, 120), st.integers(1, 5))
def test_any_text_ends_within_its_bounds(text: str, limit: int, most: int) -> None:
    parts = split(text, limit, most)
    assert len(parts) <= most
    assert all(part.strip() and size(part) <= limit for part in parts)


@given(st.text("`~ab \n", max_size=300), st.integers(40, 80))
def test_any_mess_of_fences_ends_within_its_bounds(text: str, limit: int) -> None:
    parts = split(text, limit, 1000)
    assert all(part.strip() and size(part) <= limit for part in parts)
    assert "".join(parts).count("a") >= text.count("a")
