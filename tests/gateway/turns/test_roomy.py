"""Where an answer is called roomy, no summary is due: held against what a summary's draft would find."""

from collections.abc import Sequence
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gateway.turns.answering import is_roomy
from memory.context import ContextSettings
from memory.conversation import Role, ToolCall, Turn
from memory.summary import Standing, Summary, SummarySettings, due, reaching
from memory.tokens import message_tokens
from memory.window import Window, WindowSettings, build_window

ROOM = 6000
AT = "2026-11-30T12:00:00+08:00"

texts = st.one_of(
    st.sampled_from(["好的", "嗯", "谢谢", "好的，那就这样安排吧", "还有别的吗？"]),
    st.integers(1, 400).map(lambda size: "说" * size),
)


def conversation(said: Sequence[tuple[str, bool]], calls: int = 0) -> list[Turn]:
    """Questions, and answers to those that got one; with `calls`, each eighth question has so many tools called."""
    turns: list[Turn] = []

    def add(role: Role, text: str, **more: Any) -> Turn:
        turns.append(Turn(role=role, text=text, id=f"t{len(turns)}", n=len(turns), epoch=0, at=AT, **more))
        return turns[-1]

    for number, (text, answered) in enumerate(said):
        question = add(Role.USER, text)
        if calls and number % 8 == 0:
            asked = tuple(ToolCall(f"c{n}", "search", "{}") for n in range(calls))
            add(Role.ASSISTANT, "", to=question.id, tool_calls=asked)
            for call in asked:
                add(Role.TOOL, "无", to=question.id, call=call.id)
        if answered:
            add(Role.ASSISTANT, text[::-1], to=question.id)
    return turns


def summary_through(ordinal: int, characters: int = 3) -> Summary:
    return Summary(text="说" * characters, id=f"s{ordinal}", epoch=0, through=ordinal, at="")


def beside(turns: Sequence[Turn], summaries: Sequence[Summary], window: WindowSettings, question: str | None) -> Window:
    """`summaries` newest first."""
    room = ROOM - message_tokens(summaries[0].text) if summaries else ROOM
    found = build_window(reversed(turns), question=question, settings=window, room=room)
    if not summaries:
        return found
    chosen = reaching(summaries, found.first) or summaries[0]
    return found.with_summary(chosen, message_tokens(chosen.text), summaries[0])


@st.composite
def settings_of(draw: st.DrawFn) -> ContextSettings:
    cap = draw(st.integers(2, 40))
    window = WindowSettings(max_messages=cap, keep_recent=min(cap, 10), max_tokens=draw(st.integers(400, 4000)))
    after_turns, every, keep = draw(st.tuples(st.integers(1, 20), st.integers(2, 12), st.integers(1, 12)))
    return ContextSettings(
        window=window, summary=SummarySettings(after_turns=after_turns, every_messages=every, keep=keep)
    )


@given(
    said=st.one_of(
        st.lists(st.tuples(texts, st.integers(0, 9).map(bool)), max_size=40),
        st.lists(st.tuples(texts, st.booleans()), max_size=40),
        st.lists(st.tuples(texts, st.just(False)), max_size=30),  # while the model could not be reached
    ),
    last=st.tuples(texts, texts),
    covered=st.sets(st.integers(0, 90), max_size=3),
    odd=st.tuples(st.integers(0, 5), st.sampled_from([3, 1000])),
    context=settings_of(),
)
@settings(max_examples=1000)
def test_no_summary_is_due_where_there_is_room(
    said: list[tuple[str, bool]],
    last: tuple[str, str],
    covered: set[int],
    odd: tuple[int, int],
    context: ContextSettings,
) -> None:
    (question, answer), (calls, weight) = last, odd
    before = conversation(said, calls)
    n = len(before)
    summaries = [summary_through(each, weight) for each in sorted(covered, reverse=True) if each < n]
    latest = summaries[0] if summaries else None
    window = beside(before, summaries, context.window, question)
    roomy = is_roomy(window, context, ROOM, n + 1, message_tokens(answer))
    event(f"roomy: {roomy}, summaries: {len(summaries)}")
    if not roomy:
        return
    then = [
        *before,
        Turn(role=Role.USER, text=question, id="question", n=n, epoch=0, at=AT),
        Turn(role=Role.ASSISTANT, text=answer, id="answer", to="question", n=n + 1, epoch=0, at=AT),
    ]
    next_window = beside(then, summaries, context.window, None)
    standing = Standing(
        epoch=0,
        newest=n + 1,
        base=-1,
        rounds=sum(turn.role is Role.USER for turn in then),
        first=next_window.first,
        gap=next_window.left_out(latest.through if latest else None),
        last=latest,
    )
    assert due(standing, context.summary) == ""


def test_it_is_roomy_between_two_summaries() -> None:
    context = ContextSettings(window=WindowSettings(), summary=SummarySettings())
    for summaries in ([summary_through(49)], [summary_through(49), summary_through(39)]):
        roomy = []
        for more in range(0, 10, 2):
            before = conversation([("再说一句", True)] * (30 + more // 2))
            window = beside(before, summaries, context.window, "问")
            roomy.append(is_roomy(window, context, ROOM, len(before) + 1, 10))
        assert roomy == [True, True, True, True, False], "every tenth message"


def test_it_is_roomy_until_the_window_is_full() -> None:
    context = ContextSettings(window=WindowSettings(max_messages=30), summary=SummarySettings())
    roomy = []
    for rounds in range(16):
        before = conversation([("再说一句", True)] * rounds)
        roomy.append(is_roomy(beside(before, [], context.window, "问"), context, ROOM, len(before) + 1, 10))
    assert roomy == [True] * 14 + [False] * 2


def test_it_is_never_called_roomy_with_tool_calls_in_the_window() -> None:
    context = ContextSettings(window=WindowSettings(), summary=SummarySettings())
    for calls, roomy in ((0, True), (1, False)):
        before = conversation([("再说一句", True)] * 5, calls)
        assert is_roomy(beside(before, [], context.window, "问"), context, ROOM, len(before) + 1, 10) is roomy


def test_what_was_joined_counts_by_itself() -> None:
    context = ContextSettings(window=WindowSettings(), summary=SummarySettings())
    before = conversation([("在吗", False)] * 18)
    window = beside(before, [], context.window, "问")
    assert len(window.messages) < 3
    assert not is_roomy(window, context, ROOM, len(before) + 1, 10), "the next window leaves one out"
