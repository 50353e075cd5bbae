"""The web chat: a question of the console's page in, the events of its answer out, as they happen."""

import asyncio
import re
import time
import unicodedata
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from channels.channel import Accept, EntrySettings, Health, Route, Texts
from channels.message import (
    Answered,
    Delta,
    Failed,
    GatewayClosed,
    InboundMessage,
    Joined,
    Part,
    Progress,
    Shown,
    Silent,
)
from memory.conversation import AGENT_NAME, LaneKey, session_id, user_id

ACCOUNT = "web"
MAX_NAME = 200
"""The most characters a user, group, session or display name may have."""

_MAX_PENDING = 256 * 1024
_SURROGATE = re.compile("[\ud800-\udfff]")


class BadQuestion(ValueError):
    """A question that cannot be taken; the message (Chinese) names the field and the remedy."""


class TooManyReaders(Exception):
    """As many questions wait for their answers as this channel allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One checked question: who asks what, in which group and session (None: none), of which agent (None: routed).

    Raises BadQuestion for names that are too long, blank or hold control characters, and for a blank text.
    """

    user: str
    text: str
    group: str | None = None
    session: str | None = None
    agent: str | None = None
    name: str = ""

    def __post_init__(self) -> None:
        _check_name("user", self.user)
        for label, value in (("group", self.group), ("session", self.session), ("name", self.name or None)):
            if value is not None:
                _check_name(label, value)
        if self.agent is not None and not re.fullmatch(AGENT_NAME, self.agent):
            raise BadQuestion("agent 不是智能体的名字；只能有小写字母、数字和连字符，最多 48 个字符")
        if not self.text.strip():
            raise BadQuestion("text 不能为空；请写下要问的话")


def _check_name(label: str, value: str) -> None:
    if not 1 <= len(value) <= MAX_NAME or not value.strip():
        raise BadQuestion(f"{label} 应有 1 到 {MAX_NAME} 个字符，且不能全是空白")
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in value):
        raise BadQuestion(f"{label} 不能含有控制字符或残缺的字符；请去掉它们")


@dataclass(slots=True)
class _Reader:
    """What one waiting request has not read yet. A slow reader finds neighbouring deltas joined."""

    pending: deque[Shown] = field(default_factory=deque)
    size: int = 0
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, event: Shown) -> None:
        """Never blocks; deltas over the bound are left out, because the last event carries the whole text."""
        last = self.pending[-1] if self.pending else None
        if isinstance(event, Delta):
            if self.size + len(event.text) > _MAX_PENDING:
                return
            self.size += len(event.text)
            if isinstance(last, Delta):
                self.pending[-1] = Delta(last.text + event.text)
                return
        elif type(event) is type(last):
            self.pending.pop()
        self.pending.append(event)
        self.wakeup.set()

    async def get(self) -> Shown:
        while not self.pending:
            self.wakeup.clear()
            await self.wakeup.wait()
        event = self.pending.popleft()
        if isinstance(event, Delta):
            self.size -= len(event.text)
        return event


class WebChannel:
    """The entry of kind ``web``. It holds no state but the readers that wait for an answer right now.

    `new_id` makes message ids that are never used twice. `patience` bounds, in seconds, how long one request waits
    for the next event of its answer; `max_readers` how many wait at once.
    """

    repeatable = True

    def __init__(
        self,
        name: str,
        accept: Accept,
        texts: Texts,
        *,
        new_id: Callable[[], str],
        patience: float = 600.0,
        max_readers: int = 4096,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._name = name
        self._accept = accept
        self._texts = texts
        self._new_id = new_id
        self._patience = patience
        self._max_readers = max_readers
        self._readers: dict[str, _Reader] = {}
        self._open = True
        self._since = clock()

    @property
    def name(self) -> str:
        """The entry's name in the config."""
        return self._name

    def parts(self, text: str, notice: str) -> list[str]:
        """The whole text, as it is."""
        return [text]

    def routes(self) -> Sequence[Route]:
        """None on the public listener: the console carries the web chat."""
        return ()

    def apply(self, settings: EntrySettings) -> None:
        """Nothing of its entry concerns it."""

    async def run(self) -> None:
        """Nothing to receive by itself."""

    async def ask(
        self,
        user: str,
        text: str,
        *,
        group: str | None = None,
        session: str | None = None,
        agent: str | None = None,
        name: str = "",
    ) -> AsyncGenerator[Shown, None]:
        """Hands a question over; returns, once it is stored, the events of its answer up to Answered or Failed.

        Closing the events early ends the reading only, never the answer.
        Raises BadQuestion, TooManyReaders, GatewayClosed.
        """
        question = Question(user=user, text=text, group=group, session=session, agent=agent, name=name)
        if not self._open:
            raise GatewayClosed("the web chat takes no more questions")
        if len(self._readers) >= self._max_readers:
            raise TooManyReaders(f"{self._max_readers} questions wait for their answers")
        message = self._message(question)
        reader = self._readers[message.id] = _Reader()
        try:
            await self._accept(message)
        except BaseException:
            self._readers.pop(message.id, None)
            raise
        return self._follow(message.id, reader)

    def _message(self, question: Question) -> InboundMessage:
        user = user_id("web", ACCOUNT, question.user)
        chat = question.group if question.group is not None else question.user
        session = session_id("web", ACCOUNT, chat, question.session or "")
        return InboundMessage(
            entry=self._name,
            account=ACCOUNT,
            id=self._new_id(),
            lane=LaneKey(user, "web", session, question.group is not None),
            user=user,
            platform_user=question.user,
            text=_SURROGATE.sub("\ufffd", question.text),
            name=question.name,
            chat=question.group or "",
            agent=question.agent,
        )

    async def _follow(self, message_id: str, reader: _Reader) -> AsyncGenerator[Shown, None]:
        try:
            while True:
                try:
                    async with asyncio.timeout(self._patience):
                        event = await reader.get()
                except TimeoutError:
                    event = Failed(self._texts("waited-too-long"))
                yield event
                if isinstance(event, Answered | Failed):
                    return
        finally:
            self._readers.pop(message_id, None)

    def progress(self, message: InboundMessage, event: Progress) -> None:
        """Passes the event to the request that waits for this message; without one it is forgotten."""
        if isinstance(event, Joined | Silent):
            return  # each request of a merged turn gets the answer; a silent end has told its own
        last = isinstance(event, Answered | Failed)
        reader = self._readers.pop(message.id, None) if last else self._readers.get(message.id)
        if reader is not None:
            reader.put(event)

    async def send(self, part: Part) -> str:
        """Nothing to send: whoever waits was told by `progress`, and the text is in the conversation."""
        return ""

    async def stop_receiving(self) -> None:
        """New questions raise GatewayClosed; answers under way go on to their readers."""
        self._open = False

    async def close(self) -> None:
        """Ends every request that still waits with a friendly text."""
        self._open = False
        for reader in self._readers.values():
            reader.put(Failed(self._texts("restarting-saved")))
        self._readers.clear()

    def health(self) -> Health:
        """Always well: it depends on nothing outside."""
        return Health(self._open, f"{len(self._readers)} 个提问在等待回答", self._since)
