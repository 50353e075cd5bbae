"""Markdown as models write it, read leniently: prose lines, code and tables of a text; spans of a line. Pure.

Not CommonMark to the letter: nothing here fails, whatever is not recognised is prose, and code is kept byte for byte.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import regex

from channels.fence import Fence, opened_by

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ufdd0]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_CONTAINER = re.compile(r"(?:[ \t]{0,8}>){1,8}[ \t]?")
LIST_ITEM = re.compile(r"(?P<indent>[ \t]*)(?P<marker>[-*+•·]|\d{1,9}[.)])(?P<gap>[ \t]+)(?=\S)")
_DELIMITERS = re.compile(r"\|?+[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+\|?")
_TICKS = re.compile(r"`+")
_URL_END = ".,;:!?)]}'\"~_"

_SPAN_BEGINS = re.compile(r"[\\`\[<]|https?://", re.IGNORECASE)
_SPAN = regex.compile(
    r"""
    (?P<escape> \\ [\\`*_~\#|>+.!<-] )
    | (?P<ticks> `+ )
    | (?P<image> !? ) \[ (?P<label> (?: [^\[\]\n] | \[ [^\[\]\n]{0,200} \] ){0,400} ) \]
      \( [ \t]* (?: <(?P<quoted> [^<>\n]{1,2000} )> | (?P<target> (?: [^()\s<>] | \( [^()\s<>]{0,400} \) ){1,2000} ) )
      (?: [ \t]+ (?: "[^"\n]{0,300}" | '[^'\n]{0,300}' ) )? [ \t]* \)
    | <(?P<auto> (?:https?://|mailto:) [^\s<>]{1,2000} )>
    | (?P<bare> https?:// [^\s<>"'`*|，。；：、！？（）「」【】《》]{1,2000} )
    | (?P<break> <br[ \t]*/?> )
    """,
    regex.VERBOSE | regex.IGNORECASE,
)


class Kind(Enum):
    """What a piece of a line is."""

    TEXT = "text"
    ESCAPE = "escape"
    CODE = "code"
    LINK = "link"
    IMAGE = "image"
    ADDRESS = "address"
    BREAK = "break"


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line: `source` as it is written; `text` what is meant (a label, the code, the address itself)."""

    kind: Kind
    source: str
    text: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class Prose:
    """One line that is neither code nor part of a table."""

    line: str


@dataclass(frozen=True, slots=True)
class Code:
    """A code block; `opening` and `closing` are its fence lines ("" where there is none), `lines` its content."""

    opening: str
    lines: tuple[str, ...]
    closing: str = ""

    @property
    def source(self) -> tuple[str, ...]:
        """All its lines, as they are written."""
        fences = tuple((line,) if line else () for line in (self.opening, self.closing))
        return fences[0] + self.lines + fences[1]


@dataclass(frozen=True, slots=True)
class Table:
    """A table by cells; rows may be shorter or longer than the head."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Block = Prose | Code | Table


def clean(text: str) -> str:
    """Line feeds only, no control characters but tabs, no half characters, no noncharacter U+FDD0."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return str(_SURROGATE.sub("\ufffd", _CONTROL.sub("", text)))


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a text in order; their lines, joined, are the text but for the lines that draw a table."""
    lines = text.split("\n")
    at, in_list, after_blank = 0, False, True
    while at < len(lines):
        line = lines[at]
        fence, quote = _opened(line)
        if fence is not None:
            code, at = _fenced(lines, at, fence, quote)
            yield code
            in_list, after_blank = in_list and line[:1] in " \t", False
            continue
        if after_blank and not in_list and _is_indented(line):
            end = _end(lines, at, _is_indented)
            yield Code("", tuple(lines[at:end]))
            at, after_blank = end, False
            continue
        if _heads_table(lines, at):
            end = _end(lines, at + 2, lambda each: "|" in each and _opened(each)[0] is None)
            yield Table(cells(line), tuple(cells(each) for each in lines[at + 2 : end]))
            at, in_list, after_blank = end, False, False
            continue
        yield Prose(line)
        after_blank = not line.strip()
        if not after_blank:
            in_list = bool(LIST_ITEM.match(line)) or (in_list and line[0] in " \t")
        at += 1


def _opened(line: str) -> tuple[Fence | None, str]:
    """The fence a line opens, and the quote marks before it."""
    quote = _CONTAINER.match(line)
    start = quote.end() if quote else 0
    return opened_by(line[start:]), line[:start]


def _fenced(lines: Sequence[str], at: int, fence: Fence, quote: str) -> tuple[Code, int]:
    """The block that line `at` opens, and where the text goes on; a block in a quote ends with the quote."""
    opening, depth = lines[at], quote.count(">")
    for end in range(at + 1, len(lines)):
        inside = lines[end]
        if depth:
            mark = _CONTAINER.match(inside)
            if mark is None or mark[0].count(">") < depth:
                return Code(opening, tuple(lines[at + 1 : end])), end
            inside = inside[mark.end() :]
        if fence.is_closed_by(inside):
            return Code(opening, tuple(lines[at + 1 : end]), lines[end]), end + 1
    return Code(opening, tuple(lines[at + 1 :])), len(lines)


def _is_indented(line: str) -> bool:
    return line.startswith(("    ", "\t")) and bool(line.strip())


def _end(lines: Sequence[str], at: int, holds: Callable[[str], bool]) -> int:
    while at < len(lines) and holds(lines[at]):
        at += 1
    return at


def _heads_table(lines: Sequence[str], at: int) -> bool:
    """Whether this line and the next begin a table (GFM §4.10): a row, and as many delimiters below it."""
    if at + 1 >= len(lines) or "|" not in lines[at] or "|" not in lines[at + 1]:
        return False
    below = lines[at + 1]
    return bool(_DELIMITERS.fullmatch(below.strip())) and len(cells(lines[at])) == len(cells(below))


def cells(row: str) -> tuple[str, ...]:
    """The cells of a table's row; a bar in code or behind a backslash ends none."""
    found, cell = [], ""
    for span in spans(row.strip()):
        if span.kind is not Kind.TEXT:
            cell += "|" if span.source == "\\|" else span.source
            continue
        first, *others = span.text.split("|")
        cell += first
        for other in others:
            found.append(cell)
            cell = other
    found.append(cell)
    if len(found) > 1 and not found[0].strip():
        del found[0]
    if len(found) > 1 and not found[-1].strip():
        del found[-1]
    return tuple(cell.strip() for cell in found)


def spans(line: str) -> Iterator[Span]:
    """The pieces of one line, in order; their sources, joined, are the line."""
    if line and not _SPAN_BEGINS.search(line):
        yield Span(Kind.TEXT, line, line)
        return
    runs: dict[int, list[int]] = {}
    for run in _TICKS.finditer(line):
        runs.setdefault(len(run[0]), []).append(run.start())
    at = plain_from = 0
    while found := _SPAN.search(line, at):
        span = _span(line, found, runs)
        if span is None:
            at = found.end("ticks")
            continue
        start = found.start()
        if start > plain_from:
            yield Span(Kind.TEXT, line[plain_from:start], line[plain_from:start])
        yield span
        at = plain_from = start + len(span.source)
    if plain_from < len(line):
        yield Span(Kind.TEXT, line[plain_from:], line[plain_from:])


def _span(line: str, found: "regex.Match[str]", runs: dict[int, list[int]]) -> Span | None:
    """The piece that this match begins; None for backticks that nothing closes."""
    source = found[0]
    if found["escape"]:
        return Span(Kind.ESCAPE, source, source[1])
    if found["ticks"]:
        begin, size = found.end(), len(source)
        same = runs.get(size, [])
        after = bisect_right(same, found.start())
        if after == len(same):
            return None
        end = same[after]
        return Span(Kind.CODE, line[found.start() : end + size], line[begin:end])
    if found["label"] is not None:
        address = found["quoted"] or found["target"]
        return Span(Kind.IMAGE if found["image"] else Kind.LINK, source, found["label"], address)
    if found["auto"]:
        return Span(Kind.ADDRESS, source, found["auto"], found["auto"])
    if found["bare"]:
        address = source.rstrip(_URL_END) or source
        return Span(Kind.ADDRESS, address, address, address)
    return Span(Kind.BREAK, source, "\n")
