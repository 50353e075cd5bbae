"""One answer in markdown, as each platform shows it best. Pure.

Models write tables, headings and images for a screen that no chat has; each platform knows another part of markdown.
Text of a model or a user can mention nobody and run nothing: what a platform would take for a mention is
neutralised, tags outside of code are, images become links, and only addresses of the web and of mail stay links.
The content of code is never changed, but for the bracket of a mention (or, in `plain`, of an anchor).
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import regex

from channels.markdown import LIST_ITEM, Code, Kind, Prose, Table, blocks, clean, spans

_HELD = "\ufdd0"
"""Stands for a piece that is kept as it is; `clean` takes this noncharacter out of every text."""

_ANY_TAG = regex.compile(r"<(?=[\s\p{Cf}]*+/?[\s\p{Cf}]*+[A-Za-z!?])")
_MENTION_TAG = regex.compile(r"<(?=[\s\p{Cf}]*+/?[\s\p{Cf}]*+(?:at|person)\b)", regex.IGNORECASE)
_MENTION_SIGN = regex.compile(r"<(?=[\s\p{Cf}]*+@)")
_ANCHOR = regex.compile(r"<(?=[\s\p{Cf}]*+/?[\s\p{Cf}]*+a\b)", regex.IGNORECASE)

_WEB = re.compile(r"(?:https?://|mailto:|tel:)[^\s<>]+", re.IGNORECASE)
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*)")
_RULE = re.compile(r" {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})")
_QUOTE = re.compile(r"((?:[ \t]{0,3}>[ \t]?)+)(.*)")
_TASK = re.compile(r"\[([ xX])\][ \t]+(?=\S)")

_MARK = re.compile(r"[*_~]")
_EMPHASIS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?<!\*)\*{3}(?=[^\s*])(.{1,400}?)(?<=[^\s*])\*{3}(?!\*)",
        # 2**3**4 is arithmetic, and a mark that nothing closes is a mark.
        r"(?<!\*)\*\*(?=[^\s*])(?!(?<=[0-9]\*\*)[0-9])(.{1,400}?)(?<=\S)\*\*(?!\*)",
        r"(?<![\w*])\*(?=[^\s*])([^*]{1,400}?)(?<=\S)\*(?![\w*])",
        r"(?<=[^\x00-\x7f])\*(?=[^\s*])([^*]{1,400}?)(?<=\S)\*(?!\*)",
        # __init__ is a name.
        r"(?<![\w_])__(?=[^\s_])(?![a-z0-9_]{1,80}__)(.{1,400}?)(?<=[^\s_])__(?![\w_])",
        r"(?<![\w_])_(?=[^\s_])([^_]{1,400}?)(?<=[^\s_])_(?![\w_])",
        r"~~(?=\S)([^~]{1,400}?)(?<=\S)~~",
    )
)


def plain(text: str) -> str:
    """For 公众号, whose texts know no markdown: marks go, their sense stays. Not idempotent where there is code.

    An `<a>` would be shown as a link, which may even speak for the user (`weixin://bizmsgmenu`): it is neutralised.
    """
    lines: list[str] = []
    for block in blocks(clean(text)):
        match block:
            case Prose():
                lines.append(_plain_line(block.line))
            case Code():
                lines += block.lines
            case Table():
                lines += _plain_table(block)
    return _replaced(_ANCHOR, "\n".join(lines))


def feishu(text: str) -> str:
    """For the `md` element of a post (open.feishu.cn, 发送消息 › 消息内容结构): no headings, no tables, no mentions."""
    return _marked(text, _Dialect(headings=False, mention=_MENTION_TAG))


def dingtalk(text: str) -> str:
    """For markdown messages (open.dingtalk.com, 消息类型 › markdown): a line break needs two blanks before it.

    Mentions are made by the request's `at` alone; nobody is mentioned by what the text says.
    """
    return _marked(text, _Dialect(breaks=True))


def wecom(text: str) -> str:
    """For markdown of a 智能机器人 (developer.work.weixin.qq.com, 消息类型 › markdown): `<@userid>` mentions nobody."""
    return _marked(text, _Dialect(mention=_MENTION_SIGN))


def without_tags(text: str) -> str:
    """For messages that are text, not markdown, on a platform that reads tags in it: shown as it is."""
    return _replaced(_ANY_TAG, clean(text))


def _replaced(pattern: "regex.Pattern[str]", text: str) -> str:
    return str(pattern.sub("＜", text)) if "<" in text else text


def _title(line: str) -> str | None:
    """The words of a heading (CommonMark §4.2), None for another line; closing marks stand apart: 「# C#」 is about C#."""
    heading = _HEADING.fullmatch(line)
    if heading is None:
        return None
    title = str(heading[1]).rstrip(" \t")
    words = title.rstrip("#")
    return words.rstrip(" \t") if not words or words[-1] in " \t" else title


# ---- markdown of a platform


@dataclass(frozen=True, slots=True)
class _Dialect:
    """What a platform's markdown knows: headings; line breaks only where they are asked for (`breaks`); `mention`."""

    headings: bool = True
    breaks: bool = False
    mention: "regex.Pattern[str] | None" = None


def _marked(text: str, dialect: _Dialect) -> str:
    """The text in this dialect. Mentions are looked for last: a link that is unwrapped could make one."""
    converted = _converted(clean(text), dialect)
    return converted if dialect.mention is None else _replaced(dialect.mention, converted)


