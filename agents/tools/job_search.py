"""Looks postings through: cities and salary decide, words rank; slips of the keyboard are forgiven. Pure."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from agents.tools.job_query import JobQuery, words
from agents.tools.jobs import Job

SHOWN = 8
_ALIKE = 0.55
"""Dice coefficient of the character pairs above which two words are taken for the same, one of them mistyped."""

_GENERIC = re.compile("工程师|程序员|开发|经理|高级|资深|初级|专员|人员")

_WEAK = 0.5
"""Postings less than this part as good as the best are not shown beside it."""


@dataclass(frozen=True, slots=True)
class Found:
    """The best postings, how many there are in all, and in which way what was asked for was given up (Chinese)."""

    jobs: tuple[Job, ...]
    total: int
    relaxed: tuple[str, ...] = ()


def search(jobs: Sequence[Job], query: JobQuery, shown: int = SHOWN) -> Found:
    """The best `shown` postings. Where nothing meets all that is asked, years, then salary are seen less narrowly."""
    scored = [(score, job) for job in jobs if (score := _score(job, query)) > 0]
    scored = [(score, job) for score, job in scored if _is_there(job, query)]
    least, years = query.salary, query.years
    enough = max((score for score, _ in scored), default=0.0) * _WEAK
    scored = [(score, job) for score, job in scored if score >= enough]
    steps: list[tuple[tuple[str, ...], bool, bool]] = [((), True, False)]
    if years is not None:
        steps.append((("年限要求略高于所说的经验",), False, False))
    if least is not None:
        steps.append((("只有薪资上限达到期望的岗位",), True, True))
    for relaxed, strict_years, loose_salary in steps:
        kept = [
            (score, job)
            for score, job in scored
            if (least is None or (job.salary.high if loose_salary else job.salary.low) >= least)
            and (years is None or not strict_years or job.years[0] <= years)
        ]
        if kept:
            kept.sort(key=lambda each: (-each[0], each[1].city not in query.cities, -each[1].salary[1], each[1].id))
            return Found(tuple(job for _, job in kept[:shown]), len(kept), relaxed)
    return Found((), 0)


def _is_there(job: Job, query: JobQuery) -> bool:
    if query.remote and not job.remote:
        return False
    return not query.cities or job.city in query.cities or job.remote


def _score(job: Job, query: JobQuery) -> float:
    """How well a posting meets the words: 0 for not at all, 1 where nothing is asked for."""
    if not query.words:
        return 1.0
    scores = [_word_score(word, job) for word in query.words]
    return sum(scores) / len(scores)


def _word_score(word: str, job: Job) -> float:
    title = max((likeness(word, each) for each in _words(job.title)), default=0.0)
    skill = max((likeness(word, each) for text in job.skills for each in _words(text)), default=0.0)
    company = max((likeness(word, each) for each in _words(job.company)), default=0.0)
    return max(title, 0.9 * skill, 0.5 * company)


@lru_cache(maxsize=8192)
def _words(text: str) -> tuple[str, ...]:
    return words(text)


@lru_cache(maxsize=65536)
def likeness(word: str, other: str) -> float:
    """How much a word looked for is like one of a posting: 1 for the same, 0 for another word."""
    if word == other:
        return 1.0
    if not word.isascii() and not other.isascii():
        return _chinese(_GENERIC.sub("", word), _GENERIC.sub("", other))
    if not (word.isascii() and other.isascii()) or min(len(word), len(other)) < 3:
        return 0.0
    mine, theirs = _pairs(f" {word} "), _pairs(f" {other} ")
    dice = 2 * sum((mine & theirs).values()) / (sum(mine.values()) + sum(theirs.values()))
    return dice * 0.9 if dice >= _ALIKE else 0.0


def _chinese(word: str, other: str) -> float:
    """How much of the one asked for is in the other; one wrong character in two is a slip if the first is right."""
    if not word or not other:
        return 0.0
    if word in other or other in word:
        return 0.95 if min(len(word), len(other)) > 1 else 0.0
    if len(word) == 2 == len(other):
        return 0.4 if word[0] == other[0] else 0.0
    mine, theirs = _pairs(word), _pairs(other)
    shared = sum((mine & theirs).values()) / max(sum(mine.values()), 1)
    return shared if shared >= 0.3 else 0.0


def _pairs(text: str) -> Counter[str]:
    return Counter(text[at : at + 2] for at in range(len(text) - 1))
