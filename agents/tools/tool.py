"""What a tool is: name, description, JSON Schema of its arguments, and what it does, given who calls and for whom."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Protocol

from agents.model import ToolSpec
from agents.tools.jobs import JobBoard
from memory.conversation import ConversationId
from memory.profile import Profiles
from memory.tokens import message_tokens

Arguments = Mapping[str, object]
"""A call's arguments as the model wrote them, parsed; a tool takes nothing about them for granted."""


class ToolError(Exception):
    """A tool has no result. The message is told to the model: short, in Chinese, without secrets."""


class BadArguments(ToolError):
    """The arguments can't be used; the message says what is wanted."""


@dataclass(frozen=True, slots=True)
class Passage:
    """What was said in another conversation: when (ISO 8601), by whom (``用户``/``助手``), the text."""

    at: str
    speaker: str
    text: str


class Past(Protocol):
    """What one person said in other direct chats."""

    async def others(self, conversation: ConversationId) -> Sequence[Passage]:
        """The passages of this person's other direct conversations since each one's last reset, newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """For whom a tool is called, and what it may use.

    `key` names this call: the same after a restart, of no other call. `filtered` makes a text such as may be stored
    (None: not at all), `filtered_for_all` such as any agent may see. `generation`: see memory.generations.
    """

    conversation: ConversationId
    key: str
    now: datetime
    generation: int
    jobs: JobBoard
    profiles: Profiles
    past: Past
    filtered: Callable[[str], Awaitable[str | None]]
    filtered_for_all: Callable[[str], Awaitable[str | None]]


@dataclass(frozen=True)
class Tool:
    """One tool. `repeatable`: a call that a restart broke off is simply made again.

    `direct_only`: offered in direct chats only, as it touches what belongs to one person. `seconds`: how long a call
    may take, where that is not as for all others.
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    run: Callable[[CallContext, Arguments], Awaitable[str]]
    repeatable: bool = False
    direct_only: bool = False
    seconds: float | None = None

    @cached_property
    def spec(self) -> ToolSpec:
        """What the model is told of it."""
        return ToolSpec(self.name, self.description, json.dumps(self.parameters, ensure_ascii=False))

    @cached_property
    def tokens(self) -> int:
        """About how many tokens offering it adds to a request."""
        return message_tokens(f"{self.spec.name} {self.spec.description} {self.spec.parameters}")


async def in_thread(work: Callable[[], object], name: str) -> object:
    """What a foreign function gives, in a thread that keeps neither the loop nor the process's end waiting."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()

    def settle(result: object, problem: BaseException | None) -> None:
        if future.done():  # nobody waits any more
            return
        if problem is None:
            future.set_result(result)
        else:
            future.set_exception(problem)

    def run() -> None:
        result: object = None
        problem: Exception | None = None
        try:
            result = work()
        except ToolError as error:
            problem = error
        except BaseException as error:  # border: a foreign function; its message may hold anything
            problem = RuntimeError(type(error).__name__)
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, result, problem)

    threading.Thread(target=run, name=f"tool-{name}", daemon=True).start()
    return await future