def _converted(text: str, dialect: _Dialect) -> str:
    lines: list[str] = []
    prose: list[bool] = []
    for block in blocks(text):
        match block:
            case Prose():
                new = _line(block.line, dialect).split("\n")
            case Code():
                new = list(block.source)
            case Table():
                new = [_line(row, dialect) for row in _table(block)]
        lines += new
        prose += [not isinstance(block, Code)] * len(new)
    if dialect.breaks:
        lines = [
            f"{line.rstrip()}  " if here and there and _runs_on(line, below) else line
            for line, below, here, there in zip(lines, [*lines[1:], ""], prose, [*prose[1:], False], strict=False)
        ]
    return "\n".join(lines)


def _runs_on(line: str, below: str) -> bool:
    """Whether a reader of CommonMark would join the two lines."""
    if not line.strip() or not below.strip() or _HEADING.fullmatch(line) or _RULE.fullmatch(line):
        return False
    return not (LIST_ITEM.match(below) or _HEADING.fullmatch(below) or _RULE.fullmatch(below))


def _line(line: str, dialect: _Dialect) -> str:
    title = None if dialect.headings else _title(line)
    if title:
        return f"**{_joined(map(_bold_free, _pieces(title)))}**"
    return _joined(_pieces(line))


def _bold_free(piece: tuple[Kind, str]) -> tuple[Kind, str]:
    kind, text = piece
    return kind, text.replace("**", "") if kind is Kind.TEXT else text


def _joined(pieces: Iterable[tuple[Kind, str]]) -> str:
    """The pieces as one line. A tag is neutralised wherever it begins outside of code, even one of two pieces."""
    line, kept = "", set[int]()
    for kind, text in pieces:
        if kind in (Kind.CODE, Kind.ESCAPE):
            kept.update(range(len(line), len(line) + len(text)))
        line += text
    if "<" not in line:
        return line
    return str(_ANY_TAG.sub(lambda found: found[0] if found.start() in kept else "＜", line))


def _pieces(line: str) -> Iterator[tuple[Kind, str]]:
    """The pieces of a line as any platform's markdown takes them; a link is several."""
    for span in spans(line):
        match span.kind:
            case Kind.LINK | Kind.IMAGE:
                yield from _link(span.text, span.address, is_image=span.kind is Kind.IMAGE)
            case Kind.TEXT | Kind.ADDRESS | Kind.BREAK:
                yield span.kind, span.text
            case _:
                yield span.kind, span.source


def _link(label: str, address: str, *, is_image: bool) -> Iterator[tuple[Kind, str]]:
    inside = list(_pieces(_without_breaks(label).strip()))
    shown = "".join(text for _, text in inside)
    if not shown.strip():
        shown = "图片" if is_image else address
        inside = [(Kind.TEXT, shown)]
    if _WEB.fullmatch(address):
        yield from [(Kind.TEXT, "["), *inside, (Kind.ADDRESS, f"]({address})")]
    else:
        yield from inside
        if shown != address:
            yield Kind.TEXT, f"（{address}）"


def _table(table: Table) -> Iterator[str]:
    """One list item for each row: every cell with its column's name. A head without rows is told as it is."""
    for row in table.rows or (table.head,):
        cells = [f"**{name}**：{cell}" if name else cell for name, cell in _named(table, row)]
        if cells:
            yield "- " + "；".join(cells)


def _named(table: Table, row: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for place, cell in enumerate(row):
        if cell:
            name = table.head[place] if table.rows and place < len(table.head) else ""
            yield name.replace("**", ""), _without_breaks(cell)


def _without_breaks(cell: str) -> str:
    return "".join(" " if span.kind is Kind.BREAK else span.source for span in spans(cell))


# ---- no markdown at all


def _plain_table(table: Table) -> Iterator[str]:
    """A few lines for each row, the first with a point. A head without rows is told as it is."""
    for row in table.rows or (table.head,):
        for place, (name, cell) in enumerate(_named(table, row)):
            said = _plain(cell)
            yield ("  " if place else "· ") + (f"{_plain(name)}：{said}" if name else said)


def _plain_line(line: str) -> str:
    if _RULE.fullmatch(line):
        return "————————"
    title = _title(line)
    if title is not None:
        title = _plain(title)
        return f"【{title}】" if title and not set("【】\n") & set(title) else title
    quote = _QUOTE.fullmatch(line)
    if quote and quote[2].strip():
        return "> " * min(str(quote[1]).count(">"), 3) + _plain_item(quote[2])
    return _plain_item(line)


def _plain_item(line: str) -> str:
    item = LIST_ITEM.match(line)
    if item is None:
        return _plain(line)
    rest, marker = line[item.end() :], item["marker"]
    task = _TASK.match(rest)
    if task:
        rest, marker = rest[task.end() :], "☐" if task[1] == " " else "☑"
    elif not marker[0].isdigit():
        marker = "·"
    return f"{item['indent']}{marker} {_plain(rest)}"


def _plain(text: str) -> str:
    """A line's words: emphasis off, links as `text（address）`, code and addresses as they are."""
    kept: list[str] = []

    def hold(piece: str) -> str:
        kept.append(piece)
        return _HELD

    words = "".join(_held(text, hold))
    for pattern in _EMPHASIS if _MARK.search(words) else ():
        words = pattern.sub(r"\1", words)
    first, *others = words.split(_HELD)
    return first + "".join(piece + after for piece, after in zip(kept, others, strict=True))


def _held(text: str, hold: Callable[[str], str]) -> Iterator[str]:
    """The words of a line, with `hold` called, in order, for each piece that is to be kept as it is."""
    for span in spans(text):
        match span.kind:
            case Kind.TEXT:
                yield span.text
            case Kind.LINK | Kind.IMAGE:
                label = span.text.strip() or ("图片" if span.kind is Kind.IMAGE else "")
                yield from _held(label, hold)
                if label != span.address:
                    yield hold(f"（{span.address}）" if label else span.address)
            case _:
                yield hold(span.text)
