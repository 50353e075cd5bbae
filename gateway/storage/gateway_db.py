"""``gateway.db``: the database with all its tables."""

from pathlib import Path

from gateway.storage import conversation_index, inbox, owed_turns
from gateway.storage.database import Database


def gateway_db(workspace: Path) -> Database:
    """The database of a workspace, not opened yet."""
    schema = inbox.SCHEMA + conversation_index.SCHEMA + owed_turns.SCHEMA
    return Database(workspace / "gateway.db", schema)
