"""From a channel entry to its channel. A platform's code is imported only when an entry of that kind is on."""

import time
import uuid
from collections.abc import Callable

from channels.channel import Accept, Channel, EntrySettings, Shelf, Texts
from channels.web import WebChannel


def make_channel(
    name: str,
    entry: EntrySettings,
    accept: Accept,
    shelf: Shelf,
    texts: Texts,
    *,
    clock: Callable[[], float] = time.time,
) -> Channel:
    """The channel of an enabled entry; `texts` gives the fixed text of a name as the config has it now.

    Raises ValueError for a kind that does not exist.
    """
    kind = entry.kind or name
    if kind == "web":
        return WebChannel(name, accept, texts, new_id=lambda: f"w-{uuid.uuid4().hex}", clock=clock)
    if kind == "dingtalk":
        from channels.dingtalk.channel import DingTalkChannel
        from channels.dingtalk.settings import DingTalkSettings

        assert isinstance(entry, DingTalkSettings)
        return DingTalkChannel(name, entry, accept, clock=clock)
    if kind == "feishu":
        from channels.feishu.channel import FeishuChannel
        from channels.feishu.settings import FeishuSettings

        assert isinstance(entry, FeishuSettings)
        return FeishuChannel(name, entry, accept, clock=clock)
    if kind == "wechat":
        from channels.wechat.channel import WeChatChannel
        from channels.wechat.settings import WeChatSettings

        assert isinstance(entry, WeChatSettings)
        return WeChatChannel(name, entry, accept, shelf, texts, clock=clock)
    if kind == "wecom-bot":
        from channels.wecom.channel import WeComBotChannel
        from channels.wecom.settings import WeComBotSettings

        assert isinstance(entry, WeComBotSettings)
        return WeComBotChannel(name, entry, accept, texts, clock=clock)
    raise ValueError(f"no channel of kind {kind!r}")
