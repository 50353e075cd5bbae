"""What the model sees of the past: each stage by example, and what must hold for any history."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.acknowledgement import ASSENTS, CLOSERS, Kind, acknowledgements, asks
from memory.conversation import Role, ToolCall, Turn
from memory.tokens import estimate, message_tokens
from memory.window import LIMITS, UNANSWERED, Window, WindowSettings, build_window
from tests.effort import effort

PLENTY = 10**9
WIDE = WindowSettings(max_messages=1000, keep_recent=10, max_tokens=10**6)


class History:
    """Turns in file order, written as short as possible."""

    def __init__(self, *said: tuple[str, str]) -> None:
        self.turns: list[Turn] = []
        self.epoch = 0
        self.asked: str | None = None
        for user, assistant in said:
            self.user(user)
            self.assistant(assistant)

    def _add(self, role: Role, text: str, **fields: object) -> Turn:
        n = len(self.turns)
        turn = Turn(role=role, text=text, id=f"m{n}", at="2026-11-30T10:00:00.000+08:00", n=n, epoch=self.epoch)
        self.turns.append(replace(turn, **fields))  # type: ignore[arg-type]
        return self.turns[-1]

    def user(self, text: str) -> Turn:
        turn = self._add(Role.USER, text)
        self.asked = turn.id
        return turn

    def assistant(self, text: str, *calls: str, to: str | None = "last") -> Turn:
        asked = self.asked if to == "last" else to
        return self._add(
            Role.ASSISTANT, text, to=asked, tool_calls=tuple(ToolCall(call, "search", "{}") for call in calls)
        )

    def tool(self, text: str, call: str | None) -> Turn:
        return self._add(Role.TOOL, text, to=self.asked, call=call)

    def reset(self) -> None:
        self.epoch += 1
        self._add(Role.RESET, "new")

    def window(self, config: WindowSettings = WIDE, *, question: str | None = "问题", room: int = PLENTY) -> Window:
        return build_window(reversed(self.turns), question=question, settings=config, room=room)


def said(window: Window) -> list[tuple[str, str]]:
    return [(str(message.role), message.content) for message in window.messages]


def gone(window: Window) -> list[tuple[str, str]]:
    return [(drop.id, drop.stage) for drop in window.dropped]


# ------------------------------------------------------------------------------------------ acknowledgements
WORDS = acknowledgements(CLOSERS, ASSENTS, 5)


@pytest.mark.parametrize(
    "text", ["收到", "收到！", "谢谢", "Thank you!", "👌", "👌🏻👌🏻", "[强]", "了解，谢谢", "  明白 😊", "i see…"]
)
def test_closers(text: str) -> None:
    assert WORDS.kind(text) is Kind.CLOSER


@pytest.mark.parametrize(
    "text", ["好的", "嗯", "嗯嗯", "是", "对。", "OK", "ok👌", "ＯＫ", "~好的~", "好的，谢谢", "Yes.", "好" + "！" * 40]
)
def test_assents(text: str) -> None:
    assert WORDS.kind(text) is Kind.ASSENT


@pytest.mark.parametrize(
    "text",
    [
        "A",
        "1",
        "不",
        "25k",
        "北京",
        "好的，但是改成上海",
        "😂",
        "？",
        "好的？",
        "是吗",
        "1️⃣",
        "",
        "okra",
        "nook",
        "不是",
        "嗯嗯嗯嗯嗯",
        "ok ok ok ok ok",
        "对不对",
        "+1",
        "是A",
        "好" + "！" * 100,
        "👌" * 60 + "x",
    ],
)
def test_content_is_no_acknowledgement(text: str) -> None:
    assert WORDS.kind(text) is None


def test_own_words_and_threshold() -> None:
    own = acknowledgements(("晓得",), (), 10)
    assert own.kind("晓得晓得") is Kind.CLOSER
    assert own.kind("好的") is None
    assert acknowledgements((), (), 5).kind("好的") is None
    assert acknowledgements(CLOSERS, ASSENTS, 2).kind("好的") is None
    assert acknowledgements(CLOSERS, ASSENTS, 2).kind("嗯") is Kind.ASSENT


@pytest.mark.parametrize(
    "text",
    [
        "要投递吗？",
        "要投递吗",
        "Shall I?",
        "选 A 还是 B？😊",
        "**要继续吗？**",
        "要吗？（回复“是”确认）",
        "请说明是否投递。",
        "a？\n",
    ],
)
def test_questions(text: str) -> None:
    assert asks(text)


@pytest.mark.parametrize("text", ["已投递。", "你问：好吗？我说好。", "没什么。", "", "怎么样？\n下面是结果。"])
def test_no_questions(text: str) -> None:
    assert not asks(text)


def test_acknowledgements_go_and_their_replies_join_the_round_before() -> None:
    window = History(("找工作", "要投递吗？"), ("好的", "已投递。"), ("收到", "还有别的。"), ("A", "好。")).window()
    assert said(window) == [
        ("user", "找工作"),
        ("assistant", "要投递吗？"),
        ("user", "好的"),
        ("assistant", "已投递。\n\n还有别的。"),
        ("user", "A"),
        ("assistant", "好。"),
    ]
    assert gone(window) == [("m4", "acknowledgement")]
    assert "收到" in window.dropped[0].reason
    assert window.gap == 0


def test_an_assent_answers_the_assistant_turn_before_it_whatever_stands_between() -> None:
    history = History(("查一下", "要投递吗？"))
    history.user("嗯")
    history.user("好的")
    assert said(history.window())[-2] == ("user", "嗯\n\n好的")
    history.assistant(" ")
    history.user("行")
    assert said(history.window())[-2] == ("user", "嗯\n\n好的\n\n行")


def test_without_keep_answers_assents_go_too_and_without_the_filter_nothing() -> None:
    history = History(("找工作", "要投递吗？"), ("是", "已投递。"))
    config = WIDE.model_copy(update={"keep_answers": False})
    assert gone(history.window(config)) == [("m2", "acknowledgement")]
    assert gone(History(("收到", "好。")).window(WIDE.model_copy(update={"filter_short_messages": False}))) == []


def test_the_current_question_is_never_an_acknowledgement() -> None:
    window = History(("找工作", "有。")).window(question="好的")
    assert window.question_tokens == message_tokens("好的")
    assert window.dropped == ()


def test_the_reply_to_a_first_acknowledgement_has_no_round() -> None:
    window = History(("你好啊，在吗", "在。")).window()
    assert len(window.messages) == 2
    window = History(("好的", "请说。"), ("找工作", "有。")).window()
    assert said(window) == [("user", "找工作"), ("assistant", "有。")]
    assert gone(window) == [("m1", "order"), ("m0", "acknowledgement")]


# ------------------------------------------------------------------------------------------------------ order
def test_tool_rounds_stay_whole() -> None:
    history = History()
    history.user("查")
    history.assistant("", "A", "B")
    history.tool("甲", "A")
    history.tool("乙", "B")
    history.assistant("两个。")
    window = history.window()
    assert [m.role for m in window.messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [m.call for m in window.messages] == [None, None, "A", "B", None]
    assert window.dropped == ()


def test_calls_without_result_and_results_without_call_go() -> None:
    history = History()
    history.user("查")
    history.assistant("我查一下", "A", "B", "A")
    history.tool("乙", "B")
    history.tool("又乙", "B")
    history.tool("孤儿", "Z")
    history.assistant("", "C")
    history.tool("无名", None)
    history.assistant("完。")
    history.tool("迟到", "A")
    window = history.window()
    assert said(window) == [("user", "查"), ("assistant", "我查一下"), ("tool", "乙"), ("assistant", "完。")]
    assert [call.id for call in window.messages[1].tool_calls] == ["B"]
    assert gone(window) == [(f"m{n}", "order") for n in (8, 6, 5, 4, 3)]
    assert all(drop.reason for drop in window.dropped)
    assert window.gap == 0


def test_a_turn_with_calls_without_result_keeps_its_text() -> None:
    history = History()
    history.user("查")
    history.assistant("我查一下", "A")
    history.assistant("查不到。")
    assert said(history.window()) == [("user", "查"), ("assistant", "我查一下\n\n查不到。")]


def test_empty_contents_go() -> None:
    history = History(("查", ""))
    history.user(" \n")
    history.assistant("有。")
    window = history.window()
    assert said(window) == [("user", "查"), ("assistant", "有。")]
    assert gone(window) == [("m2", "order"), ("m1", "order")]


def test_the_window_opens_with_a_user_turn() -> None:
    history = History()
    history.asked = "x"
    history.assistant("欢迎")
    history.user("你是谁")
    history.assistant("三桥。")
    window = history.window()
    assert said(window)[0] == ("user", "你是谁")
    assert gone(window) == [("m0", "order")]
    odd = History(*((f"问{i}", f"答{i}") for i in range(10)))
    assert len(odd.window(WindowSettings(max_messages=20)).messages) == 18


def test_doubles_and_second_answers_count_once() -> None:
    history = History(("查", "第一。"))
    history.assistant("第二。")
    history.turns.append(history.turns[-1])
    window = history.window()
    assert said(window) == [("user", "查"), ("assistant", "第一。")]
    assert gone(window) == [("m2", "order"), ("m2", "order")]


def test_a_reset_ends_the_window_and_nothing_before_it_is_read() -> None:
    history = History(("旧", "旧答。"))
    history.reset()
    history.user("新")
    history.assistant("新答。")
    unread = iter(reversed(history.turns))
    window = build_window(unread, question=None, settings=WindowSettings(), room=PLENTY)
    assert said(window) == [("user", "新"), ("assistant", "新答。")]
    assert (window.not_read_before, window.gap) == (None, 0)
    assert next(unread).text == "旧答。"


# ------------------------------------------------------------------------------------- joining, missing answers
def test_neighbouring_user_turns_are_joined() -> None:
    history = History()
    history.user("第一句")
    history.user("第二句")
    history.assistant("答。")
    window = history.window()
    assert said(window) == [("user", "第一句\n\n第二句"), ("assistant", "答。")]
    assert window.messages[0].ids == ("m0", "m1")
    assert window.messages[0].tokens == message_tokens("第一句\n\n第二句")


def test_a_missing_answer_has_a_line_in_the_window() -> None:
    history = History(("一", "答。"))
    history.user("二")
    window = history.window()
    assert said(window) == [("user", "一"), ("assistant", "答。"), ("user", "二"), ("assistant", UNANSWERED)]
    assert window.messages[-1].ids == ()
    assert window.tokens == sum(message.tokens for message in window.messages)


def test_a_round_that_broke_off_after_its_tools_has_the_line_too() -> None:
    history = History()
    history.user("查")
    history.assistant("", "A")
    history.tool("甲", "A")
    history.user("然后呢")
    history.assistant("好了。")
    assert [m.role for m in history.window().messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert said(history.window())[3] == ("assistant", UNANSWERED)


# ----------------------------------------------------------------------------------------------------- limits
def test_long_turns_show_head_and_tail() -> None:
    text = "开头" + "长" * 5000 + "结尾"
    window = History((text, "读完了。")).window(WindowSettings(max_tokens=1000))
    message = window.messages[0]
    assert message.content.startswith("开头长")
    assert message.content.endswith("长结尾")
    assert "省略" in message.content
    assert estimate(message.content) <= 250
    assert message.shortened > 9000
    assert window.messages[1].shortened == 0


def test_token_budget_drops_the_oldest_rounds_but_keeps_the_newest() -> None:
    history = History(*((f"问题{i:02d}" + "长" * 100, "答。") for i in range(30)))
    window = history.window(WindowSettings(max_messages=60, keep_recent=10, max_tokens=2000))
    assert 10 <= len(window.messages) < 20
    assert window.tokens <= 2000
    assert {drop.stage for drop in window.dropped} == {"token-budget"}
    assert "上限 2000" in window.dropped[0].reason
    tight = history.window(WindowSettings(max_messages=60, keep_recent=9, max_tokens=500))
    assert len(tight.messages) == 10, "the newest 9 up to a whole round"
    assert tight.tokens > 500


def test_message_cap_counts_the_question() -> None:
    history = History(*((f"问{i}", f"答{i}") for i in range(30)))
    for question in (None, "现在"):
        for cap, kept in ((3, 2), (4, 2), (5, 4), (19, 18), (20, 18), (21, 20)):
            window = history.window(WindowSettings(max_messages=cap, keep_recent=min(cap, 10)), question=question)
            assert len(window.messages) == kept
            assert gone(window) == [(f"m{60 - kept - 1}", "message-cap"), (f"m{60 - kept - 2}", "message-cap")]
            assert window.not_read_before == f"m{60 - kept - 2}"
            assert window.gap == 60 - kept


def test_the_newest_round_stays_over_cap_and_budget() -> None:
    history = History(("旧", "旧答。"))
    history.user("查")
    for n in range(5):
        history.assistant("", f"c{n}")
        history.tool("长" * 100, f"c{n}")
    history.assistant("完。")
    window = history.window(WindowSettings(max_messages=4, keep_recent=2, max_tokens=200))
    assert len(window.messages) == 12
    assert gone(window) == [("m1", "token-budget"), ("m0", "token-budget")]


def test_the_line_of_a_missing_answer_counts() -> None:
    history = History(("一", "答。"))
    history.user("二")
    window = history.window(WindowSettings(max_messages=4, keep_recent=1))
    assert said(window) == [("user", "二"), ("assistant", UNANSWERED)]


def test_context_limit_goes_before_keep_recent() -> None:
    history = History(*((f"{i}" + "长" * 200, "答。") for i in range(5)))
    window = history.window(WindowSettings(max_tokens=100000), room=1200)
    assert window.tokens + window.question_tokens <= 1200
    assert len(window.messages) == 4
    assert {drop.stage for drop in window.dropped} == {"context-limit"}
    assert window.fits
    none = history.window(room=message_tokens("问题"))
    assert none.messages == ()
    assert none.fits


def test_a_question_too_long_for_the_model_does_not_fit() -> None:
    window = History(("一", "答。")).window(question="字" * 5000, room=4000)
    assert not window.fits
    assert window.messages == ()
    assert gone(window) == [("m1", "context-limit"), ("m0", "context-limit")]
    assert History().window(question="字" * 100, room=4000).fits


def test_ten_old_turns_of_500_tokens_and_keep_recent() -> None:
    history = History(*(("长" * 250, "长" * 250) for _ in range(5)))
    window = history.window(WindowSettings(max_tokens=1000, keep_recent=10), room=2000)
    assert window.tokens + window.question_tokens <= 2000
    assert all(message.tokens <= 260 for message in window.messages)


def test_gap_after_a_reset_is_no_less_than_what_is_unread() -> None:
    history = History(*((f"问{i}", f"答{i}") for i in range(5)))
    history.reset()
    for i in range(30):
        history.user(f"新问{i}")
        history.assistant(f"新答{i}")
    window = history.window(WindowSettings())
    assert window.gap >= 60 - len(window.messages)


# ------------------------------------------------------------------------------------------------- any history
TEXTS = st.sampled_from(
    [
        "好的",
        "收到",
        "嗯嗯",
        "谢谢！",
        "A",
        "不",
        "25k",
        "要投递吗？",
        "有这些岗位。",
        " ",
        "",
        "hello world",
        "长" * 300,
        "x " * 400,
    ]
)
STEPS = st.tuples(
    st.sampled_from(["user", "round", "round", "round", "tools", "broken", "assistant", "tool", "again", "reset"]),
    TEXTS,
    TEXTS,
)


def _history(steps: Sequence[tuple[str, str, str]]) -> list[Turn]:
    history = History()
    for kind, first, second in steps:
        match kind:
            case "user":
                history.user(first)
            case "round":
                history.user(first)
                history.assistant(second)
            case "tools":
                history.user(first)
                history.assistant(second, "A", "B")
                history.tool(first or "甲", "A")
                history.tool("乙", "B")
                history.assistant("完。")
            case "broken":
                history.assistant(first, "A", "A", "B")
                history.tool(second, "B")
                history.tool(second, "Z")
            case "assistant":
                history.assistant(first, to=None)
            case "tool":
                history.tool(first, "A")
            case "again":
                history.turns += history.turns[-1:]
            case "reset":
                history.reset()
    return history.turns


HISTORIES = st.lists(STEPS, max_size=25).map(_history)
CONFIGS = st.builds(
    lambda cap, recent, tokens, keep, short: WindowSettings(
        max_messages=cap,
        keep_recent=min(recent, cap),
        max_tokens=tokens,
        keep_answers=keep,
        filter_short_messages=short,
    ),
    st.integers(2, 40),
    st.integers(1, 20),
    st.integers(200, 4000),
    st.booleans(),
    st.booleans(),
)
ROOMS = st.sampled_from([50, 500, 2000, PLENTY])
QUESTIONS = st.sampled_from([None, "好的", "现在的问题", "字" * 300])


class Counted:
    """Turns newest first, and how many of them were read."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.turns = list(reversed(turns))
        self.read = 0

    def __iter__(self) -> Iterator[Turn]:
        for turn in self.turns:
            self.read += 1
            yield turn


