"""The routes below /api and /metrics: questions are checked here, answers take their JSON form here."""

import asyncio
import json
import logging
import re
import sqlite3
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from channels.message import Answered, Delta, Failed, GatewayClosed, Routed, Shown
from channels.web import BadQuestion, TooManyReaders
from gateway.console.backend import ConsoleBackend
from gateway.console.guard import json_response, refusal
from gateway.console.templating import page, wants_fragment
from gateway.server import Handler
from gateway.storage.conversation_index import BadCursor
from gateway.tracing.metrics import CONTENT_TYPE
from memory.conversation import CHANNELS, PERSON, ConversationId, InvalidId, Turn
from memory.errors import StoreError
from memory.mended import report

logger = logging.getLogger("sanqiao.console")

HEARTBEAT_SECONDS = 15.0
ALIVE = b": alive\n\n"
"""A server-sent comment: browsers pass over it, proxies and dead connections show themselves."""

_WRITE_SECONDS = 60.0
_FIELDS = ("user", "text", "group", "session", "agent", "name")
_REPAIRED = 1000
_UNKNOWN = "没有这个会话"


class BadRequest(Exception):
    """What was asked cannot be answered: the status, and what is wrong (Chinese)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@web.middleware
async def errors_told(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns BadRequest, and what cannot be read at the moment, into an answer: JSON below /api, a page elsewhere."""
    try:
        return await handler(request)
    except BadRequest as error:
        return await _told(request, error.status, error.message)
    except StoreError as error:
        logger.error("files_not_read reason=%s", error)
        return await _told(request, 503, str(error))
    except sqlite3.Error as error:
        logger.error("database_not_read error=%s", error)
        return await _told(request, 503, "数据库暂时读不出；请检查磁盘，再看网关的日志")


async def _told(request: web.Request, status: int, message: str) -> web.StreamResponse:
    if request.path.startswith("/api/") or wants_fragment(request):
        return refusal(request, status, message)
    return await page("error.html", status, here="", message=message)


async def form_of(request: web.Request) -> dict[str, str]:
    """The fields of a page's form, each there once. Raises BadRequest for anything else."""
    if request.content_type != "application/x-www-form-urlencoded":
        raise BadRequest(415, "只接受页面上的表单")
    try:
        form = await request.post()
    except (ValueError, LookupError):  # bytes that are no text, or a charset nobody knows
        raise BadRequest(400, "表单无法读出") from None
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    if len(fields) != len(form):
        raise BadRequest(400, "表单里的每一项只能有一次")
    return fields


async def json_body(request: web.Request, fields: tuple[str, ...]) -> dict[str, Any]:
    """The request's JSON object, with no other keys than `fields`. Raises BadRequest."""
    if request.content_type != "application/json":
        raise BadRequest(415, "只接受 Content-Type: application/json")
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError):
        raise BadRequest(400, "请求体不是 JSON") from None
    if not isinstance(body, dict):
        raise BadRequest(400, "请求体应为一个 JSON 对象")
    for key in body:
        if key not in fields:
            raise BadRequest(400, f"不认识的字段 {key[:50]!r}；可用的有 {', '.join(fields)}")
    return body


def event(name: str, data: object) -> bytes:
    """One server-sent event."""
    text = json.dumps(data, ensure_ascii=False)
    return f"event: {name}\ndata: {text}\n\n".encode("utf-8", "replace")


def progress_event(progress: Shown) -> bytes:
    """The form in which a step of an answer is streamed."""
    match progress:
        case Routed(agent, reason):
            return event("route", {"agent": agent, "reason": reason})
        case Delta(text):
            return event("delta", {"text": text})
        case Answered(text, conversation, usage):
            counted = usage and {
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
            }
            return event("done", {"conversation": conversation and str(conversation), "text": text, "usage": counted})
        case Failed(message):
            return event("error", {"message": message})
        case _:  # concerns channels that answer one message only
            return ALIVE


