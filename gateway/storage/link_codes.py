"""Codes by which one person links two accounts: each works once, for ten minutes; gateway.db holds only their hashes."""

import hashlib
import secrets
import sqlite3
import unicodedata
from collections.abc import Callable

from gateway.storage.database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS link_codes (
    code BLOB PRIMARY KEY,           -- its hash
    user TEXT NOT NULL UNIQUE,       -- who was given it; a newer one takes its place
    until REAL NOT NULL,
    used INTEGER                     -- seq of the message that used it: run again after a crash, it may once more
) WITHOUT ROWID;
"""

SECONDS = 600.0
"""How long a code works."""

_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
_LENGTH = 10  # 49 bits
_HALF = _LENGTH // 2


class LinkCodes:
    """All reads and writes of codes; times are unix seconds. `choose` picks a character: unpredictable, but in tests."""

    def __init__(self, database: Database, choose: Callable[[str], str] = secrets.choice) -> None:
        self._database = database
        self._choose = choose

    async def make(self, user: str, now: float) -> str:
        """A new code of this account, in the form in which people are shown it; an older one works no more."""
        code = "".join(self._choose(_ALPHABET) for _ in range(_LENGTH))
        row = (_hash(code), user, now + SECONDS)

        def work(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM link_codes WHERE until <= ?", (now,))
            db.execute("INSERT OR REPLACE INTO link_codes (code, user, until) VALUES (?, ?, ?)", row)

        await self._database.run(work)
        return f"{code[:_HALF]}-{code[_HALF:]}"

    async def owner(self, written: str, seq: int, now: float) -> str | None:
        """Whose code this is, as the message `seq` may use it; None for one that is none, too old, or used."""
        hashed = _read(written)

        def work(db: sqlite3.Connection) -> str | None:
            row = db.execute(
                "SELECT user FROM link_codes WHERE code = ? AND until > ? AND (used IS NULL OR used = ?)",
                (hashed, now, seq),
            ).fetchone()
            return str(row["user"]) if row else None

        return await self._database.run(work) if hashed else None

    async def use(self, written: str, seq: int) -> None:
        """Nobody but the message `seq` can use this code any more."""
        hashed = _read(written)
        await self._database.run(
            lambda db: db.execute("UPDATE link_codes SET used = ? WHERE code = ?", (seq, hashed)) and None
        )

    async def revoke(self, written: str) -> None:
        """Nobody can use this code any more, if it is one."""
        hashed = _read(written)
        if hashed:
            await self._database.run(lambda db: db.execute("DELETE FROM link_codes WHERE code = ?", (hashed,)) and None)


def forget(db: sqlite3.Connection, user: str) -> None:
    """Deletes the code of a person."""
    db.execute("DELETE FROM link_codes WHERE user = ?", (user,))


def _read(written: str) -> bytes | None:
    """The hash of what a person wrote as a code, in whatever case, width and grouping; None where it can be none."""
    folded = unicodedata.normalize("NFKC", written[: 4 * _LENGTH]).upper()
    code = "".join(each for each in folded if each.isalnum())
    return _hash(code) if len(code) == _LENGTH else None


def _hash(code: str) -> bytes:
    return hashlib.sha256(code.encode("utf-8", "replace")).digest()
