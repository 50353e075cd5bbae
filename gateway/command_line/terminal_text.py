"""What users and models wrote, as a terminal may show it: nothing in it moves the cursor or turns the line round."""

_KEPT = "\n\t"
_ESCAPED = (
    *range(0x7F, 0xA0),  # DEL and C1, among them the 8-bit CSI
    0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A),  # what changes the writing direction
    0x2028, 0x2029, 0xFEFF,
    *range(0xD800, 0xE000),  # half characters, which no stream takes
)  # fmt: skip
_SHOWN = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT}
_SHOWN |= {code: f"\\u{code:04x}" for code in _ESCAPED}


def printable(text: str) -> str:
    """The text with control characters shown (``␛``, ``\\u202e``); line feeds and tabs stay. Good for JSON texts too."""
    return text.translate(_SHOWN)
