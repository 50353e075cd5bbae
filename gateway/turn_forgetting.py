"""Forgetting one question with all that answers it: from the file, and from whatever else holds words of it."""

import logging
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from gateway.storage.conversation_index import ConversationIndex
from gateway.storage.database import Database
from gateway.storage.marks import mark_unclean
from memory.conversation import ConversationId, LaneKey, Turn
from memory.memory import Memory

log = logging.getLogger("sanqiao.forgetting")

ForgetTurnTraces = Callable[[ConversationId, Sequence[str], int], Awaitable[int]]
"""Removes the traces of these messages of a conversation, and what requests quoted of summaries that reach an ordinal.

Raises sqlite3.Error.
"""

DropAnswers = Callable[[Collection[int]], Awaitable[object]]
"""Sends nothing more of the answers of these turns (their numbers in the inbox), whose texts are in memory, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgottenTurn:
    """What was removed with one question: numbers of turns replaced by tombstones, summaries, kept originals.

    `n` is the question's ordinal in the file, -1 where it had none before. `cached` says that Redis still holds
    something for a while.
    """

    n: int = -1
    turns: int = 0
    summaries: int = 0
    originals: int = 0
    cached: bool = False

    def __str__(self) -> str:
        counted = (
            (self.turns, "{} 条内容"),
            (self.summaries, "{} 份摘要"),
            (self.originals, "{} 份留存的原件"),
        )
        said = "、".join(text.format(number) for number, text in counted if number)
        said = f"已删除：{said}" if said else "这一轮早已删除"
        return f"{said}（Redis 暂时连不上，其中的缓存会在它恢复后或到期时删除）" if self.cached else said


class TurnForgetting:
    """Forgets single questions while the gateway runs; an answer that is being made to one is never kept."""

    def __init__(
        self,
        memory: Memory,
        database: Database,
        index: ConversationIndex,
        forget_traces: ForgetTurnTraces,
        drop_answers: DropAnswers,
    ) -> None:
        self._memory = memory
        self._database = database
        self._index = index
        self._forget_traces = forget_traces
        self._drop_answers = drop_answers

    async def forget(self, conversation: ConversationId, question: str) -> ForgottenTurn | None:
        """Removes a question and what answers it; None where no such question stands in the conversation.

        The file comes after all else, so that one who asks again after a failure or a kill finds it there. Raises
        StoreError, sqlite3.Error.
        """
        asked = await self._memory.question(conversation, question)
        if asked is None:
            return None
        await self._forget_records(conversation, asked)
        struck, gone = await self._memory.forget_turn(conversation, question)
        await self._forget_records(conversation, asked)  # what was recorded while the file still had it
        if not await self._database.empty_log():
            log.warning("database_bytes_kept remedy=下次删除或启动时再清空")
        self._index.touch(conversation)
        log.info(
            "turn_forgotten conversation=%s turn=%s turns=%d summaries=%d originals=%d",
            conversation,
            question,
            struck.turns,
            struck.summaries,
            struck.originals,
        )
        return ForgottenTurn(
            n=asked.n, turns=struck.turns, summaries=struck.summaries, originals=struck.originals, cached=not gone
        )

    async def _forget_records(self, conversation: ConversationId, asked: Turn) -> None:
        ids = tuple(dict.fromkeys((asked.id, *asked.ids)))
        await self._forget_traces(conversation, ids, asked.n)
        turns = await self._database.run(lambda db: _blank(db, conversation.lane, ids))
        if turns:
            await self._drop_answers(turns)


def _blank(db: sqlite3.Connection, lane: LaneKey, ids: Sequence[str]) -> Collection[int]:
    """Takes the texts out of these messages and of the parts that answer them; their ids are still known as repeats.

    Returns the numbers of their turns.
    """
    marks = ", ".join("?" * len(ids))
    rows = db.execute(
        f"SELECT seq, turn FROM messages WHERE channel = ? AND lane = ? AND id IN ({marks})",
        (lane.channel, str(lane), *ids),
    ).fetchall()
    if not rows:
        return ()
    turns = {row["turn"] for row in rows if row["turn"] is not None}
    db.executemany(
        "UPDATE messages SET message = '',"
        " state = iif(state IN ('accepted', 'taken', 'answered'), 'forgotten', state) WHERE seq = ?",
        [(row["seq"],) for row in rows],
    )
    db.executemany(
        "UPDATE parts SET text = '', state = iif(state IN ('waiting', 'shelved'), 'dropped', state) WHERE turn = ?",
        [(turn,) for turn in turns],
    )
    mark_unclean(db)
    return turns