def turn_json(turn: Turn) -> dict[str, Any]:
    """One turn as /api/conversations/{id} shows it; what is not there is left out."""
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in turn.tool_calls]
    optional = {
        "epoch": turn.epoch,
        "to": turn.to,
        "ids": list(turn.ids),
        "name": turn.name,
        "user": turn.user,
        "tool_calls": calls,
        "call": turn.call,
        "model": turn.model,
        "stopped": turn.stopped,
        "removed": turn.removed,
    }
    shown = {key: value for key, value in optional.items() if value not in (None, [], False)}
    return {"n": turn.n, "id": turn.id, "role": turn.role.value, "text": turn.text, "at": turn.at, **shown}


@dataclass(frozen=True, slots=True)
class Query:
    """The query of one request. Raises BadRequest for keys given twice and values that cannot be."""

    request: web.Request

    def text(self, key: str, longest: int = 200) -> str | None:
        values = self.request.query.getall(key, [])
        if len(values) > 1:
            raise BadRequest(400, f"{key} 只能写一次")
        if values and len(values[0]) > longest:
            raise BadRequest(400, f"{key} 最多 {longest} 个字符")
        if values and "\0" in values[0]:
            raise BadRequest(400, f"{key} 不能含有 NUL 字符；请去掉它")
        return values[0] if values and values[0] else None

    def number(self, key: str, lowest: int, highest: int) -> int | None:
        text = self.text(key)
        if text is None:
            return None
        if not re.fullmatch("[0-9]{1,15}", text) or not lowest <= int(text) <= highest:
            raise BadRequest(400, f"{key} 应为 {lowest} 到 {highest} 的整数")
        return int(text)

    def limit(self) -> int:
        return self.number("limit", 1, 200) or 50

    def channel(self) -> str | None:
        found = self.text("channel")
        if found is not None and found not in CHANNELS:
            raise BadRequest(400, f"channel 应为 {'、'.join(CHANNELS)} 之一")
        return found


