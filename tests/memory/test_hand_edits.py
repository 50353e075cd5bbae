"""What people and other programs do to conversation files: read for what it says, adopted, neighbours untouched."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from memory import tail
from memory.charset import decoded
from memory.conversation import ConversationId, Role, Turn
from memory.memory import Memory
from memory.overlooked import Overlooked, overlooked
from memory.tail import pieces_forwards
from memory.window import WindowSettings
from memory.yamlform import write_item
from tests.bench.bench_memory import Lag
from tests.scenarios.conversation_files import checked, said

AT = "2026-01-05T10:00:00.000+08:00"
ONE = ConversationId.parse("uu3r7qbo6l6i3:feishu:b759cea3338c:0:general-agent")
OTHER = ConversationId.parse("ueyvbddhftr73:feishu:b759cea3338c:0:general-agent")
SETTINGS = WindowSettings(filter_short_messages=False)
NEW = Turn(role=Role.USER, text="新的问题", id="new", at=AT)


def path_in(workspace: Path, conversation: ConversationId = ONE) -> Path:
    path = workspace / "conversations" / conversation.lane.user / conversation.file_name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    memory = Memory(tmp_path)
    yield memory
    await memory.close()


async def seen(memory: Memory, conversation: ConversationId = ONE) -> list[str]:
    window = await memory.window(conversation, SETTINGS, question=None, room=8000)
    return [message.content for message in window.messages if message.ids]  # not the line for a missing answer


def ours(*texts: str) -> bytes:
    """A file as it is written by us: users and assistants take turns."""
    items = []
    for n, text in enumerate(texts):
        role, to = (Role.ASSISTANT, f"m{n - 1}") if n % 2 else (Role.USER, None)
        items.append(write_item(Turn(role=role, text=text, id=f"m{n}", at=AT, n=n, epoch=0, to=to)))
    return b"".join(items)


FORMS: dict[str, tuple[str, list[str]]] = {
    "no meta": ("- user: |\n    我叫手工\n- assistant: 你好\n", ["我叫手工", "你好"]),
    "byte order mark": ("\ufeff- user: |\n    我叫手工\n- assistant: 你好\n", ["我叫手工", "你好"]),
    "CRLF": ("- user: |\r\n    第一行\r\n    第二行\r\n- assistant: 好\r\n", ["第一行\n第二行", "好"]),
    "yes": ("- user: yes\n- assistant: no\n", ["yes", "no"]),
    "off": ("- user: off\n- assistant: on\n", ["off", "on"]),
    "a time": ("- user: 12:30\n- assistant: 0:05\n", ["12:30", "0:05"]),
    "an octal number": ("- user: 0123\n- assistant: 0o17\n", ["0123", "0o17"]),
    "numbers": ("- user: 1e3\n- assistant: 1_000\n", ["1e3", "1_000"]),
    "hexadecimal": ("- user: 0x1F\n- assistant: .inf\n", ["0x1F", ".inf"]),
    "a date": ("- user: 2026-01-01\n- assistant: 2026-01-01T10:00:00Z\n", ["2026-01-01", "2026-01-01T10:00:00Z"]),
    "null": ("- user: null\n- assistant: ~\n", ["null", "~"]),
    "a list": ("- user: [1, 2]\n- assistant: {a: b}\n", ["[1, 2]", "{a: b}"]),
    "quotes": ("- user: '单引号'\n- assistant: \"双\\n引号\"\n", ["单引号", "双\n引号"]),
    "folded": ("- user: >\n    折叠的\n    一段\n- assistant: 好\n", ["折叠的 一段", "好"]),
    "other indentation": ("- user: |\n   三格\n- assistant: |\n        八格\n", ["三格", "八格"]),
    "comments between": (
        "# 说明\n\n- user: 问\n# 中间\n- assistant: 答\n  # 缩进的\n\n# 末尾\n",
        ["问", "答"],
    ),
    "document marks": ("---\n- user: 问\n- assistant: 答\n...\n", ["问", "答"]),
    "a python tag": (
        "- user: !!python/object/apply:os.system ['touch pwned']\n- assistant: 尾\n",
        ["!!python/object/apply:os.system ['touch pwned']", "尾"],
    ),
    "another tag": ("- user: !secret 内容\n- assistant: 好\n", ["内容", "好"]),
    "other fields": ("- user: 问\n  note: 我的注\n- assistant: 答\n", ["问", "答"]),
    "a tab in the text": ("- user: |\n    a\tb\n- assistant: 好\n", ["a\tb", "好"]),
    "a key twice": ("- user: 甲\n  user: 乙\n- assistant: 好\n", ["甲", "好"]),
}


@pytest.mark.parametrize("form", FORMS)
async def test_every_form_is_read_for_what_it_says(
    memory: Memory, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written, expected = FORMS[form]
    path = path_in(tmp_path)
    path.write_bytes(written.encode())
    assert await seen(memory) == expected
    assert path.read_bytes() == written.encode(), "reading changes nothing"
    await memory.remember(ONE, [NEW])
    assert [text for _, text in said(path)] == [*expected, NEW.text]
    checked(path)
    (kept,) = (tmp_path / "quarantine" / ONE.lane.user).iterdir()
    assert kept.read_bytes() == written.encode()
    assert await seen(memory) == [*expected, NEW.text]
    assert not (tmp_path / "pwned").exists()


async def test_a_wrong_crc_is_a_person_s_change(memory: Memory, tmp_path: Path) -> None:
    path = path_in(tmp_path)
    path.write_bytes(ours("我在北京", "好", "再说", "嗯").replace("我在北京".encode(), "我在上海".encode()))
    assert await seen(memory) == ["我在上海", "好", "再说", "嗯"]
    await memory.remember(ONE, [NEW])
    items = checked(path)
    assert [item.meta["id"] for item in items] == ["m0", "m1", "m2", "m3", "new"], "ids stay"


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"  {chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]" for n in range(9)
)
DAMAGES: dict[str, bytes] = {
    "rubbish": b"- \xff\xfe\x00{{{: [\n",
    "an alias bomb": f"- {BOMB}\n".encode(),
    "deep nesting": b"- user: " + b"[" * 5000 + b"\n",
    "tabs for indentation": b"- user: |\n\t\ttabs\n",
    "an open quote": b'- user: "never closed\n',
    "no role": "- nobody: 谁\n".encode(),
    "an empty item": b"- \n",
    "a number": b"- 42\n",
    "half of an item": '- user: |-\n    半条\n  meta: {"id": "x", "n"'.encode() + b"\n",
    "a megabyte in one line": b"- user: {" + b"x, " * 400_000 + b"\n",
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_middle_costs_no_neighbour(memory: Memory, tmp_path: Path, damage: str) -> None:
    """What cannot be read at all is passed over; what can (half of an item …) is read for what it says."""
    raw = ours("甲", "乙", "丙", "丁")
    middle = raw.index("- user: |-\n    丙".encode())
    written = raw[:middle] + DAMAGES[damage] + raw[middle:]
    path = path_in(tmp_path)
    path.write_bytes(written)
    async with asyncio.timeout(30):
        texts = await seen(memory)
    assert [text for text in texts if text in "甲乙丙丁"] == ["甲", "乙", "丙", "丁"] or "丙" in texts[2], texts
    await memory.remember(ONE, [NEW])
    items = checked(path)
    found = [item.text for item in items]
    assert [text for text in found if text in ("甲", "乙", "丙", "丁", NEW.text)] == ["甲", "乙", "丙", "丁", NEW.text]
    assert len(found) <= 6
    (kept,) = (tmp_path / "quarantine" / ONE.lane.user).iterdir()
    assert kept.read_bytes() == written


async def test_two_instances_that_wrote_the_same(memory: Memory, tmp_path: Path) -> None:
    """Without a common lock: ordinals stand twice, repeats lie between each other's items; each thing counts once."""

    def item(role: Role, text: str, id: str, n: int, to: str | None = None) -> bytes:
        return write_item(Turn(role=role, text=text, id=id, at=AT, n=n, epoch=0, to=to))

    path = path_in(tmp_path)
    one = [item(Role.USER, "问一", "q1", 0), item(Role.ASSISTANT, "答一", "q1/a", 1, "q1")]
    one += [item(Role.USER, "问二", "q2", 2), item(Role.ASSISTANT, "答二", "q2/a", 3, "q2")]
    two = [item(Role.USER, "问一", "q1", 1), item(Role.ASSISTANT, "另一个答一", "x1", 2, "q1")]
    two += [item(Role.USER, "问二", "q2", 3), item(Role.ASSISTANT, "另一个答二", "x2", 4, "q2")]
    path.write_bytes(b"".join(part for pair in zip(one, two, strict=True) for part in pair))
    assert await seen(memory) == ["问一", "答一", "问二", "答二"]
    assert [turn.text for turn in await memory.answer_to(ONE, "q2")] == ["答二"]
    await memory.remember(ONE, [Turn(role=Role.USER, text="问二", id="q2", at=AT), NEW])
    assert await seen(memory) == ["问一", "答一", "问二", "答二", NEW.text]
    raw = path.read_bytes()
    assert raw.count(b'"id": "q2"') == 2, "nothing is written again, and nothing of the past changed"
    assert isinstance(yaml.safe_load(raw), list)


