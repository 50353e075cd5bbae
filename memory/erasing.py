"""Erasing a person from the workspace's files: what is theirs alone goes, what they said in shared groups is replaced."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from memory import archive
from memory.appending import FOLDER, Appender
from memory.archive import SummaryArchive
from memory.conversation import ConversationId, InvalidId, Turn
from memory.errors import typed_errors
from memory.folder import open_file, opened_folder, removed
from memory.generations import Generations
from memory.tail import read_range

TOMBSTONE = "（应本人要求删除）"
"""What stands in a shared group's file where a person who was forgotten said something, or was answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What was removed: numbers of conversation files, archives and kept originals, whether there was a profile.

    `turns` counts what was replaced in the files of shared groups. `touched` are the conversations that Redis may still
    hold something of.
    """

    conversations: int = 0
    summaries: int = 0
    originals: int = 0
    profile: bool = False
    turns: int = 0
    touched: tuple[ConversationId, ...] = ()


class Eraser:
    """Erases persons; thread-safe. Every method blocks and may raise StoreError."""

    def __init__(
        self, workspace: Path, appender: Appender, summaries: SummaryArchive, generations: Generations
    ) -> None:
        self._workspace = workspace
        self._appender = appender
        self._summaries = summaries
        self._generations = generations

    def erase(self, user: str) -> Erased:
        """Removes all files of a person and replaces their turns in shared groups."""
        alone = self._own(user)
        turns, summaries, originals, touched = 0, alone.summaries, alone.originals, list(alone.touched)
        for conversation in self._groups():
            if self._mentions(conversation, user):
                with self._generations.alone(conversation.lane.user):
                    self._generations.forget(str(conversation))
                    kept_aside = (f"quarantine/{conversation.lane.user}", conversation.file_name)
                    originals += len(self._removed(*kept_aside))
                    replaced, dropped = self._silenced(conversation, user)
                    turns, summaries = turns + replaced, summaries + dropped
                    originals += len(self._removed(*kept_aside))  # of a file that a person had edited
                touched.append(conversation)
        return replace(alone, summaries=summaries, originals=originals, turns=turns, touched=tuple(touched))

    def _own(self, user: str) -> Erased:
        with self._generations.alone(user):
            self._generations.forget(user)
            talks = self._removed(FOLDER, user)
            summaries = self._removed(archive.FOLDER, user)
            originals = self._removed("quarantine", user)
            profiles = [*self._removed("users", f"{user}."), *self._removed("users", f".{user}.")]
            self._appender.forget(user)
        touched = dict.fromkeys(_conversations((*talks, *summaries)))
        return Erased(
            conversations=len(list(_conversations(talks))),
            summaries=len(list(_conversations(summaries))),
            originals=len(originals),
            profile=bool(profiles),
            touched=tuple(touched),
        )

    def _removed(self, parent: str, start: str) -> list[str]:
        """Removes what is called `start`, or begins with it where it names files. A user id is never part of another."""
        with typed_errors(f"{parent}/{start}"):
            return removed(self._workspace, parent, lambda name: name.startswith(start))

    def _groups(self) -> Iterator[ConversationId]:
        """The conversations of shared groups."""
        with typed_errors(FOLDER), contextlib.suppress(FileNotFoundError):
            with opened_folder(self._workspace, FOLDER) as folder:
                groups = sorted(name for name in os.listdir(folder) if name.startswith("g"))
            for group in groups:
                with contextlib.suppress(NotADirectoryError), opened_folder(self._workspace, FOLDER, group) as folder:
                    names = sorted(os.listdir(folder))
                    yield from _conversations(f"{group}/{name}" for name in names)

    def _mentions(self, conversation: ConversationId, user: str) -> bool:
        where = opened_folder(self._workspace, FOLDER, conversation.lane.user)
        with typed_errors(FOLDER), contextlib.suppress(FileNotFoundError), where as folder:
            fd = open_file(folder, conversation.file_name, os.O_RDONLY)
            try:
                return user.encode() in read_range(fd, os.fstat(fd).st_size, 0)
            finally:
                os.close(fd)
        return False

    def _silenced(self, conversation: ConversationId, user: str) -> tuple[int, int]:
        """How many turns were replaced, and how many summaries that cover them removed.

        The summaries go first: the turns are the mark by which a repeat after a crash finds this conversation.
        """
        told: list[Turn] = []
        dropped = 0

        def change(turns: list[Turn]) -> list[Turn]:
            nonlocal dropped
            told.clear()
            asked = {name for turn in turns if turn.user == user for name in (turn.id, *turn.ids)}
            theirs = [turn.user == user or turn.to in asked for turn in turns]
            told.extend(turn for turn, of_them in zip(turns, theirs, strict=True) if of_them)
            if told:
                dropped += self._summaries.drop(conversation, told[0].n)
            return [_tombstone(turn) if of_them else turn for turn, of_them in zip(turns, theirs, strict=True)]

        self._appender.rewrite(conversation, change)
        return len(told), dropped


def _tombstone(turn: Turn) -> Turn:
    """Keeps its place, its ids and what it answers, so that nothing else moves."""
    return replace(turn, text=TOMBSTONE, name=None, user=None, tool_calls=(), model=None)


def _conversations(paths: "Iterator[str] | tuple[str, ...] | list[str]") -> Iterator[ConversationId]:
    for path in paths:
        user, _, name = path.partition("/")
        with contextlib.suppress(InvalidId):
            yield ConversationId.of_file(user, name)
