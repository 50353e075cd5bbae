"""Repairs of a workspace: what is whole stays as it is, what is not is mended, what is lost is kept and said."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memory.archive import write_summary
from memory.conversation import ConversationId, Role, Turn
from memory.memory import Memory
from memory.mended import Mended, Outcome, report
from memory.summary import Summary
from tests.scenarios.conversation_files import checked, said

AT = "2026-01-05T10:00:00.000+08:00"
ONE = ConversationId.parse("uu3r7qbo6l6i3:feishu:b759cea3338c:0:general-agent")
TWO = ConversationId.parse("uu3r7qbo6l6i3:feishu:b759cea3338c:0:job-recommend-agent")
OTHER = ConversationId.parse("ueyvbddhftr73:web:b759cea3338c:0:general-agent")


def path_in(workspace: Path, conversation: ConversationId = ONE, below: str = "conversations") -> Path:
    return workspace / below / conversation.lane.user / conversation.file_name


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    """With three conversations of four turns."""
    memory = Memory(tmp_path)
    for conversation in (ONE, TWO, OTHER):
        for n in (1, 2):
            question = Turn(role=Role.USER, text=f"问题 {n}\n第二行", id=f"q{n}", at=AT)
            await memory.remember(conversation, [question])
            await memory.remember(
                conversation, [Turn(role=Role.ASSISTANT, text=f"回答 {n}", id=f"q{n}/a", to=f"q{n}", at=AT)]
            )
    yield memory
    await memory.close()


def contents(workspace: Path) -> dict[Path, tuple[bytes, int]]:
    """Every conversation file with its time of change."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in workspace.rglob("chat-*")}


def is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def kept(workspace: Path, mended: Mended) -> bytes:
    return (workspace / mended.kept).read_bytes()


async def mended(memory: Memory) -> dict[str, Mended]:
    """What became of each file that was not sound."""
    return {each.path: each for each in await memory.repair() if each.outcome is not Outcome.SOUND}


async def test_sound_files_stay_as_they_are(memory: Memory, tmp_path: Path) -> None:
    before = contents(tmp_path)
    found = await memory.repair()
    assert [each.outcome for each in found] == [Outcome.SOUND] * 3
    assert not any(each.lost for each in found)
    assert contents(tmp_path) == before
    assert report(found, every=False) == ["检查了 3 个文件：3 个完好，0 个有内容被切去、移走或未能检查"]
    assert not (tmp_path / "quarantine").exists()


@pytest.mark.parametrize("tail", [b"", b"\0" * 700])
@pytest.mark.parametrize("cut", [1, 5, 40, 90])
async def test_a_torn_tail_is_cut_off(memory: Memory, tmp_path: Path, cut: int, tail: bytes) -> None:
    path = path_in(tmp_path)
    raw = path.read_bytes()
    path.write_bytes(raw[:-cut] + tail)
    (found,) = (await mended(memory)).values()
    if cut == 1:  # only the last line feed: an editor may have taken it
        assert (found.outcome, found.lost, found.items) == (Outcome.ADOPTED, False, 4)
    else:
        assert (found.outcome, found.items, found.lost) == (Outcome.TORN, 3, True)
        last = raw.rindex(b"\n- ") + 1
        assert kept(tmp_path, found) == raw[last:-cut] + tail
        assert path.read_bytes() == raw[:last]
    checked(path)
    assert await mended(memory) == {}


async def test_what_a_person_wrote_is_adopted(memory: Memory, tmp_path: Path) -> None:
    path = path_in(tmp_path)
    raw = path.read_bytes().replace("回答 1".encode(), "更好的回答".encode()) + b"- user: |\n    and more\n"
    path.write_bytes(raw)
    (found,) = (await mended(memory)).values()
    assert (found.outcome, found.items, found.lost) == (Outcome.ADOPTED, 5, False)
    assert memory.files().set_aside == 1
    assert kept(tmp_path, found) == raw
    assert [text for _, text in said(path)][1::3] == ["更好的回答", "and more"]
    checked(path)