GBK_ITEM = "- user: |\n    我在深圳找工作\n- assistant: 好的，薪资有要求吗？\n"


@pytest.mark.parametrize("charset", ["gbk", "gb18030"])
async def test_items_saved_as_gbk_are_read_for_what_they_say(
    memory: Memory, tmp_path: Path, charset: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What is UTF-8 around them stays; the original is kept byte for byte."""
    path = path_in(tmp_path)
    written = ours("甲", "乙") + GBK_ITEM.encode(charset) + "# 备注\n".encode(charset)
    path.write_bytes(written)
    expected = ["甲", "乙", "我在深圳找工作", "好的，薪资有要求吗？"]
    assert await seen(memory) == expected
    await memory.remember(ONE, [NEW])
    assert [text for _, text in said(path)] == [*expected, NEW.text]
    checked(path)
    (kept,) = (tmp_path / "quarantine" / ONE.lane.user).iterdir()
    assert kept.read_bytes() == written
    assert "file_adopted" in caplog.text
    assert "items=4 unreadable=0 not_utf8=2 kept=quarantine/" in caplog.text


async def test_a_whole_file_saved_as_gbk(memory: Memory, tmp_path: Path) -> None:
    path = path_in(tmp_path)
    path.write_bytes(ours("甲，我叫王小明", "乙，你好").decode().encode("gbk"))
    await memory.remember(ONE, [NEW])
    items = checked(path)
    assert [item.text for item in items] == ["甲，我叫王小明", "乙，你好", NEW.text]
    assert [item.meta["id"] for item in items] == ["m0", "m1", "new"], "ids stay"


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_utf8_is_never_taken_for_anything_else(text: str) -> None:
    assert decoded(text.encode()) == text


def test_damaged_utf8_is_not_taken_for_gbk() -> None:
    """With its last byte lost the sentence is no UTF-8; as GB18030 all of it would be other characters."""
    damaged = "我在深圳找一份工作".encode()[:-2] + b"a"
    assert damaged.decode("gb18030") != decoded(damaged)
    assert decoded(damaged) == "我在深圳找一份工\ufffda"
    assert decoded(b"- user: \xff\xfe") == "- user: \ufffd\ufffd", "neither"


async def test_what_an_adoption_leaves_out_is_told(
    memory: Memory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An item that cannot be read, and a line behind a whole item: two places."""
    items = ours("甲", "乙", "丙").split(b"\n- ")
    raw = items[0] + b"\nrubbish {\n- " + items[1] + b"\n" + DAMAGES["an open quote"] + b"- " + items[2]
    path_in(tmp_path).write_bytes(raw)
    await memory.remember(ONE, [NEW])
    assert [text for _, text in said(path_in(tmp_path))] == ["甲", "乙", "丙", NEW.text]
    (line,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("file_")]
    assert line.startswith("file_damaged ")
    assert memory.files().set_aside == 1
    assert "items=3 unreadable=2 not_utf8=0 kept=quarantine/" in line


HUGE = 50_000_000


def write_huge(path: Path) -> int:
    """A hand-written file of 50 MB; how many items it has."""
    text = "    " + "上海的岗位 " * 250 + "\n"
    round_ = f"- user: |\n    手写的问题\n{text}- assistant: 好的\n".encode()
    count = HUGE // len(round_)
    with path.open("wb") as file:
        for _ in range(count):
            file.write(round_)
    return 2 * count


@pytest.mark.timeout(120)
async def test_a_huge_hand_written_file_stalls_nobody(memory: Memory, tmp_path: Path) -> None:
    """Measured with two cores: adopting works 3 s, the event loop waits 40 ms at most.

    All is told as shares of the whole work, with much air: a busy machine makes each of them longer.
    """
    path = path_in(tmp_path)
    count = await asyncio.to_thread(write_huge, path)
    took: list[float] = []

    async def others(rounds: int = 1_000_000) -> None:
        for n in range(len(took), len(took) + rounds):
            start = time.perf_counter()
            await memory.remember(OTHER, [Turn(role=Role.USER, text=f"问 {n}", id=f"q{n}", at=AT)])
            await seen(memory, OTHER)
            took.append(time.perf_counter() - start)
            await asyncio.sleep(0.02)

    await others(20)
    alone = statistics.median(took)
    took.clear()
    async with Lag() as lag:
        talking = asyncio.create_task(others())
        start = time.process_time()
        assert len(await seen(memory)) >= 2
        tail = time.process_time() - start
        await memory.remember(ONE, [NEW])
        whole = time.process_time() - start
        talking.cancel()
        print(f"whole {whole:.1f} s, tail {tail * 1000:.0f} ms, loop's own {lag.own * 1000:.0f} ms")
        print(f"loop {lag.worst * 1000:.0f} ms late, held {lag.held * 1000:.0f} ms")
        print(f"others {statistics.median(took) * 1000:.0f} ms, alone {alone * 1000:.0f} ms")
    assert tail < whole / 4, "the question itself waits for its own tail only"
    assert lag.own < whole / 10
    assert lag.held < whole / 2, "never for as long as the whole takes"
    assert took, "others go on meanwhile"
    info = await memory.info(ONE)
    assert info is not None
    assert info.turns == count + 1


async def passed_over(memory: Memory) -> Overlooked:
    return await memory.overlooked(ONE, await memory.window(ONE, SETTINGS, question=None, room=8000))


async def test_what_no_window_shows_is_told_with_its_line(memory: Memory, tmp_path: Path) -> None:
    path = path_in(tmp_path)
    whole = ours("一", "二", "三", "四")
    assert await passed_over(memory) == Overlooked()
    path.write_bytes(whole + b"\n# a remark\n")
    assert await passed_over(memory) == Overlooked(), "a remark is no loss"
    at = whole.index(b"- assistant")
    path.write_bytes(whole[:at] + b"- : [{ broken\n" + whole[at:] + b"- user: [\n")
    lines = (whole[:at].count(b"\n") + 1, whole.count(b"\n") + 2)
    assert await passed_over(memory) == Overlooked(lines=lines)
    path.write_bytes(whole[:at] + b"  left: [ over\n" + whole[at:])  # behind an item that can be read
    assert await passed_over(memory) == Overlooked(lines=(whole[:at].count(b"\n") + 1,))
    path.write_bytes(whole + whole)
    assert await passed_over(memory) == Overlooked(repeats=4)
    path.write_bytes(whole.decode().encode("utf-16"))
    assert (await passed_over(memory)).lines == (1,)
    path.write_bytes(whole + b"- user: |-\n    half of")  # what an interrupted write left
    assert await passed_over(memory) == Overlooked(lines=(whole.count(b"\n") + 1,))


async def test_only_what_a_window_may_show_is_told(memory: Memory, tmp_path: Path) -> None:
    path, whole, broken = path_in(tmp_path), ours("一", "二", "三", "四"), b"- : [{ broken\n"
    reset = write_item(Turn(role=Role.RESET, text="new", id="r", at=AT, n=4, epoch=4))
    path.write_bytes(broken + whole + reset)
    assert await passed_over(memory) == Overlooked()
    path.write_bytes(broken + whole + reset + broken)
    assert len((await passed_over(memory)).lines) == 1
    few = SETTINGS.model_copy(update={"max_messages": 3})
    path.write_bytes(broken + ours(*"一二三四五六七八"))
    window = await memory.window(ONE, few, question=None, room=8000)
    assert await memory.overlooked(ONE, window) == Overlooked()


async def test_repeats_and_damage_between_them_are_told_as_the_window_passes_them(
    memory: Memory, tmp_path: Path
) -> None:
    """Items of the same bytes are one turn in memory, and a reset may be repeated too."""
    few, broken = SETTINGS.model_copy(update={"max_messages": 3}), b"- : [{ broken\n"
    eight = ours(*"一二三四五六七八")
    third = write_item(Turn(role=Role.USER, text="三", id="m2", at=AT, n=2, epoch=0))

    async def passed(raw: bytes, settings: WindowSettings = few) -> tuple[int, int]:
        path_in(tmp_path).write_bytes(raw)
        found = await memory.overlooked(ONE, await memory.window(ONE, settings, question=None, room=8000))
        return len(found.lines), found.repeats

    assert third in eight
    assert await passed(eight + third) == (0, 1)
    assert await passed(eight + eight) == (0, 8)
    assert await passed(eight + broken + eight) == (1, 8)
    a, b = ours("甲"), write_item(Turn(role=Role.USER, text="乙", id="b", at=AT, n=2, epoch=2))
    reset = write_item(Turn(role=Role.RESET, text="new", id="r", at=AT, n=1, epoch=1))
    assert await passed(a + reset + broken + b + a + reset + b, SETTINGS) == (1, 3)
    assert await passed(a + reset + b + broken + reset, SETTINGS) == (1, 1)


async def test_more_damage_than_any_reader_passes_is_told(memory: Memory, tmp_path: Path) -> None:
    whole = ours("一", "二")
    path_in(tmp_path).write_bytes(whole + b"?" * (3 << 20))
    assert len((await passed_over(memory)).lines) == 1


async def test_no_more_of_a_file_is_looked_through_than_its_window_reads(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bytes_read: list[int] = []
    real = tail.read_range

    def counted(fd: int, length: int, offset: int) -> bytes:
        bytes_read.append(length)
        return real(fd, length, offset)

    monkeypatch.setattr(tail, "read_range", counted)
    whole = ours(*(f"第 {n} 句" for n in range(5000)))
    path_in(tmp_path).write_bytes(b"- : [{ broken\n" + whole)
    assert await passed_over(memory) == Overlooked(), "no window reaches there"
    assert sum(bytes_read) < len(whole) / 4
    at = whole.rindex(b"- user")
    path_in(tmp_path).write_bytes(whole[:at] + b"- : [{ broken\n" + whole[at:])
    assert await passed_over(memory) == Overlooked(lines=(whole[:at].count(b"\n") + 1,))


@given(
    texts=st.lists(st.text(min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=8),
    damage=st.binary(min_size=1, max_size=40),
    data=st.data(),
)
def test_all_of_a_damaged_file_is_read_or_told(texts: list[str], damage: bytes, data: st.DataObject) -> None:
    """Read from the other end, the same is lost."""
    whole = ours(*texts)
    place = data.draw(st.integers(0, len(whole)))
    raw = whole[:place] + damage + whole[place + data.draw(st.integers(0, 20)) :]
    with tempfile.TemporaryFile() as file:
        file.write(raw)
        file.flush()
        found = overlooked(file.fileno(), len(raw))
    lost = [piece.offset if piece.turn is None else piece.end for piece in pieces_forwards(raw) if piece.loses]
    assert found.lines == tuple(raw.count(b"\n", 0, offset) + 1 for offset in lost)
