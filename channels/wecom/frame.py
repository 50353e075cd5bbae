"""Frames of the long connection: JSON text comes in, a `Frame` goes out, and back. Pure.

developer.work.weixin.qq.com, 智能机器人 › 长连接. What the server sends without `cmd` acknowledges our frame of the
same `req_id`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from channels.json_values import Object, int_at, load_object, object_at, text_at, to_json

SUBSCRIBE = "aibot_subscribe"
PING = "ping"
RESPOND = "aibot_respond_msg"
RESPOND_WELCOME = "aibot_respond_welcome_msg"
SEND = "aibot_send_msg"
MESSAGE = "aibot_msg_callback"
EVENT = "aibot_event_callback"

_LONGEST_ID = 200


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of the server; `cmd` "" marks an acknowledgement, whose `errcode` is 0 when all went well."""

    cmd: str
    req_id: str
    body: Object
    errcode: int = 0

    @property
    def event(self) -> str:
        """The type of an event, "" where it is none."""
        return text_at(object_at(self.body, "event"), "eventtype") if self.cmd == EVENT else ""


def decode(text: str) -> Frame | None:
    """The frame in the text; None for anything else. A `req_id` nobody could have made is ""."""
    frame = load_object(text)
    if frame is None:
        return None
    req_id = text_at(object_at(frame, "headers"), "req_id")
    usable = len(req_id) <= _LONGEST_ID and req_id.isprintable()
    return Frame(text_at(frame, "cmd"), req_id if usable else "", object_at(frame, "body"), int_at(frame, "errcode", 0))


def encode(cmd: str, req_id: str, body: Mapping[str, object] | None = None) -> str:
    """The text of one of our frames."""
    frame: dict[str, object] = {"cmd": cmd, "headers": {"req_id": req_id}}
    if body is not None:
        frame["body"] = body
    return to_json(frame)
