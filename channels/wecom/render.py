"""How much of a text one frame may hold. Pure."""

PART_BYTES = 20_000
"""The platform takes 20,480 bytes of UTF-8 (developer.work.weixin.qq.com, 智能机器人 › 回复消息)."""


def beginning(text: str, size: int = PART_BYTES) -> str:
    """As much of the text as fits into `size` bytes, no character cut."""
    return text[:size].encode()[:size].decode("utf-8", "ignore")