async def test_what_was_saved_as_gbk_is_told(memory: Memory, tmp_path: Path) -> None:
    path = path_in(tmp_path)
    path.write_bytes(path.read_bytes() + "- user: 我在深圳\n".encode("gbk"))
    (found,) = (await mended(memory)).values()
    assert (found.outcome, found.items, found.not_utf8, found.lost) == (Outcome.ADOPTED, 5, 1, False)
    assert "其中 1 条不是 UTF-8" in str(found)
    assert said(path)[-1][1] == "我在深圳"
    assert await mended(memory) == {}


async def test_a_damaged_middle_costs_no_neighbour(memory: Memory, tmp_path: Path) -> None:
    """Far from the end, where no append ever looks."""
    for n in range(3, 800):
        await memory.remember(ONE, [Turn(role=Role.USER, text=f"问题 {n}", id=f"q{n}", at=AT)])
    path = path_in(tmp_path)
    raw = path.read_bytes()
    second = raw.index(b"\n- ") + 1
    path.write_bytes(raw[:second] + b"- \xff\xfe{{{: [\x00" + raw[second + 12 :])
    (found,) = (await mended(memory)).values()
    assert (found.outcome, found.items, found.unreadable, found.lost) == (Outcome.DAMAGED, 800, 1, True)
    texts = [text for _, text in said(path)]
    assert texts[:2] == ["问题 1\n第二行", "问题 2\n第二行"]
    assert len(texts) == 800
    checked(path)
    assert await mended(memory) == {}


@pytest.mark.parametrize("raw", [b"\0" * 4096, b"just: a mapping\n", b"\xff\xfe\x00rubbish", b"[1, 2"])
async def test_what_nobody_can_read_is_put_aside(memory: Memory, tmp_path: Path, raw: bytes) -> None:
    path = path_in(tmp_path)
    path.write_bytes(raw)
    (found,) = (await mended(memory)).values()
    assert (found.outcome, found.lost) == (Outcome.UNREADABLE, True)
    assert kept(tmp_path, found) == raw
    assert not path.exists()


async def test_an_empty_file_is_no_loss(memory: Memory, tmp_path: Path) -> None:
    path_in(tmp_path).write_bytes(b"")
    assert await mended(memory) == {}


async def test_what_is_no_file_is_moved_aside_and_not_followed(memory: Memory, tmp_path: Path) -> None:
    treasure = tmp_path / "treasure.yaml"
    treasure.write_bytes(b"not yours")
    for conversation, make in ((ONE, Path.mkdir), (TWO, os.mkfifo), (OTHER, lambda path: path.symlink_to(treasure))):
        path = path_in(tmp_path, conversation)
        path.unlink()
        make(path)
    found = await mended(memory)
    assert [each.outcome for each in found.values()] == [Outcome.NO_FILE] * 3
    assert not any(path_in(tmp_path, each).exists() for each in (ONE, TWO, OTHER))
    assert all(is_there(tmp_path / each.kept) for each in found.values())
    assert treasure.read_bytes() == b"not yours"


async def test_a_link_in_a_folder_s_place(memory: Memory, tmp_path: Path) -> None:
    place = path_in(tmp_path).parent
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "conversations" / "notes.txt").write_text("of an admin")
    found = await mended(memory)
    assert list(found) == ["conversations/uu3r7qbo6l6i3"]
    assert found["conversations/uu3r7qbo6l6i3"].outcome is Outcome.NO_FILE
    assert len(list((tmp_path / "elsewhere").iterdir())) == 2
    assert (tmp_path / "conversations" / "notes.txt").exists()


