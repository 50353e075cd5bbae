"""What is counted of a person's day, and what stays of it when they are forgotten."""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.storage import token_use
from gateway.storage.token_use import Spent, add, forget, purge, used

TODAY, BEFORE = "2026-11-30", "2026-11-29"


def at(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() + 12 * 3600


def opened() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.executescript(token_use.SCHEMA)
    return db


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    made = opened()
    yield made
    made.close()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([TODAY, BEFORE]), st.integers(0, 10**9))))
def test_each_day_of_each_person_is_counted_alone(spent: list[tuple[str, str, int]]) -> None:
    db = opened()
    for user, day, tokens in spent:
        add(db, Spent(user, day, tokens, 1))
    for user in "abc":
        for day in (TODAY, BEFORE):
            assert used(db, [user], day) == sum(n + 1 for who, when, n in spent if (who, when) == (user, day))
    db.close()


def test_a_forgotten_person_is_in_no_row_and_gets_nothing_anew(db: sqlite3.Connection) -> None:
    for day, tokens in ((BEFORE, 5), (TODAY, 7)):
        add(db, Spent("u1", day, tokens, 0))
    add(db, Spent("u2", TODAY, 1, 0))
    forget(db, "u1")
    assert "u1" not in str(db.execute("SELECT * FROM token_use").fetchall())
    assert (used(db, ["u1"], TODAY), used(db, ["u1"], BEFORE), used(db, ["u2"], TODAY)) == (7, 0, 1)
    assert used(db, ["u1", "u2"], TODAY) == 8, "accounts of one person count together"
    add(db, Spent("u1", TODAY, 2, 1))
    forget(db, "u1")
    assert used(db, ["u1"], TODAY) == 10, "and so the second time"
    forget(db, "u3")


def test_days_go_after_a_month_and_those_of_the_forgotten_at_once(db: sqlite3.Connection) -> None:
    for user in ("u1", "u2"):
        add(db, Spent(user, TODAY, 7, 0))
    forget(db, "u1")
    purge(db, at(TODAY))
    assert used(db, ["u1"], TODAY) == 7
    purge(db, at("2026-12-02"))
    assert (used(db, ["u1"], TODAY), used(db, ["u2"], TODAY)) == (0, 7)
    purge(db, at("2027-01-02"))
    assert used(db, ["u2"], TODAY) == 0
