"""Frames: what requests hold beside their conversations, kept once per person; a trace names its own by id."""

import functools
import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from agents.model import ModelRequest, ToolSpec
from memory.window import Window

_SLACK = 3600.0
"""Seconds by which a frame may be in use later than it says."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS frames (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, last REAL NOT NULL, body BLOB NOT NULL   -- deflated JSON
);
CREATE INDEX IF NOT EXISTS frames_owner ON frames (owner);
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it was made, to be kept as ids: the window, the system message without a quoted window."""

    window: Window
    request: ModelRequest
    question: str
    longest: int
    system: str
    history: str
    tools: tuple[ToolSpec, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """What a request holds beside the conversation: the system message (with `history` ``text``: before the quoted
    window), the temperature and the tools that were offered."""

    system: str
    history: str
    temperature: float | None
    tools: tuple[ToolSpec, ...]


def checksum(request: ModelRequest) -> int:
    """CRC-32 over the texts of all messages."""
    texts = "\0".join([each.content for each in request.messages])
    return zlib.crc32(texts.encode("utf-8", "surrogatepass"))


def keep(db: sqlite3.Connection, asked: Asked, owner: str, at: float) -> str:
    """The id of the frame, which is kept once per person."""
    head = f"{owner}\0{asked.history}\0{asked.request.temperature}\0{_tools_json(asked.tools)}\0"
    text = (head + asked.system).encode("utf-8", "surrogatepass")
    id_ = hashlib.blake2b(text, digest_size=12).hexdigest()
    found = db.execute("SELECT last FROM frames WHERE id = ?", (id_,)).fetchone()
    if found is None:
        body = {
            "system": asked.system,
            "history": asked.history,
            "temperature": asked.request.temperature,
            "tools": [(each.name, each.description, each.parameters) for each in asked.tools],
        }
        deflated = zlib.compress(json.dumps(body, separators=(",", ":")).encode(), 1)
        db.execute("INSERT INTO frames (id, owner, last, body) VALUES (?, ?, ?, ?)", (id_, owner, at, deflated))
    elif at - found["last"] > _SLACK:
        db.execute("UPDATE frames SET last = ? WHERE id = ?", (at, id_))
    return id_


@functools.lru_cache(maxsize=64)
def _tools_json(tools: tuple[ToolSpec, ...]) -> str:
    return json.dumps([(each.name, each.description, each.parameters) for each in tools])


def get(db: sqlite3.Connection, id_: str) -> Frame | None:
    """What a request held beside the conversation, while it is kept."""
    row = db.execute("SELECT body FROM frames WHERE id = ?", (id_,)).fetchone()
    if row is None:
        return None
    body = json.loads(zlib.decompress(row["body"]))
    tools = tuple(ToolSpec(*each) for each in body["tools"])
    return Frame(body["system"], body["history"], body["temperature"], tools)


def drop(db: sqlite3.Connection, oldest: float | None) -> None:
    """Deletes those that no trace since `oldest` (unix seconds) can name: all where there is no trace."""
    if oldest is None:
        db.execute("DELETE FROM frames")
    else:
        db.execute("DELETE FROM frames WHERE last < ?", (oldest - 2 * _SLACK,))


def delete(db: sqlite3.Connection, ids: Iterable[str]) -> None:
    """Deletes these."""
    db.executemany("DELETE FROM frames WHERE id = ?", [(each,) for each in ids])


def forget(db: sqlite3.Connection, owners: Iterable[str]) -> None:
    """Deletes those of persons and shared groups."""
    db.executemany("DELETE FROM frames WHERE owner = ?", [(each,) for each in owners])
