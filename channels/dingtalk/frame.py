"""Frames of the long connection: JSON text in, JSON text of the acknowledgement out. Pure.

opensource.dingtalk.com, Stream 模式协议: `data` is a JSON text inside the JSON, in both directions.
"""

import json
from dataclasses import dataclass

from channels.json_values import Object, load_object, object_at, text_at

ROBOT_TOPIC = "/v1.0/im/bot/messages/get"
SUBSCRIPTIONS = [{"type": "CALLBACK", "topic": ROBOT_TOPIC}]


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of the platform. `id` may be empty; `data` is text, JSON as a rule."""

    type: str
    topic: str
    id: str
    content_type: str
    data: str

    @property
    def is_robot_message(self) -> bool:
        """Whether a person speaks to the robot."""
        return self.type == "CALLBACK" and self.topic == ROBOT_TOPIC

    @property
    def is_disconnect(self) -> bool:
        """Whether the platform is about to cut this connection: nothing more is pushed, the cut follows in 10 s."""
        return self.type == "SYSTEM" and self.topic == "disconnect"

    def message(self) -> Object | None:
        """The object in `data`; None for anything else."""
        return load_object(self.data)


def read_frame(text: str) -> Frame | None:
    """The frame in the text; None for what is none. Events spell `headers` as `header` now and then."""
    value = load_object(text)
    if value is None:
        return None
    headers = object_at(value, "headers") or object_at(value, "header")
    kind, topic = text_at(value, "type"), text_at(headers, "topic")
    if not kind and not topic:
        return None
    content_type = text_at(headers, "contentType") or "application/json"
    return Frame(kind, topic, text_at(headers, "messageId"), content_type, text_at(value, "data"))


def acknowledgement(frame: Frame) -> str:
    """What tells the platform that a frame was received; a ping gets its own `data` back, with its `opaque`."""
    if frame.type == "SYSTEM":
        data = frame.data
    elif frame.type == "EVENT":
        data = '{"status": "SUCCESS", "message": "ok"}'
    else:
        data = '{"response": null}'
    headers = {"messageId": frame.id, "contentType": frame.content_type}
    return json.dumps({"code": 200, "message": "OK", "headers": headers, "data": data})
