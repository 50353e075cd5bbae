"""Archives on a real disk: what is appended is read from the end, and damage costs a version, never an answer."""

import asyncio
import stat
from pathlib import Path

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given

from memory.archive import SummaryArchive, read_summary, write_summary
from memory.errors import StoreUnavailable
from memory.summary import Summary
from memory.yamlform import split
from tests.memory.pool import AT, CONVERSATION, TEXTS, examples


def version(through: int, *, epoch: int = 0, text: str = "", id: str = "") -> Summary:
    name = id or f"s-{epoch}-{through}"
    return Summary(text=text or f"到 {through}", id=name, epoch=epoch, through=through, at=AT, model="m")


def path_in(workspace: Path) -> Path:
    return workspace / "archives" / CONVERSATION.lane.user / CONVERSATION.file_name


@pytest.fixture
def archive(tmp_path: Path) -> SummaryArchive:
    return SummaryArchive(tmp_path, sync=False)


def fill(archive: SummaryArchive, *versions: Summary) -> None:
    for each in versions:
        assert archive.append(CONVERSATION, each, after=archive.last_id(CONVERSATION))


def through(archive: SummaryArchive, first: int | None, epoch: int = 0, newest: int | None = None) -> int | None:
    found = archive.summary_for(CONVERSATION, first, epoch, newest=newest)
    return found.through if found else None


def quarantine(workspace: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((workspace / "quarantine").rglob("*")) if path.is_file()]


# ---- the form


def test_the_form_is_the_contract_s(archive: SummaryArchive, tmp_path: Path) -> None:
    fill(archive, version(29, text="用户叫张三\n想去上海"), version(39))
    raw = path_in(tmp_path).read_bytes()
    assert raw.startswith(
        "- summary: |-\n    用户叫张三\n    想去上海\n"
        '  meta: {"id": "s-0-29", "epoch": 0, "through": 29, "at": "2026-11-30T18:10:05.123+08:00", "model": "m", '
        '"crc": "'.encode()
    )
    items = yaml.load(raw.decode(), yaml.CSafeLoader)
    assert [list(item) for item in items] == [["summary", "meta"]] * 2
    assert list(items[0]["meta"]) == ["id", "epoch", "through", "at", "model", "crc"]
    assert stat.S_IMODE(path_in(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(path_in(tmp_path).parent.stat().st_mode) == 0o700


@given(text=TEXTS, epoch=st.integers(0, 10**6), upto=st.integers(-1, 10**9))
@examples(200)
def test_what_is_written_is_read(text: str, epoch: int, upto: int) -> None:
    written = version(upto, epoch=epoch, text=text or "x")
    raw = write_summary(written)
    assert read_summary(raw) == written
    assert len(list(split(raw))) == 1
    assert yaml.load(raw.decode(), yaml.CSafeLoader)[0]["summary"] == written.text


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"- summary: x\n",
        write_summary(version(1)).replace(b"|-", b"|"),
        write_summary(version(1)).replace(b'"through": 1', b'"through": "1"'),
        write_summary(version(1))[:-3],
    ],
)
def test_what_is_not_whole_is_no_version(raw: bytes) -> None:
    assert read_summary(raw) is None


def test_half_characters_are_replaced(archive: SummaryArchive) -> None:
    fill(archive, version(1, text="半\ud83d个"))
    found = archive.summary_for(CONVERSATION, None, 0)
    assert found is not None
    assert found.text == "半\ufffd个"


# ---- which version


def test_the_earliest_that_reaches_the_window_else_the_latest(archive: SummaryArchive) -> None:
    assert through(archive, 5) is None
    fill(archive, version(9), version(19), version(29))
    for first, found in ((0, 9), (10, 9), (11, 19), (20, 19), (21, 29), (30, 29), (31, 29), (99, 29), (None, 29)):
        assert through(archive, first) == found, first


def test_another_epoch_s_versions_are_not_used(archive: SummaryArchive) -> None:
    fill(archive, version(9), version(19))
    assert through(archive, 5, epoch=1) is None
    fill(archive, version(29, epoch=1), version(39, epoch=1))
    assert [through(archive, first, epoch=1) for first in (5, 31, 99)] == [29, 39, 39]
    assert through(archive, 5, epoch=0) == 9
    assert through(archive, 5, epoch=2) is None


