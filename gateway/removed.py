"""What was removed of a person, as they are told."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Numbers of what was removed; false where there was nothing.

    `turns` counts what was replaced in shared groups, `cached` says that Redis still holds something for a while.
    """

    conversations: int = 0
    summaries: int = 0
    originals: int = 0
    profiles: int = 0
    turns: int = 0
    messages: int = 0
    cached: bool = False

    def __bool__(self) -> bool:
        return any((self.conversations, self.summaries, self.originals, self.profiles, self.turns, self.messages))

    def __str__(self) -> str:
        counted = (
            (self.conversations, "{} 个会话"),
            (self.summaries, "{} 份摘要"),
            (self.turns, "共享群聊中的 {} 条内容"),
            (self.profiles, "{} 份个人资料"),
            (self.originals, "{} 份留存的原件"),
            (self.messages, "{} 条收件记录"),
        )
        said = "、".join(text.format(number) for number, text in counted if number) or "没有找到资料"
        return f"{said}（Redis 暂时连不上，其中的缓存会在它恢复后或到期时删除）" if self.cached else said

    def __add__(self, other: "Removed") -> "Removed":
        return Removed(
            conversations=self.conversations + other.conversations,
            summaries=self.summaries + other.summaries,
            originals=self.originals + other.originals,
            profiles=self.profiles + other.profiles,
            turns=self.turns + other.turns,
            messages=self.messages + other.messages,
            cached=self.cached or other.cached,
        )
