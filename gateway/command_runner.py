"""What commands do. Each may run twice after a crash and does the same as once."""

from collections.abc import Callable
from datetime import datetime

from agents.agent import Agent
from agents.registry import Agents
from channels.message import InboundMessage
from gateway.commands import Command
from gateway.forgetting import Forgetting
from gateway.linking import Linking
from gateway.route import LaneState
from gateway.snapshot import Snapshot
from gateway.storage.conversation_index import ConversationIndex
from gateway.storage.lane_states import LaneStates
from gateway.storage.stored_message import Stored
from gateway.turns.renamed import conversation_with
from memory.conversation import LaneKey, Role, Turn
from memory.memory import Memory
from memory.speaker import label

_HISTORY_TURNS = 10
_HISTORY_CHARACTERS = 200
_LAST_ASKED_TURNS = 100
_MARKS = ' 。.！!？?「」“”"'
_LEAST_WORD = 2
_HINTS = {"unknown": "unknown-command", "not-alone": "command-not-alone"}
_AUTOMATIC = ("auto", "自动")


class CommandRunner:
    """Runs one command for the sender of one message; what it returns is sent to them."""

    def __init__(
        self,
        memory: Memory,
        states: LaneStates,
        index: ConversationIndex,
        *,
        stop_answer: Callable[[LaneKey], bool],
        forgetting: Forgetting,
        linking: Linking,
        clock: Callable[[], float],
    ) -> None:
        self._memory = memory
        self._states = states
        self._index = index
        self._stop_answer = stop_answer
        self._forgetting = forgetting
        self._linking = linking
        self._clock = clock

    async def run(self, command: Command, stored: Stored, snapshot: Snapshot) -> str | None:
        """Runs `command`; returns the text for the user, None where the question behind it is to be answered now.

        Raises StoreError.
        """
        told = await self._run(command, stored, snapshot)
        if told is not None and (command.unhandled or command.question):
            return f"{told}\n{snapshot.texts.get('rest-unhandled')}"
        return told

    async def _run(self, command: Command, stored: Stored, snapshot: Snapshot) -> str | None:
        texts, message = snapshot.texts, stored.message
        match command.name:
            case "help":
                return texts.get("help")
            case "agents":
                return self._agents(snapshot)
            case "agent":
                return await self._agent(command.argument, message, snapshot)
            case "new":
                refused = await self._begin_anew(message, snapshot)
                return refused if refused or command.question else texts.get("new-done")
            case "stop":
                return texts.get("stopped" if self._stop_answer(message.lane) else "nothing-to-stop")
            case "whoami":
                return self._whoami(message, snapshot)
            case "status":
                return await self._status(message, snapshot)
            case "history":
                return await self._history(message, snapshot)
            case "forget":
                removed = await self._forgetting.forget(message.user, keep=stored)
                return texts.get("forgotten", removed=removed) if removed else texts.get("forgotten-nothing")
            case "link":
                return await self._linking.link(command.argument, stored, texts)
            case "unlink":
                return await self._linking.unlink(stored, texts)
            case _:
                return texts.get(_HINTS[command.name], command=command.argument)

    def _whoami(self, message: InboundMessage, snapshot: Snapshot) -> str:
        """Who the sender is; in direct chats with the accounts linked to this one."""
        said = {"user": message.user, "platform_user": message.platform_user, "channel": message.lane.channel}
        text = snapshot.texts.get("whoami", **said)
        others = self._memory.persons.links.ids_of(message.user)[1:]
        if others and not message.lane.group:
            text += "\n" + snapshot.texts.get("whoami-linked", others="、".join(others))
        return text

    def _agents(self, snapshot: Snapshot) -> str:
        lines = "\n".join(f"· {agent.name}：{agent.settings.description}" for agent in snapshot.agents)
        return snapshot.texts.get("agents", agents=lines, example=snapshot.agents.default.name)

    async def _agent(self, name: str, message: InboundMessage, snapshot: Snapshot) -> str:
        texts = snapshot.texts
        if not name:
            return texts.get("agent-current", agent=(await self._current(message, snapshot)).agent)
        if name.lower() in _AUTOMATIC and name not in snapshot.agents:
            await self._states.set(message.lane, LaneState())
            return texts.get("agent-auto")
        agent = _meant(name, snapshot.agents)
        if agent is None:
            return texts.get("agent-unknown", name=name, agents="、".join(agent.name for agent in snapshot.agents))
        await self._states.set(message.lane, LaneState(agent.name, self._clock(), pinned=True))
        return texts.get("agent-switched", agent=agent.name, description=agent.settings.description)

    async def _begin_anew(self, message: InboundMessage, snapshot: Snapshot) -> str | None:
        """A reset in each agent's file of this lane, and no agent is sticky any more; nothing is deleted.

        A conversation that a group shares is begun anew by admins and by whoever asked last; others are told so.
        """
        if message.lane.is_shared and message.user not in snapshot.settings.admins:
            last = await self._asked_last(message.lane)
            if last is not None and last != message.user:
                return snapshot.texts.get("new-not-yours")
        at = snapshot.iso(self._clock())
        for conversation in await self._memory.files_of(message.lane):
            self._index.touch(conversation)
            await self._memory.reset(conversation, f"{message.id}/new", at)  # the id itself is its question's
        await self._states.set(message.lane, LaneState())
        return None

    async def _asked_last(self, lane: LaneKey) -> str | None:
        """Who asked last in this lane, of whatever agent; None where that is not known any more."""
        asked = []
        for conversation in await self._memory.files_of(lane):
            turns = await self._memory.history(conversation, None, _LAST_ASKED_TURNS)
            asked += [turn for turn in turns if turn.role is Role.USER]
        newest = max(asked, key=lambda turn: datetime.fromisoformat(turn.at), default=None)
        return newest.user if newest else None

    async def _current(self, message: InboundMessage, snapshot: Snapshot) -> LaneState:
        """The lane's agent as the next message without a rule would find it."""
        lane = snapshot.known(await self._states.get(message.lane))
        fresh = lane.pinned or self._clock() - lane.at <= snapshot.settings.router.sticky_for
        if lane.agent and fresh:
            return lane
        return LaneState(snapshot.default_agent(message.entry))

    async def _turns(self, message: InboundMessage, lane: LaneState, snapshot: Snapshot, limit: int) -> list[Turn]:
        """The newest turns with the lane's agent since the last reset."""
        conversation = await conversation_with(self._memory, message.lane, snapshot.agents.get(lane.agent))
        turns = await self._memory.history(conversation, None, limit)
        resets = [place for place, turn in enumerate(turns) if turn.role is Role.RESET]
        return turns[resets[-1] + 1 :] if resets else turns

    async def _status(self, message: InboundMessage, snapshot: Snapshot) -> str:
        lane = await self._current(message, snapshot)
        turns = await self._turns(message, lane, snapshot, 200)
        model = snapshot.settings.models[snapshot.settings.model_for(lane.agent)]
        name = "demo" if model.provider == "demo" else model.model
        reason = "用户用 /agent 选定" if lane.pinned else "延续上一轮" if lane.at else "默认"
        return snapshot.texts.get("status", agent=lane.agent, reason=reason, turns=len(turns), model=name)

    async def _history(self, message: InboundMessage, snapshot: Snapshot) -> str:
        lane = await self._current(message, snapshot)
        turns = await self._turns(message, lane, snapshot, _HISTORY_TURNS)
        spoken = [turn for turn in turns if turn.role in (Role.USER, Role.ASSISTANT) and turn.text.strip()]
        if not spoken:
            return snapshot.texts.get("history-empty")
        lines = "\n".join(_line(turn) for turn in spoken)
        return snapshot.texts.get("history", history=lines)