def test_versions_of_a_file_that_was_shortened_since_are_passed_over(archive: SummaryArchive) -> None:
    fill(archive, version(9), version(59))
    assert through(archive, 30, newest=40) == 9
    fill(archive, version(31, id="after the person"))
    assert through(archive, 20, newest=90) == 31, "59 speaks of another file"
    assert through(archive, 5, newest=90) == 31


# ---- appending


def test_only_what_nothing_has_overtaken_is_appended(archive: SummaryArchive, tmp_path: Path) -> None:
    assert not archive.append(CONVERSATION, version(9), after="gone"), "the archive was taken away"
    assert not path_in(tmp_path).exists()
    assert archive.append(CONVERSATION, version(9), after=None)
    assert not archive.append(CONVERSATION, version(19, id="second writer"), after=None)
    assert archive.append(CONVERSATION, version(19), after="s-0-9")
    assert [item["meta"]["through"] for item in yaml.safe_load(path_in(tmp_path).read_bytes())] == [9, 19]


async def test_of_many_writers_one_wins(tmp_path: Path) -> None:
    def write(number: int) -> bool:
        return SummaryArchive(tmp_path, sync=False).append(CONVERSATION, version(number), after=None)

    won = await asyncio.gather(*(asyncio.to_thread(write, number) for number in range(8)))
    assert won.count(True) == 1
    raw = await asyncio.to_thread(path_in(tmp_path).read_bytes)
    assert len(list(split(raw))) == 1


def test_an_archive_cut_at_any_byte(archive: SummaryArchive, tmp_path: Path) -> None:
    whole = [write_summary(version(n, text=f"第一行 {n}\n\n - 第二行")) for n in (9, 19)]
    raw, path = b"".join(whole), path_in(tmp_path)
    for cut in range(len(raw)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw[:cut])
        kept = 0 if cut < len(whole[0]) - 1 else 1 if cut < len(raw) - 1 else 2  # a line feed alone may be missing
        expected = [None, 9, 19][kept]
        assert through(archive, None) == expected, cut
        fill(archive, version(29))
        assert through(archive, None) == 29
        found = [read_summary(item) for _, item in split(path.read_bytes())]
        assert [each.through for each in found if each] == [*[9, 19][:kept], 29], cut
        assert len(yaml.load(path.read_text(), yaml.CSafeLoader)) == kept + 1, cut


@pytest.mark.parametrize(
    "tail", [b"\0" * 4096, b"- summary: |-\n    half", b"- summary: changed\n  meta: {}\n", b"\xff\xfe"]
)
def test_what_follows_the_last_whole_item_is_kept_aside(archive: SummaryArchive, tmp_path: Path, tail: bytes) -> None:
    fill(archive, version(9))
    path = path_in(tmp_path)
    path.write_bytes(path.read_bytes() + tail)
    assert through(archive, None) == 9
    fill(archive, version(19))
    assert path.read_bytes() == write_summary(version(9)) + write_summary(version(19))
    assert quarantine(tmp_path) == ([tail] if tail.strip(b"\0") else [])


def test_a_damaged_item_in_the_middle_is_passed_over(archive: SummaryArchive, tmp_path: Path) -> None:
    fill(archive, version(9), version(19), version(29))
    path = path_in(tmp_path)
    path.write_bytes(path.read_bytes().replace("到 19".encode(), "到 18".encode()))
    assert [through(archive, first) for first in (1, 15, 99)] == [9, 29, 29]


def test_an_archive_that_can_not_be_read_is_none(
    archive: SummaryArchive, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path_in(tmp_path).mkdir(parents=True)
    assert through(archive, 5) is None
    assert "archive_not_read" in caplog.text
    with pytest.raises(StoreUnavailable, match=CONVERSATION.file_name):
        archive.append(CONVERSATION, version(9), after=None)
    path_in(tmp_path).rmdir()
    path_in(tmp_path).symlink_to(tmp_path / "elsewhere")
    assert through(archive, 5) is None


def test_reading_costs_no_more_in_a_long_archive(archive: SummaryArchive, tmp_path: Path) -> None:
    path = path_in(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(write_summary(version(10 * n, text="摘要" * 500)) for n in range(2000)))
    with archive.versions(CONVERSATION, 0) as versions:
        assert next(versions).through == 19990
    assert through(archive, 19900) == 19900
    assert path.stat().st_size > 5 << 20
