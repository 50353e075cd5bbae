"""The way back that a message keeps: read as it was written, and refused where another kind of entry wrote it."""

import contextlib
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.channel import SendRefused
from channels.dingtalk.channel import DingTalkChannel
from channels.dingtalk.origin import Origin as DingTalkOrigin
from channels.dingtalk.settings import DingTalkSettings
from channels.feishu.channel import FeishuChannel
from channels.feishu.origin import Origin as FeishuOrigin
from channels.feishu.settings import FeishuSettings
from channels.message import Admission, InboundMessage, Part, Routed, Silent
from channels.wecom.channel import WeComBotChannel
from channels.wecom.origin import Origin as WeComOrigin
from channels.wecom.settings import WeComBotSettings
from memory.conversation import LaneKey, session_id, user_id

KEPT: Mapping[str, Mapping[str, str]] = {
    "feishu": FeishuOrigin("oc_1", "om_1").reply(),
    "dingtalk": DingTalkOrigin(chat="cid1", robot="r", staff="s", webhook="https://h", webhook_ends=1).reply(),
    "wecom": WeComOrigin("ZhangSan", False, "req", "run", 1000.0).reply(),
    "wechat": {"event": "CLICK"},
    "web": {},
    "odd": {"chat": "", "message": "", "robot": "", "at": "soon", "run": "", "webhook-ends": "x"},
}


def message(reply: Mapping[str, str]) -> InboundMessage:
    user = user_id("feishu", "a", "u")
    lane = LaneKey(user, "feishu", session_id("feishu", "a", "c"), False)
    ids = {"entry": "e", "account": "a", "id": "m", "user": user, "platform_user": "u"}
    return InboundMessage(lane=lane, text="问", reply=reply, **ids)


async def accept(message: InboundMessage) -> Admission:
    return Admission.ACCEPTED


def channel(kind: str) -> FeishuChannel | DingTalkChannel | WeComBotChannel:
    """A channel whose platform does not exist: whatever is tried fails otherwise than by a refusal."""
    nowhere = {"api-base-url": "http://127.0.0.1:9"}
    if kind == "feishu":
        return FeishuChannel("e", FeishuSettings.model_validate(nowhere), accept)
    if kind == "dingtalk":
        return DingTalkChannel("e", DingTalkSettings.model_validate(nowhere), accept)
    return WeComBotChannel("e", WeComBotSettings.model_validate({"websocket-url": "ws://127.0.0.1:9"}), accept, str)


@pytest.mark.parametrize("wrote", KEPT)
@pytest.mark.parametrize("kind", ["feishu", "dingtalk", "wecom"])
async def test_an_answer_to_a_message_of_another_kind_is_refused(kind: str, wrote: str) -> None:
    if kind == wrote:
        return
    async with contextlib.AsyncExitStack() as stack:
        made = channel(kind)
        stack.push_async_callback(made.close)
        asked = message(KEPT[wrote])
        for event in (Routed("a", "b"), Silent()):
            made.progress(asked, event)
        with pytest.raises(SendRefused, match="did not come"):
            await made.send(Part(message=asked, text="答", number=0, total=1, key="k"))


NAMES = st.text(min_size=1, max_size=20)


@given(NAMES, NAMES, st.text(max_size=20))
def test_feishu_reads_what_it_wrote(chat: str, number: str, thread: str) -> None:
    origin = FeishuOrigin(chat, number, thread)
    assert FeishuOrigin.of(message(origin.reply())) == origin


@given(NAMES, NAMES, st.text(max_size=20), NAMES, st.integers(0, 10**14))
def test_dingtalk_reads_what_it_wrote(chat: str, robot: str, staff: str, webhook: str, ends: int) -> None:
    for address in ("", webhook):
        origin = DingTalkOrigin(
            chat=chat, robot=robot, staff=staff, webhook=address, webhook_ends=ends if address else 0
        )
        assert DingTalkOrigin.of(message(origin.reply())) == origin


TIMES = st.integers(0, 10**11).map(float)
WECOM = st.builds(WeComOrigin, NAMES, st.booleans(), st.text(max_size=20), st.text(max_size=20), TIMES, st.booleans())


@given(WECOM)
def test_wecom_reads_what_it_wrote(origin: WeComOrigin) -> None:
    assert WeComOrigin.of(message(origin.reply())) == origin


@given(st.dictionaries(st.sampled_from([*"abc", "chat", "message", "robot", "at", "run", "webhook-ends"]), st.text()))
def test_any_reply_is_read_or_refused(kept: dict[str, Any]) -> None:
    for kind in (FeishuOrigin, DingTalkOrigin, WeComOrigin):
        with contextlib.suppress(SendRefused):
            kind.of(message(kept))
