"""Which accounts are one person: ``same-as`` in ``users/{user}.yaml``, written by ``/link`` and by admins.

Each account keeps its own id, files and conversations. What follows the person asks here.
"""

import contextlib
import logging
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from memory import person_file
from memory.conversation import PERSON
from memory.errors import StoreError, typed_errors
from memory.folder import opened_folder
from memory.generations import Generations
from memory.person_file import ProfileUnreadable

log = logging.getLogger("sanqiao.memory")

KEY = "same-as"
"""The key in a person's file that names another account of theirs."""

_Stamp = tuple[int, int, int]

Change = tuple[str, str | None]
"""An account, and whom it shall say to be the same as: None for nobody."""


@dataclass(frozen=True)
class Links:
    """Who says to be the same person as whom. Pure; chains, and cycles that admins write, are one person."""

    same_as: Mapping[str, str]

    @cached_property
    def _said_by(self) -> Mapping[str, Sequence[str]]:
        """Those who say to be the same as each account, in the order of their ids."""
        said: dict[str, list[str]] = {}
        for user, other in sorted(self.same_as.items()):
            said.setdefault(other, []).append(user)
        return said

    def root(self, user: str) -> str:
        """The account that stands for the person: the one at the end of the chain, in a cycle the least."""
        seen = {user: 0}
        while (user := self.same_as.get(user, "")) and user not in seen:
            seen[user] = len(seen)
        chain = list(seen)
        return min(chain[seen[user] :]) if user else chain[-1]

    def ids_of(self, user: str) -> tuple[str, ...]:
        """All accounts of this one's person, this one first, then those nearest to it.

        Forgotten in the reverse order, those that are left can still be found from this one at every moment.
        """
        found = [user]
        for each in found:  # grows meanwhile
            beside = dict.fromkeys((*self._said_by.get(each, ()), *filter(None, [self.same_as.get(each)])))
            found += [other for other in beside if other not in found]
        return tuple(found)

    def linking(self, user: str, other: str) -> list[Change]:
        """What makes these two one person; nothing where they are."""
        root = self.root(user)
        return [] if root == self.root(other) else [(root, other)]

    def unlinking(self, user: str) -> list[Change]:
        """What takes this account out of its person, the others staying one; each change leaves the rest to be planned anew."""
        above, below = self.same_as.get(user), self._said_by.get(user, ())
        heir = above or (below[0] if below else None)
        changes: list[Change] = [(each, heir) for each in below if each != heir]
        if heir and heir in below:
            changes.append((heir, None))
        if above:
            changes.append((user, None))
        return changes

    def changed(self, changes: Sequence[Change]) -> "Links":
        """The links after these changes."""
        now = {**self.same_as, **dict(changes)}
        return Links({user: other for user, other in now.items() if other is not None})


class Persons:
    """The links of one workspace; thread-safe. Every method blocks and may raise StoreError."""

    def __init__(self, workspace: Path, generations: Generations | None = None) -> None:
        self._workspace = workspace
        self._generations = generations or Generations()
        self._changing = threading.Lock()
        self._stamps: dict[str, _Stamp] = {}
        self._unread: dict[str, _Stamp] = {}
        self._read = False
        self.links = Links({})
        """As they were read last; reading this does not block."""

    def of(self, user: str) -> str:
        """The account that stands for this one's person, as far as is known by now; does not block."""
        return self.links.root(user)

    def loaded(self) -> Links:
        """The links, read where they never were."""
        return self.links if self._read else self.refresh()

    def refresh(self) -> Links:
        """Reads the files that were changed since they were last read."""
        with self._changing:
            return self._refreshed()

    def link(self, user: str, other: str, generation: int) -> bool:
        """Makes these two accounts one person; False where they are already.

        Raises Forgotten where one of them was forgotten since `generation`.
        """
        with self._changing:
            changes = self._refreshed().linking(user, other)
            self._make(changes, generation, user, other)
            return bool(changes)

    def unlink(self, user: str, generation: int) -> bool:
        """Takes this account out of its person; False where it is the only one. Raises Forgotten."""
        with self._changing:
            changes = self._refreshed().unlinking(user)
            self._make(changes, generation, user)
            return bool(changes)

    def _make(self, changes: Sequence[Change], generation: int, *names: str) -> None:
        for user, other in changes:
            with self._generations.writing(generation, user, *names):
                document = person_file.read(self._workspace, user)
                document.pop(KEY, None)
                said: dict[str, object] = {KEY: other} if other else {}
                person_file.write(self._workspace, user, said | document)
            self.links = self.links.changed([(user, other)])

    def _refreshed(self) -> Links:
        there: dict[str, _Stamp] = {}
        changes: list[Change] = []
        where = opened_folder(self._workspace, person_file.FOLDER)
        gone = contextlib.suppress(FileNotFoundError)
        with typed_errors(person_file.FOLDER), gone, where as folder, os.scandir(folder) as entries:
            for entry in entries:
                user = entry.name.removesuffix(".yaml")
                if user != entry.name and re.fullmatch(PERSON, user):
                    with contextlib.suppress(FileNotFoundError):
                        there[user] = _stamp(entry)
        unread: dict[str, _Stamp] = {}
        for user, stamp in there.items():
            if self._stamps.get(user) == stamp:
                continue
            try:
                changes.append((user, self._said(user)))
            except StoreError as error:  # what it said last goes on
                if self._unread.get(user) != stamp:
                    log.warning("person file not read user=%s reason=%s", user, error)
                if not isinstance(error, ProfileUnreadable):  # the disk, or too many open files: another time it may be
                    unread[user] = stamp
        changes += [(user, None) for user in self.links.same_as.keys() - there.keys()]
        if changes:
            self.links = self.links.changed(changes)
        self._stamps = {user: stamp for user, stamp in there.items() if user not in unread}
        self._unread, self._read = unread, True
        return self.links

    def _said(self, user: str) -> str | None:
        """Whom the file says this account to be the same as. Raises StoreError."""
        data = person_file.read_bytes(self._workspace, user)
        if KEY.encode() not in data:
            return None
        said = person_file.parsed(user, data).get(KEY, "")
        other = said.strip() if isinstance(said, str) else "-"
        if not other:
            return None
        if other == user or not re.fullmatch(PERSON, other):
            wanted = "不能是自己" if other == user else "应为另一个账号的标识（u 和 12 个小写字母或数字）"
            log.warning(
                "same-as ignored user=%s reason=%s: %s: %s；请改正或删去", user, person_file.path_of(user), KEY, wanted
            )
            return None
        return other


def _stamp(entry: "os.DirEntry[str]") -> _Stamp:
    stat = entry.stat(follow_symlinks=False)
    return stat.st_ctime_ns, stat.st_size, stat.st_ino  # of any change: also of rights, or of a copy with its old date
