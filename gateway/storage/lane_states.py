"""What lanes remember of their agents: kept in the inbox's database, the newest at hand."""

import sqlite3
from collections import OrderedDict

from gateway.route import LaneState
from gateway.storage.database import Database
from memory.conversation import LaneKey

_AT_HAND = 5_000

SCHEMA = """
CREATE TABLE IF NOT EXISTS lanes (
    lane TEXT PRIMARY KEY, agent TEXT NOT NULL, agent_at REAL NOT NULL, pinned INTEGER NOT NULL
) WITHOUT ROWID;
"""


class LaneStates:
    """Reads through to the database; a lane's own worker and its commands are the only writers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: OrderedDict[LaneKey, LaneState] = OrderedDict()

    async def get(self, lane: LaneKey) -> LaneState:
        """What the lane remembers; an empty state for a new one."""
        state = self._known.get(lane)
        if state is None:
            state = await self._database.run(lambda db: _read(db, str(lane)))
            self.keep(lane, state)
        return state

    async def set(self, lane: LaneKey, state: LaneState) -> None:
        """Replaces what the lane remembers, on disk and at hand."""
        await self._database.run(lambda db: write(db, str(lane), state))
        self.keep(lane, state)

    def forget(self, user: str) -> None:
        """Drops what is at hand of a person's lanes; the inbox drops its own."""
        for lane in [lane for lane in self._known if lane.user == user]:
            del self._known[lane]

    def keep(self, lane: LaneKey, state: LaneState) -> None:
        """Takes over a state that is already on disk."""
        self._known[lane] = state
        self._known.move_to_end(lane)
        while len(self._known) > _AT_HAND:
            self._known.popitem(last=False)


def _read(db: sqlite3.Connection, lane: str) -> LaneState:
    row = db.execute("SELECT agent, agent_at, pinned FROM lanes WHERE lane = ?", (lane,)).fetchone()
    return LaneState(row["agent"], row["agent_at"], bool(row["pinned"])) if row else LaneState()


def write(db: sqlite3.Connection, lane: str, state: LaneState) -> None:
    """Replaces what a lane remembers on disk."""
    db.execute(
        "INSERT OR REPLACE INTO lanes (lane, agent, agent_at, pinned) VALUES (?, ?, ?, ?)",
        (lane, state.agent, state.at, int(state.pinned)),
    )


def forget(db: sqlite3.Connection, user: str) -> None:
    """Deletes what a person's lanes remember."""
    db.execute("DELETE FROM lanes WHERE lane >= ? AND lane < ?", (f"{user}:", f"{user};"))
