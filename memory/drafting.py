"""Drafts of summaries: what the next summary of a conversation is to be made of, and keeping it unless it is overtaken."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, takewhile

from memory.archive import SummaryArchive
from memory.conversation import ConversationId, Role, Turn
from memory.conversation_file import path_of
from memory.errors import typed_errors
from memory.store import ConversationStore
from memory.summary import Standing, Summary, SummarySettings, due, target
from memory.tail import MAX_ITEMS
from memory.viewing import Viewer, Weigh
from memory.window import Window, WindowSettings


def _behind(after: int, newest_first: Iterable[Turn]) -> Iterator[Turn]:
    """The turns behind ordinal `after` since the reset, newest first."""
    return takewhile(lambda turn: turn.role is not Role.RESET and turn.n > after, newest_first)


@dataclass(frozen=True, slots=True)
class Draft:
    """What a summary is to be made of: the version before it and the turns since, oldest first, up to ordinal `upto`.

    `turns` may go on behind `upto`. `after` is the id of the archive's newest version of any epoch, `reason` why the
    summary is due, `generation` when the turns were read (see memory.generations).
    """

    epoch: int
    previous: Summary | None
    turns: Sequence[Turn]
    upto: int
    after: str | None
    reason: str
    generation: int = 0


class Drafter:
    """Drafts and keeps summaries; thread-safe. Every method blocks and may raise StoreError."""

    def __init__(self, store: ConversationStore, archive: SummaryArchive, viewer: Viewer) -> None:
        self._store = store
        self._archive = archive
        self._viewer = viewer

    def draft(
        self, conversation: ConversationId, window: WindowSettings, summary: SummarySettings, room: int, weigh: Weigh
    ) -> Draft | None:
        """What is to be summarised now; None when no summary is due."""
        generation, file = self._store.generations.now(), partial(self._store.backwards, conversation)
        next_window = self._viewer.window(conversation, window, None, room, weigh, tails=file)
        standing = self._standing(conversation, next_window, summary)
        reason = due(standing, summary) if standing else ""
        if standing is None or not reason:
            return None
        turns, upto = self._uncovered(conversation, standing), target(standing, summary)
        if not turns or turns[0].n > upto:
            return None
        return Draft(
            epoch=standing.epoch,
            previous=standing.last,
            turns=turns,
            upto=upto,
            after=self._archive.last_id(conversation),
            reason=reason,
            generation=generation,
        )

    def _uncovered(self, conversation: ConversationId, standing: Standing) -> tuple[Turn, ...]:
        """The oldest turns since the reset that no summary covers."""
        newest = self._newest(conversation, standing.after)
        if newest is not None:
            return newest
        exact = standing.last is not None or standing.epoch == 0
        before = standing.after + 1 + MAX_ITEMS if exact else None  # a long history is passed over unread
        turns: deque[Turn] = deque(maxlen=MAX_ITEMS)
        tail = self._store.backwards(conversation, before=before, unlimited=True)
        with typed_errors(path_of(conversation)), tail:
            turns.extendleft(_behind(standing.after, tail))  # the newest ones go, where there are too many
        return tuple(turns)

    def _newest(self, conversation: ConversationId, after: int) -> tuple[Turn, ...] | None:
        """The turns behind ordinal `after` since the reset, oldest first; None where they are too many to be at hand."""
        with typed_errors(path_of(conversation)), self._store.backwards(conversation) as tail:
            turns = list(islice(_behind(after, tail), MAX_ITEMS + 1))
            return None if tail.capped or len(turns) > MAX_ITEMS else tuple(reversed(turns))

    def _standing(self, conversation: ConversationId, window: Window, settings: SummarySettings) -> Standing | None:
        """None for a conversation without turns since its reset, or with such as have no ordinal yet."""
        with typed_errors(path_of(conversation)), self._store.backwards(conversation) as tail:
            newest = next(tail, None)
            if newest is None or newest.n < 0 or newest.role is Role.RESET:
                return None
            base, rounds, enough = newest.epoch - 1, 0, settings.keep + settings.every_messages
            for read, turn in enumerate(chain((newest,), tail)):
                if turn.role is Role.RESET:
                    base = turn.n
                    break
                if rounds >= settings.after_turns and read > enough:
                    break
                rounds += turn.role is Role.USER
        last = self._archive.summary_for(conversation, None, newest.epoch, newest=newest.n)
        gap = window.left_out(last.through if last else None)
        return Standing(
            epoch=newest.epoch, newest=newest.n, base=base, rounds=rounds, first=window.first, gap=gap, last=last
        )

    def keep(self, conversation: ConversationId, summary: Summary, after: str | None, generation: int) -> bool:
        """Keeps a summary made of what was read in `generation` if nothing has overtaken it; whether it did."""
        with self._store.generations.writing(generation, conversation.lane.user, str(conversation)):
            with typed_errors(path_of(conversation)), self._store.backwards(conversation) as tail:
                newest = next(tail, None)
            if newest is None or newest.epoch != summary.epoch:
                return False
            return self._archive.append(conversation, summary, after=after)
