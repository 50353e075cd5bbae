"""The life of a message in its middle: refused, run as a command, or answered.

Before it the intake stores the message and puts it into its lane; the lane hands it over here when its turn comes. An
answer is made in `gateway.turns`. After it the replies record the answer, and the outbox sends it.
"""

import logging
import random
import sqlite3
from collections.abc import Callable, Mapping

from agents.model import ModelError
from channels.channel import Channel
from channels.message import (
    Answered,
    Failed,
    Joined,
    Routed,
    Silent,
)
from gateway.command_runner import CommandRunner
from gateway.commands import Command
from gateway.forgetting import Forgetting, ForgetTraces, Records
from gateway.intake import Intake, Spawn
from gateway.lanes import RATE_LIMITED, Lanes, Waiting, Work
from gateway.limits import DAILY_LIMIT, OncePerMinute
from gateway.linking import Linking
from gateway.logs import log_failure
from gateway.outbox import Outbox
from gateway.replies import Replies
from gateway.route import LaneState
from gateway.snapshot import Snapshots
from gateway.storage.conversation_index import ConversationIndex
from gateway.storage.inbox import Inbox
from gateway.storage.stored_message import Group, State
from gateway.storage.token_use import Meter
from gateway.tracing.trace import CHANNEL_OFF, Fact, Kind, Note, follow, id_of, untraced
from gateway.turns.answering import Answer, Answering, Question, QuestionTooLong, Stopper, user_turn
from gateway.turns.classifying import Routing
from gateway.turns.renamed import conversation_with
from gateway.turns.summaries import Occasion, Summaries
from gateway.turns.tool_calls import Desk
from memory.conversation import LaneKey
from memory.errors import StoreError
from memory.filters import FilterFailed
from memory.generations import Forgotten
from memory.memory import Memory

log = logging.getLogger("sanqiao.pipeline")


