"""SQLite behind one thread: shared commits, each operation undone alone, everything on disk when it returns."""

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.storage import database as module
from gateway.storage.database import Database, DatabaseBroken, DatabaseUnusable
from tests.waiting import until

SCHEMA = "CREATE TABLE IF NOT EXISTS t (v INTEGER UNIQUE)"


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    made = Database(tmp_path / "x.db", SCHEMA)
    await asyncio.to_thread(made.open)
    yield made
    await made.close()


def count_rows(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as other:
        return int(other.execute("SELECT COUNT(*) FROM t").fetchone()[0])


def insert(value: int) -> object:
    return lambda db: db.execute("INSERT INTO t VALUES (?)", (value,))


async def test_one_that_fails_undoes_only_itself(database: Database, tmp_path: Path) -> None:
    def half(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO t VALUES (100)")
        db.execute("INSERT INTO t VALUES (1)")

    results = await asyncio.gather(
        database.run(insert(1)), database.run(half), database.run(insert(2)), return_exceptions=True
    )
    assert isinstance(results[1], sqlite3.IntegrityError)
    rows = await database.run(lambda db: [row[0] for row in db.execute("SELECT v FROM t ORDER BY v")])
    assert rows == [1, 2]
    assert await asyncio.to_thread(count_rows, tmp_path / "x.db") == 2, "another connection sees what has returned"


async def test_what_waits_together_shares_a_commit(database: Database) -> None:
    await asyncio.gather(*(database.run(insert(n)) for n in range(300)))
    count = await database.run(lambda db: db.execute("SELECT COUNT(*) FROM t").fetchone()[0])
    assert count == 300


async def test_a_cancelled_waiter_harms_nobody(database: Database) -> None:
    first = asyncio.ensure_future(database.run(insert(1)))
    second = asyncio.ensure_future(database.run(insert(2)))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert await database.run(lambda db: db.execute("SELECT COUNT(*) FROM t").fetchone()[0]) == 2


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"this is not a database, but long enough to be looked at" * 100)
    with pytest.raises(DatabaseUnusable, match=r"x\.db 不是数据库，或已损坏；请从备份恢复，或把它移走再启动"):
        Database(tmp_path / "x.db", SCHEMA).open()


async def test_damage_that_shows_later_is_told_as_well(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    database = Database(path, SCHEMA)
    await asyncio.to_thread(database.open)
    for n in range(2000):
        await database.run(insert(n))
    await database.close()
    raw = path.read_bytes()
    path.write_bytes(raw[:4096] + b"\xa5" * (len(raw) - 4096))
    database = Database(path, SCHEMA)
    await asyncio.to_thread(database.open)
    with pytest.raises(DatabaseBroken, match=r"x\.db 不是数据库，或已损坏；请从备份恢复"):
        await database.run(insert(-1))
    await until(lambda: "请从备份恢复" in database.trouble)
    await database.close()


async def test_damage_that_only_a_look_meets_is_a_trouble(tmp_path: Path) -> None:
    database = Database(tmp_path / "x.db", SCHEMA)
    await asyncio.to_thread(database.open)

    def look(db: sqlite3.Connection) -> None:
        error = sqlite3.DatabaseError("malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error

    with pytest.raises(DatabaseBroken):
        await database.run(look)
    await until(lambda: "请从备份恢复" in database.trouble)
    await database.close()


async def test_a_copy_without_its_version_is_ours(tmp_path: Path) -> None:
    """As a dump is that was read back, also where somebody had the tables analysed."""
    for name in ("x.db", "y.db"):
        database = Database(tmp_path / name, SCHEMA)
        await asyncio.to_thread(database.open)
        await database.run(lambda db: db.execute("INSERT OR IGNORE INTO t VALUES (1)") and None)
        await database.close()
        with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as other:
            other.execute("ANALYZE")
            other.execute("PRAGMA user_version = 0")
            (tmp_path / "y.db").unlink(missing_ok=True)
            (tmp_path / "y.db").write_bytes((tmp_path / "x.db").read_bytes())


@pytest.mark.parametrize("table", ["CREATE TABLE other (x)", "CREATE TABLE t (x)"])
def test_a_database_of_another_program_is_left_as_it_is(tmp_path: Path, table: str) -> None:
    path = tmp_path / "x.db"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute(table)
    raw = path.read_bytes()
    with pytest.raises(DatabaseUnusable, match=r"x\.db 是别的程序的数据库；请把它移走再启动"):
        Database(path, SCHEMA).open()
    assert path.read_bytes() == raw


async def test_a_database_that_was_just_being_made_is_ours(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as cut:
        cut.execute(SCHEMA)  # the version would have come next
    database = Database(tmp_path / "x.db", SCHEMA)
    await asyncio.to_thread(database.open)
    await database.run(insert(1))
    await database.close()


def test_a_folder_and_a_lock_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUSY_MS", 10)
    (tmp_path / "y.db").mkdir()
    with pytest.raises(DatabaseUnusable, match=r"y\.db 是一个目录；请把它移走再启动"):
        Database(tmp_path / "y.db", SCHEMA).open()
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(DatabaseUnusable, match=r"x\.db 被另一个程序锁住；请关掉它"):
            Database(tmp_path / "x.db", SCHEMA).open()


async def test_what_was_deleted_is_in_no_byte(tmp_path: Path) -> None:
    """Also where SQLite moved rows between pages and left copies of them."""
    schema = "CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v TEXT UNIQUE)"
    database = Database(tmp_path / "x.db", schema, durable=False)
    await asyncio.to_thread(database.open)
    rng = random.Random(7)
    for n in range(400):
        secret = f"独角兽{n:03}" if n % 3 else f"凤凰{n:03}"
        row = (n, secret + "x" * rng.randrange(600))
        await database.run(lambda db, row=row: db.execute("INSERT INTO t VALUES (?, ?)", row) and None)
        if n > 20 and n % 2:
            blanked = (str(n - 15), n - 15)
            await database.run(lambda db, row=blanked: db.execute("UPDATE t SET v = ? WHERE id = ?", row) and None)
    await database.run(lambda db: db.execute("DELETE FROM t WHERE v LIKE '独角兽%'") and None)
    assert await database.empty_log()
    content = b"".join(await asyncio.to_thread(lambda: [path.read_bytes() for path in tmp_path.iterdir()]))
    assert "独角兽".encode() not in content
    assert "凤凰".encode() in content
    await database.close()


async def test_a_file_is_written_anew_once_for_those_who_wait_together_and_not_where_nothing_changed(
    database: Database,
) -> None:
    written: list[str] = []

    def watch(db: sqlite3.Connection) -> None:
        db.set_trace_callback(lambda sql: written.append(sql) if sql == "VACUUM" else None)

    await database.run(watch)
    await database.run(insert(1))
    assert all(await asyncio.gather(*(database.empty_log() for _ in range(5))))
    assert len(written) == 1
    assert await database.empty_log()
    assert len(written) == 1
    await database.run(lambda db: db.execute("DELETE FROM t") and None)
    assert await database.empty_log()
    assert len(written) == 2


async def test_a_file_that_cannot_be_written_anew_is_told(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await database.run(insert(1))
    monkeypatch.setattr("gateway.storage.database._MOST_REWRITTEN", 1)
    assert not await database.empty_log()
    assert "not written anew" in caplog.text
    assert await database.run(lambda db: db.execute("SELECT COUNT(*) FROM t").fetchone()[0]) == 1