@given(HISTORIES, CONFIGS, QUESTIONS, ROOMS)
@settings(max_examples=300, deadline=None)
def test_any_window_is_well_formed(turns: list[Turn], config: WindowSettings, question: str | None, room: int) -> None:
    before = copy.deepcopy(turns)
    window = build_window(reversed(turns), question=question, settings=config, room=room)
    assert turns == before
    roles = [message.role for message in window.messages]
    if roles:
        assert roles[0] is Role.USER
        assert roles[-1] is Role.ASSISTANT
    for first, second in zip(window.messages, window.messages[1:], strict=False):
        assert first.role is not second.role or first.role is Role.TOOL
    open_calls: list[str] = []
    for message in window.messages:
        assert message.content.strip() or message.tool_calls
        if message.role is Role.TOOL:
            assert message.call in open_calls
            open_calls.remove(message.call)
        else:
            assert not open_calls
            open_calls = [call.id for call in message.tool_calls]
    assert not open_calls
    assert window.tokens == sum(message.tokens for message in window.messages)


@given(HISTORIES, CONFIGS, QUESTIONS, ROOMS)
@settings(max_examples=300, deadline=None)
def test_each_turn_read_is_kept_or_dropped(
    turns: list[Turn], config: WindowSettings, question: str | None, room: int
) -> None:
    source = Counted(turns)
    window = build_window(source, question=question, settings=config, room=room)
    kept = [id_ for message in window.messages for id_ in message.ids]
    dropped = [drop.id for drop in window.dropped]
    visited = [turn.id for turn in source.turns[: len(kept) + len(dropped)]]
    assert sorted(kept + dropped) == sorted(visited)
    assert source.read <= len(visited) + 1
    assert dropped == sorted(dropped, key=lambda id_: -int(id_[1:]))
    assert kept == sorted(kept, key=lambda id_: int(id_[1:])), "in the order of the file"
    assert all(drop.reason for drop in window.dropped)
    rest = source.turns[len(visited) :]
    if any(drop.stage in LIMITS for drop in window.dropped) and rest and rest[0].role is not Role.RESET:
        assert window.not_read_before == visited[-1]
        assert window.gap > sum(drop.stage in LIMITS for drop in window.dropped)
    else:
        assert window.not_read_before is None


