"""The list of conversations, and one conversation: all that was said beside what the model gets of it."""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from aiohttp import web

from gateway.console.api import BadRequest, Query, conversation_of, form_of
from gateway.console.backend import ConsoleBackend
from gateway.console.inspector import KNOBS, as_config, change, request_shares, what_if
from gateway.console.templating import page, wants_fragment
from gateway.storage.conversation_index import BadCursor, ConversationItem
from memory.conversation import CHANNELS, ConversationId, Role, Turn
from memory.errors import StoreError

logger = logging.getLogger("sanqiao.console")

_ROWS = 30
_TURNS = 50
_GLANCE = 4
_ROUNDS = 64
_LONGEST_ID = 1000
_PREVIEW = 120
_MOST_TOKENS = 2_000_000
_UNKNOWN = "没有这个会话"


@dataclass(frozen=True, slots=True)
class Row:
    """One conversation of the list: who spoke last in it, how the last text begins, whether it has summaries."""

    item: ConversationItem
    name: str = ""
    preview: str = ""
    summarised: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    """What is looked for; "" is anything. `kind` is ``0`` for direct chats, ``1`` for groups."""

    channel: str
    user: str
    agent: str
    kind: str

    @classmethod
    def of(cls, query: Query) -> "Filter":
        """Raises BadRequest."""
        found = cls(query.channel() or "", *(query.text(key) or "" for key in ("user", "agent", "kind")))
        if found.kind not in ("", "0", "1"):
            raise BadRequest(400, "kind 应为 0（私聊）或 1（群聊）")
        return found

    @property
    def part(self) -> str | None:
        """What every id looked for has in it."""
        if self.agent:
            return f":{self.kind}:{self.agent}" if self.kind else f":{self.agent}"
        return f":{self.kind}:" if self.kind else None


class ConversationsPage:
    """The handler of ``/conversations``."""

    def __init__(self, backend: ConsoleBackend) -> None:
        self._backend = backend

    def add_to(self, app: web.Application) -> None:
        """Adds the route."""
        app.router.add_route("GET", "/conversations", self.show)

    async def show(self, request: web.Request) -> web.StreamResponse:
        """One page of the list; alone where only the next one is asked for."""
        query = Query(request)
        wanted, before = Filter.of(query), query.text("before", 1000)
        try:
            found = await self._backend.conversations(
                wanted.channel or None, wanted.user or None, wanted.part, before, _ROWS
            )
        except BadCursor:
            raise BadRequest(400, "before 不是这个列表给出的游标") from None
        summarised = await self._summarised([item.id for item in found.items])
        rows = await asyncio.gather(*(self._row(item, item.id in summarised) for item in found.items))
        return await page(
            "_conversations.html" if wants_fragment(request) else "conversations.html",
            here="conversations",
            rows=rows,
            before=found.before,
            wanted=wanted,
            channels=CHANNELS,
            agents=self._backend.agents(),
        )

    async def _summarised(self, conversations: Sequence[ConversationId]) -> Collection[ConversationId]:
        with contextlib.suppress(StoreError):  # the list is worth showing without
            return await self._backend.summarised(conversations)
        return ()

    async def _row(self, item: ConversationItem, summarised: bool) -> Row:
        try:
            turns = await self._backend.history(item.id, None, _GLANCE) or ()
        except StoreError:
            return Row(item, preview="（文件读不出来；请运行 repair）", summarised=summarised)
        said = [turn for turn in turns if turn.text.strip() and turn.role is not Role.RESET]
        name = next((turn.name for turn in reversed(said) if turn.name), "")
        if not name and turns and turns[0].n > 0:  # the last question has many tool calls behind it
            with contextlib.suppress(StoreError):
                earlier = await self._backend.history(item.id, turns[0].n, _TURNS) or ()
                name = next((turn.name for turn in reversed(earlier) if turn.name and turn.text.strip()), "")
        preview = " ".join(said[-1].text[: 2 * _PREVIEW].split())[:_PREVIEW] if said else ""
        return Row(item, name or "", preview, summarised)


