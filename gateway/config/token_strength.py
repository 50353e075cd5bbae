"""How strong a token is that an admin wrote."""

_STRONG = 16
_STRONG_DISTINCT = 4


def is_strong(token: str) -> bool:
    """Whether it cannot be guessed online: at least 16 characters, and not a few ones over and over."""
    return len(token) >= _STRONG and len(set(token)) >= _STRONG_DISTINCT
