"""Erasing a person from the workspace's files: what is theirs alone goes, what they said in shared groups is replaced."""

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from memory import archive
from memory.appending import Appender
from memory.archive import SummaryArchive
from memory.conversation import ConversationId, InvalidId, Turn
from memory.conversation_file import FOLDER, path_of
from memory.errors import StoreError, typed_errors
from memory.folder import QUARANTINE, holds, opened_folder, removed
from memory.generations import Generations

log = logging.getLogger("sanqiao.memory")

COPIES = (FOLDER, archive.FOLDER, QUARANTINE)
"""Where copies of a shared group's files may be."""
REMOVED = "（已删除）"
"""What stands where a single question was forgotten, and what answered it."""
TOMBSTONE = "（应本人要求删除）"
"""What stands in a shared group's file where a person who was forgotten said something, or was answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What was removed: numbers of conversation files, archives and kept originals, whether there was a profile.

    `turns` counts what was replaced in the files of shared groups. `touched` are the conversations that Redis may still
    hold something of. `failure` is why a group's files could not be changed; the other groups' were.
    """

    conversations: int = 0
    summaries: int = 0
    originals: int = 0
    profile: bool = False
    turns: int = 0
    touched: tuple[ConversationId, ...] = ()
    failure: StoreError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """What was removed with one question: turns replaced, summaries and kept originals that may have told of them."""

    turns: int = 0
    summaries: int = 0
    originals: int = 0


