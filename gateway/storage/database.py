"""SQLite behind one thread: operations that wait together share one transaction and one sync to disk."""

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from memory.pace import Pace

log = logging.getLogger("sanqiao.database")

T = TypeVar("T")
_BATCH = 64
_VERSION = 1
_BUSY_MS = 10_000
_BROKEN = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
_MOST_REWRITTEN = 256 << 20
"""Bytes of a file above which it is not written anew: that would keep messages waiting, and be too much for memory."""


@dataclass(slots=True, eq=False)
class _Job:
    work: Callable[[sqlite3.Connection], Any]
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"
    alone: bool = False  # not inside a transaction
    result: Any = None
    error: BaseException | None = None


class DatabaseUnusable(sqlite3.DatabaseError):
    """What stands in the database's place cannot be used; the message (Chinese) names the file and the remedy."""


class DatabaseBroken(DatabaseUnusable):
    """It is no database, or a damaged one: nothing in it can be relied on."""


class Database:
    """One SQLite file. `run` returns when what it did is on disk (WAL, ``synchronous=FULL``).

    An operation that raises undoes only itself. One may be run again when another one raised: it changes nothing but
    the database. Not `durable`: what `run` did outlives the process, but the last of it may be lost with the power.
    """

    def __init__(self, path: Path, schema: str, *, durable: bool = True) -> None:
        self._path = path
        self._schema = schema
        self._durable = durable
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="database", daemon=True)
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._changes = 0
        self._rewritten_at: int | None = None  # as many changes as there were when it was last written anew
        self.trouble = ""
        """Why nothing can be written at the moment (Chinese, for admins); "" while all is well."""

    def open(self) -> None:
        """Opens the file and makes what is missing in it. Blocking; raises sqlite3.Error or OSError."""
        self._thread.start()
        self._started.wait()
        if self._failure:
            raise self._failure

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs `work` on the database's thread and returns its result after the commit; raises what it raised."""
        return await self._do(work, alone=False)

    async def empty_log(self) -> bool:
        """Writes the file anew, so that what was deleted is in no byte of it or of its log; whether it did.

        ``secure_delete`` is not enough: SQLite leaves copies of rows where it moved them between pages. Takes about a
        second for each 100 MiB, and nothing where nothing changed since: those who wait together share one. Another
        process that reads at this moment keeps the log, a full disk the file.
        """
        return await self._do(self._written_anew, alone=True)

    def _written_anew(self, db: sqlite3.Connection) -> bool:
        if self._rewritten_at == db.total_changes:
            return True
        (pages,), (size,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
        try:
            if pages * size > _MOST_REWRITTEN:
                raise sqlite3.OperationalError(f"{pages * size >> 20} MiB are too many")
            db.execute("VACUUM")
        except sqlite3.Error as error:
            log.warning("database not written anew path=%s reason=%s", self._path, error)
            written = False
        else:
            written = True
        done = not db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] and written
        self._rewritten_at = db.total_changes if done else None
        return done

    async def _do(self, work: Callable[[sqlite3.Connection], T], *, alone: bool) -> T:
        loop = asyncio.get_running_loop()
        job = _Job(work, loop, loop.create_future(), alone)
        self._jobs.put(job)
        try:
            result: T = await job.future
        except sqlite3.DatabaseError as error:
            explained = self._explained(error)
            if explained is error:
                raise
            raise explained from error
        return result

    async def close(self) -> None:
        """Ends the thread after all that was asked before, with the write-ahead log emptied into the file."""
        if self._thread.is_alive():
            self._jobs.put(None)
            await asyncio.to_thread(self._thread.join)

    def _serve(self) -> None:
        try:
            connection = self._connect()
        except (sqlite3.Error, OSError) as error:
            locked = _code(error) == sqlite3.SQLITE_BUSY
            told = DatabaseUnusable(f"{self._path} 被另一个程序锁住；请关掉它（例如打开着这个文件的数据库工具）再启动")
            self._failure = told if locked else self._explained(error)
            return
        finally:
            self._started.set()
        with contextlib.closing(connection):
            going_on, pace = True, Pace()
            while going_on:
                batch, going_on = self._next_batch()
                if batch:
                    self._note(connection, _run_batch(connection, [job for job in batch if not job.alone]))
                    _run_alone(connection, [job for job in batch if job.alone])
                pause = pace.pause(len(batch), time.monotonic())
                if pause and going_on and len(batch) < _BATCH:
                    time.sleep(pause)
            with contextlib.suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _explained(self, error: sqlite3.Error | OSError) -> sqlite3.Error | OSError:
        """The error, in the admin's words where the file itself is wrong."""
        if _code(error) not in _BROKEN:
            return error
        told = DatabaseBroken(f"{self._path} 不是数据库，或已损坏；请从备份恢复，或把它移走再启动（会新建一个）")
        told.__cause__ = error
        return told

    def _note(self, connection: sqlite3.Connection, error: sqlite3.Error | None) -> None:
        """What the last batch says of the file: only one that wrote something shows that writing works again."""
        if error is not None:
            if not self.trouble:
                log.error("database cannot write path=%s reason=%s", self._path, error)
            told = self._explained(error)
            self.trouble = str(told) if told is not error else f"{self._path} 无法写入（{error}）；请检查磁盘空间和权限"
        elif self.trouble and connection.total_changes > self._changes:
            log.info("database writes again path=%s", self._path)
            self.trouble = ""
        self._changes = connection.total_changes

    def _connect(self) -> sqlite3.Connection:
        if self._path.is_dir():
            raise DatabaseUnusable(f"{self._path} 是一个目录；请把它移走再启动")
        self._path.touch(mode=0o600)
        connection = sqlite3.connect(self._path, isolation_level=None, cached_statements=256)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Makes it ours. What is of another program or of a newer version is left as it is."""
        connection.row_factory = sqlite3.Row
        connection.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > _VERSION:
            raise DatabaseUnusable(f"{self._path} 由更新的版本写成（{version}）；请用那个版本运行，或换一个工作目录")
        if version < _VERSION and _objects(connection) - _made_by(self._schema):
            raise DatabaseUnusable(f"{self._path} 是别的程序的数据库；请把它移走再启动，或换一个工作目录")
        for pragma in (
            "journal_mode=WAL",
            f"synchronous={'FULL' if self._durable else 'NORMAL'}",
            "secure_delete=ON",
            "temp_store=MEMORY",
        ):
            connection.execute(f"PRAGMA {pragma}")
        connection.executescript(self._schema)
        connection.execute(f"PRAGMA user_version = {_VERSION}")

    def _next_batch(self) -> tuple[list[_Job], bool]:
        """Waits for one job, then takes all that wait with it."""
        batch: list[_Job] = []
        job = self._jobs.get()
        while job is not None:
            batch.append(job)
            if len(batch) == _BATCH:
                return batch, True
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False


def _objects(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    """Tables and indexes, each with how it was made; without those of SQLite itself."""
    made = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT GLOB 'sqlite_*'"
    return set(map(tuple, connection.execute(made)))


def _made_by(schema: str) -> set[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(schema)
        return _objects(empty)


def _is_of_file(error: BaseException | None) -> TypeGuard[sqlite3.DatabaseError]:
    """Whether an error of one job tells of the file, and not of what the job asked for."""
    return isinstance(error, sqlite3.OperationalError) or (error is not None and _code(error) in _BROKEN)


def _code(error: BaseException) -> int:
    """SQLite's code of an error, without what an extended one adds; 0 for any other."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _run_batch(connection: sqlite3.Connection, batch: list[_Job]) -> sqlite3.Error | None:
    """Runs and commits the jobs; returns what kept them from the disk, if anything did."""
    failure: sqlite3.Error | None = None
    try:
        if not _run_together(connection, batch):
            _run_apart(connection, batch)
    except sqlite3.Error as error:  # the disk is full, say: nothing of this batch counts
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        for job in batch:
            job.error = job.error or error
        failure = error
    # A full disk may show at one job's statement already, and that job's savepoint is all that is undone.
    failure = failure or next((job.error for job in batch if _is_of_file(job.error)), None)
    _hand_over(batch)
    return failure