class Pipeline:
    """What the lanes hand their work to; it owns the intake before them and the forgetting beside them."""

    def __init__(
        self,
        *,
        inbox: Inbox,
        memory: Memory,
        index: ConversationIndex,
        snapshots: Snapshots,
        channels: Mapping[str, Channel],
        outbox: Outbox,
        summaries: Summaries,
        spawn: Spawn,
        desk: Desk,
        clock: Callable[[], float],
        rng: random.Random,
        note: Note = untraced,
        forget_traces: ForgetTraces | None = None,
    ) -> None:
        self._inbox = inbox
        self._memory = memory
        self._index = index
        self._snapshots = snapshots
        self._channels = channels
        self._summaries = summaries
        self._clock = clock
        self._states = inbox.lane_states
        self._routing = Routing(clock)
        self._note = note
        self._answering = Answering(memory, desk, clock, note)
        self._answers: dict[LaneKey, Stopper] = {}
        self._told = OncePerMinute()
        self.replies = Replies(inbox, outbox, channels, states=self._states, snapshots=snapshots, clock=clock)
        self.intake = Intake(
            inbox,
            snapshots,
            settled=self._settled,
            person=memory.persons.of,
            generations=memory.generations,
            put=self._put,
            refill=self._refill,
            spawn=spawn,
            clock=clock,
            note=note,
        )
        self.lanes = Lanes(
            inbox,
            self.handle,
            self.intake.examine,
            lambda: snapshots.now().merging,
            spawn=spawn,
            clock=clock,
            rng=rng,
        )
        self.forgetting = Forgetting(
            Records(memory, inbox, index, forget_traces),
            lanes=self.lanes,
            outbox=outbox,
            summaries=summaries,
            states=self._states,
            channels=channels,
            text=self._text,
        )
        self._commands = CommandRunner(
            memory,
            self._states,
            index,
            stop_answer=self.stop_answer,
            forgetting=self.forgetting,
            linking=Linking(memory, inbox.link_codes, self.forgetting, clock),
            clock=clock,
        )

    async def _settled(self, user: str) -> None:
        await self.forgetting.settled(user)

    def _put(self, waiting: Waiting) -> None:
        self.lanes.put(waiting)

    def _refill(self, lane: LaneKey) -> None:
        self.lanes.refill(lane)

    # ---- through

    async def handle(self, work: Work) -> None:
        """One piece of a lane's work; whatever fails, who wrote is told.

        Raises sqlite3.Error while nothing can be recorded and the message is not too old: it is to be tried again.
        """
        entry, forgets = work.group.newest.message.entry, work.command is not None and work.command.name == "forget"
        if entry not in self._channels and not forgets:
            log.warning("left in the inbox turn=%d entry=%s reason=channel-is-off", work.group.turn, entry)
            self._note(work.group.newest.message, Kind.LEFT, reason=CHANNEL_OFF)
            return
        follow(work.group.newest.message)
        if work.group.rerun:
            self._note(work.group.newest.message, Kind.RESUMED)
        try:
            if work.refusal:
                await self._refuse(work.group, work.refusal)
            elif work.command:
                await self._obey(work.group, work.command)
            else:
                await self._talk(work.group)
        except Exception as error:  # border of one turn: the user is told, the lane goes on
            log_failure(log, f"turn failed lane={work.group.newest.message.lane} turn={work.group.turn}", error)
            talk = not work.refusal and (work.command is None or work.command.question)
            if talk and isinstance(error, sqlite3.OperationalError) and self._is_young(work.group):
                raise  # its answer may be in the file already, and is found there once it can be recorded
            await self._fail_at_the_border(work.group, error)

    async def _obey(self, group: Group, command: Command) -> None:
        """Runs a command and answers it, or the question behind it: once that is taken, the command was run."""
        self._note(group.newest.message, Kind.COMMAND, name=command.name)
        taken = command.question and group.rerun and await self._inbox.is_taken(group.turn)
        text = None if taken else await self._commands.run(command, group.newest, self._snapshots.now())
        if text is None:
            await self._talk(group)
        else:
            await self.replies.finish(group, State.COMMAND, text, Answered(text))

    async def _talk(self, group: Group) -> None:
        if await self._used_up(group):
            await self._refuse(group, DAILY_LIMIT)
        else:
            await self._answer(group)

    async def _used_up(self, group: Group) -> bool:
        """Whether this person's tokens of today are used up; what was begun before a restart is answered all the same."""
        snapshot = self._snapshots.now()
        limit = snapshot.settings.limits.tokens_per_day
        if not limit or group.rerun:
            return False
        accounts = self._memory.persons.links.ids_of(group.newest.message.user)
        return await self._inbox.tokens_used(accounts, snapshot.day(self._clock())) >= limit

    async def _fail_at_the_border(self, group: Group, error: Exception) -> None:
        """Tells the user. Raises sqlite3.Error while nothing can be recorded and the message is not too old.

        The lane then tries the whole turn again: what was said stays unanswered no longer than the disk is full.
        """
        try:
            await self._fail(group, "failed", error=type(error).__name__)
        except sqlite3.Error:
            if self._is_young(group):
                raise
            log.error("turn given up, nothing can be recorded turn=%d", group.turn)
            self.replies.tell(group, Failed(self._text("failed")))
            self.replies.tell(group, Silent())

    def _is_young(self, group: Group) -> bool:
        """Whether its answer is still wanted."""
        patience = self._snapshots.now().settings.conversations.answer_after_restart
        return self._clock() - group.newest.accepted_at < patience

    async def _refuse(self, group: Group, name: str) -> None:
        """A fixed answer instead of a model's; refusals of a flood are told once a minute."""
        message, snapshot = group.newest.message, self._snapshots.now()
        text = snapshot.texts.get(name)
        silent = name in (RATE_LIMITED, DAILY_LIMIT, "refused-dm") and not self._told.allows(
            message.user, self._clock()
        )
        log.info("refused lane=%s reason=%s told=%s", message.lane, name, not silent)
        self._note(message, Kind.REFUSED, reason=name, told=not silent)
        await self.replies.finish(group, State.REFUSED, "" if silent else text, Failed(text))

    async def _answer(self, group: Group) -> None:
        lane = group.newest.message.lane
        stopper = self._answers[lane] = Stopper()  # before the agent is chosen, which may take a model's time
        try:
            await self.intake.eased()
            await self._answer_or_stop(group, stopper)
        finally:
            self._answers.pop(lane, None)

    async def _answer_or_stop(self, group: Group, stopper: Stopper) -> None:
        try:
            question = await self._question(group)
        except FilterFailed as error:  # closed: what was not filtered goes nowhere
            log.error("filter failed lane=%s turn=%d %s", group.newest.message.lane, group.turn, error)
            await self._fail(group, "failed", error="FilterFailed", reason=str(error))
            return
        if question is None:
            await self._refuse(group, "refused-by-filter")
            return
        for older in group.stored[:-1]:
            self.replies.tell_one(older, Joined(group.newest.message.id))
            self._note(older.message, Kind.JOINED, into=group.newest.message.id, trace=id_of(group.newest.message))
        self.replies.tell(group, Routed(question.agent.name, question.reason))
        self._index.touch(question.conversation, question.entry)
        meter = Meter()
        try:
            answer = await self._answering.answer(
                question, lambda event: self.replies.tell(group, event), stopper, meter
            )
        except ModelError as error:
            log.warning(
                "no answer conversation=%s error=%s reason=%s", question.conversation, type(error).__name__, error
            )
            await self._fail(group, error.text, meter, error=type(error).__name__, reason=str(error))
        except QuestionTooLong:
            await self._fail(group, "too-long", meter, error="QuestionTooLong")
        except Forgotten:  # this question was, while it was being answered
            await self._fail(group, "stopped", meter, error="Forgotten")
        except StoreError as error:
            log.error("not stored conversation=%s reason=%s", question.conversation, error)
            await self._fail(group, "failed", meter, error=type(error).__name__, reason=str(error))
        else:
            await self._deliver(question, answer, meter)
        finally:
            self._index.touch(question.conversation, question.entry)

    async def _question(self, group: Group) -> Question | None:
        """Chooses the agent, unless that was done before a restart, and freezes group and route.

        None where an own filter drops what was said, or it was forgotten meanwhile. Raises FilterFailed.
        """
        snapshot, message, now = self._snapshots.now(), group.newest.message, self._clock()
        lane = snapshot.known(await self._states.get(message.lane))
        if group.rerun and group.conversation is None:  # tried again in this process: what was frozen is in the inbox
            taken = await self._inbox.taken()
            group = next((each for each in taken if each.turn == group.turn), group)
        if group.route and group.conversation and group.route.agent in snapshot.agents:
            route, conversation = group.route, group.conversation
            agent = snapshot.agents.get(route.agent)
        else:
            route = await self._routing.route(group.text, message, lane, snapshot)
            agent = snapshot.agents.get(route.agent)
            conversation = await conversation_with(self._memory, message.lane, agent)
            if not await self._inbox.take(group, conversation, route, now):
                return None
        follow(message, conversation)
        log.info("routed conversation=%s by=%s", conversation, route.by)
        self._note(
            message,
            Kind.ROUTED,
            agent=agent.name,
            by=route.by.value,
            reason=route.reason,
            conversation=str(conversation),
            waited=round(now - group.newest.accepted_at, 3),
            seconds=round(self._clock() - now, 3),
        )
        turn = await user_turn(group, agent, snapshot, now)
        if turn is None:
            return None
        return Question(group, conversation, agent, turn, snapshot, route.reason, lane)

    async def _deliver(self, question: Question, answer: Answer, meter: Meter) -> None:
        group, lane = question.group, question.lane
        if not lane.pinned or lane.agent == question.agent.name:  # one message to another agent unpins nothing
            lane = LaneState(question.agent.name, self._clock(), lane.pinned)
        text = answer.text or question.snapshot.texts.get("stopped")
        answered = Answered(text, question.conversation, answer.usage)
        self._note(group.newest.message, Kind.ANSWERED, chars=len(answer.text), stopped=answer.stopped)
        await self.replies.finish(group, State.ANSWERED, answer.text, answered, lane, meter=meter)
        if answer.roomy:
            return
        snapshot, speaker = question.snapshot, question.turn.name
        self._summaries.after(Occasion(question.conversation, question.agent, question.entry, speaker, snapshot))

    async def _fail(self, group: Group, name: str, meter: Meter | None = None, **facts: Fact) -> None:
        """The user is shown a short text; it is never stored as an answer. `facts` say why, for the trace."""
        text = self._snapshots.now().texts.get(name)
        self._note(group.newest.message, Kind.FAILED, text=name, **facts)
        await self.replies.finish(group, State.FAILED, text, Failed(text), meter=meter)

    def _text(self, name: str) -> str:
        return self._snapshots.now().texts.get(name)

    def stop_answer(self, lane: LaneKey) -> bool:
        """Stops the answer that is being made in this lane; False when there is none."""
        stopper = self._answers.get(lane)
        if stopper is None:
            return False
        stopper.stop()
        return True
