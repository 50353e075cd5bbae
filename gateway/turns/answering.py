"""One turn: the question is stored, the window built, the model asked, the answer stored."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from agents.agent import Agent
from agents.model import Completion, ContextTooLong, ModelRequest
from agents.prompt import compose
from agents.tool_loop import ToolLoop, ToolRound, spec_tokens
from channels.message import Delta, Progress, Usage
from gateway.route import LaneState
from gateway.snapshot import Snapshot
from gateway.storage.stored_message import Group
from gateway.storage.token_use import Meter
from gateway.tracing.frames import Asked
from gateway.tracing.trace import Kind, Note, untraced
from gateway.tracing.traced_model import TracedModel
from gateway.turns.metered_model import MeteredModel
from gateway.turns.room import Room, room_of
from gateway.turns.tool_calls import Desk, rounds_of, turns_of
from memory.context import ContextSettings
from memory.conversation import ConversationId, Role, Turn
from memory.errors import StoreError
from memory.memory import Ahead, Memory
from memory.speaker import voiced
from memory.tokens import call_tokens, message_tokens
from memory.window import Window, WindowSettings

log = logging.getLogger("sanqiao.answering")


class QuestionTooLong(Exception):
    """The question alone is longer than the model's context."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent: its text ("" when stopped before the first word), the tokens the model's server told, if it was stopped."""

    text: str
    usage: Usage | None = None
    stopped: bool = False
    roomy: bool = False
    """Whether all that no summary covers, this answer too, has its room in the next window: no summary can be due."""


@dataclass(slots=True)
class Stopper:
    """The handle by which ``/stop`` ends an answer; what was streamed so far is kept."""

    stopped: bool = False
    _call: "asyncio.Task[Completion] | None" = field(default=None)

    def stop(self) -> None:
        """Ends the call to the model, now or as soon as it would begin."""
        self.stopped = True
        if self._call:
            self._call.cancel()

    async def run(self, call: "asyncio.Task[Completion]") -> Completion | None:
        """Waits for `call`; None when it was stopped. A cancelled caller cancels the call."""
        self._call = call
        if self.stopped:
            call.cancel()
        try:
            return await call
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if self.stopped and not (current and current.cancelling()):
                return None
            call.cancel()
            raise
        finally:
            self._call = None


@dataclass(frozen=True, slots=True)
class Question:
    """One turn to be answered: where, by which agent and why, the user's turn as it is stored, what the lane knew."""

    group: Group
    conversation: ConversationId
    agent: Agent
    turn: Turn
    snapshot: Snapshot
    reason: str
    lane: LaneState

    @property
    def entry(self) -> str:
        """The channel entry it came through."""
        return self.group.newest.message.entry


async def user_turn(group: Group, agent: Agent, snapshot: Snapshot, now: float) -> Turn | None:
    """The group as one user turn: texts joined by line breaks, masked; merged messages keep their ids.

    None where an own filter drops the text. Raises FilterFailed.
    """
    masking = snapshot.masking(agent)
    messages = [stored.message for stored in group.stored]
    ids = tuple(message.id for message in messages)
    text = await masking.apply(group.text)
    if text is None or not text.strip():
        return None
    return Turn(
        role=Role.USER,
        text=text,
        id=ids[0],
        ids=ids if len(ids) > 1 else (),
        at=snapshot.iso(now),
        name=await masking.apply(messages[-1].name) or None if messages[-1].name else None,
        user=messages[-1].user if messages[-1].lane.is_shared else None,
    )


