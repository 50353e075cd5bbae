"""The window: which turns of a conversation the model sees, and for every turn it does not see, why."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from memory.acknowledgement import ASSENTS, CLOSERS, Acknowledgements, acknowledgements
from memory.conversation import Role, ToolCall, Turn
from memory.rounds import Lost, Reader, Round, rounds
from memory.settings import SettingsModel
from memory.speaker import voiced
from memory.summary import Summary
from memory.tokens import PER_MESSAGE, call_tokens, message_tokens, shortened

UNANSWERED = "（上一条未得到回答）"
"""The assistant's line that stands, in the window only, where an answer is missing."""

LIMITS = ("token-budget", "message-cap", "context-limit")
"""The stages that leave out what is fit to be seen: what they drop counts in `Window.gap`."""

MaxMessages = Annotated[int, Field(ge=2)]
KeepRecent = Annotated[int, Field(ge=1)]
MaxTokens = Annotated[int, Field(ge=200)]
ShortMessageThreshold = Annotated[int, Field(ge=1)]


class WindowSettings(SettingsModel):
    """`agent.context.window`: how much of the past one request carries.

    `keep_recent` that is not written is 10, or `max_messages` where that is less. `closers` and `assents` are the words
    that `filter_short_messages` takes for acknowledgements: closers always, assents unless they answer a question.
    """

    max_messages: MaxMessages = 20
    keep_recent: KeepRecent = 10
    max_tokens: MaxTokens = 8000
    filter_short_messages: bool = True
    short_message_threshold: ShortMessageThreshold = 5
    keep_answers: bool = True
    closers: tuple[str, ...] = CLOSERS
    assents: tuple[str, ...] = ASSENTS

    @property
    def longest_turn(self) -> int:
        """How many tokens of one turn are shown; of a longer one, its head and tail."""
        return self.max_tokens // 4

    @model_validator(mode="before")
    @classmethod
    def _default_fits(cls, written: Any) -> Any:
        """A `max-messages` under the default of `keep-recent` is no mistake of whoever wrote only the former."""
        if isinstance(written, dict) and not {"keep-recent", "keep_recent"} & set(written):
            cap = written.get("max-messages", written.get("max_messages"))
            if isinstance(cap, int) and 1 <= cap < cls.model_fields["keep_recent"].default:
                return {**written, "keep_recent": cap}
        return written

    @model_validator(mode="after")
    def _recent_fit(self) -> Self:
        if self.keep_recent > self.max_messages:
            raise ValueError("keep-recent 不能大于 max-messages")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowMessage:
    """One message of the request: its role, text, the ids of the turns in it, estimated tokens.

    `shortened` counts the tokens left out of its middle. The line that stands for a missing answer has no `ids`.
    """

    role: Role
    content: str
    ids: tuple[str, ...]
    tokens: int
    shortened: int = 0
    tool_calls: tuple[ToolCall, ...] = ()
    call: str | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """One visited turn the model does not see: at which stage it went, and why (Chinese, for admins)."""

    id: str
    role: Role
    stage: str
    reason: str
    n: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What the model sees of the past, oldest first, and what it does not see.

    `tokens` is the estimate of `messages`; `question_tokens` that of the current question (0 without one). `fits` is
    False when the question alone is too long for the model. `not_read_before` is the id of the oldest turn visited
    where older ones exist unread, `not_read` how many at most (since the last reset) and `not_read_up_to` the ordinal of
    the newest of them. `first` is the ordinal of the oldest turn in the window, -1 for one that has none yet. `gap`
    counts turns that are in neither window nor `summary`, which takes `summary_tokens` of the request. `covered` is the
    ordinal that the newest summary reaches, which may be a later one; -1 without `summary`.
    """

    messages: tuple[WindowMessage, ...]
    dropped: tuple[Drop, ...]
    tokens: int
    question_tokens: int
    fits: bool = True
    not_read_before: str | None = None
    not_read: int = 0
    not_read_up_to: int = -1
    first: int | None = None
    gap: int = 0
    summary: Summary | None = None
    summary_tokens: int = 0
    covered: int = -1

    def left_out(self, through: int | None = None) -> int:
        """How many turns since the last reset limits keep out of the window, behind ordinal `through` if given."""
        covered = -1 if through is None else through
        unread = self.not_read
        if through is not None and self.not_read_up_to >= 0:
            unread = min(unread, max(0, self.not_read_up_to - through))
        return unread + sum(drop.stage in LIMITS and not 0 <= drop.n <= covered for drop in self.dropped)

    def unread_from(self, oldest: Turn) -> Self:
        """The window where nothing before `oldest` was read, although there is more."""
        unread = _unread(oldest)
        up_to = oldest.n - 1 if oldest.n > 0 else -1
        return replace(self, not_read_before=oldest.id, not_read=unread, not_read_up_to=up_to, gap=self.gap + unread)

    def with_summary(self, summary: Summary, tokens: int, latest: Summary) -> Self:
        """The window beside a summary; `latest` is the newest one."""
        gap = self.left_out(summary.through)
        return replace(self, summary=summary, summary_tokens=tokens, gap=gap, covered=latest.through)


def build_window(turns: Iterable[Turn], *, question: str | None, settings: WindowSettings, room: int) -> Window:
    """The window over the turns before the current question, which come newest first.

    `turns` is read only up to the first round that no longer fits (so that there is a reason to show), and one turn
    further to know whether there is any. A reset ends it. `room` is how many tokens window and question may take in
    the model. Without `question` the one to come is counted as a message, but not in tokens.
    """
    question_tokens = 0 if question is None else message_tokens(question)
    reader = Reader(turns)
    filling = _Filling(settings, room - question_tokens)
    for round_ in rounds(reader, _words(settings), keep_answers=settings.keep_answers):
        if not filling.takes(round_):
            break
    dropped = tuple(
        Drop(lost.turn.id, lost.turn.role, lost.stage, lost.reason, lost.turn.n)
        for lost in filling.all_lost(reader.visited)
    )
    messages = _joined(filling.messages())
    window = Window(
        messages=messages,
        dropped=dropped,
        tokens=sum(message.tokens for message in messages),
        question_tokens=question_tokens,
        fits=question_tokens <= room,
        first=filling.first,
        gap=sum(drop.stage in LIMITS for drop in dropped),
    )
    return window.unread_from(reader.visited[-1]) if filling.refusal and reader.has_older() else window


def _words(settings: WindowSettings) -> Acknowledgements | None:
    if not settings.filter_short_messages:
        return None
    return acknowledgements(settings.closers, settings.assents, settings.short_message_threshold)


def _unread(oldest: Turn) -> int:
    """How many turns stand unread before this one: exact before the first reset, an upper bound after it."""
    return max(1, oldest.n - max(oldest.epoch, 0))


class _Filling:
    """Takes rounds, newest first, as long as they fit."""

    def __init__(self, settings: WindowSettings, room: int) -> None:
        self._settings = settings
        self._room = room
        self._kept: list[list[WindowMessage]] = []
        self._lost: list[Lost] = []
        self._read = 0
        self._count = 0
        self._tokens = 0
        self._refused = Round((), ())
        self.first: int | None = None
        """The ordinal of the oldest turn taken."""
        self.refusal: tuple[str, str] | None = None
        """Stage and reason why the last round was not taken."""

    def takes(self, round_: Round) -> bool:
        """Takes a round in if it fits. After one that does not fit, no older one may be offered."""
        messages = [_message(turn, self._settings.longest_turn) for turn in round_.turns]
        if messages and self._lacks_answer(messages[-1]):
            messages.append(_unanswered())
        self.refusal = self._refuses(messages) if messages else None
        if self.refusal:
            self._refused = round_
            return False
        self._kept.append(messages)
        self.first = round_.turns[0].n if round_.turns else self.first
        self._lost += round_.lost
        self._read += len(round_.turns) + len(round_.lost)
        self._count += len(messages)
        self._tokens += sum(message.tokens for message in messages)
        return True

    def _lacks_answer(self, last: WindowMessage) -> bool:
        """A user's turn without answer is joined to the next user's turn, if there is one in the window."""
        return last.role is Role.TOOL or (last.role is Role.USER and not self._count)

    def _refuses(self, messages: list[WindowMessage]) -> tuple[str, str] | None:
        """The newest round stays over budget and cap; nothing stays over what the model can take."""
        settings = self._settings
        count = self._count + len(messages)
        tokens = self._tokens + sum(message.tokens for message in messages)
        if self._count >= settings.keep_recent and tokens > settings.max_tokens:
            return "token-budget", f"超出预算 {tokens - settings.max_tokens} tokens（上限 {settings.max_tokens}）"
        if self._count and count >= settings.max_messages:
            return "message-cap", f"超出 {settings.max_messages} 条上限（含当前问题）"
        if tokens > self._room:
            return "context-limit", f"超出模型上下文 {tokens - self._room} tokens"
        return None

    def messages(self) -> list[WindowMessage]:
        """What was taken, oldest first."""
        return [message for messages in reversed(self._kept) for message in messages]

    def all_lost(self, visited: list[Turn]) -> list[Lost]:
        """Everything read and not taken, newest first; what the refusal took with it has its stage and reason."""
        if not self.refusal:
            return self._lost
        own = list(reversed(self._refused.lost))
        lost = list(self._lost)
        for turn in visited[self._read :]:
            lost.append(own.pop() if own and own[-1].turn is turn else Lost(turn, *self.refusal))
        return lost


def _message(turn: Turn, longest: int) -> WindowMessage:
    """A turn as the model sees it; a text of more than `longest` tokens with only its head and tail."""
    content, tokens, left_out = shortened(voiced(turn), longest)
    return WindowMessage(
        role=turn.role,
        content=content,
        ids=(turn.id,),
        tokens=tokens + PER_MESSAGE + sum(map(call_tokens, turn.tool_calls)),
        shortened=left_out,
        tool_calls=turn.tool_calls,
        call=turn.call,
    )


def _unanswered() -> WindowMessage:
    return WindowMessage(role=Role.ASSISTANT, content=UNANSWERED, ids=(), tokens=message_tokens(UNANSWERED))


def _joined(messages: list[WindowMessage]) -> tuple[WindowMessage, ...]:
    """Joins neighbours of one role; a turn with tool calls only as the last of them, right before its results."""
    joined: list[WindowMessage] = []
    for message in messages:
        before = joined[-1] if joined else None
        if before and before.role is message.role is not Role.TOOL and not before.tool_calls:
            joined[-1] = _join(before, message)
        else:
            joined.append(message)
    return tuple(joined)


def _join(first: WindowMessage, second: WindowMessage) -> WindowMessage:
    content = "\n\n".join(filter(None, (first.content, second.content)))
    return WindowMessage(
        role=first.role,
        content=content,
        ids=first.ids + second.ids,
        tokens=message_tokens(content) + sum(map(call_tokens, second.tool_calls)),
        shortened=first.shortened + second.shortened,
        tool_calls=second.tool_calls,
    )
