"""What happened to messages: a search, and one message step by step with the request as the model got it."""

import json
from dataclasses import dataclass

from aiohttp import web

from gateway.console.api import BadRequest, Query, conversation_of
from gateway.console.backend import ConsoleBackend
from gateway.console.inspector import Share, shares
from gateway.console.templating import page, wants_fragment
from gateway.console.timeline import OUTCOMES, timeline
from gateway.sent_request import SentRequest
from gateway.tracing.trace import Kind, Outcome, Trace, TraceQuery
from memory.conversation import CHANNELS
from memory.tokens import message_tokens

_ROWS = 50
_MINUTES = 20
_UNKNOWN = "没有这条轨迹：可能已经过了保留的天数，或它的主人要求删除"
UNANSWERED = (Outcome.REFUSED, Outcome.FAILED, Outcome.UNSENT, Outcome.EXPIRED, Outcome.DUPLICATE)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for; "" is anything. `outcome` is one of Outcome, or ``bad`` for all that went wrong."""

    q: str
    channel: str
    outcome: str

    @classmethod
    def of(cls, query: Query) -> "Wanted":
        """Raises BadRequest."""
        found = cls(query.text("q") or "", query.channel() or "", query.text("outcome") or "")
        if found.outcome not in ("", "bad", *Outcome):
            raise BadRequest(400, f"outcome 应为 bad、{'、'.join(Outcome)} 之一")
        return found

    def query(self) -> TraceQuery:
        """The same for the store."""
        outcomes = UNANSWERED if self.outcome == "bad" else (Outcome(self.outcome),) if self.outcome else ()
        return TraceQuery(q=self.q.strip(), channel=self.channel, outcomes=outcomes)


class TracesPage:
    """Handlers of ``/traces`` and of single traces."""

    def __init__(self, backend: ConsoleBackend) -> None:
        self._backend = backend

    def add_to(self, app: web.Application) -> None:
        """Adds the routes."""
        app.router.add_route("GET", "/traces", self.show)
        app.router.add_route("GET", "/traces/{trace}", self.one)
        app.router.add_route("GET", "/traces/{trace}/request", self.request)
        app.router.add_route("GET", "/conversations/{id}/latest", self.latest)
        app.router.add_route("GET", "/conversations/{id}/then", self.then)

    async def show(self, request: web.Request) -> web.StreamResponse:
        """One page of the traces that are looked for, newest first."""
        query = Query(request)
        wanted, before = Wanted.of(query), query.number("before", 0, 10**15)
        found = await self._backend.traces(wanted.query(), before, _ROWS)
        fragment = wants_fragment(request)
        return await page(
            "_traces.html" if fragment else "traces.html",
            here="traces",
            found=found,
            iso=self._backend.iso,
            wanted=wanted,
            channels=CHANNELS,
            outcomes=OUTCOMES,
            rejected=() if fragment else await self._backend.rejected(_MINUTES),
        )

    async def one(self, request: web.Request) -> web.StreamResponse:
        """One message, step by step."""
        trace = await self._trace(request)
        windows = [step.window for step in trace.steps if step.window is not None]
        return await page(
            "trace.html",
            here="traces",
            trace=trace,
            steps=timeline(trace),
            window=windows[-1] if windows else None,
            iso=self._backend.iso,
        )

    async def request(self, request: web.Request) -> web.StreamResponse:
        """What the model was sent for this message."""
        trace = await self._trace(request)
        return await self._sent(trace)

    async def latest(self, request: web.Request) -> web.StreamResponse:
        """The steps of the newest message of a conversation, for the live chat."""
        conversation = conversation_of(request)
        found = await self._backend.traces(TraceQuery(conversation=str(conversation)), None, 1)
        trace = await self._backend.trace(found.traces[0].id) if found.traces else None
        if trace is None:  # a trace may be lost; the answer was given all the same
            return web.Response(status=204)
        return await page("_latest.html", trace=trace, steps=timeline(trace))

    async def then(self, request: web.Request) -> web.StreamResponse:
        """What the model was sent when this turn of the user was answered."""
        conversation, turn = conversation_of(request), Query(request).text("turn", 1000)
        if turn is None:
            raise BadRequest(400, "缺少 turn")
        found = await self._backend.traces(TraceQuery(conversation=str(conversation), message=turn), None, 1)
        trace = await self._backend.trace(found.traces[0].id) if found.traces else None
        joined = next((step for step in trace.steps if step.kind is Kind.JOINED), None) if trace else None
        if joined is not None:  # of several messages that became one turn, the last has the request
            trace = await self._backend.trace(str(joined.facts.get("trace", "")))
        return await self._sent(trace, back=str(conversation))

    async def _sent(self, trace: Trace | None, back: str = "") -> web.StreamResponse:
        sent = await self._backend.request_as_sent(trace.id) if trace else None
        return await page(
            "_sent.html",
            trace=trace,
            sent=sent,
            iso=self._backend.iso,
            parts=sent_shares(sent) if sent else (),
            body=json.dumps(sent.body(), ensure_ascii=False, indent=1) if sent else "",
            back=back,
        )

    async def _trace(self, request: web.Request) -> Trace:
        trace = await self._backend.trace(request.match_info["trace"])
        if trace is None:
            raise BadRequest(404, _UNKNOWN)
        return trace


def sent_shares(sent: SentRequest) -> list[Share]:
    """Where the tokens of a past request went, as they were estimated."""
    seen, system = sent.seen, message_tokens(sent.messages[0].content)
    return shares(
        [
            ("system", "系统", max(system - seen.summary_tokens, 0)),
            ("summary", "摘要", seen.summary_tokens),
            ("window", "窗口", seen.tokens),
            ("question", "问题", seen.question_tokens),
        ]
    )