@given(HISTORIES, CONFIGS, QUESTIONS, ROOMS)
@settings(max_examples=200, deadline=None)
def test_what_is_not_read_does_not_matter(
    turns: list[Turn], config: WindowSettings, question: str | None, room: int
) -> None:
    source = Counted(turns)
    lazy = build_window(source, question=question, settings=config, room=room)
    full = build_window(list(reversed(turns)), question=question, settings=config, room=room)
    cut = build_window(source.turns[: source.read], question=question, settings=config, room=room)
    assert lazy == full == cut


@given(HISTORIES, CONFIGS, QUESTIONS, ROOMS)
@settings(max_examples=300, deadline=None)
def test_limits_hold_but_for_the_newest_round(
    turns: list[Turn], config: WindowSettings, question: str | None, room: int
) -> None:
    window = build_window(reversed(turns), question=question, settings=config, room=room)
    by_id = {turn.id: turn for turn in turns}
    kept = [id_ for message in window.messages for id_ in message.ids]
    heads = [at for at, id_ in enumerate(kept) if by_id[id_].role is Role.USER]
    rounds = len(heads)
    if rounds > 1:
        assert len(window.messages) < config.max_messages
        newer = len(kept) - heads[1]
        assert window.tokens <= config.max_tokens or newer < config.keep_recent
    assert not kept or window.tokens + window.question_tokens <= room
    assert window.fits == (window.question_tokens <= room)