class Api:
    """Handlers of the console's API. `heartbeat`: seconds of silence after which a stream says that it lives."""

    def __init__(self, backend: ConsoleBackend, *, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        self._backend = backend
        self._heartbeat = heartbeat

    def add_to(self, app: web.Application) -> None:
        """Adds the routes."""
        for method, path, handler in (
            ("POST", "/api/chat", self.chat),
            ("GET", "/api/agents", self.agents),
            ("GET", "/api/conversations", self.conversations),
            ("GET", "/api/conversations/{id}", self.history),
            ("GET", "/api/conversations/{id}/window", self.window),
            ("GET", "/api/status", self.status),
            ("POST", "/api/forget", self.forget),
            ("POST", "/api/repair", self.repair),
            ("GET", "/metrics", self.metrics),
            ("HEAD", "/metrics", self.metrics),
        ):
            app.router.add_route(method, path, handler)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """One question; its answer as server-sent events."""
        body = await json_body(request, _FIELDS)
        for key, value in body.items():
            if not isinstance(value, str) and (value is not None or key in ("user", "text")):
                raise BadRequest(400, f"{key} 应为文字")
        if "user" not in body or "text" not in body:
            raise BadRequest(400, "缺少 user 或 text")
        agent = body.get("agent") or None
        if agent is not None and agent not in {info.name for info in self._backend.agents()}:
            raise BadRequest(400, "没有这个智能体；可用的见 /api/agents")
        try:
            web_chat = self._backend.web
        except LookupError:
            raise BadRequest(404, "网页聊天没有开启；请在配置里打开 channels.web") from None
        try:
            answer = await web_chat.ask(
                body["user"],
                body["text"],
                group=body.get("group") or None,
                session=body.get("session") or None,
                agent=agent,
                name=body.get("name") or "",
            )
        except BadQuestion as error:
            raise BadRequest(400, str(error)) from None
        except (GatewayClosed, TooManyReaders):
            trouble = self._backend.trouble
            raise BadRequest(503, f"消息没有收下：{trouble}" if trouble else "网关正忙或正在停止，请稍后再试") from None
        return await self._stream(request, answer)

    async def _stream(self, request: web.Request, answer: AsyncGenerator[Shown, None]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        coming: asyncio.Task[Shown] | None = None
        try:
            await response.prepare(request)
            while True:
                coming = coming or asyncio.ensure_future(anext(answer))
                await asyncio.wait({coming}, timeout=self._heartbeat)
                data = ALIVE
                if coming.done():
                    step, coming = coming.result(), None
                    data = progress_event(step)
                async with asyncio.timeout(_WRITE_SECONDS):
                    await response.write(data)
                if coming is None and isinstance(step, Answered | Failed):
                    break
            await response.write_eof()
        except (ConnectionError, TimeoutError):
            logger.debug("chat_reader_gone")
        except Exception as error:  # border: one answer that is streamed
            # The status line is out already, so the usual border could only break the stream's form.
            logger.error("chat_stream_failed error=%s", type(error).__name__)
            logger.debug("chat_stream_failed", exc_info=error)
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
            await answer.aclose()
        return response

    async def agents(self, request: web.Request) -> web.StreamResponse:
        """The agents one may choose."""
        listed = [{"name": info.name, "description": info.description} for info in self._backend.agents()]
        return json_response({"agents": listed})

    async def conversations(self, request: web.Request) -> web.StreamResponse:
        """One page of the list of conversations."""
        query = Query(request)
        channel = query.channel()
        user, q, before = query.text("user"), query.text("q"), query.text("before", 1000)
        try:
            page = await self._backend.conversations(channel, user, q, before, query.limit())
        except BadCursor:
            raise BadRequest(400, "before 不是这个列表给出的游标") from None
        items = [
            {"id": str(item.id), "turns": item.turns, "last": item.last, "bytes": item.bytes} for item in page.items
        ]
        return json_response({"conversations": items, "before": page.before})

    async def history(self, request: web.Request) -> web.StreamResponse:
        """One page of a conversation's turns, the newest page first."""
        query = Query(request)
        before, limit = query.number("before", 0, 10**15), query.limit()
        turns = await self._backend.history(conversation_of(request), before, limit)
        if turns is None:
            raise BadRequest(404, _UNKNOWN)
        first = turns[0].n if turns else 0
        shown = [turn_json(turn) for turn in turns]
        return json_response({"turns": shown, "before": first if first > 0 else None})

    async def window(self, request: web.Request) -> web.StreamResponse:
        """What the model would see with the next question."""
        window = await self._backend.window(conversation_of(request))
        if window is None:
            raise BadRequest(404, _UNKNOWN)
        return json_response(window)

    async def status(self, request: web.Request) -> web.StreamResponse:
        """How the gateway is."""
        return json_response(await self._backend.status())

    async def forget(self, request: web.Request) -> web.StreamResponse:
        """Removes every trace of one person; says what was removed (Chinese), and whether anything was."""
        user = (await json_body(request, ("user",))).get("user")
        if not isinstance(user, str) or not re.fullmatch(PERSON, user):
            raise BadRequest(400, "user 应为用户的编号：u 和 12 个小写字母或数字，可用 /whoami 查看")
        try:
            removed = await self._backend.forget(user)
        except (StoreError, sqlite3.Error) as error:
            logger.error("forget_failed user=%s reason=%s", user, error)
            raise BadRequest(500, "没能全部删除，请查看网关的日志，排除原因后再试") from None
        return json_response({"user": user, "removed": str(removed), "found": bool(removed)})

    async def repair(self, request: web.Request) -> web.StreamResponse:
        """Checks and mends the named conversations' files, or all; what was done (Chinese), and whether anything was lost."""
        names = (await json_body(request, ("conversations",))).get("conversations", [])
        if not isinstance(names, list) or len(names) > _REPAIRED:
            raise BadRequest(400, f"conversations 应为至多 {_REPAIRED} 个会话编号的列表")
        try:
            conversations = [ConversationId.parse(str(name)) for name in names]
        except InvalidId:
            raise BadRequest(400, "conversations 里有的不是会话编号") from None
        found = await self._backend.repair(conversations)
        lines = report(found, every=bool(conversations))
        return json_response({"lines": lines, "lost": any(each.lost for each in found)})

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        """Prometheus text."""
        text = await self._backend.metrics()
        return web.Response(text=text, headers={"Content-Type": CONTENT_TYPE})


def conversation_of(request: web.Request) -> ConversationId:
    """The conversation that stands in the path. Raises BadRequest where none can."""
    try:
        return ConversationId.parse(request.match_info["id"])
    except InvalidId:
        raise BadRequest(404, _UNKNOWN) from None