class Answering:
    """Turns a question into an answer, with `memory` before and after it."""

    def __init__(self, memory: Memory, desk: Desk, clock: Callable[[], float], note: Note = untraced) -> None:
        self._memory = memory
        self._desk = desk
        self._clock = clock
        self._note = note

    async def answer(
        self, question: Question, tell: Callable[[Progress], None], stopper: Stopper, meter: Meter
    ) -> Answer:
        """Stores the question, asks, stores the answer; what that takes is counted in `meter`, also when it fails.

        A question that is run again after a restart and has its answer in the file is not asked again; the tool calls
        in the file are taken as they are. Text beside tool calls is told and kept in the file, but is no part of the
        answer. Raises ModelError, QuestionTooLong, StoreError.
        """
        earlier, found = list[Turn](), list[Turn]()
        if question.group.rerun:
            earlier = await self._memory.answer_to(question.conversation, question.turn.id)
            found = [turn for turn in earlier if turn.role is Role.ASSISTANT and not (turn.tool_calls or turn.removed)]
        ahead = Ahead() if found else await self._memory.ask(question.conversation, question.turn)
        said: list[str] = []

        def on_text(piece: str) -> None:
            said.append(piece)
            tell(Delta(piece))

        async def keep(number: int, round_: ToolRound) -> None:
            said.clear()
            await self._remember_round(question, number, round_)

        room = await room_of(
            question.snapshot,
            question.agent,
            question.conversation,
            question.turn.name,
            self._memory,
            known=ahead.profile,
        )
        if earlier:
            await self._count_earlier(question, room, earlier, meter)
        if found:
            return Answer(found[0].text, stopped=found[0].stopped)
        note = partial(self._note, question.group.newest.message)
        client = MeteredModel(TracedModel(question.snapshot.model(question.agent), note), meter)
        context = self._desk.context(question.conversation, question.snapshot, question.turn)
        loop = ToolLoop(client, room.tools, context, keep, rounds=rounds_of(earlier), ran=partial(_noted_tool, note))
        completion, window = await self._ask(question, room, loop, on_text, stopper, ahead=ahead)
        text = completion.text if completion else "".join(said)
        if completion or text.strip():
            await self._memory.remember(question.conversation, [self._answer_turn(question, text, completion)])
        if completion is None:
            return Answer(text if text.strip() else "", stopped=True)
        told = completion.usage
        usage = Usage(told.prompt_tokens, told.completion_tokens) if told else None
        context_settings = question.snapshot.context(question.agent, question.entry)
        roomy = False
        if ahead.kept is not None and not loop.rounds:
            newest = ahead.kept.turns[0].n + 1  # the answer, behind the question
            roomy = is_roomy(window, context_settings, room.tokens, newest, message_tokens(text))
        return Answer(text, usage, roomy=roomy)

    async def _count_earlier(self, question: Question, room: Room, earlier: Sequence[Turn], meter: Meter) -> None:
        """Counts, by estimate, what these turns took: they are in the file, but their count was lost before it was recorded."""
        asked = message_tokens(room.system) + message_tokens(question.turn.text) + spec_tokens(room.tools)
        settings = question.snapshot.context(question.agent, question.entry).window
        try:
            window = await self._window(question, settings, room, room.tokens, Ahead())
            asked += window.tokens + window.summary_tokens
        except (QuestionTooLong, StoreError) as error:  # what is there is worth more than its count
            log.warning("counted without its window conversation=%s reason=%s", question.conversation, error)
        for turn in earlier:
            tokens = message_tokens(turn.text) + sum(map(call_tokens, turn.tool_calls))
            if turn.role is Role.ASSISTANT:
                meter.add(asked, tokens)
            asked += tokens

    async def _ask(
        self,
        question: Question,
        room: Room,
        loop: ToolLoop,
        on_text: Callable[[str], None],
        stopper: Stopper,
        *,
        ahead: Ahead,
    ) -> tuple[Completion | None, Window]:
        """The answer (None: stopped), and the window it was given with."""
        history = question.snapshot.model(question.agent).settings.history
        settings = question.snapshot.context(question.agent, question.entry).window
        window = await self._window(question, settings, room, room.tokens, ahead)
        call = loop.run(self._request(question, window, room, history, settings), on_text)
        try:
            return await stopper.run(asyncio.create_task(call)), window
        except ContextTooLong:
            if not window.messages and not window.summary:
                raise
            log.warning("context too long, asking again with half conversation=%s", question.conversation)
        # Half of what was sent: half of a budget that was not used up would send the same again.
        sent = window.tokens + window.question_tokens + window.summary_tokens
        settings = settings.model_copy(update={"max_tokens": max(window.tokens // 2, 200), "keep_recent": 1})
        window = await self._window(question, settings, room, max(sent // 2, window.question_tokens), Ahead())
        call = loop.run(self._request(question, window, room, history, settings), on_text)
        return await stopper.run(asyncio.create_task(call)), window

    def _request(
        self, question: Question, window: Window, room: Room, history: str, settings: WindowSettings
    ) -> ModelRequest:
        """What the model is sent, noted for the trace."""
        request = request_of(question, window, room, history)
        system = request.messages[0].content
        if history == "text":  # the trace keeps the quoted window by its ids
            system = room.system_with(window.summary.text) if window.summary else room.system
        tools = tuple(tool.spec for tool in room.tools)
        asked = Asked(window, request, question.turn.id, settings.longest_turn, system, history, tools)
        kept, dropped = len(window.messages), len(window.dropped)
        self._note(question.group.newest.message, Kind.WINDOW, asked, kept=kept, dropped=dropped)
        return request

    async def _window(
        self, question: Question, settings: WindowSettings, room: Room, tokens: int, ahead: Ahead
    ) -> Window:
        """The window over what stands before the question, in `tokens` of the room. Raises QuestionTooLong."""
        summaries = question.snapshot.context(question.agent, question.entry).summary.enabled
        window = await self._memory.window(
            question.conversation,
            settings,
            question=question.turn,
            room=tokens,
            weigh=room.weigh if summaries else None,
            ahead=ahead,
        )
        if not window.fits:
            raise QuestionTooLong
        return window

    async def _remember_round(self, question: Question, number: int, round_: ToolRound) -> None:
        """Stores the calls of a round, or its results once there are any."""
        asking, *results = turns_of(question.turn, number, round_, question.snapshot.iso(self._clock()))
        await self._memory.remember(question.conversation, results or [asking])

    def _answer_turn(self, question: Question, text: str, completion: Completion | None) -> Turn:
        return Turn(
            role=Role.ASSISTANT,
            text=text,
            id=f"{question.turn.id}/a",
            to=question.turn.id,
            user=question.turn.user,
            at=question.snapshot.iso(self._clock()),
            model=completion.model if completion else None,
            stopped=completion is None,
        )


def _noted_tool(note: Callable[..., None], name: str, outcome: str, chars: int, seconds: float) -> None:
    note(Kind.TOOL, name=name, outcome=outcome, chars=chars, seconds=round(seconds, 3))


def is_roomy(window: Window, settings: ContextSettings, room: int, newest: int, answer_tokens: int) -> bool:
    """Whether the next window, with question and answer (ordinal `newest`), surely leaves no gap and no summary is due.

    Only ever of a window of plain turns: the limits count what was joined, and a round of tool calls, otherwise.
    """
    plain = all(
        len(message.ids) <= 1 and message.role is not Role.TOOL and not message.tool_calls
        for message in window.messages
    )
    tokens = window.tokens + window.question_tokens + answer_tokens
    full = tokens >= settings.window.max_tokens or tokens + window.summary_tokens >= room // 2
    if window.gap or full or not plain:
        return False
    if window.summary is None:
        visited = len(window.messages) + len(window.dropped)
        asked = sum(message.role is Role.USER for message in window.messages)
        asked += sum(drop.role is Role.USER for drop in window.dropped)
        few = visited + 4 <= settings.window.max_messages and asked + 1 < settings.summary.after_turns
        return few and window.not_read_before is None
    since = newest - window.covered
    rhythm = settings.summary.keep + settings.summary.every_messages
    # One place is the next question's, one may be taken by the line for a missing answer.
    return since < rhythm and since + 2 <= settings.window.max_messages


def request_of(question: Question, window: Window, room: Room, history: str) -> ModelRequest:
    """What the model is sent; its tools and the rounds of calls are the tool loop's."""
    shared = question.conversation.lane.is_shared
    messages = compose(
        question.agent,
        window.messages,
        voiced(question.turn),
        history=history,
        speaker_name="" if shared else question.turn.name or "",
        group=question.conversation.lane.group,
        shared=shared,
        tools=bool(room.tools),
        summary=window.summary.text if window.summary else None,
        profile=room.profile,
    )
    settings = question.agent.settings
    return ModelRequest(messages=messages, temperature=settings.temperature, seed=settings.seed)
