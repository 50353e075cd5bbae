"""Tool calls of an answer: what they may use, and how their rounds stand in the conversation file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from agents.tool_loop import ToolRound
from agents.tools.jobs import JobBoard
from agents.tools.tool import CallContext, Passage
from gateway.snapshot import Snapshot
from gateway.storage.conversation_index import ConversationIndex, ConversationItem
from memory.conversation import ConversationId, Role, Turn
from memory.memory import Memory

_CONVERSATIONS = 20
_TURNS = 200
_SPEAKERS = {Role.USER: "用户", Role.ASSISTANT: "助手"}


@dataclass(frozen=True, slots=True)
class Desk:
    """What all tool calls of this gateway share."""

    memory: Memory
    index: ConversationIndex
    jobs: JobBoard
    clock: Callable[[], float]

    def context(self, conversation: ConversationId, snapshot: Snapshot, turn: Turn) -> Callable[[str], CallContext]:
        """Makes the context of each call made for this question, by the call's key within it."""
        masking = snapshot.masking(snapshot.agents.get(conversation.agent))
        generation = self.memory.generations.now()

        def made(key: str) -> CallContext:
            return CallContext(
                conversation=conversation,
                key=f"{conversation}/{turn.id}/{key}",
                now=datetime.fromtimestamp(self.clock(), snapshot.zone),
                generation=generation,
                jobs=self.jobs,
                profiles=self.memory.profiles,
                past=PastTurns(self.memory, self.index),
                filtered=masking.apply,
                filtered_for_all=snapshot.strictest_masking.apply,
            )

        return made


@dataclass(frozen=True, slots=True)
class PastTurns:
    """What a person said in other direct chats, on whichever of their accounts (see agents.tools.tool.Past)."""

    memory: Memory
    index: ConversationIndex

    async def others(self, conversation: ConversationId) -> Sequence[Passage]:
        """Of the newest `_CONVERSATIONS`, the newest `_TURNS` each. Raises StoreError."""
        found: list[Passage] = []
        for other in await self._conversations(conversation.lane.user):
            if other == conversation:
                continue
            turns = await self.memory.history(other, None, _TURNS)
            for turn in reversed(turns):
                if turn.role is Role.RESET:
                    break
                if turn.role in _SPEAKERS and turn.text.strip() and not turn.removed:
                    found.append(Passage(turn.at, _SPEAKERS[turn.role], turn.text))
        return sorted(found, key=lambda each: each.at, reverse=True)

    async def _conversations(self, user: str) -> Sequence[ConversationId]:
        """The newest direct ones of a person, on whichever account."""
        items: list[ConversationItem] = []
        for each in self.memory.persons.links.ids_of(user):
            items += (await self.index.page(user=each, direct=True, limit=_CONVERSATIONS)).items
        newest = sorted(items, key=lambda item: item.last or "", reverse=True)
        return [item.id for item in newest[:_CONVERSATIONS]]


def rounds_of(turns: Sequence[Turn]) -> tuple[ToolRound, ...]:
    """The rounds of calls among the turns that answer one question, in order."""
    rounds: list[ToolRound] = []
    for turn in turns:
        if turn.role is Role.ASSISTANT and turn.tool_calls:
            rounds.append(ToolRound(turn.text, turn.tool_calls, model=turn.model))
        elif turn.role is Role.TOOL and turn.call and rounds:
            last = rounds[-1]
            if turn.call in {call.id for call in last.open}:
                rounds[-1] = replace(last, results=(*last.results, (turn.call, turn.text)))
    return tuple(rounds)


def turns_of(question: Turn, number: int, round_: ToolRound, at: str) -> list[Turn]:
    """One round as turns: the answer with its calls, then the results; each time with the same ids."""
    here = f"{question.id}/t{number}"
    asking = Turn(
        role=Role.ASSISTANT,
        text=round_.text,
        id=here,
        to=question.id,
        user=question.user,
        at=at,
        tool_calls=round_.calls,
        model=round_.model,
    )
    places = {call.id: place for place, call in enumerate(round_.calls)}
    results = [
        Turn(
            role=Role.TOOL, text=text, id=f"{here}/{places[call]}", to=question.id, user=question.user, at=at, call=call
        )
        for call, text in round_.results
    ]
    return [asking, *results]
