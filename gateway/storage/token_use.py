"""How many tokens each person's answers took on each day, in gateway.db: what `limits.tokens-per-day` is held against."""

import hashlib
import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SCHEMA = """
CREATE TABLE IF NOT EXISTS token_use (
    person TEXT NOT NULL,            -- the account's id; a hash of it and the day once it was forgotten
    day TEXT NOT NULL,               -- of the configured zone, as 2026-11-30
    prompt INTEGER NOT NULL, completion INTEGER NOT NULL,
    PRIMARY KEY (person, day)
) WITHOUT ROWID;
"""

_KEPT = timedelta(days=31)


@dataclass(frozen=True, slots=True)
class Spent:
    """What one answer took, or the attempt at one, as the model's server counted it, or by estimate where it told nothing."""

    user: str
    day: str
    prompt: int
    completion: int


@dataclass(slots=True)
class Meter:
    """What one answer has taken so far, whatever becomes of it."""

    prompt: int = 0
    completion: int = 0

    def add(self, prompt: int, completion: int) -> None:
        """Counts one request and what was answered."""
        self.prompt += prompt
        self.completion += completion

    def spent(self, user: str, day: str) -> Spent | None:
        """All of it as this person's of that day; None where nothing was taken."""
        return Spent(user, day, self.prompt, self.completion) if self.prompt or self.completion else None


def add(db: sqlite3.Connection, spent: Spent) -> None:
    """Counts it."""
    db.execute(
        "INSERT INTO token_use (person, day, prompt, completion) VALUES (?, ?, ?, ?) ON CONFLICT (person, day)"
        " DO UPDATE SET prompt = prompt + excluded.prompt, completion = completion + excluded.completion",
        (spent.user, spent.day, spent.prompt, spent.completion),
    )


def used(db: sqlite3.Connection, accounts: Iterable[str], day: str) -> int:
    """All tokens of a person's day, on all their accounts, also of before they were forgotten."""
    sql = "SELECT prompt + completion FROM token_use WHERE day = ? AND person = ?"
    names = [name for each in accounts for name in (each, _alias(each, day))]
    return sum(row[0] for name in names for row in db.execute(sql, (day, name)))


def forget(db: sqlite3.Connection, user: str) -> None:
    """Deletes a person's days. The newest one stays under a hash until it is purged: who has nothing left of today gets
    nothing anew by being forgotten."""
    row = db.execute("SELECT MAX(day) FROM token_use WHERE person = ?", (user,)).fetchone()
    if row[0] is not None:
        prompt, completion = db.execute(
            "SELECT prompt, completion FROM token_use WHERE person = ? AND day = ?", (user, row[0])
        ).fetchone()
        db.execute("DELETE FROM token_use WHERE person = ?", (user,))
        add(db, Spent(_alias(user, row[0]), row[0], prompt, completion))


def purge(db: sqlite3.Connection, now: float) -> None:
    """Deletes the days that are older than a month, and of those that were forgotten all that are over. Unix seconds."""
    at = datetime.fromtimestamp(now, UTC)
    db.execute("DELETE FROM token_use WHERE day < ?", ((at - _KEPT).date().isoformat(),))
    # Somewhere it is still the day before yesterday's successor: no zone is a whole day behind UTC.
    db.execute(
        "DELETE FROM token_use WHERE person LIKE '-%' AND day < ?", ((at - timedelta(days=1)).date().isoformat(),)
    )


def _alias(user: str, day: str) -> str:
    """Whose a forgotten person's tokens of one day are: of no use for any other day, or beside anything else."""
    digest = hashlib.sha256(json.dumps(["token-use", user, day]).encode()).hexdigest()
    return f"-{digest[:24]}"
