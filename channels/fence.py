"""The fence lines of markdown's code blocks (CommonMark §4.5): what opens a block, and what closes it. Pure."""

import re
from dataclasses import dataclass

FENCE_LINE = re.compile(r"[ \t]*(?P<marker>`{3,}|~{3,})[ \t]*(?P<tag>[^`\s<]*)(?P<rest>[^`\n]*)")
"""A tag has no `<`: a block that is opened again in another part must not begin a mention there."""


@dataclass(frozen=True, slots=True)
class Fence:
    """An open code block: how it is closed, and how it is opened again in the next part."""

    marker: str
    tag: str

    @property
    def opening(self) -> str:
        """The line that opens such a block."""
        return self.marker + self.tag

    def is_closed_by(self, line: str) -> bool:
        """Whether this line ends the block."""
        found = FENCE_LINE.fullmatch(line)
        if not found or found["tag"] or found["rest"].strip():
            return False
        return bool(found["marker"].startswith(self.marker))


def opened_by(line: str) -> Fence | None:
    """The block that this line opens when none is open, or None."""
    found = FENCE_LINE.fullmatch(line)
    return Fence(found["marker"], found["tag"]) if found else None
