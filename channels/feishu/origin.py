"""Where a message of Feishu came from, as its `reply` carries it: the way back. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from channels.channel import SendRefused
from channels.message import InboundMessage


@dataclass(frozen=True, slots=True)
class Origin:
    """The chat and the message to answer; `thread` is "" outside of threads."""

    chat: str
    message: str
    thread: str = ""

    def reply(self) -> Mapping[str, str]:
        """What `InboundMessage.reply` keeps."""
        kept = {"chat": self.chat, "message": self.message}
        return kept | {"thread": self.thread} if self.thread else kept

    @classmethod
    def of(cls, message: InboundMessage) -> "Origin":
        """Reads it back. Raises SendRefused when the entry was of another kind as the message came."""
        kept = message.reply
        if not kept.get("chat") or not kept.get("message"):
            raise SendRefused("the message did not come from Feishu")
        return cls(kept["chat"], kept["message"], kept.get("thread", ""))