async def test_what_a_kill_left_of_a_rewrite_is_removed(memory: Memory, tmp_path: Path) -> None:
    path = path_in(tmp_path)
    leftover = path.with_name(f".{path.name}.new")
    leftover.write_bytes(path.read_bytes()[:50])
    path.with_name(".an-editor-s.swp").write_bytes(b"x")
    (found,) = (await mended(memory)).values()
    assert (found.outcome, found.lost) == (Outcome.LEFTOVER, False)
    assert not leftover.exists()
    assert path.with_name(".an-editor-s.swp").exists()


async def test_a_file_that_cannot_be_opened_is_told_of(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are mended all the same."""
    path_in(tmp_path, OTHER).write_bytes(path_in(tmp_path, OTHER).read_bytes()[:-5])
    real = os.open

    def opened(path: object, *args: object, **more: object) -> int:
        if path == ONE.file_name:
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("memory.folder.os.open", opened)
    outcomes = {path: each.outcome for path, each in (await mended(memory)).items()}
    assert outcomes == {
        f"conversations/{ONE.lane.user}/{ONE.file_name}": Outcome.FAILED,
        f"conversations/{OTHER.lane.user}/{OTHER.file_name}": Outcome.TORN,
    }


async def test_only_what_is_named(memory: Memory, tmp_path: Path) -> None:
    for conversation in (ONE, TWO):
        path_in(tmp_path, conversation).write_bytes(path_in(tmp_path, conversation).read_bytes()[:-5])
    missing = ConversationId.parse("uaaaaaaaaaaaa:web:b759cea3338c:0:general-agent")
    found = await memory.repair([TWO, missing])
    assert [each.outcome for each in found] == [Outcome.TORN, Outcome.MISSING]
    assert not path_in(tmp_path, missing).parent.exists()
    assert [each.outcome for each in await memory.repair([ONE])] == [Outcome.TORN]


# ---- archives


def archive(workspace: Path, count: int = 3) -> tuple[Path, list[bytes]]:
    path = path_in(workspace, ONE, "archives")
    path.parent.mkdir(parents=True)
    items = [
        write_summary(Summary(text=f"摘要 {n}\n- 要点", id=f"s-0-{n}", epoch=0, through=n, at=AT)) for n in range(count)
    ]
    path.write_bytes(b"".join(items))
    return path, items


async def test_a_sound_archive(memory: Memory, tmp_path: Path) -> None:
    path, items = archive(tmp_path)
    assert await mended(memory) == {}
    path.write_bytes(b"".join(items).removesuffix(b"\n"))
    assert await mended(memory) == {}


async def test_a_torn_archive(memory: Memory, tmp_path: Path) -> None:
    path, items = archive(tmp_path)
    path.write_bytes(b"".join(items)[:-9])
    (found,) = (await mended(memory)).values()
    assert (found.outcome, found.items, found.lost) == (Outcome.TORN, 2, True)
    assert found.cut == len(items[2]) - 9
    assert path.read_bytes() == b"".join(items[:2])


async def test_a_damaged_archive(memory: Memory, tmp_path: Path) -> None:
    path, items = archive(tmp_path)
    raw = items[0] + items[1].replace("要点".encode(), "改了".encode()) + items[2]
    path.write_bytes(raw)
    (found,) = (await mended(memory)).values()
    assert (found.outcome, found.items, found.unreadable) == (Outcome.DAMAGED, 2, 1)
    assert path.read_bytes() == items[0] + items[2]
    assert kept(tmp_path, found) == raw


async def test_an_archive_of_rubbish(memory: Memory, tmp_path: Path) -> None:
    path, _ = archive(tmp_path)
    path.write_bytes(b"rubbish")
    (found,) = (await mended(memory)).values()
    assert found.outcome is Outcome.UNREADABLE
    assert not path.exists()


# ---- what is said


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_is_told_in_one_line(outcome: Outcome) -> None:
    line = str(Mended(path="conversations/u/chat.yaml", outcome=outcome, kept="quarantine/u/x", error="没有权限"))
    assert line.startswith("conversations/u/chat.yaml：")
    assert "\n" not in line