class Eraser:
    """Erases persons and single questions; thread-safe. Every method blocks and may raise StoreError."""

    def __init__(
        self, workspace: Path, appender: Appender, summaries: SummaryArchive, generations: Generations
    ) -> None:
        self._workspace = workspace
        self._appender = appender
        self._summaries = summaries
        self._generations = generations

    def erase(self, user: str) -> Erased:
        """Removes all files of a person and replaces their turns in shared groups."""
        erased = self._own(user)
        self._generations.writers_gone(_is_group)  # else a group would be looked at before what is being written to it
        for conversation in self._groups():
            try:
                erased = self._silence(conversation, user, erased)
            except StoreError as error:
                log.error("group_not_silenced path=%s error=%s", path_of(conversation), error)
                touched = (*erased.touched, conversation)
                erased = replace(erased, touched=touched, failure=erased.failure or error)
        return erased

    def _own(self, user: str) -> Erased:
        with self._generations.alone(user):
            self._generations.forget(user)
            talks = self._removed(FOLDER, user)
            summaries = self._removed(archive.FOLDER, user)
            originals = self._removed(QUARANTINE, user)
            profiles = [*self._removed("users", f"{user}."), *self._removed("users", f".{user}.")]
            self._appender.forget(user)
            self._generations.forget(user)  # again: what was read of the files meanwhile is of before
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
        return self._removed_if(parent, start, lambda name: name.startswith(start))

    def _removed_if(self, parent: str, subject: str, wanted: Callable[[str], bool]) -> list[str]:
        with typed_errors(f"{parent}/{subject}"):
            return removed(self._workspace, parent, wanted)

    # ---- one question

    def strike(self, conversation: ConversationId, question: str) -> Struck:
        """Replaces a user turn and all that answers it; removes the summaries and kept originals that may tell of it.

        The file comes last, and is whole at every moment: by it a repeat after a crash finds what is left to be done.
        """
        struck = Struck()

        def change(turns: list[Turn]) -> list[Turn] | None:
            nonlocal struck
            told = [turn for turn in turns if question in (turn.id, turn.to) and not turn.removed]
            if not told:
                return None
            summaries = self._summaries.drop(conversation, told[0].n)
            originals = self._copies_removed(conversation)
            struck = Struck(turns=len(told), summaries=summaries, originals=originals)
            gone = {turn.n for turn in told}
            return [_struck(turn) if turn.n in gone else turn for turn in turns]

        with self._generations.alone(conversation.lane.user):
            self._generations.forget(str(conversation))
            self._appender.rewrite(conversation, change)
            self._generations.forget(str(conversation))  # who read in between has read what was there before
        return struck

    # ---- shared groups

    def _groups(self) -> list[ConversationId]:
        """The conversations of shared groups that have a file, or an original in the quarantine."""
        found = {conversation for path in self._listed(FOLDER) for conversation in _conversations((path,))}
        for path in self._listed(QUARANTINE):
            found.update(_conversations((path.rpartition(".")[0],)))  # behind the dot: why it is there
        return sorted(found, key=str)

    def _listed(self, parent: str) -> list[str]:
        """What is in the folders of shared groups, as paths from `parent`."""
        gone = contextlib.suppress(FileNotFoundError, NotADirectoryError)
        with typed_errors(parent), contextlib.suppress(FileNotFoundError):
            with opened_folder(self._workspace, parent) as folder:
                groups = [name for name in os.listdir(folder) if _is_group(name)]
            paths: list[str] = []
            for group in groups:
                with gone, opened_folder(self._workspace, parent, group) as folder:
                    paths += (f"{group}/{name}" for name in os.listdir(folder))
            return paths
        return []

    def _named_in(self, parent: str, conversation: ConversationId, user: str, wanted: Callable[[str], bool]) -> bool:
        """Whether the person is named in what is `wanted` by its name in the group's folder below `parent`."""
        where = opened_folder(self._workspace, parent, conversation.lane.user)
        with typed_errors(parent), contextlib.suppress(FileNotFoundError, NotADirectoryError), where as folder:
            return any(holds(folder, name, user.encode()) for name in os.listdir(folder) if wanted(name))
        return False

    def _silence(self, conversation: ConversationId, user: str, erased: Erased) -> Erased:
        """What was erased, and what of this conversation's: nothing where the person is not named.

        Where a copy names them, nobody knows which turns a summary has of it: all summaries go, and before the copies,
        by which a repeat after a crash finds this conversation.
        """
        copied = any(self._named_in(parent, conversation, user, _copies(conversation)) for parent in COPIES)
        if not copied and not self._named_in(FOLDER, conversation, user, conversation.file_name.__eq__):
            return erased
        with self._generations.alone(conversation.lane.user):
            self._generations.forget(str(conversation))
            summaries = self._summaries.drop(conversation, 0) if copied else 0
            originals, turns = self._copies_removed(conversation), 0
            if self._named_in(FOLDER, conversation, user, conversation.file_name.__eq__):
                turns, more = self._silenced(conversation, user)
                summaries += more
                originals += self._copies_removed(conversation)  # of a file that a person had edited
            self._generations.forget(str(conversation))
        return replace(
            erased,
            turns=erased.turns + turns,
            summaries=erased.summaries + summaries,
            originals=erased.originals + originals,
            touched=(*erased.touched, conversation),
        )

    def _copies_removed(self, conversation: ConversationId) -> int:
        group = conversation.lane.user
        return sum(
            len(self._removed_if(f"{parent}/{group}", conversation.file_name, _copies(conversation)))
            for parent in COPIES
        )

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


def _copies(conversation: ConversationId) -> Callable[[str], bool]:
    """Whether a name is that of a copy: an original in the quarantine, what an editor or a kill has left."""
    mine = conversation.file_name
    return lambda name: name != mine and name.lstrip(".#").startswith(mine)


def _tombstone(turn: Turn) -> Turn:
    """Keeps its place, its ids and what it answers, so that nothing else moves."""
    return replace(turn, text=TOMBSTONE, name=None, user=None, tool_calls=(), model=None)


def _struck(turn: Turn) -> Turn:
    """As `_tombstone`, and no model sees it. Calls stay calls, without name and arguments: such a turn is no answer."""
    calls = tuple(replace(call, name="", arguments="{}") for call in turn.tool_calls)
    return replace(turn, text=REMOVED, name=None, tool_calls=calls, model=None, removed=True)


def _is_group(folder: str) -> bool:
    return folder.startswith("g")


def _conversations(paths: Iterable[str]) -> Iterator[ConversationId]:
    for path in paths:
        user, _, name = path.partition("/")
        with contextlib.suppress(InvalidId):
            yield ConversationId.of_file(user, name)
