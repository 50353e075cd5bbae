"""What is a command and what is talk: a pure function of the text.

The one rule for unknown ones: a text whose first word is ``/word`` (no second slash or dot in the word) is a command,
and an unknown one is answered with a hint; anything else goes to the agent. The one rule for what stands behind a
command: it is its argument where it takes one, else the first question (``/new``), else nothing is done that cannot be
undone (``/forget``), and of the others the sender is told that the rest was not handled.
"""

import re
import unicodedata
from dataclasses import dataclass

_NAMES = {
    "new": ("new", "clear", "reset", "新对话", "新会话", "清空对话", "重新开始"),
    "help": ("help", "帮助", "命令"),
    "agent": ("agent", "切换", "切换到", "换用"),
    "agents": ("agents", "智能体", "智能体列表"),
    "status": ("status", "状态"),
    "stop": ("stop", "停止", "停"),
    "whoami": ("whoami", "我的标识"),
    "history": ("history", "历史", "历史记录"),
    "forget": ("forget", "忘记我", "删除我的数据"),
    "link": ("link", "关联账号", "绑定账号"),
    "unlink": ("unlink", "取消关联", "解除关联"),
}
_BY_WORD = {word: name for name, words in _NAMES.items() for word in words}
_BARE = {word: name for word, name in _BY_WORD.items() if not word.isascii()}
_TAKES_ARGUMENT = frozenset({"agent", "link"})
_TAKES_QUESTION = frozenset({"new"})
_ALONE = frozenset({"forget", "unlink"})
_TAKES_NOTHING = _NAMES.keys() - _TAKES_ARGUMENT - _TAKES_QUESTION - _ALONE
_CODE = re.compile(r"[A-Za-z0-9-]{10,12}")  # 关联账号 怎么弄 is talk
_UNSEEN = ("Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co")  # not Cn: a sign that is newer than Python's tables
_ENDS = "。.．!！~～…"
_BLANK_AFTER_SLASH = re.compile(r"^[/／]\s+(?=\S+$)")
_SLASHED = re.compile(r"[/／]([^\s/／.]{1,20})(?:\s+(.*))?", re.DOTALL)
_SPACED = re.compile(r"(\S{1,20})(?:\s+(\S{1,60}))?")

OVERTAKES = frozenset({"stop", "help", "agents", "status", "whoami", "history", "forget", "unknown", "not-alone"})
"""Commands that do not wait for the turn before them: they stop it, or merely read."""
_URGENT = frozenset({"stop", "forget"})


@dataclass(frozen=True, slots=True)
class Command:
    """A command by its name, and what stands behind it.

    ``unknown`` for one that does not exist and ``not-alone`` for one that is run by itself only, with the word as argument.
    """

    name: str
    argument: str = ""

    @property
    def question(self) -> str:
        """What is asked behind it; "" where it takes no question."""
        return self.argument if self.name in _TAKES_QUESTION else ""

    @property
    def unhandled(self) -> bool:
        """Whether something stands behind it of which it makes nothing."""
        return bool(self.argument) and self.name in _TAKES_NOTHING

    @property
    def overtakes(self) -> bool:
        """Whether it runs at once, before what waits."""
        return self.name in OVERTAKES

    @property
    def urgent(self) -> bool:
        """Whether it is obeyed also for who writes too fast: it ends what they may be writing against."""
        return self.name in _URGENT


def bare(text: str) -> str:
    """`text` without blanks and invisible characters at both ends."""
    if text[:1].isalnum() and text[-1:].isalnum():
        return text
    start, end = 0, len(text)
    while start < end and unicodedata.category(text[start]) in _UNSEEN:
        start += 1
    while start < end and unicodedata.category(text[end - 1]) in _UNSEEN:
        end -= 1
    return text[start:end]


def parse(text: str) -> Command | None:
    """The command a text is, or None; in time linear in its length.

    ``/new``, ``／NEW``, ``/ new``, ``新对话。``, ``切换 简历`` are commands.
    """
    text = bare(text)
    found = _parsed(text)
    if found is None or found.name == "unknown":  # as people end sentences, and as some keyboards put a blank
        lenient = _parsed(_BLANK_AFTER_SLASH.sub("/", bare(text.rstrip(_ENDS))))
        if lenient is not None and lenient.name != "unknown":
            return lenient
    return found


def said(text: str) -> str:
    """What of a text goes to an agent: all of it, or what is asked behind a command."""
    command = parse(text)
    return command.question or text if command else text


def _parsed(text: str) -> Command | None:
    slashed = _SLASHED.fullmatch(text)
    if slashed:
        name = _BY_WORD.get(slashed[1].lower())
        if name is None:
            return Command("unknown", "/" + slashed[1])
        behind = bare(slashed[2] or "")
        if name not in _TAKES_ARGUMENT and not behind.rstrip(_ENDS):
            behind = ""
        if behind and name in _ALONE:
            return Command("not-alone", "/" + slashed[1])
        return Command(name, behind)
    spaced = _SPACED.fullmatch(text)
    if spaced:
        name = _BARE.get(spaced[1])
        argument = spaced[2] or ""
        if name and (not argument or name == "agent" or (name == "link" and _CODE.fullmatch(argument))):
            return Command(name, argument)
    return None
