"""kill -9 during appends, summaries and repairs, with a person who writes into the files in between.

What was said to be stored is there, once and in order, and each file says the same to PyYAML, to ruamel.yaml and to us.
`ROUNDS` sets the number of kills, `SEED` repeats a run; both are printed.
"""

import asyncio
import collections
import contextlib
import multiprocessing
import os
import random
import time
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from ruamel.yaml import YAML

from memory import archive
from memory.archive import read_summary
from memory.conversation import ConversationId
from memory.memory import Memory
from memory.mended import Mended, Outcome
from memory.sanitise import storable
from memory.store import ConversationStore
from memory.yamlform import sealed, split
from tests.faults.keeping_loop import CONVERSATIONS, keep_until_killed

ROUNDS = int(os.environ.get("ROUNDS", "20"))
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
CHAPTER = 20
"""Rounds on one workspace; then all of it is checked and the next one begins, so that files stay small."""


@dataclass
class Told:
    """What the processes of one chapter said."""

    stored: dict[str, list[str]] = field(default_factory=lambda: collections.defaultdict(list))
    written: list[str] = field(default_factory=list)  # by hand
    torn: int = 0

    def take(self, what: str, id: str) -> None:
        assert what != "waiting", id
        self.stored[what].append(id)


def path_of(workspace: Path, conversation: ConversationId, below: str = "conversations") -> Path:
    return workspace / below / conversation.lane.user / conversation.file_name


def live_and_die(workspace: Path, prefix: str, rng: random.Random, told: Told) -> None:
    """One process from its start to its end."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.faults.keeping_loop"])
    receiving, telling = processes.Pipe(duplex=False)
    arguments = (workspace, prefix, rng.randrange(10**9), telling)
    process = processes.Process(target=keep_until_killed, args=arguments, daemon=True)
    process.start()
    telling.close()
    told.take(*receiving.recv())
    time.sleep(rng.random() * 0.06)
    process.kill()
    with contextlib.suppress(EOFError):
        while True:
            told.take(*receiving.recv())
    process.join()
    receiving.close()
    process.close()


def a_person_writes(workspace: Path, rng: random.Random, told: Told) -> None:
    """Adds a line to a file, or changes one for another as long, where its end is whole; counts what is torn."""
    for conversation in CONVERSATIONS:
        path = path_of(workspace, conversation)
        pieces = list(split(path.read_bytes())) if path.exists() else []
        if not pieces:
            continue
        if sealed(pieces[-1][1]) != len(pieces[-1][1]):
            told.torn += 1
        elif rng.random() < 0.3:
            text = f"手写 {len(told.written)}"
            told.written.append(text)
            with path.open("ab") as file:
                file.write(f"- user: |\n    {text}\n".encode())


@pytest.mark.timeout(120 + 3 * ROUNDS)
def test_kills_of_everything_that_writes(tmp_path: Path) -> None:
    print(f"SEED={SEED} ROUNDS={ROUNDS}")
    rng = random.Random(SEED)
    counts: collections.Counter[str] = collections.Counter()
    for first in range(0, ROUNDS, CHAPTER):
        workspace = tmp_path / f"workspace-{first}"
        told = Told()
        for round_ in range(first, min(first + CHAPTER, ROUNDS)):
            live_and_die(workspace, f"r{round_}", rng, told)
            a_person_writes(workspace, rng, told)
        check(workspace, told, counts)
    print(", ".join(f"{number} {what}" for what, number in sorted(counts.items())))
    assert counts["turns acknowledged"] > ROUNDS


def check(workspace: Path, told: Told, counts: "collections.Counter[str]") -> None:
    """After one repair all is as it was said to be."""
    for mended in repaired(workspace):
        assert mended.outcome in (Outcome.SOUND, Outcome.TORN, Outcome.ADOPTED, Outcome.LEFTOVER), str(mended)
    assert [each.outcome for each in repaired(workspace) if each.outcome is not Outcome.SOUND] == []
    assert list(workspace.rglob(".*.new")) == []
    texts: collections.Counter[str] = collections.Counter()
    for conversation in CONVERSATIONS:
        stored = told.stored[str(conversation)]
        items = same_to_all(path_of(workspace, conversation))
        ids = [item["meta"]["id"] for item in items]
        assert [item["meta"]["n"] for item in items] == list(range(len(items)))
        assert [each for each in ids if each in set(stored)] == stored, "acknowledged: none lost, each once, in order"
        texts.update(str(next(iter(item.values()))) for item in items)
        counts["turns acknowledged"] += len(stored)
        counts["turns in files"] += len(items)
    assert [text for text in told.written if texts[text] != 1] == []
    versions = same_archive(path_of(workspace, CONVERSATIONS[0], archive.FOLDER))
    assert [each for each in versions if each in set(told.stored["summary"])] == told.stored["summary"]
    counts["summaries acknowledged"] += len(told.stored["summary"])
    counts["written by hand"] += len(told.written)
    counts["torn tails"] += told.torn


def repaired(workspace: Path) -> list[Mended]:
    async def repair() -> list[Mended]:
        memory = Memory(workspace)
        try:
            return await memory.repair()
        finally:
            await memory.close()

    return asyncio.run(repair())


def loaded(raw: bytes) -> list[dict[str, Any]]:
    """What two other readers make of a file: the same."""
    items: list[dict[str, Any]] = yaml.load(raw.decode("utf-8"), yaml.CSafeLoader) or []
    assert YAML(typ="safe", pure=True).load(BytesIO(raw)) == (items or None)
    return items


def same_to_all(path: Path) -> list[dict[str, Any]]:
    """The items of a conversation file as three readers see them."""
    items = loaded(path.read_bytes())
    store = ConversationStore(path.parent.parent.parent)
    turns = store.full(ConversationId.of_file(path.parent.name, path.name))
    assert [(turn.role.value, turn.text, turn.id, turn.n) for turn in turns] == [
        (*next(iter(item.items())), item["meta"]["id"], item["meta"]["n"]) for item in items
    ]
    for turn, item in zip(turns, items, strict=True):
        assert (turn.to, turn.at, turn.name) == (item["meta"].get("to"), item["meta"]["at"], item.get("name"))
        assert turn.text == storable(turn.text)
    return items


def same_archive(path: Path) -> list[str]:
    """The ids of an archive's versions, of which three readers say the same."""
    if not path.exists():
        return []
    raw = path.read_bytes()
    items = loaded(raw)
    versions = [version for _, piece in split(raw) if (version := read_summary(piece)) is not None]
    assert [(v.text, v.id, v.through) for v in versions] == [
        (item["summary"], item["meta"]["id"], item["meta"]["through"]) for item in items
    ]
    return [version.id for version in versions]
