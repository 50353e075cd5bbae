"""What the model sees of a conversation: the window over its turns, with the summary of what is before it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain

from memory.archive import SummaryArchive
from memory.conversation import ConversationId, Role, Turn
from memory.conversation_file import path_of
from memory.errors import typed_errors
from memory.speaker import voiced
from memory.summary import Summary, reaching
from memory.tail import Tail, Tails
from memory.tokens import message_tokens
from memory.window import Window, WindowSettings, build_window

Weigh = Callable[[str], int]
"""How many tokens a summary's text takes in the request."""

Versions = Callable[[int, int], AbstractContextManager[Iterator[Summary]]]
"""The summaries of an epoch, newest first, given the ordinal of the conversation's newest turn."""


class Viewer:
    """Windows over turns from wherever they come; thread-safe. Every method blocks and may raise StoreError."""

    def __init__(self, archive: SummaryArchive) -> None:
        self._archive = archive

    def window(
        self,
        conversation: ConversationId,
        settings: WindowSettings,
        question: Turn | None,
        room: int,
        weigh: Weigh | None,
        *,
        tails: Tails,
        versions: Versions | None = None,
    ) -> Window:
        """The window before `question`, as `Memory.window` describes it, over the turns that `tails` gives.

        `versions` gives the summaries; None: they are looked up in the archive.
        """
        versions = versions or partial(self._of_archive, conversation)
        with typed_errors(path_of(conversation)):
            if question is not None:
                with tails() as tail:
                    if any(question.id in (turn.id, *turn.ids) for turn in tail):
                        return _beside(versions, tail, settings, question=question, room=room, weigh=weigh)
            with tails() as tail:
                return _beside(versions, tail, settings, question=question, room=room, weigh=weigh)

    def _of_archive(
        self, conversation: ConversationId, epoch: int, newest: int
    ) -> AbstractContextManager[Iterator[Summary]]:
        return self._archive.versions(conversation, epoch, newest=newest)


def _beside(
    versions: Versions,
    tail: Tail,
    settings: WindowSettings,
    *,
    question: Turn | None,
    room: int,
    weigh: Weigh | None,
) -> Window:
    """The window over the turns `tail` still has, with the summary of what is before it."""
    text = voiced(question) if question is not None else None
    newest, turns = _numbered(tail)
    if weigh is None or newest is None:
        return _told(build_window(turns, question=text, settings=settings, room=room), tail)
    with versions(newest.epoch, newest.n) as found:
        latest = next(found, None)
        weight = weigh(latest.text) if latest else 0
        if latest and (0 if text is None else message_tokens(text)) > room - weight:
            latest = None  # the question comes first
        left = room - weight if latest else room
        window = _told(build_window(turns, question=text, settings=settings, room=left), tail)
        if latest is None:
            return window
        chosen = reaching(chain((latest,), found), window.first) or latest
    if window.tokens + window.question_tokens + weigh(chosen.text) > room:
        chosen = latest
    return window.with_summary(chosen, weigh(chosen.text), latest)


def _numbered(tail: Tail) -> tuple[Turn | None, Iterator[Turn]]:
    """The newest turn with an ordinal since the last reset, and all the turns that `tail` still had."""
    read: list[Turn] = []
    for turn in tail:
        read.append(turn)
        if turn.role is Role.RESET:
            break
        if turn.n >= 0:
            return turn, chain(read, tail)
    return None, chain(read, tail)


def _told(window: Window, tail: Tail) -> Window:
    """The window, told where reading stopped at its limits."""
    if tail.capped and tail.last is not None and window.not_read_before is None:
        return window.unread_from(tail.last)
    return window
