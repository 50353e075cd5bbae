"""Whatever the platform does, an answer reaches the person once, and nothing follows the end of its stream."""

import asyncio
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from channels.channel import SendError, SendRefused
from channels.message import Answered, Delta, InboundMessage, Routed, Silent
from channels.wecom import streams as streams_module
from channels.wecom.delivery import Delivery
from channels.wecom.exchange import AckMissing, ConnectionLost
from channels.wecom.origin import Origin
from channels.wecom.quota import Quota
from channels.wecom.streams import Streams
from gateway.config.texts import Texts
from memory.conversation import LaneKey, session_id, user_id
from tests.channels.wecom_recorder import part

LOST, UNHEARD = "lost", "unheard"


class Platform:
    """Takes or refuses each frame as the script says, and everything after it; what was taken is in `taken`."""

    def __init__(self, script: list[int | str]) -> None:
        self.script = script
        self.taken: list[tuple[str, bool, str]] = []

    async def ready(self, seconds: float) -> bool:
        await asyncio.sleep(0)
        return True

    def renew(self, reason: str) -> None:
        pass

    async def ask(self, cmd: str, body: Mapping[str, Any], req_id: str = "") -> int:
        await asyncio.sleep(0)
        result = self.script.pop(0) if self.script else 0
        if result == LOST:
            raise ConnectionLost("x")
        if result == UNHEARD:
            raise AckMissing("x")
        if result == 0:
            stream = body.get("stream")
            said = (stream["finish"], stream["content"]) if stream else (True, body["markdown"]["content"])
            self.taken.append((cmd, *said))
        return int(result)


class Unlimited(Quota):
    """No answer waits: each rest is over at once."""

    def wait(self, chat: str, now: float) -> float:
        return 0.0

    def wait_to_refresh(self, chat: str, now: float) -> float:
        return 0.0


def message() -> InboundMessage:
    user = user_id("wecom", "b", "u")
    lane = LaneKey(user, "wecom", session_id("wecom", "b", "u"), False)
    reply = Origin("u", False, "r", "run", 1000.0).reply()
    kept = {"entry": "wecom-bot", "account": "b", "id": "m", "user": user, "platform_user": "u", "text": "x"}
    return InboundMessage(lane=lane, reply=reply, **kept)


async def live(script: list[int | str], steps: list[str], end: str) -> Platform:
    """One question from Routed to its end, sent like the outbox does: again until it is taken or refused."""
    platform, asked = Platform(script), message()
    quota = Unlimited()
    streams = Streams(platform, quota, Texts().get, entry="wecom-bot", run="run", now=lambda: 1000.0)  # type: ignore[arg-type]
    delivery = Delivery(platform, streams, quota, "run", clock=lambda: 1000.0, now=lambda: 1000.0)  # type: ignore[arg-type]
    if "routed" in steps:
        streams.progress(asked, Routed("a", "b"))
    for step in steps:
        if step == "delta":
            streams.progress(asked, Delta("词"))
        await asyncio.sleep(0.001 if step == "pause" else 0)
    if end == "send":
        streams.progress(asked, Answered("全文"))
        for _ in range(8):
            try:
                await delivery.send(part(asked, "全文"))
                break
            except SendRefused:
                break
            except SendError:
                continue
    elif end == "silent":
        streams.progress(asked, Silent())
        await asyncio.sleep(0.01)
    await streams.close()
    return platform


outcomes = st.one_of(st.just(0), st.sampled_from([LOST, UNHEARD, 846605, 846608, 846609, 40058, 45009, -1]))
walks = st.lists(st.sampled_from(["routed", "delta", "pause", "delta"]), max_size=8)


@settings(max_examples=150, deadline=None)
@given(st.lists(outcomes, max_size=6), walks, st.sampled_from(["send", "silent", "stop"]))
def test_every_path_ends_once(script: list[int | str], steps: list[str], end: str) -> None:
    old, streams_module.REFRESH_SECONDS = streams_module.REFRESH_SECONDS, 0.0
    try:
        platform = asyncio.run(live(list(script), steps, end))
    finally:
        streams_module.REFRESH_SECONDS = old
    responds = [finish for cmd, finish, _ in platform.taken if cmd == "aibot_respond_msg"]
    assert responds.count(True) <= 1
    assert True not in responds[:-1], "a frame after the end"
    answers = [text for _, finish, text in platform.taken if finish and text == "全文"]
    if end == "send":
        assert len(answers) <= 1
        assert answers or 40058 in script, "only a refusal loses it"
    else:
        assert not answers
    if responds and not any(script):
        assert responds[-1], "what was begun is ended"
