"""When a summary is due and what it covers: by example, and that nothing falls between window and summary."""

import itertools
import random
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from memory import drafting, tail
from memory.conversation import Role, ToolCall, Turn
from memory.drafting import Draft
from memory.memory import Memory
from memory.summary import Standing, Summary, SummarySettings, due, portion, reaching, target
from memory.tokens import message_tokens
from memory.window import WindowSettings
from tests.memory.pool import AT, CONVERSATION, answer, examples, reset, user

DEFAULTS = SummarySettings()
ROOM = 30_000


def version(through: int, epoch: int = 0, text: str = "摘要") -> Summary:
    return Summary(text=text, id=f"s-{epoch}-{through}", epoch=epoch, through=through, at=AT)


def standing(
    newest: int, *, last: int | None = None, gap: int = 0, base: int = -1, first: int | None = None
) -> Standing:
    """A conversation of rounds of two messages since `base`."""
    made = None if last is None else version(last)
    rounds = (newest - base) // 2
    return Standing(epoch=0, newest=newest, base=base, rounds=rounds, first=first or newest - 18, gap=gap, last=made)


# ---- when


def made_at(
    settings: SummarySettings, rounds: int, *, base: int = -1, per_round: int = 2, gaps: bool = False
) -> list[int]:
    """After how many messages a summary is made when each round brings `per_round` messages."""
    last, made = None, []
    for messages in range(per_round, rounds * per_round + 1, per_round):
        newest = base + messages
        now = replace(standing(newest, last=last, base=base), rounds=messages // per_round)
        if gaps:
            now = replace(now, gap=max(0, now.first - 1 - now.after) if now.first else 0)
        if due(now, settings):
            last = target(now, settings)
            made.append(messages)
    return made


def test_after_so_many_rounds_each_time_so_many_messages_came_in() -> None:
    assert made_at(DEFAULTS, 50) == [40, 50, 60, 70, 80, 90, 100]
    assert made_at(DEFAULTS, 50, base=6) == [40, 50, 60, 70, 80, 90, 100], "counted from the reset"
    assert made_at(SummarySettings(after_turns=3, every_messages=4), 12) == [12, 16, 20, 24]


@pytest.mark.parametrize("per_round", [3, 7, 20])
def test_a_multiple_is_crossed_where_it_is_not_hit(per_round: int) -> None:
    made = made_at(DEFAULTS, 60, per_round=per_round)
    assert made
    assert all(later - earlier >= DEFAULTS.every_messages for earlier, later in itertools.pairwise(made))
    assert all(later - earlier < per_round + 10 for earlier, later in itertools.pairwise(made))


def test_due_when_the_next_window_leaves_out_what_no_summary_covers() -> None:
    assert due(standing(20), DEFAULTS) == ""
    assert due(standing(20, gap=1), DEFAULTS) == "gap"
    assert due(standing(20, gap=1, last=10), DEFAULTS) == "", "nothing new to summarise"
    assert due(standing(20, gap=1), SummarySettings(enabled=False)) == ""
    assert made_at(DEFAULTS, 26, gaps=True) == [20, 30, 40, 50]


def test_a_failed_one_stays_due() -> None:
    assert [due(standing(39 + more), DEFAULTS) for more in (0, 2, 4, 6)] == ["every-messages"] * 4


def test_not_again_within_so_many_messages() -> None:
    now = standing(39, last=29)
    assert [due(replace(now, newest=39 + more), DEFAULTS) for more in (0, 4, 8, 9)] == ["", "", "", ""]
    assert due(replace(now, newest=49), DEFAULTS) == "every-messages"


# ---- what


def test_all_but_the_newest_and_all_that_the_window_leaves_out() -> None:
    assert target(standing(39, first=21), DEFAULTS) == 29
    assert target(standing(39, first=36), DEFAULTS) == 35, "a window of less than `keep`"
    assert target(replace(standing(39), first=None), DEFAULTS) == 39, "an empty window"


def turns(*roles: str, text: str = "话") -> list[Turn]:
    """Turns by the first letters of their roles; ``c`` is an assistant's turn with a call."""
    made = []
    for n, role in enumerate(roles):
        calls = (ToolCall(f"c{n}", "search", "{}"),) if role == "c" else ()
        kind = {"u": Role.USER, "a": Role.ASSISTANT, "c": Role.ASSISTANT, "t": Role.TOOL}[role]
        made.append(Turn(role=kind, text=text, id=f"m{n}", at=AT, n=n, epoch=0, tool_calls=calls))
    return made


@pytest.mark.parametrize(
    ("roles", "upto", "end"),
    [
        ("uauaua", 3, 4),
        ("ucta", 1, 1),
        ("ucta", 2, 3),
        ("uctta", 2, 1),
        ("cta", 0, 2),
        ("ctt", 0, 3),
        ("ua", 9, 2),
        ("ua", -5, 1),
    ],
)
def test_never_between_a_call_and_its_result(roles: str, upto: int, end: int) -> None:
    assert len(portion(turns(*roles), upto, 10_000)) == end


def test_as_much_as_the_model_can_take_and_one_at_least() -> None:
    many = turns(*"uaua" * 10, text="字" * 100)
    one = message_tokens("字" * 100)
    assert len(portion(many, 99, one * 5)) == 5
    assert len(portion(many, 99, one * 2)) == 4, "a long one counts a quarter of the room, as it is shown"
    assert len(portion(many, 99, 1)) == 1


def test_which_version_is_read() -> None:
    newest_first = [version(29), version(19), version(9)]
    assert [reaching(newest_first, first) for first in (5, 20, 30, 40, None)] == [
        newest_first[2],
        newest_first[1],
        newest_first[0],
        newest_first[0],
        newest_first[0],
    ]
    assert reaching([], 5) is None


# ---- over real files


class Bench:
    """A conversation on the disk that is summarised in the foreground."""

    def __init__(
        self, workspace: Path, window: WindowSettings, summary: SummarySettings, room: int = ROOM, seed: int = 0
    ) -> None:
        self.memory = Memory(workspace, durability="none")
        self.window, self.summary, self.room = window, summary, room
        self.rng = random.Random(seed)
        self.rounds = 0
        self.covered: dict[str, set[str]] = {}
        """By the id of each version: the ids of the turns that went into it or into those before it."""

    async def round(self, text: str = "", *, tool: bool = False, answered: bool = True) -> None:
        self.rounds += 1
        q = f"q{self.rounds}"
        said = [user(q, text or f"第{self.rounds}个问题")]
        if tool:
            call = ToolCall(f"c{self.rounds}", "search", "{}")
            said.append(answer(f"{q}/c", q, "", tool_calls=(call,)))
            said.append(Turn(role=Role.TOOL, text="[]", id=f"{q}/t", at=AT, to=q, call=call.id))
        if answered:
            said.append(answer(f"{q}/a", q, "答" * self.rng.choice((3, 30))))
        await self.memory.remember(CONVERSATION, said)

    async def draft(self) -> Draft | None:
        return await self.memory.draft(CONVERSATION, self.window, self.summary, room=self.room, weigh=message_tokens)

    async def keep(self, draft: Draft, room: int = 10**6) -> bool:
        part = portion(draft.turns, draft.upto, room)
        assert part
        before = set() if draft.previous is None else self.covered[draft.previous.id]
        made = version(part[-1].n, draft.epoch, "要" * self.rng.randint(1, 100))
        self.covered[made.id] = before | {turn.id for turn in part}
        return await self.memory.archive(CONVERSATION, made, after=draft.after)

    async def summarise(self, room: int = 10**6) -> int:
        """Until none is due; how many it took."""
        steps = 0
        while (draft := await self.draft()) is not None:
            steps += 1
            assert steps < 200, "without end"
            assert await self.keep(draft, room)
        return steps

    async def missing(self) -> tuple[int, set[str]]:
        """What the next question would find in neither window nor summary: as told, and as it is."""
        seen = await self.memory.window(CONVERSATION, self.window, question=None, room=self.room, weigh=message_tokens)
        all_turns = await self.memory.history(CONVERSATION, None, 10**6)
        resets = [place for place, turn in enumerate(all_turns) if turn.role is Role.RESET]
        since = {turn.id for turn in all_turns[resets[-1] + 1 if resets else 0 :]}
        since -= {id for message in seen.messages for id in message.ids}
        since -= {drop.id for drop in seen.dropped if drop.stage in ("acknowledgement", "order")}
        since -= self.covered[seen.summary.id] if seen.summary else set()
        return seen.gap, since


WINDOWS = st.builds(
    lambda cap, recent, budget: WindowSettings(max_messages=cap, keep_recent=min(recent, cap), max_tokens=budget),
    st.integers(2, 30),
    st.integers(1, 30),
    st.integers(200, 3000),
)
SETTINGS = st.builds(
    lambda after, every, keep: SummarySettings(after_turns=after, every_messages=every, keep=keep),
    st.integers(1, 30),
    st.integers(2, 30),
    st.integers(1, 40),
)


@given(
    window=WINDOWS,
    summary=SETTINGS,
    seed=st.integers(0, 10**6),
    room=st.sampled_from([500, 1000, ROOM]),
    step=st.sampled_from([80, 10**6]),
)
@examples(8)
async def test_no_turn_is_in_neither_window_nor_summary(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    window: WindowSettings,
    summary: SummarySettings,
    seed: int,
    room: int,
    step: int,
) -> None:
    """Whatever the settings and the talk: each time the summaries are finished, nothing is missing."""
    bench = Bench(tmp_path_factory.mktemp("w"), window, summary, room, seed)
    for number in range(100):
        kind = bench.rng.random()
        if kind < 0.02:
            await bench.memory.reset(CONVERSATION, f"r{number}", AT)
        elif kind < 0.2:
            await bench.round("好的")
        else:
            text = "长" * bench.rng.choice((2, 20, 300))
            await bench.round(text, tool=kind < 0.4, answered=kind < 0.95)
        if bench.rng.random() < 0.7:  # else the model was slow
            await bench.summarise(step)
            assert await bench.missing() == (0, set())
    await bench.memory.close()


async def test_the_number_of_summaries_is_bounded_by_the_new_turns(tmp_path: Path) -> None:
    bench = Bench(tmp_path, WindowSettings(), SummarySettings())
    made = []
    for number in range(200):
        await bench.round()
        if await bench.summarise():
            made.append(number + 1)
    assert made[:4] == [10, 15, 20, 25]
    assert len(made) == 39, "one per ten messages"
    assert await bench.draft() is None, "not again without new turns"
    await bench.memory.close()


async def test_a_window_is_told_with_its_summary(tmp_path: Path) -> None:
    bench = Bench(tmp_path, WindowSettings(), SummarySettings())
    for _ in range(26):
        await bench.round()
    seen = await bench.memory.window(CONVERSATION, bench.window, question=None, room=ROOM)
    assert (seen.summary, seen.gap) == (None, 52 - 18)
    await bench.summarise()
    seen = await bench.memory.window(CONVERSATION, bench.window, question=None, room=ROOM, weigh=message_tokens)
    assert seen.summary is not None
    assert (seen.summary.through, seen.gap) == (41, 0)
    assert seen.summary_tokens == message_tokens(seen.summary.text)
    wide = WindowSettings(max_messages=60)
    seen = await bench.memory.window(CONVERSATION, wide, question=None, room=ROOM, weigh=message_tokens)
    assert (len(seen.messages), seen.gap) == (52, 0)
    await bench.memory.close()


async def test_a_question_comes_before_a_summary(tmp_path: Path) -> None:
    """A summary takes its room from the window; one that leaves none for the question stays out."""
    bench = Bench(tmp_path, WindowSettings(), SummarySettings())
    for _ in range(10):
        await bench.round()
    draft = await bench.draft()
    assert draft is not None
    assert await bench.memory.archive(CONVERSATION, version(9, text="要" * 500), after=None)
    question = user("q", "问" * 100)
    for room, has in ((1010 + 210 + 300, True), (1010 + 209, False), (210, False)):
        seen = await bench.memory.window(CONVERSATION, bench.window, question=question, room=room, weigh=message_tokens)
        assert ((seen.summary is not None), seen.fits) == (has, True), room
        assert seen.tokens + seen.question_tokens + seen.summary_tokens <= room
    await bench.memory.close()


async def test_a_reset_or_another_writer_overtakes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, WindowSettings(), SummarySettings())
    for _ in range(12):
        await bench.round()
    first, second = await bench.draft(), await bench.draft()
    assert first is not None
    assert second is not None
    assert await bench.keep(first)
    assert not await bench.keep(second), "another one was faster"
    for _ in range(10):
        await bench.round()
    third = await bench.draft()
    assert third is not None
    assert third.previous is not None
    await bench.memory.reset(CONVERSATION, "r", AT)
    assert not await bench.keep(third)
    assert await bench.draft() is None
    await bench.round()
    seen = await bench.memory.window(CONVERSATION, bench.window, question=None, room=ROOM, weigh=message_tokens)
    assert (seen.summary, seen.gap) == (None, 0)
    for _ in range(12):
        await bench.round()
    fourth = await bench.draft()
    assert fourth is not None
    assert (fourth.previous, fourth.turns[0].id) == (None, "q23"), "nothing from before the reset"
    await bench.memory.close()


