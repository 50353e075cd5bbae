"""The floor: what any gateway must do at least. Verify, parse, one model call, one reply; no state, nothing but aiohttp.

    python -m tests.bench.floor --port 18010 --model http://… --platform http://… --channels feishu wechat

What it lacks is what the product costs: nothing is stored, nothing is asked twice, no conversation, no order, no
limits, no retries, no traces.
"""

import argparse
import asyncio
import base64
import hashlib
import hmac
import json
import time
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import aiohttp
from aiohttp import web
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tests.platforms import wechat_platform as wechat
from tests.platforms.feishu_server import DATA, Frame, sign

_FEISHU_KEY, _FEISHU_TOKEN = "bench-encrypt-key", "bench-verification-token"


class Floor:
    """One floor for all four channels."""

    def __init__(self, model: str, platform: str) -> None:
        self._model, self._platform = model, platform
        self._tasks: set[asyncio.Task[None]] = set()

    async def session(self, app: web.Application) -> AsyncIterator[None]:
        """The one session, as long as the application runs."""
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        yield
        for task in list(self._tasks):
            task.cancel()
        await self._http.close()

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Does it after the acknowledgement."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, text: str) -> str:
        body = {"model": "bench", "messages": [{"role": "user", "content": text}]}
        async with self._http.post(f"{self._model}/v1/chat/completions", json=body) as response:
            answer: str = (await response.json())["choices"][0]["message"]["content"]
            return answer

    async def _send(self, url: str, body: Any, headers: dict[str, str] | None = None) -> None:
        async with self._http.post(url, json=body, headers=headers) as response:
            await response.read()

    # ---- Feishu

    async def feishu(self, request: web.Request) -> web.Response:
        """The webhook."""
        raw, head = await request.read(), request.headers
        made = sign(head["X-Lark-Request-Timestamp"], head["X-Lark-Request-Nonce"], _FEISHU_KEY, raw)
        if not hmac.compare_digest(made, head["X-Lark-Signature"]):
            return web.Response(status=401)
        event = json.loads(_feishu_decrypt(json.loads(raw)["encrypt"]))
        if event["header"]["token"] != _FEISHU_TOKEN:
            return web.Response(status=403)
        self.later(self._answer_feishu(event["event"]["message"]))
        return web.json_response({})

    async def feishu_long(self, _: web.Application) -> AsyncIterator[None]:
        """The long connection, as long as the application runs."""
        async with self._http.post(f"{self._platform}/callback/ws/endpoint", json={}) as response:
            url = (await response.json())["data"]["URL"]
        task = asyncio.create_task(self._listen(url, self._feishu_frame))
        yield
        task.cancel()

    async def _feishu_frame(self, socket: aiohttp.ClientWebSocketResponse, message: aiohttp.WSMessage) -> None:
        frame = Frame.decode(message.data)
        if frame.method != DATA:
            return
        self.later(self._answer_feishu(json.loads(frame.payload)["event"]["message"]))
        await socket.send_bytes(Frame(DATA, frame.headers, b'{"code":200}', frame.service, frame.seq_id).encode())

    async def _answer_feishu(self, message: dict[str, Any]) -> None:
        answer = await self._ask(json.loads(message["content"])["text"])
        url = f"{self._platform}/open-apis/im/v1/messages/{message['message_id']}/reply"
        body = {"msg_type": "text", "content": json.dumps({"text": answer})}
        await self._send(url, body, {"Authorization": "Bearer t-bench"})

    # ---- DingTalk

    async def dingtalk_long(self, _: web.Application) -> AsyncIterator[None]:
        """The long connection, as long as the application runs."""
        async with self._http.post(f"{self._platform}/v1.0/gateway/connections/open", json={}) as response:
            body = await response.json()
        task = asyncio.create_task(self._listen(f"{body['endpoint']}?ticket={body['ticket']}", self._dingtalk_frame))
        yield
        task.cancel()

    async def _dingtalk_frame(self, socket: aiohttp.ClientWebSocketResponse, message: aiohttp.WSMessage) -> None:
        frame = json.loads(message.data)
        head = {"messageId": frame["headers"]["messageId"], "contentType": "application/json"}
        self.later(self._answer_dingtalk(json.loads(frame["data"])))
        await socket.send_str(json.dumps({"code": 200, "headers": head, "message": "OK", "data": '{"response": null}'}))

    async def _answer_dingtalk(self, data: dict[str, Any]) -> None:
        answer = await self._ask(data["text"]["content"])
        body = {"msgtype": "markdown", "markdown": {"title": "答复", "text": answer}}
        await self._send(data["sessionWebhook"], body)

    async def _listen(
        self,
        url: str,
        take: Callable[[aiohttp.ClientWebSocketResponse, aiohttp.WSMessage], Awaitable[None]],
    ) -> None:
        async with self._http.ws_connect(url) as socket:
            async for message in socket:
                await take(socket, message)

    # ---- 公众号

    async def wechat(self, request: web.Request) -> web.Response:
        """A delivery, answered passively."""
        query = request.query
        sealed = ET.fromstring(await request.read()).findtext("Encrypt") or ""
        made = wechat.sign(wechat.TOKEN, query["timestamp"], query["nonce"], sealed)
        if not hmac.compare_digest(made, query["msg_signature"]):
            return web.Response(status=403)
        message = ET.fromstring(wechat.decrypt(sealed)[0])
        answer = await self._ask(message.findtext("Content") or "")
        stamp, nonce = str(int(time.time())), query["nonce"]
        reply = (
            f"<xml><ToUserName><![CDATA[{message.findtext('FromUserName')}]]></ToUserName>"
            f"<FromUserName><![CDATA[{message.findtext('ToUserName')}]]></FromUserName><CreateTime>{stamp}</CreateTime>"
            f"<MsgType><![CDATA[text]]></MsgType><Content><![CDATA[{answer}]]></Content></xml>"
        )
        out = wechat.encrypt(reply)
        text = (
            f"<xml><Encrypt><![CDATA[{out}]]></Encrypt>"
            f"<MsgSignature><![CDATA[{wechat.sign(wechat.TOKEN, stamp, nonce, out)}]]></MsgSignature>"
            f"<TimeStamp>{stamp}</TimeStamp><Nonce><![CDATA[{nonce}]]></Nonce></xml>"
        )
        return web.Response(text=text, content_type="text/xml")


def _feishu_decrypt(sealed: str) -> bytes:
    raw = base64.b64decode(sealed)
    work = Cipher(algorithms.AES(hashlib.sha256(_FEISHU_KEY.encode()).digest()), modes.CBC(raw[:16])).decryptor()
    plain = work.update(raw[16:]) + work.finalize()
    return plain[: -plain[-1]]


async def _healthy(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


def main() -> None:
    """Serves until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--platform", required=True)
    parser.add_argument("--channels", nargs="+", required=True)
    given = parser.parse_args()
    floor, app = Floor(given.model, given.platform), web.Application()
    app.cleanup_ctx.append(floor.session)
    app.router.add_get("/healthz", _healthy)
    app.router.add_post("/feishu", floor.feishu)
    app.router.add_post("/wechat", floor.wechat)
    if "feishu-long" in given.channels:
        app.cleanup_ctx.append(floor.feishu_long)
    if "dingtalk" in given.channels:
        app.cleanup_ctx.append(floor.dingtalk_long)
    web.run_app(app, host="127.0.0.1", port=given.port, access_log=None, print=None, backlog=4096)


if __name__ == "__main__":
    main()
