"""Where an answer is called roomy, no summary is due: held against what a summary's draft would find."""

from collections.abc import Sequence

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gateway.answering import is_roomy
from memory.context import ContextSettings
from memory.conversation import Role, Turn
from memory.summary import Standing, Summary, SummarySettings, due, reaching
from memory.tokens import message_tokens
from memory.window import Window, WindowSettings, build_window

ROOM = 6000
AT = "2026-11-30T12:00:00+08:00"

texts = st.one_of(
    st.sampled_from(["好的", "嗯", "谢谢", "好的，那就这样安排吧", "还有别的吗？"]),
    st.integers(1, 400).map(lambda size: "说" * size),
)


def conversation(said: Sequence[tuple[str, bool]]) -> list[Turn]:
    """Questions, and answers to those that got one."""
    turns: list[Turn] = []
    for text, answered in said:
        turns.append(Turn(role=Role.USER, text=text, id=f"q{len(turns)}", n=len(turns), epoch=0, at=AT))
        if answered:
            id, to = f"a{len(turns)}", turns[-1].id
            turns.append(Turn(role=Role.ASSISTANT, text=text[::-1], id=id, to=to, n=len(turns), epoch=0, at=AT))
    return turns


def beside(turns: Sequence[Turn], summary: Summary | None, window: WindowSettings, question: str | None) -> Window:
    found = build_window(reversed(turns), question=question, settings=window, room=ROOM)
    chosen = summary and (reaching([summary], found.first) or summary)
    return found.with_summary(chosen, message_tokens(chosen.text)) if chosen else found


@given(
    said=st.lists(st.tuples(texts, st.integers(0, 9).map(bool)), max_size=40),
    question=texts,
    answer=texts,
    covered=st.integers(-1, 70),
    cap=st.integers(2, 40),
    budget=st.integers(400, 4000),
    rhythm=st.tuples(st.integers(1, 20), st.integers(2, 12), st.integers(1, 12)),
)
@settings(max_examples=400)
def test_no_summary_is_due_where_there_is_room(
    said: list[tuple[str, bool]],
    question: str,
    answer: str,
    covered: int,
    cap: int,
    budget: int,
    rhythm: tuple[int, int, int],
) -> None:
    window_settings = WindowSettings(max_messages=cap, keep_recent=min(cap, 10), max_tokens=budget)
    after_turns, every, keep = rhythm
    summaries = SummarySettings(after_turns=after_turns, every_messages=every, keep=keep)
    before = conversation(said)
    through = min(covered, len(before) - 1)
    summary = Summary(text="说过的", id="s", epoch=0, through=through, at="") if through >= 0 else None
    window = beside(before, summary, window_settings, question)
    whole = [*before, *conversation([(question, False)])]
    n = len(before)
    whole[-1] = Turn(role=Role.USER, text=question, id="question", n=n, epoch=0, at=AT)
    whole.append(Turn(role=Role.ASSISTANT, text=answer, id="answer", to="question", n=n + 1, epoch=0, at=AT))
    context = ContextSettings(window=window_settings, summary=summaries)
    roomy = is_roomy(window, context, ROOM, n + 1, message_tokens(answer))
    event(f"roomy: {roomy}, summary: {summary is not None}")
    if roomy:
        then = beside(whole, summary, window_settings, None)
        standing = Standing(
            epoch=0,
            newest=n + 1,
            base=-1,
            rounds=sum(turn.role is Role.USER for turn in whole),
            first=then.first,
            gap=then.left_out(summary.through if summary else None),
            last=summary,
        )
        assert due(standing, summaries) == ""


def test_it_is_roomy_between_two_summaries() -> None:
    context = ContextSettings(window=WindowSettings(), summary=SummarySettings())
    summary = Summary(text="说过的", id="s", epoch=0, through=49, at="")
    roomy = []
    for more in range(0, 10, 2):
        before = conversation([("再说一句", True)] * (30 + more // 2))
        window = beside(before, summary, context.window, "问")
        roomy.append(is_roomy(window, context, ROOM, len(before) + 1, 10))
    assert roomy == [True, True, True, True, False], "every tenth message"
