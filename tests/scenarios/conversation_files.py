"""Conversation files as any other program reads them: with PyYAML alone, and the form the contract fixes."""

import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Item:
    """One item of a file."""

    role: str
    text: str
    fields: dict[str, Any]
    meta: dict[str, Any]


def items_of(path: Path) -> list[Item]:
    """Every item by a full parse with PyYAML. Blocking."""
    found = []
    for fields in yaml.load(path.read_bytes().decode("utf-8"), yaml.CSafeLoader) or []:
        role, text = next(iter(fields.items()))
        found.append(Item(role, text, fields, fields.get("meta") or {}))
    return found


def said(path: Path) -> list[tuple[str, str]]:
    """(role, text) of every item."""
    return [(item.role, item.text) for item in items_of(path)]


def checked(path: Path) -> list[Item]:
    """Every item, after all that the contract says of a file with one writer was asserted."""
    raw = path.read_bytes()
    assert raw.startswith(b"- ")
    assert raw.endswith(b"\n")
    assert b"\r" not in raw
    pieces = re.split(rb"(?m)^(?=- )", raw)[1:]
    for piece in pieces:
        seal = re.search(rb', "crc": "([0-9a-f]{8})"\}\n\Z', piece)
        assert seal, piece[-200:]
        assert piece[: seal.start()].rpartition(b"\n")[2].startswith(b"  meta: {"), piece[-200:]
        assert b"%08x" % zlib.crc32(piece[: seal.start()] + b"}\n") == seal[1], piece[-200:]
    items = items_of(path)
    assert len(items) == len(pieces)
    epoch, ids = 0, set()
    for n, item in enumerate(items):
        epoch += item.role == "reset"
        assert isinstance(item.text, str), item
        assert (item.meta["n"], item.meta["epoch"]) == (n, epoch), item.meta
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", item.meta["at"]), item.meta
        own = {item.meta["id"], *item.meta.get("ids", ())}
        assert not own & ids, f"an id stands twice: {item.meta}"
        assert item.role not in ("assistant", "tool") or item.meta["to"] in ids, item.meta
        ids |= own
    return items
