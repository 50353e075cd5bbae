"""Numbers that identify a person leave no long piece behind; ordinary numbers stay."""

import re
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from memory.masking import RULES, Masking, MaskingRules

ALL = Masking(RULES)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("身份证11010519900307101X。", "身份证110*************1X。"),
        ("110101199003078515", "110*************15"),
        ("11010519900307101x", "110*************1x"),
        ("１１０１０５１９９００３０７１０１Ｘ", "１１０*************１Ｘ"),
        ("110105 19900307 101X", "110*** ******** **1X"),
        ("旧证110105900307101", "旧证110**********01"),
        ("6222021234567890128", "6222***********0128"),
        ("4111 1111 1111 1111", "4111 **** **** 1111"),
        ("4111-1111-1111-1111 123", "4111-****-****-1111 123"),
        ("1234 4111 1111 1111 1111", "1234 4111 **** **** 1111"),
        ("622202 1234567890128", "6222** *********0128"),
        ("13812345678", "138****5678"),
        ("138-1234-5678", "138-****-5678"),
        ("138 1234 5678", "138 **** 5678"),
        ("１３８１２３４５６７８", "１３８****５６７８"),
        ("+86 13812345678", "+86 138****5678"),
        ("+8613812345678", "+86138****5678"),
        ("008613812345678", "0086138****5678"),
        ("8613812345678", "86138****5678"),
        ("＋８６-138-1234-5678", "＋８６-138-****-5678"),
        ("013812345678", "0138****5678"),
        ("**13812345678**", "**138****5678**"),
        ("tel13812345678x", "tel138****5678x"),
        ("0571 13812345678 13912345678", "0571 138****5678 139****5678"),
    ],
)
def test_masked(text: str, masked: str) -> None:
    assert ALL.mask(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "编号 20231234567",
        "12812345678",  # no mobile number begins so
        "1381234567",
        "138123456789",
        "9913812345678",
        "110101199003078516",  # wrong check digit
        "110101199013078515",  # no such month
        "990101199003078515",  # no such province
        "110105901307101",
        "6222021234567890129",  # wrong check digit
        "1111111111111117",  # no issuer
        "499111111111111",  # too short for a card, no province
        "1700000000000",
        "2026-11-30T18:10:05.123+08:00",
        "薪资 25000-40000，15 薪",
        "",
    ],
)
def test_ordinary_numbers_stay(text: str) -> None:
    assert ALL.mask(text) == text


def test_the_sentence_of_all_kinds() -> None:
    masked = ALL.mask(
        "身份证 11010519900307101X 和 110101199003078515，电话 13812345678，卡 6222021234567890128，编号 20231234567"
    )
    for piece in ("19900307", "38123456", "62220212", "34567890"):
        assert piece not in masked
    assert "20231234567" in masked


def test_only_the_rules_that_are_named() -> None:
    text = "13812345678 110101199003078515 4111111111111111"
    assert Masking([]).mask(text) == text
    assert Masking(["phone"]).mask(text) == "138****5678 110101199003078515 4111111111111111"
    assert Masking(["bank-card", "id-card"]).mask(text) == "13812345678 110*************15 4111********1111"


def test_rule_names_are_checked() -> None:
    rules = TypeAdapter(MaskingRules)
    assert rules.validate_python(["phone", "id-card"]) == ("phone", "id-card")
    assert rules.validate_python([]) == ()
    with pytest.raises(ValidationError, match="没有名为 phones 的脱敏规则；可写 id-card、bank-card、phone"):
        rules.validate_python(["phones"])
    assert rules.validate_python(["phone", "my.filters:scrub"]) == ("phone", "my.filters:scrub")
    for wrong in ("my.filters", "my.filters:", ":scrub", "my filters:scrub", "a:b:c", "../x:y", "a..b:c"):
        with pytest.raises(ValidationError, match="没有名为"):
            rules.validate_python([wrong])
    with pytest.raises(ValueError, match="没有名为"):
        Masking(["passport"])


# ------------------------------------------------------------------------------------------------- any number
def _id_card(day: date, order: int) -> str:
    body = f"330106{day:%Y%m%d}{order:03d}"
    weights = [2**at % 11 for at in range(17, 0, -1)]
    total = sum(int(digit) * weight for digit, weight in zip(body, weights, strict=True))
    return body + "10X98765432"[total % 11]


def _bank_card(body: str) -> str:
    for check in "0123456789":
        digits = [int(digit) for digit in reversed(body + check)]
        total = sum(digits[0::2]) + sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2])
        if total % 10 == 0:
            return body + check
    raise AssertionError(body)


ID_CARDS = st.builds(_id_card, st.dates(date(1900, 1, 1), date(2099, 12, 31)), st.integers(0, 999))
BANK_CARDS = (
    st.from_regex(r"(62|4|5[1-5])[0-9]{13,16}", fullmatch=True).filter(lambda n: 15 <= len(n) <= 18).map(_bank_card)
)
PHONES = st.from_regex(r"1[3-9][0-9]{9}", fullmatch=True)
AROUND = st.text("号是：,. a*（\n", max_size=5)
WIDE = str.maketrans("0123456789X", "０１２３４５６７８９Ｘ")


@given(st.lists(st.tuples(AROUND, st.one_of(ID_CARDS, BANK_CARDS, PHONES), st.booleans()), min_size=1, max_size=5))
def test_no_long_piece_of_any_number_remains(parts: list[tuple[str, str, bool]]) -> None:
    text = "".join(f"{around}：{number.translate(WIDE) if wide else number}" for around, number, wide in parts)
    masked = ALL.mask(text)
    assert not re.search(r"\d{5}", masked)
    assert len(masked) == len(text)


@given(st.text("0123456789１８-  x*X+6号", max_size=60))
def test_masking_again_changes_nothing(text: str) -> None:
    masked = ALL.mask(text)
    assert ALL.mask(masked) == masked
    assert len(masked) == len(text)
    assert all(after in (before, "*") for before, after in zip(text, masked, strict=True))


@given(st.text(st.characters(codec=None)))
def test_texts_without_long_numbers_stay(text: str) -> None:
    if not re.search(r"\d[\W\d]*\d{2}", text):
        assert ALL.mask(text) == text
