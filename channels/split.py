"""A long text becomes parts that a platform takes: cut where people would cut, code fences kept whole. Pure.

This is the only splitter in the path of an answer.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import regex

from channels.fence import FENCE_LINE, Fence, opened_by

_SURROGATE = re.compile(r"[\ud800-\udfff]")
_BLANK_LINES = re.compile(r"(?:[^\S\n]*\n)+")
_SENTENCE_END = re.compile(r"(?:[。！？!?；;…]+|\.)[”’」』）)\]\"'*_]*(?:\s+|(?<=[^\x00-\x7f])|(?<=[!?;]))")
_CLAUSE_END = re.compile(r"\s+|[，、,：:]+")
_MARKER = re.compile(r"`{3,}|~{3,}")
_GRAPHEME = regex.compile(r"\X")


@dataclass(frozen=True, slots=True)
class _Cut:
    """A place where the text may be cut: `fence` is what is open there; a higher `rank` is a better place."""

    at: int
    fence: Fence | None
    rank: int


def split(text: str, limit: int, most: int = 20, notice: str = "…") -> list[str]:
    """Parts of at most `limit` UTF-8 bytes each, in order; none is empty; `limit` 0 = one part.

    Cut at a paragraph, else a line, a sentence, a clause, a grapheme. A code block that is cut is closed in one part
    and opened again, with its language, in the next. What goes beyond `most` parts is left out, and the last part
    ends with `notice`. Raises ValueError for a limit under 40 bytes or under four times the notice.
    """
    tail = "\n\n" + notice
    if limit and limit < max(40, 4 * _size(tail)):
        raise ValueError(f"limit of {limit} bytes is too small")
    text = _trim(_SURROGATE.sub("\ufffd", text), None, mid_line=False)[0]
    if not limit:
        return [text.rstrip()] if text else []
    return _Splitter(limit // 4).split(text, limit, most, tail)


def _size(text: str) -> int:
    return len(text.encode())


def _prefix(text: str, room: int) -> str:
    """The longest beginning of the text that fits into `room` bytes."""
    return text[:room].encode()[:room].decode("utf-8", "ignore")


def _closed(prefix: str, body: str, fence: Fence | None) -> str:
    body = body.rstrip()
    if not body:
        return ""
    return f"{prefix}{body}\n{fence.marker}" if fence else prefix + body


def _trim(rest: str, fence: Fence | None, *, mid_line: bool) -> tuple[str, Fence | None]:
    """What the next part begins with: no blank lines, no blank in mid-line, no fence that is closed at once."""
    if not rest.strip():
        return "", None
    rest = rest.lstrip(" \t") if mid_line else rest
    blank = _BLANK_LINES.match(rest)
    rest = rest[blank.end() :] if blank else rest
    if fence is not None:
        line, _, others = rest.partition("\n")
        if fence.is_closed_by(line):
            return _trim(others, None, mid_line=False)
    return rest, fence


@dataclass(frozen=True, slots=True)
class _Splitter:
    """Cuts text with fences. A line of more than `longest` bytes is no fence: fence and text must fit together."""

    longest: int

    def split(self, text: str, limit: int, most: int, tail: str) -> list[str]:
        parts: list[str] = []
        rest, fence = self._break_long_fences(text), None
        while rest:
            part, after, open_after = self._take(rest, fence, limit)
            if after and part and len(parts) == most - 1:
                parts.append((self._take(rest, fence, limit - _size(tail))[0] + tail).lstrip())
                break
            if part:
                parts.append(part)
            rest, fence = after, open_after
        return parts

    def _break_long_fences(self, text: str) -> str:
        """A fence whose first line is too long goes on in a line of its own after the marker."""
        lines = []
        for line in text.split("\n"):
            found = FENCE_LINE.fullmatch(line) if len(line) > self.longest // 4 else None
            if found and found["tag"] and _size(line) > self.longest >= len(found["marker"]):
                lines += [found["marker"], line[found.end("marker") :]]
            else:
                lines.append(line)
        return "\n".join(lines)

    def _after(self, line: str, fence: Fence | None) -> Fence | None:
        """What is open after a line, if `fence` was open before it."""
        if len(line) > self.longest or _size(line) > self.longest:
            return fence
        if fence is not None:
            return None if fence.is_closed_by(line) else fence
        return opened_by(line)

    def _take(self, rest: str, fence: Fence | None, limit: int) -> tuple[str, str, Fence | None]:
        """Takes one part off: the part ("" for nothing but blanks), what remains, and the fence open there."""
        prefix = fence.opening + "\n" if fence else ""
        window = _prefix(rest, limit - _size(prefix))
        if len(window) == len(rest):
            open_at_end = fence
            for line in rest.split("\n"):
                open_at_end = self._after(line, open_at_end)
            whole = _closed(prefix, rest, open_at_end)
            if _size(whole) <= limit:
                return whole, "", None
        markers = [len(run) for run in _MARKER.findall(window)] + ([len(fence.marker)] if fence else [])
        if markers:
            window = _prefix(window, limit - _size(prefix) - min(max(markers), self.longest) - 1)
        cut = self._best(rest, window, fence)
        after, open_after = _trim(rest[cut.at :], cut.fence, mid_line=rest[cut.at - 1] != "\n")
        return _closed(prefix, rest[: cut.at], cut.fence), after, open_after

    def _best(self, rest: str, window: str, fence: Fence | None) -> _Cut:
        """The best cut inside the window: by rank among those that fill half of it, else inside its last line."""
        cuts = list(self._line_ends(rest, window, fence))
        good = [cut for cut in cuts if cut.rank and 2 * cut.at >= len(window)]
        if good:
            return max(good, key=lambda cut: (cut.rank, cut.at))
        start, open_there = (cuts[-1].at, cuts[-1].fence) if cuts else (0, fence)
        inside = self._inside_line(rest, window, start, open_there)
        if inside is not None:
            return _Cut(inside, open_there, 0)
        usable = [cut for cut in cuts if cut.rank]
        return usable[-1] if usable else _Cut(start or max(1, len(window)), open_there, 0)

    def _line_ends(self, rest: str, window: str, fence: Fence | None) -> Iterator[_Cut]:
        """The ends of the window's whole lines; rank 0 where nothing stands before, or a fence was just opened."""
        at, content = 0, False
        while (end := window.find("\n", at)) >= 0:
            line, before = window[at:end], fence
            fence = self._after(line, fence)
            opens = fence is not None and before is None
            content = content or (bool(line.strip()) and not opens)
            at = end + 1
            rank = 1 if fence else (3 if rest[at : at + 1] == "\n" else 2)
            yield _Cut(at, fence, rank if content and not opens else 0)

    def _inside_line(self, rest: str, window: str, start: int, fence: Fence | None) -> int | None:
        """Where to cut the line that begins at `start`: after a sentence, a clause, a grapheme; None for a fence."""
        if not window[start:].strip() or not self._is_plain(rest, start, fence):
            return None
        least = max(start + 1, len(window) // 2)
        for pattern in (_SENTENCE_END, _CLAUSE_END):
            ends: list[int] = [start + found.end() for found in pattern.finditer(window[start:])]
            for at in reversed(ends):
                if at >= least and self._is_plain(rest, at, fence):
                    return at
        # One character more shows whether the last grapheme is whole.
        graphemes: list[int] = [
            start + found.end() for found in _GRAPHEME.finditer(rest[start : len(window) + 1], concurrent=False)
        ]
        whole = [at for at in graphemes if at <= len(window)][-8:]
        return next((at for at in reversed(whole) if self._is_plain(rest, at, fence)), len(window))

    def _is_plain(self, rest: str, at: int, fence: Fence | None) -> bool:
        """Whether a line that begins here is no fence line."""
        line = rest[at : at + self.longest + 1].partition("\n")[0]
        return self._after(line, fence) == fence
