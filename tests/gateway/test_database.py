"""SQLite behind one thread: shared commits, each operation undone alone, everything on disk when it returns."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.database import Database

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
    with pytest.raises(sqlite3.DatabaseError):
        Database(tmp_path / "x.db", SCHEMA).open()