async def test_the_newest_reset_is_told_from_further_back_than_is_read(tmp_path: Path) -> None:
    """A small `after-turns` beside a large `keep`: a reset behind what was read must not count as turns."""
    bench = Bench(tmp_path, WindowSettings(), SummarySettings(after_turns=1, every_messages=2, keep=30))
    for _ in range(20):
        await bench.round()
    await bench.memory.reset(CONVERSATION, "r", AT)
    for _ in range(5):
        await bench.round()
        assert await bench.draft() is None
    await bench.memory.close()


async def test_turns_behind_the_reader_s_limits_are_summarised_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledgements fill what one reader reads: the window is short of it, and the summary closes the gap."""
    monkeypatch.setattr(tail, "MAX_ITEMS", 30)
    bench = Bench(tmp_path, WindowSettings(), SummarySettings())
    await bench.round("我叫张三")
    for _ in range(40):
        await bench.memory.remember(CONVERSATION, [user(f"ack{bench.rng.random()}", "收到")])
    bench.memory._store.recent.clear()  # what is kept reaches further back
    seen = await bench.memory.window(CONVERSATION, bench.window, question=None, room=ROOM, weigh=message_tokens)
    assert seen.not_read_before is not None
    assert seen.gap == 42 - 30
    assert await bench.summarise() == 1
    assert await bench.missing() == (0, set())
    await bench.memory.close()


async def test_a_long_history_is_taken_in_steps_the_oldest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafting, "MAX_ITEMS", 50)
    bench = Bench(tmp_path, WindowSettings(), SummarySettings())
    for _ in range(100):
        await bench.round()
    draft = await bench.draft()
    assert draft is not None
    assert (draft.turns[0].id, len(draft.turns), draft.upto) == ("q1", 50, 189)
    assert await bench.summarise() == 4
    assert await bench.missing() == (0, set())
    await bench.memory.close()


async def test_items_of_a_person_do_not_stop_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, WindowSettings(max_messages=4, keep_recent=2), SummarySettings(keep=2))
    assert await bench.draft() is None, "no file"
    for _ in range(3):
        await bench.round()
    await bench.summarise()
    path = tmp_path / "conversations" / CONVERSATION.lane.user / CONVERSATION.file_name
    path.write_bytes(path.read_bytes() + "- user: |\n    手写的一条\n".encode())
    assert await bench.draft() is None, "it has no ordinal yet"
    seen = await bench.memory.window(CONVERSATION, bench.window, question=None, room=ROOM, weigh=message_tokens)
    assert seen.summary is not None
    assert seen.messages[-1].content.endswith("手写的一条") or seen.messages[-2].content.endswith("手写的一条")
    await bench.round()
    await bench.summarise()
    assert (await bench.missing())[0] == 0
    reset_item = reset("r")
    await bench.memory.remember(CONVERSATION, [reset_item])
    assert await bench.draft() is None
    await bench.memory.close()
