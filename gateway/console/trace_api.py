"""The routes below /api/traces: what happened to messages."""

from aiohttp import web

from gateway.console.api import BadRequest, Query
from gateway.console.backend import ConsoleBackend
from gateway.console.guard import json_response
from gateway.console.trace_json import page_json, rejected_json, sent_json, trace_json
from gateway.tracing.trace import Outcome, TraceQuery

_OUTCOMES = {each.value: each for each in Outcome}
_UNKNOWN = "没有这条轨迹；可能已超过 trace.keep-days 或 trace.max-mb"


class TraceApi:
    """Handlers of the traces' API."""

    def __init__(self, backend: ConsoleBackend) -> None:
        self._backend = backend

    def add_to(self, app: web.Application) -> None:
        """Adds the routes."""
        for path, handler in (
            ("/api/traces", self.traces),
            ("/api/traces/{id}", self.trace),
            ("/api/traces/{id}/request", self.request),
            ("/api/rejected", self.rejected),
        ):
            app.router.add_route("GET", path, handler)

    async def traces(self, request: web.Request) -> web.StreamResponse:
        """One page of traces, newest first; all conditions that are given hold."""
        query = Query(request)
        outcome = query.text("outcome")
        if outcome is not None and outcome not in _OUTCOMES:
            raise BadRequest(400, f"outcome 应为 {'、'.join(_OUTCOMES)} 之一")
        wanted = TraceQuery(
            q=query.text("q") or "",
            user=query.text("user") or "",
            message=query.text("message") or "",
            conversation=query.text("conversation") or "",
            channel=query.channel() or "",
            outcomes=(_OUTCOMES[outcome],) if outcome else (),
        )
        before = query.number("before", 0, 10**15)
        return json_response(page_json(await self._backend.traces(wanted, before, query.limit())))

    async def trace(self, request: web.Request) -> web.StreamResponse:
        """One trace with its steps."""
        trace = await self._backend.trace(request.match_info["id"])
        if trace is None:
            raise BadRequest(404, _UNKNOWN)
        return json_response(trace_json(trace))

    async def request(self, request: web.Request) -> web.StreamResponse:
        """The last request made for this message, as it was sent."""
        sent = await self._backend.request_as_sent(request.match_info["id"])
        if sent is None:
            raise BadRequest(404, "这条消息没有请求过模型，或已不可知")
        return json_response(sent_json(sent))

    async def rejected(self, request: web.Request) -> web.StreamResponse:
        """Requests that were turned away unread, by minute, route and status."""
        found = await self._backend.rejected(Query(request).limit())
        return json_response({"rejected": [rejected_json(each) for each in found]})
