"""Repairs of a whole workspace: every conversation and archive file is read from end to end and mended where need be.

What a file loses by it is kept in ``quarantine/``.
"""

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from memory import archive
from memory.appending import Appender
from memory.archive import SummaryArchive
from memory.conversation import PERSON, ConversationId, InvalidId
from memory.conversation_file import FOLDER, path_of
from memory.errors import StoreError, typed_errors
from memory.folder import moved_aside, opened_folder
from memory.generations import Generations
from memory.mended import Mended, Outcome

FOLDERS = (FOLDER, archive.FOLDER)
_USER = re.compile(f"{PERSON}|g[a-z2-7]{{12}}")


class Mender:
    """Mends files; thread-safe. Every method blocks."""

    def __init__(
        self, workspace: Path, appender: Appender, summaries: SummaryArchive, generations: Generations
    ) -> None:
        self._workspace = workspace
        self._repairs: dict[str, Callable[[ConversationId], Mended]] = {
            FOLDER: appender.repair,
            archive.FOLDER: summaries.repair,
        }
        self._generations = generations

    def users(self) -> list[str]:
        """Whose folders there are. Raises StoreError."""
        return sorted({user for below in FOLDERS for user in self._listed(below)})

    def mend_user(self, user: str) -> list[Mended]:
        """Mends all files of one person or shared group."""
        found: list[Mended] = []
        for below in FOLDERS:
            try:
                with typed_errors(f"{below}/{user}"):
                    if not self._is_folder(below, user):
                        found += self._folder_aside(below, user)
                        continue
                    found += self._leftovers(below, user)
                    for conversation in _conversations(user, self._listed(below, user)):
                        found.append(self._mend(below, conversation))
            except StoreError as error:
                found.append(Mended(path=f"{below}/{user}", outcome=Outcome.FAILED, error=str(error)))
        return found

    def mend(self, conversation: ConversationId) -> list[Mended]:
        """Mends the files of one conversation; the archive is only told of where there is one."""
        found = [self._mend(below, conversation) for below in FOLDERS]
        return [found[0], *(each for each in found[1:] if each.outcome is not Outcome.MISSING)]

    def _mend(self, below: str, conversation: ConversationId) -> Mended:
        path = path_of(conversation, below)
        try:
            with typed_errors(path), self._generations.alone(conversation.lane.user):
                kind = self._kind(below, conversation)
                if kind is None:
                    return Mended(path=path, outcome=Outcome.MISSING)
                if not stat.S_ISREG(kind):
                    where = (below, conversation.lane.user)
                    kept = moved_aside(self._workspace, where, conversation.file_name, "no-file")
                    return Mended(path=path, outcome=Outcome.NO_FILE, kept=kept)
                return self._repairs[below](conversation)
        except StoreError as error:
            return Mended(path=path, outcome=Outcome.FAILED, error=str(error))

    def _kind(self, below: str, conversation: ConversationId) -> int | None:
        """The mode of what is in a file's place; None for nothing. Raises OSError."""
        try:
            with opened_folder(self._workspace, below, conversation.lane.user) as folder:
                return os.stat(conversation.file_name, dir_fd=folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None

    def _listed(self, *names: str) -> list[str]:
        where = opened_folder(self._workspace, *names)
        with typed_errors("/".join(names)), contextlib.suppress(FileNotFoundError), where as folder:
            return sorted(os.listdir(folder))
        return []

    def _is_folder(self, below: str, user: str) -> bool:
        try:
            with opened_folder(self._workspace, below, user):
                return True
        except NotADirectoryError:
            return False
        except FileNotFoundError:
            return True

    def _folder_aside(self, below: str, user: str) -> Iterator[Mended]:
        """Something in the place of a person's folder; what is called otherwise is nobody's business."""
        if _USER.fullmatch(user):
            kept = moved_aside(self._workspace, (below,), user, "no-folder")
            yield Mended(path=f"{below}/{user}", outcome=Outcome.NO_FILE, kept=kept)

    def _leftovers(self, below: str, user: str) -> Iterator[Mended]:
        """What a kill left of a file that was to be put in the place of another."""
        with contextlib.suppress(FileNotFoundError), opened_folder(self._workspace, below, user) as folder:
            for name in sorted(os.listdir(folder)):
                of = name.removeprefix(".").removesuffix(".new")
                if name == f".{of}.new" and list(_conversations(user, [of])):
                    with self._generations.alone(user), contextlib.suppress(FileNotFoundError, IsADirectoryError):
                        os.unlink(name, dir_fd=folder)
                        yield Mended(path=f"{below}/{user}/{name}", outcome=Outcome.LEFTOVER)


def _conversations(user: str, names: Sequence[str]) -> Iterator[ConversationId]:
    for name in names:
        with contextlib.suppress(InvalidId):
            yield ConversationId.of_file(user, name)
