"""What surrounds a message: signature and encryption of a request, and of its reply.

developers.weixin.qq.com, 消息推送 › 接入指引 and 消息加解密说明. The configured mode decides what is checked, never the
request: in safe mode only `msg_signature` counts, for `signature` covers no body. The format, XML or JSON, is a
setting on the platform that is not known here: a reply has that of its request.

Own code, because the replies of wechatpy 1.8.18 put a text into CDATA as it is, so that a `]]>` in it begins other
elements, and its parser knows no JSON.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping

from channels.json_values import load_object, to_json
from channels.verify import Undecryptable, WeChatCipher, fresh, same, wechat_signature
from channels.wechat.settings import WeChatSettings
from channels.xml_values import BadXml, cdata, legal, read_fields

FRESH_SECONDS = 600.0

Query = Iterable[tuple[str, str]]


class Forged(Exception):
    """The request is not authentic, or no request of the platform's at all. The message is for logs."""


class Unreadable(Exception):
    """The request is authentic, but its message cannot be read. The message is for logs."""


class Envelope:
    """Opens requests and closes replies of one account. `random` gives so many unpredictable bytes."""

    def __init__(
        self, settings: WeChatSettings, clock: Callable[[], float], random: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        self._token = settings.token.get_secret_value()
        self._safe = settings.mode == "safe"
        self._cipher = (
            WeChatCipher(settings.encoding_aes_key.get_secret_value(), settings.app_id) if self._safe else None
        )
        self._clock = clock
        self._random = random

    def echo(self, query: Query) -> str:
        """The `echostr` of a verification, never decrypted. Raises Forged."""
        given = self._fresh(query)
        self._check(given, "signature")
        if "echostr" not in given:
            raise Forged("no echostr")
        return given["echostr"]

    def open(self, query: Query, body: bytes) -> Mapping[str, str]:
        """The fields of the message in a push. Raises Forged, Unreadable."""
        given = self._fresh(query)
        if self._cipher is None:
            self._check(given, "signature")
            return _fields(body)
        try:
            encrypted = _fields(body).get("Encrypt", "").strip()
        except Unreadable as error:
            raise Forged(f"body is no envelope: {error}") from error
        if not encrypted:
            raise Forged("body is not encrypted: set 安全模式 on the platform, or mode: plain here")
        self._check(given, "msg_signature", encrypted)
        try:
            return _fields(self._cipher.decrypt(encrypted))
        except Undecryptable as error:
            raise Forged(f"encoding-aes-key or app-id differs from the platform's: {error}") from error

    def _fresh(self, query: Query) -> Mapping[str, str]:
        """The parameters of a request that is recent. Raises Forged."""
        given = _once(query)
        # Ten digits: otherwise a digit moved from the nonce to the timestamp makes another pair of the same signature.
        if len(given.get("timestamp", "")) != 10 or not fresh(given["timestamp"], self._clock(), FRESH_SECONDS):
            raise Forged("timestamp is stale or no time: check the clock")
        if not given.get("nonce"):
            raise Forged("no nonce")
        return given

    def _check(self, given: Mapping[str, str], name: str, *covered: str) -> None:
        expected = wechat_signature(self._token, given["timestamp"], given["nonce"], *covered)
        if not self._token or not same(given.get(name, ""), expected):
            raise Forged(f"bad {name}: check token")

    def text_reply(self, fields: Mapping[str, str], text: str, *, as_json: bool = False) -> str:
        """What answers the message of these fields with a text, encrypted in safe mode."""
        write = _json if as_json else _xml
        now = int(self._clock())
        message: dict[str, str | int] = {
            "ToUserName": fields.get("FromUserName", ""),
            "FromUserName": fields.get("ToUserName", ""),
            "CreateTime": now,
            "MsgType": "text",
            "Content": text,
        }
        if self._cipher is None:
            return write(message)
        encrypted = self._cipher.encrypt(write(message).encode("utf-8"), self._random(16))
        nonce = self._random(8).hex()
        signature = wechat_signature(self._token, str(now), nonce, encrypted)
        return write({"Encrypt": encrypted, "MsgSignature": signature, "TimeStamp": now, "Nonce": nonce})


def is_json(body: bytes) -> bool:
    """Whether a push has the format JSON."""
    return body.lstrip()[:1] == b"{"


def _xml(values: Mapping[str, str | int]) -> str:
    fields = (f"<{name}>{value if isinstance(value, int) else cdata(value)}</{name}>" for name, value in values.items())
    return f"<xml>{''.join(fields)}</xml>"


def _json(values: Mapping[str, str | int]) -> str:
    legible = {name: value if isinstance(value, int) else legal(value) for name, value in values.items()}
    return to_json(legible)


def _once(query: Query) -> Mapping[str, str]:
    """The parameters; one given twice could be read by two parties in two ways. Raises Forged."""
    given: dict[str, str] = {}
    for name, value in query:
        if name in given:
            raise Forged("a query parameter occurs twice")
        given[name] = value
    return given


def _fields(data: bytes) -> Mapping[str, str]:
    """The fields of a message or envelope; what is nested belongs to no field. Raises Unreadable."""
    if is_json(data):
        values = load_object(data)
        if values is None:
            raise Unreadable("malformed JSON")
        return {name: legal(str(value)) for name, value in values.items() if type(value) in (str, int)}
    try:
        return read_fields(data)
    except BadXml as error:
        raise Unreadable(str(error)) from error
