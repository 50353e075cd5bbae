"""Acknowledgements: user turns that only say "got it" and that the model need not see again."""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Self

import regex

CLOSERS = (
    *(
        "收到",
        "收到了",
        "谢谢",
        "谢谢你",
        "谢谢您",
        "谢谢啦",
        "多谢",
        "感谢",
        "非常感谢",
        "太感谢了",
        "谢啦",
        "谢了",
        "辛苦",
        "辛苦了",
    ),
    *("了解", "了解了", "明白", "明白了", "知道了", "懂了", "清楚了", "哦", "噢", "謝謝", "多謝", "感謝", "瞭解"),
    *("👌", "👍", "🙏", "🆗", "[强]", "[赞]", "[抱拳]", "[握手]"),
    *("thanks", "thank you", "thx", "got it", "gotcha", "noted", "understood", "i see"),
)
"""Words after which a conversation can rest: they never answer a question of the assistant."""

ASSENTS = (
    *(
        "好",
        "好的",
        "好吧",
        "好呀",
        "好啊",
        "好嘞",
        "好滴",
        "嗯",
        "恩",
        "是",
        "是的",
        "是啊",
        "对",
        "对的",
        "對",
        "没错",
        "行",
    ),
    *("可以", "可以的", "没问题", "沒問題", "当然"),
    *("ok", "okay", "yes", "yeah", "yep", "sure", "right", "alright", "fine"),
)
"""Words that may be the answer to a question of the assistant."""

# Nowhere `concurrent`, as regex is by itself: to let other threads run for microseconds costs far more than it gives them.
_LONGEST = 64
"""Characters, blanks and emoji included, beyond which no text is looked at."""

_AROUND = r"[[\p{P}\p{S}\p{Z}\p{C}\s\uFE0E\uFE0F]--[?❓❔]]"
"""What does not count around the words. A question mark does: 「好的？」 asks for something."""

_UNIT = regex.compile(r"[a-z']+|[^a-z'\p{P}\p{S}\p{Z}\p{C}\s\uFE0E\uFE0F]")
_ASIDE = regex.compile(r"\s*[（(][^（()）]*[)）]\s*$")
_DECORATION = regex.compile(r"[\s\p{So}\p{Sk}\p{Cf}\uFE0F~～*_`”’\"'」』)）】\]]+$")
_SENTENCE_END = regex.compile(r"[。！!\n；;]")
_ASKS = regex.compile(r"[?？❓❔]$|[吗嘛呢]$|是否|要不要|需不需要|可不可以|能不能|好不好|行不行|对不对|是不是")


class Kind(Enum):
    """What an acknowledgement is: a closer always goes, an assent may be the answer to a question."""

    CLOSER = auto()
    ASSENT = auto()


@dataclass(frozen=True, slots=True)
class Words:
    """One or both word lists, compiled: `one` finds a word, `only` matches texts of nothing but words."""

    one: regex.Pattern[str]
    only: regex.Pattern[str]

    @classmethod
    def of(cls, listed: Iterable[str]) -> Self:
        """Compiles a list; case and width of the words do not matter."""
        plain = sorted({_plain(word) for word in listed} - {""}, key=len, reverse=True)
        one = "|".join(map(_bounded, plain)) or r"(?!)"
        # Atomic, longest word first: no text makes the match try many ways.
        return cls(regex.compile(one), regex.compile(rf"(?V1)(?>{one}|{_AROUND})++"))

    def make_up(self, plain: str) -> bool:
        """Whether a text is made only of these words and of what does not count around them."""
        return bool(self.only.fullmatch(plain, concurrent=False) and self.one.search(plain, concurrent=False))


@dataclass(frozen=True, slots=True)
class Acknowledgements:
    """What counts as an acknowledgement. Texts of `threshold` characters (Latin: words) and more are content."""

    closers: Words
    every: Words
    threshold: int

    def kind(self, text: str) -> Kind | None:
        """What a user's text is; None for content, which is never an acknowledgement, however short."""
        if len(text) > _LONGEST:
            return None
        plain = _plain(text)
        if not self.every.make_up(plain) or len(_UNIT.findall(plain, concurrent=False)) >= self.threshold:
            return None
        return Kind.CLOSER if self.closers.make_up(plain) else Kind.ASSENT


@lru_cache(maxsize=32)
def acknowledgements(closers: tuple[str, ...], assents: tuple[str, ...], threshold: int) -> Acknowledgements:
    """The compiled lists, made once for each set of settings."""
    return Acknowledgements(Words.of(closers), Words.of(closers + assents), threshold)


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold().strip()


def _bounded(word: str) -> str:
    start = r"(?<![a-z])" if "a" <= word[0] <= "z" else ""
    end = r"(?![a-z])" if "a" <= word[-1] <= "z" else ""
    return f"{start}{regex.escape(word)}{end}"


def asks(text: str) -> bool:
    """Whether the last sentence of an assistant's turn is a question; a closing aside in brackets is passed over."""
    end = _DECORATION.sub("", _ASIDE.sub("", text[-400:], concurrent=False), concurrent=False)
    sentences = [sentence for sentence in _SENTENCE_END.split(end, concurrent=False) if sentence.strip()]
    return bool(sentences and _ASKS.search(sentences[-1], concurrent=False))