def _meant(said: str, agents: Agents) -> Agent | None:
    """The agent of this name or alias; else the only one whose name begins so; else the only one that is about it.

    Keywords say that better than descriptions, which also name what an agent does not do.
    """
    if said in agents:
        return agents.get(said)
    begun = [agent for agent in agents if agent.name.startswith(said.lower())]
    if begun:
        return begun[0] if len(begun) == 1 else None
    words = said.strip(_MARKS).lower()
    for about in (_has_keyword, _is_near_keyword, _is_described_so):
        found = [agent for agent in agents if len(words) >= _LEAST_WORD and about(agent, words)]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _has_keyword(agent: Agent, words: str) -> bool:
    return words in (keyword.lower() for keyword in agent.settings.intents.keywords)


def _is_near_keyword(agent: Agent, words: str) -> bool:
    return any(words in keyword.lower() or keyword.lower() in words for keyword in agent.settings.intents.keywords)


def _is_described_so(agent: Agent, words: str) -> bool:
    return words in agent.name or words in agent.settings.description.lower()


def _line(turn: Turn) -> str:
    text = " ".join(turn.text.split())
    short = text if len(text) <= _HISTORY_CHARACTERS else text[:_HISTORY_CHARACTERS] + "……"
    speaker = "答" if turn.role is not Role.USER else label(turn.name, turn.user) if turn.user else "我"
    return f"{speaker}：{short}"
