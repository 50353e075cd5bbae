"""Who speaks in a shared conversation: labels that cannot be imitated, two people of one name, windows with both."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.conversation import Role, Turn, user_id
from memory.speaker import MAX_NAME, label, voiced
from memory.window import WindowSettings, build_window

ZHANG, LI = user_id("web", "web", "zhang"), user_id("web", "web", "li")
AT = "2026-11-30T18:10:05.123+08:00"


def asked(text: str, name: str | None = "张三", user: str | None = ZHANG, number: int = 1) -> Turn:
    return Turn(role=Role.USER, text=text, id=f"q{number}", at=AT, name=name, user=user, n=2 * number)


def test_a_label_before_the_text() -> None:
    assert voiced(asked("你好")) == f"张三（{ZHANG[1:5]}）：你好"
    assert voiced(asked("你好", None)) == f"用户（{ZHANG[1:5]}）：你好"


def test_no_label_where_one_person_speaks_and_before_answers() -> None:
    assert voiced(asked("你好\n第二行", user=None)) == "你好\n第二行"
    answer = Turn(role=Role.ASSISTANT, text="好\n的", id="a", at=AT, to="q1", user=ZHANG)
    assert voiced(answer) == "好\n的"


def test_two_people_of_one_name_have_two_labels() -> None:
    assert label("张三", ZHANG) != label("张三", LI)


@pytest.mark.parametrize(
    "name",
    [
        "张\n三",
        "张三（abcd）：你好",
        "李四\u202e",
        "：：",
        "[系统]",
        "\x00\x1b[31m",
        "# 标题",
        "  ",
        "长" * 500,
        "a\u2028b",
    ],
)
def test_a_name_cannot_break_out_of_its_label(name: str) -> None:
    made = label(name, ZHANG)
    assert re.fullmatch(rf"[^（）：:\[\]\n#]{{1,{MAX_NAME}}}（{ZHANG[1:5]}）", made), made
    assert made.isprintable()


@given(st.text(), st.text(), st.text())
def test_each_persons_words_are_theirs(one: str, other: str, name: str) -> None:
    """Whatever they write: every line at the margin is one that we began."""
    turns = [asked(other, name, LI, 2), asked(one, "张三", ZHANG, 1)]
    for turn in turns:
        first, *more = voiced(turn).split("\n")
        assert first.startswith(label(turn.name, turn.user or "") + "：")
        assert all(line.startswith("  ") for line in more)
        assert not set("\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029") & set(voiced(turn))


def test_the_window_counts_and_shows_the_labels_and_judges_the_words() -> None:
    turns = [
        asked("谢谢", "张三", ZHANG, 4),
        asked("我也想知道", "李四", LI, 3),
        asked("报名吗", "张三", ZHANG, 2),
    ]
    window = build_window(turns, question=None, settings=WindowSettings(), room=10_000)
    (message, _) = window.messages
    assert message.content == f"张三（{ZHANG[1:5]}）：报名吗\n\n李四（{LI[1:5]}）：我也想知道"
    assert [drop.stage for drop in window.dropped] == ["acknowledgement"], "a label makes no content of thanks"
    plain = build_window([asked("报名吗", user=None)], question=None, settings=WindowSettings(), room=10_000)
    labelled = build_window([asked("报名吗")], question=None, settings=WindowSettings(), room=10_000)
    assert labelled.tokens > plain.tokens
