"""Who speaks, where several share one conversation: the model sees a label before each text, which nobody can imitate."""

import unicodedata

from memory.conversation import Role, Turn

MAX_NAME = 16
"""The most characters of a name in a label."""

_NOBODY = "用户"
_MARKS = frozenset("：:（）()【】[]「」<>《》\"'“”‘’|>#*`")


def label(name: str | None, user: str) -> str:
    """A name and a code that tells two people of one name apart: ``张三（u3r7）``. The same for the same person always."""
    plain = "".join(
        each for each in " ".join((name or "").split()) if each == " " or unicodedata.category(each)[0] in "LNMPS"
    )
    plain = "".join(each for each in plain if each not in _MARKS).strip()
    return f"{plain[:MAX_NAME].strip() or _NOBODY}（{user[1:5]}）"


def voiced(turn: Turn) -> str:
    """The turn's text as the model sees it: in a shared conversation what a person says begins with their label.

    Further lines are set in, so that none of them can look like another person's.
    """
    if turn.role is not Role.USER or not turn.user:
        return turn.text
    first, *more = turn.text.splitlines() or [""]
    return "\n  ".join([f"{label(turn.name, turn.user)}：{first}", *more])
