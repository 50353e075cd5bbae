"""Appends to conversation files, in worker threads: whole or not there at all, after whatever was done to the file.

Each append opens the file anew (an editor may have replaced it), holds it under `flock` and writes once. The end of a
file is remembered, so that nothing is read until someone else touches it.
"""

import contextlib
import fcntl
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from memory.conversation import ConversationId, Role, Turn
from memory.conversation_file import FOLDER, OpenFile, path_of, steps_on, work_on, write_once
from memory.ending import KNOWN_IDS, adopted, as_bytes, clean, examine, inspect
from memory.errors import StoreBusy, typed_errors
from memory.folder import open_file, opened_folder
from memory.mended import Mended, Outcome
from memory.recent import Recent, Stamp, stamp_of
from memory.restoring import adopt, changed_at, cut_back, replace_with
from memory.steps import Steps, at_once
from memory.tail import read_range, whole

log = logging.getLogger("sanqiao.memory")


@dataclass(frozen=True, slots=True)
class _State:
    """What is known of a file's end as long as `stamp` is the file's."""

    stamp: Stamp
    n: int
    epoch: int
    ids: tuple[str, ...]


def numbered(turns: Sequence[Turn], n: int, epoch: int, known: Sequence[str]) -> list[Turn]:
    """The turns to append after ordinal `n` in `epoch`: cleaned, numbered, without those whose id is known."""
    seen, found = set(known), []
    for turn in map(clean, turns):
        if turn.id in seen:
            continue
        seen.update((turn.id, *turn.ids))
        n, epoch = n + 1, epoch + (turn.role is Role.RESET)
        found.append(replace(turn, n=n, epoch=epoch))
    return found