class ConversationPage:
    """Handlers of ``/conversations/{id}`` and of its parts."""

    def __init__(self, backend: ConsoleBackend) -> None:
        self._backend = backend

    def add_to(self, app: web.Application) -> None:
        """Adds the routes."""
        app.router.add_route("GET", "/conversations/{id}", self.show)
        app.router.add_route("GET", "/conversations/{id}/history", self.history)
        app.router.add_route("GET", "/conversations/{id}/window", self.window)
        app.router.add_route("POST", "/conversations/{id}/forget", self.forget)

    async def show(self, request: web.Request) -> web.StreamResponse:
        """The newest turns beside the window as it would be sent with the next question."""
        conversation = conversation_of(request)
        turns = await self._backend.history(conversation, None, _TURNS)
        if turns is None:
            raise BadRequest(404, _UNKNOWN)
        seen = await self._backend.inspect(conversation)
        return await page(
            "conversation.html",
            here="conversations",
            conversation=conversation,
            turns=turns,
            before=turns[0].n if turns and turns[0].n > 0 else None,
            seen=seen,
            parts=request_shares(seen) if seen else (),
            config=as_config(seen.settings) if seen else "",
            changed=None,
        )

    async def history(self, request: web.Request) -> web.StreamResponse:
        """Older turns."""
        conversation, query = conversation_of(request), Query(request)
        turns = await self._backend.history(conversation, query.number("before", 0, 10**15), _TURNS)
        if turns is None:
            raise BadRequest(404, _UNKNOWN)
        before = turns[0].n if turns and turns[0].n > 0 else None
        return await page("_history.html", conversation=conversation, turns=turns, before=before)

    async def window(self, request: web.Request) -> web.StreamResponse:
        """The window as it would be with other settings, by the same function that makes the real one."""
        conversation, query = conversation_of(request), Query(request)
        over = what_if({key: query.number(key.replace("_", "-"), 1, _MOST_TOKENS) for key in KNOBS})
        try:
            seen = await self._backend.inspect(conversation, over)
        except ValueError:
            raise BadRequest(400, "窗口不能是这样的：max-messages 至少 2，max-tokens 至少 200") from None
        now = await self._backend.inspect(conversation)
        if seen is None or now is None:
            raise BadRequest(404, _UNKNOWN)
        return await page(
            "_window.html",
            seen=seen,
            parts=request_shares(seen),
            config=as_config(seen.settings),
            changed=change(now.window, seen.window) if seen.settings != now.settings else None,
        )

    async def forget(self, request: web.Request) -> web.StreamResponse:
        """Removes one question (the form's `turn`) with all that answers it; what is left of both in their places."""
        conversation, form = conversation_of(request), await form_of(request)
        turn = form.get("turn", "")
        if len(form) != 1 or not 0 < len(turn) <= _LONGEST_ID:
            raise BadRequest(400, "表单里应有 turn：问题的编号")
        try:
            forgotten = await self._backend.forget_turn(conversation, turn)
        except (StoreError, sqlite3.Error) as error:
            logger.error("turn_forget_failed conversation=%s turn=%s reason=%s", conversation, turn, error)
            raise BadRequest(500, "没能全部删除，请查看网关的日志，排除原因后再试") from None
        if forgotten is None:
            raise BadRequest(404, "没有这一轮")
        logger.info("turn_forgotten_by_admin conversation=%s turn=%s", conversation, turn)
        if forgotten.n < 0:  # a person wrote the file, and it was numbered only now
            return web.Response(headers={"HX-Refresh": "true"})
        seen = await self._backend.inspect(conversation)
        return await page(
            "_forgotten.html",
            conversation=conversation,
            forgotten=forgotten,
            turns=await self._struck(conversation, turn, forgotten.n),
            seen=seen,
            parts=request_shares(seen) if seen else (),
            config=as_config(seen.settings) if seen else "",
            changed=None,
        )

    async def _struck(self, conversation: ConversationId, question: str, n: int) -> list[Turn]:
        """The tombstones of the question with ordinal `n` and of what answered it."""
        turns = await self._backend.history(conversation, n + _ROUNDS, _ROUNDS) or ()
        return [turn for turn in turns if turn.removed and question in (turn.id, turn.to)]