def _run_together(connection: sqlite3.Connection, batch: list[_Job]) -> bool:
    """One transaction without savepoints, each of which costs as much as what it is for; undone if any job raises."""
    connection.execute("BEGIN")
    try:
        for job in batch:
            job.result = job.work(connection)
    except Exception:  # border: whose it is will show when each runs by itself
        with contextlib.suppress(sqlite3.Error):  # some errors have ended the transaction already
            connection.execute("ROLLBACK")
        return False
    connection.execute("COMMIT")
    return True


def _run_apart(connection: sqlite3.Connection, batch: list[_Job]) -> None:
    """One transaction in which a job that raises undoes only itself."""
    connection.execute("BEGIN")
    for job in batch:
        _run_one(connection, job)
    connection.execute("COMMIT")


def _run_alone(connection: sqlite3.Connection, jobs: list[_Job]) -> None:
    for job in jobs:
        try:
            job.result = job.work(connection)
        except Exception as error:  # border of one job: handed to whoever asked
            job.error = error
    _hand_over(jobs)


def _hand_over(batch: list[_Job]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in batch:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(_resolve, jobs)


def _run_one(connection: sqlite3.Connection, job: _Job) -> None:
    connection.execute("SAVEPOINT job")
    try:
        job.result = job.work(connection)
    except Exception as error:  # border of one job: handed to whoever asked
        job.error = error
        connection.execute("ROLLBACK TO job")
    connection.execute("RELEASE job")


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():  # cancelled while it waited
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