@given(HISTORIES, CONFIGS, QUESTIONS, ROOMS, st.integers(0, 20))
@settings(max_examples=200, deadline=None)
def test_a_larger_cap_never_shows_less(
    turns: list[Turn], config: WindowSettings, question: str | None, room: int, more: int
) -> None:
    larger = config.model_copy(update={"max_messages": config.max_messages + more})
    seen, seen_larger = (
        {id_ for message in window.messages for id_ in message.ids}
        for window in (
            build_window(reversed(turns), question=question, settings=each, room=room) for each in (config, larger)
        )
    )
    assert seen <= seen_larger


def test_a_question_calls_no_tools() -> None:
    """Whatever a person wrote into the file by hand."""
    history = History(("问", "答"))
    asking = replace(history.turns[0], tool_calls=(ToolCall("c", "search", "{}"),))
    window = build_window([history.turns[1], asking], question="再问", settings=WindowSettings(), room=30000)
    assert [message.tool_calls for message in window.messages] == [(), ()]


def test_trimming_is_quick() -> None:
    history = History(*((f"第 {i} 个问题：上海的岗位有哪些", f"第 {i} 个回答：推荐以下岗位") for i in range(250)))
    newest_first = history.turns[::-1]

    def trim() -> None:
        build_window(newest_first, question="现在", settings=WindowSettings(), room=30000)

    assert min(effort(trim) for _ in range(20)) < 0.5
