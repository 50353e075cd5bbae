"""Where a message of WeCom came from, as its `reply` carries it: the way back. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from channels.channel import SendRefused
from channels.message import InboundMessage

_SECONDS = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")


@dataclass(frozen=True, slots=True)
class Origin:
    """`chat` is a chatid or, in direct chats, the userid as the platform writes it; `at` (unix seconds) when it came.

    `req_id` is that of the callback, which can be answered in the process that is named `run`.
    """

    chat: str
    group: bool
    req_id: str
    run: str
    at: float
    welcome: bool = False

    def reply(self) -> Mapping[str, str]:
        """What `InboundMessage.reply` keeps."""
        kept = {"chat": self.chat, "group": "1" if self.group else "0", "req": self.req_id, "run": self.run}
        return kept | {"at": f"{self.at:.3f}", "welcome": "1" if self.welcome else "0"}

    @classmethod
    def of(cls, message: InboundMessage) -> "Origin":
        """Reads it back. Raises SendRefused when the entry was of another kind as the message came."""
        kept = message.reply
        if not kept.get("chat") or not _SECONDS.fullmatch(kept.get("at", "")) or "run" not in kept:
            raise SendRefused("the message did not come from this kind of bot")
        return cls(
            kept["chat"],
            kept.get("group") == "1",
            kept.get("req", ""),
            kept["run"],
            float(kept["at"]),
            kept.get("welcome") == "1",
        )
