"""The platform's requests to one account: proved authentic, read, answered on the open connection or cut."""

import logging
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from channels.message import GatewayClosed, InboundMessage
from channels.wechat.envelope import Envelope, Forged, Unreadable, is_json
from channels.wechat.events import Account, read_message
from channels.wechat.passive import Write
from channels.xml_values import MOST_BYTES

_log = logging.getLogger("sanqiao.channels.wechat")

Contact = Callable[[InboundMessage, Write], Awaitable[bool]]
"""Answers a message by the given writer; False has the connection cut. Raises GatewayClosed."""


class Webhook:
    """The handlers of one entry's route. No answer to a forged request tells more than its status."""

    def __init__(self, envelope: Envelope, account: Account, contact: Contact) -> None:
        self._envelope = envelope
        self._account = account
        self._contact = contact

    async def verify(self, request: web.Request) -> web.StreamResponse:
        """GET: the platform makes sure whose address this is."""
        try:
            return web.Response(text=self._envelope.echo(request.query.items()))
        except Forged as error:
            return self._refuse(error)

    async def push(self, request: web.Request) -> web.StreamResponse:
        """POST: a message or an event. Once authentic, it is never answered with an error: people would see that."""
        body = await request.read()
        if len(body) > MOST_BYTES:
            return web.Response(status=413)
        try:
            fields = self._envelope.open(request.query.items(), body)
        except Forged as error:
            return self._refuse(error)
        except Unreadable as error:
            _log.warning("wechat_unreadable entry=%s reason=%s", self._account.entry, error)
            return _success()
        answer = _Answer(request, self._envelope, fields)
        try:
            message = read_message(fields, self._account)
            if message is None:
                return _success()
            if not await self._contact(message, answer.write):
                return _cut(request)
        except GatewayClosed:
            return _cut(request)
        except Exception:  # border: one delivery
            _log.exception("wechat_delivery_failed entry=%s", self._account.entry)
        return answer.response or _success()

    def _refuse(self, error: Forged) -> web.Response:
        _log.warning("wechat_refused entry=%s reason=%s", self._account.entry, error)
        return web.Response(status=403, text="forbidden")


class _Answer:
    """Writes the reply within the handler, so that it is known whether it went out."""

    def __init__(self, request: web.Request, envelope: Envelope, fields: Mapping[str, str]) -> None:
        self._request = request
        self._envelope = envelope
        self._fields = fields
        self.response: web.Response | None = None

    async def write(self, text: str) -> bool:
        transport = self._request.transport
        if transport is None or transport.is_closing():
            return False
        self.response = _success()
        if text:
            as_json = is_json(await self._request.read())
            reply = self._envelope.text_reply(self._fields, text, as_json=as_json)
            kind = "application/json" if as_json else "application/xml"
            self.response = web.Response(body=reply.encode("utf-8"), content_type=kind, charset="utf-8")
        try:
            await self.response.prepare(self._request)
            await self.response.write_eof()
        except ConnectionError:
            return False
        return True


def _success() -> web.Response:
    return web.Response(text="success")


def _cut(request: web.Request) -> web.Response:
    """Ends the connection without an answer: the platform delivers again."""
    if request.transport is not None:
        request.transport.close()
    return web.Response()