class Appender:
    """The writing side of the store; thread-safe. Every method blocks."""

    def __init__(self, workspace: Path, *, sync: bool, recent: Recent | None = None, remembered: int = 2048) -> None:
        """`recent` is told what was appended."""
        self._workspace = workspace
        self._recent = recent or Recent()
        self._sync = sync
        self._remembered = remembered
        self._states: OrderedDict[ConversationId, _State] = OrderedDict()
        self._guard = threading.Lock()
        self.set_aside = 0
        """How many originals went to the quarantine so far."""

    def append(self, conversation: ConversationId, turns: Sequence[Turn]) -> list[Turn]:
        """As `appending`, from its begin to its end."""
        return at_once(self.appending(conversation, turns))

    def appending(self, conversation: ConversationId, turns: Sequence[Turn], *, wait: bool = True) -> Steps[list[Turn]]:
        """Appends in one write; returns the turns written, with ordinal and epoch.

        Raises StoreError; then the file is as it was. Without `wait` it is StoreBusy at once where another process has
        the file, or a person has changed it and it is to be adopted first.
        """
        with typed_errors(path_of(conversation)):
            written = yield from self._append_to_known(conversation, turns)
        if written is not None:
            return written

        def work(file: OpenFile) -> Steps[list[Turn] | None]:
            state = self._state(file, wait=wait)
            return None if state is None else (yield from self._append(file, state, turns))

        return (yield from steps_on(self._workspace, FOLDER, conversation, work, wait=wait))

    def sync(self, conversation: ConversationId) -> None:
        """Puts what was appended on the disk. Raises StoreError; a file that is gone needs nothing."""
        subject = path_of(conversation)
        where = opened_folder(self._workspace, FOLDER, conversation.lane.user)
        with typed_errors(subject), contextlib.suppress(FileNotFoundError), where as folder:
            fd = open_file(folder, conversation.file_name, os.O_RDONLY)
            try:
                os.fdatasync(fd)
                os.fsync(folder)
            finally:
                os.close(fd)

    def rewrite(self, conversation: ConversationId, change: Callable[[list[Turn]], list[Turn] | None]) -> None:
        """Puts in the file's place what `change` makes of all its turns: whole at every moment. Raises StoreError.

        What is not readable in the old file is not in the new one. Where `change` gives None the file stays as it is.
        """

        def work(file: OpenFile) -> bool:
            if file.created:
                file.remove()
                return True
            turns = whole(read_range(file.fd, os.fstat(file.fd).st_size, 0))
            if any(turn.n < 0 for turn in turns):
                turns = list(adopted(turns, changed_at(file)))
            changed = change(turns)
            if changed is not None:
                self._forget(conversation)
                replace_with(file, changed)
            return True

        work_on(self._workspace, FOLDER, conversation, work)

    def repair(self, conversation: ConversationId) -> Mended:
        """Reads the whole file and mends it as an append would; what it loses is kept aside. Raises StoreError."""
        return work_on(self._workspace, FOLDER, conversation, self._repair)

    def _repair(self, file: OpenFile) -> Mended:
        subject = path_of(file.conversation)
        if file.created:
            file.remove()
            return Mended(path=subject, outcome=Outcome.MISSING)
        size = file.stamp[1]
        found = examine(file.fd, size)
        self._forget(file.conversation)
        if size == 0 or not (found.edited or found.torn or not found.items):
            return Mended(path=subject, outcome=Outcome.SOUND, items=found.items)
        if not found.edited and found.items:
            kept = cut_back(self._workspace, file, found.size, size)
            self._one_aside()
            cut = size - found.size
            return Mended(path=subject, outcome=Outcome.TORN, items=found.items, cut=cut, kept=kept)
        done = adopt(self._workspace, file, size)
        self._one_aside()
        outcome = Outcome.UNREADABLE if not done.items else Outcome.DAMAGED if done.unreadable else Outcome.ADOPTED
        return Mended(
            path=subject,
            outcome=outcome,
            items=done.items,
            unreadable=done.unreadable,
            not_utf8=done.not_utf8,
            kept=done.kept,
        )

    def forget(self, user: str) -> None:
        """What is remembered of the ends of this person's files is of no use any more."""
        with self._guard:
            for conversation in [each for each in self._states if each.lane.user == user]:
                del self._states[conversation]

    def _one_aside(self) -> None:
        with self._guard:
            self.set_aside += 1

    def _append_to_known(self, conversation: ConversationId, turns: Sequence[Turn]) -> Steps[list[Turn] | None]:
        """As `append`, for the file that was appended to before and that nobody touched since; None for any other.

        By its inode it is the file that was opened without following any link, so its path is opened in one step: each
        call of the system costs a thread that competes for the interpreter far more than the call itself.
        """
        with self._guard:
            state = self._states.get(conversation)
        if state is None or state.stamp[1] == 0:
            return None
        path = f"{self._workspace}/{path_of(conversation)}"
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if stamp_of(os.fstat(fd)) != state.stamp:
                return None
            fresh = numbered(turns, state.n, state.epoch, state.ids)
            if not fresh:
                return []
            data = as_bytes(fresh)
            try:
                yield from write_once(fd, data, state.stamp[1], sync=self._sync)
            except OSError:
                self._forget(conversation)
                raise
            found = os.stat(path, follow_symlinks=False)
            if (found.st_ino, found.st_dev) != (state.stamp[0], state.stamp[3]):
                return None  # replaced at this very moment: appended to the new file too
            self._remember(conversation, stamp_of(found), state, fresh, len(data))
            return fresh
        except (BlockingIOError, FileNotFoundError):
            return None
        finally:
            os.close(fd)

    def _append(self, file: OpenFile, state: _State, turns: Sequence[Turn]) -> Steps[list[Turn] | None]:
        fresh = numbered(turns, state.n, state.epoch, state.ids)
        if not fresh:
            return []
        data = as_bytes(fresh)
        try:
            yield from file.append(data, sync=self._sync)
        except OSError:
            self._forget(file.conversation)
            raise
        if not file.current():  # replaced at this very moment: appended to the new file too
            self._forget(file.conversation)
            return None
        self._remember(file.conversation, file.stamp, state, fresh, len(data))
        return fresh

    # ---- what is known of a file's end

    def _remember(
        self, conversation: ConversationId, stamp: Stamp, before: _State, fresh: Sequence[Turn], size: int
    ) -> None:
        """The file has this stamp now that `fresh`, of `size` bytes, was appended to it."""
        if stamp[1] != before.stamp[1] + size:  # somebody who takes no lock wrote at the same moment
            self._forget(conversation)
            return
        ids = (*before.ids, *(name for turn in fresh for name in (*turn.ids, turn.id)))[-KNOWN_IDS:]
        self._keep_state(conversation, _State(stamp, fresh[-1].n, fresh[-1].epoch, ids))
        self._recent.appended(conversation, before.stamp, stamp, fresh)

    def _keep_state(self, conversation: ConversationId, state: _State) -> _State:
        with self._guard:
            self._states[conversation] = state
            self._states.move_to_end(conversation)
            if len(self._states) > self._remembered:
                self._states.popitem(last=False)
        return state

    def _forget(self, conversation: ConversationId) -> None:
        with self._guard:
            self._states.pop(conversation, None)
        self._recent.drop(conversation)

    def _state(self, file: OpenFile, *, wait: bool) -> _State | None:
        """What is at the end of the file, from memory or by reading it; None if it was replaced by a mended one.

        Mending a large one takes time: without `wait` StoreBusy is raised instead.
        """
        stamp = file.stamp
        with self._guard:
            known = self._states.get(file.conversation)
        if known is not None and known.stamp == stamp:
            return known
        size = stamp[1]
        if size == 0:
            if not file.created:
                log.warning("file_empty path=%s", path_of(file.conversation))
            return self._keep_state(file.conversation, _State(stamp, -1, 0, ()))
        ending = inspect(file.fd, size)
        if ending.edited or not ending.readable:
            if not wait:
                raise StoreBusy(f"{path_of(file.conversation)} 要先整理")
            adopt(self._workspace, file, size)
            self._one_aside()
            return None
        if ending.torn:
            cut_back(self._workspace, file, ending.size, size)
            self._one_aside()
        return self._keep_state(file.conversation, _State(file.stamp, ending.n, ending.epoch, ending.ids))
