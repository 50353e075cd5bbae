"""Where a message of DingTalk came from, as its `reply` carries it: the way back. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from channels.channel import SendRefused
from channels.message import InboundMessage

_LONGEST_TIME = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The conversation, the robot's code, and where there are such the asker's staff id and the session webhook.

    `webhook` is whatever address came with the message, "" for none; `webhook_ends` is in unix milliseconds.
    """

    chat: str
    robot: str
    staff: str = ""
    webhook: str = ""
    webhook_ends: int = 0

    def reply(self) -> Mapping[str, str]:
        """What `InboundMessage.reply` keeps."""
        kept = {"chat": self.chat, "robot": self.robot}
        if self.staff:
            kept["staff"] = self.staff
        if self.webhook:
            kept |= {"webhook": self.webhook, "webhook-ends": str(self.webhook_ends)}
        return kept

    @classmethod
    def of(cls, message: InboundMessage) -> "Origin":
        """Reads it back. Raises SendRefused when the entry was of another kind as the message came."""
        kept = message.reply
        if not kept.get("chat") or not kept.get("robot"):
            raise SendRefused("the message did not come from DingTalk")
        ends = milliseconds(kept.get("webhook-ends", ""))
        return cls(
            chat=kept["chat"],
            robot=kept["robot"],
            staff=kept.get("staff", ""),
            webhook=kept.get("webhook", "") if ends is not None else "",
            webhook_ends=ends or 0,
        )


def milliseconds(text: str) -> int | None:
    """A time as the platform writes it, a number of milliseconds; None for anything else."""
    usable = text.isascii() and text.isdigit() and len(text) <= _LONGEST_TIME
    return int(text) if usable else None
