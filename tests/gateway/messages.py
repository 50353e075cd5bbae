"""Makes inbound messages for tests of the gateway's middle."""

import itertools

from channels.message import InboundMessage, Notice
from memory.conversation import LaneKey, session_id, user_id

_numbers = itertools.count(1)


def message(
    text: str = "你好",
    *,
    user: str = "ou_1",
    chat: str = "",
    message_id: str = "",
    group: bool = False,
    agent: str | None = None,
    notice: Notice | None = None,
    entry: str = "feishu",
) -> InboundMessage:
    """A Feishu message of `user`, in their direct chat unless `chat` names another."""
    person = user_id("feishu", "cli_1", user)
    lane = LaneKey(person, "feishu", session_id("feishu", "cli_1", chat or f"oc_{user}"), group)
    return InboundMessage(
        entry=entry,
        account="cli_1",
        id=message_id or f"om_{next(_numbers)}",
        lane=lane,
        user=person,
        platform_user=user,
        text=text,
        reply={"chat": chat or f"oc_{user}"},
        agent=agent,
        notice=notice,
    )
