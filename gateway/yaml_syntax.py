"""A text that is no YAML → the line to look at, and what to write there. Nothing of the text itself is passed on."""

import re

import yaml

WIDE_COLON = "用了全角冒号「：」；请改成半角冒号加一个空格「: 」"

_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")
_WIDE = re.compile(r" *(?:- )?[A-Za-z][\w-]*\s*：")
_LINES_BEFORE = 3

_SYNTAX = (
    # What PyYAML says → what to do. Its quoted details are not passed on: they can be a piece of a secret.
    (r"found character .*\\t.*cannot start", "缩进或值的开头有 Tab；请改用空格"),
    (r"undefined alias", "以 * 开头的文字会被当作别名；请加引号"),
    (r"cannot start any token", "值以特殊字符（@、` 或 %）开头；请加引号"),
    (r"mapping values are not allowed", "多了一个冒号，或上面一行的缩进不对；含「: 」的文字请加引号"),
    (r"could not find expected ':'|expected ':'", "缺少冒号，或缩进不对；请写成「键: 值」"),
    (r"(un)?expected end of stream|unexpected end", "这里开始的引号没有成对；请补上右引号"),
    (r"expected ',' or|expected .*(flow|'\]'|'\}')", "方括号或花括号里少了逗号或右括号；其中的 ${…} 要加引号"),
    (r"expected .*block (end|mapping|sequence|collection)|expected key|block", "缩进不对；同一层的键要左对齐"),
    (r"document", "只能有一份文档；请删去 --- 及其后的内容"),
    (r"unknown escape|escape", "双引号中的 \\ 写法不对；请改用单引号"),
)


def explained(error: yaml.MarkedYAMLError, text: str) -> tuple[int, str]:
    """Line and message for a text that is no YAML."""
    said = f"{error.context or ''}; {error.problem or ''}"
    mark = error.problem_mark or error.context_mark
    if "quoted scalar" in said and error.context_mark:
        mark = error.context_mark  # where the quote was opened, not where the file ended
    lines = lines_of(text)
    line = min(mark.line + 1 if mark else 1, len(lines))
    if re.match(r" *\t", lines[line - 1]):
        return line, _SYNTAX[0][1]
    colons = re.search(r"mapping values|expected ':'", said)
    if colons and (wide := _wide_before(lines, line)) is not None:
        return wide, WIDE_COLON
    if (opened := _quote_before(text, line)) is not None:
        return opened, "这里开始的引号没有在本行结束；请补上右引号"
    for pattern, message in _SYNTAX:
        if re.search(pattern, said):
            return line, message
    return line, "不是有效的 YAML；请检查缩进、冒号和引号"


def control_line(text: str) -> int:
    """The line of the first character that YAML does not take."""
    found = re.search(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def lines_of(text: str) -> list[str]:
    """The lines as YAML counts them."""
    return _BREAK.split(text)


def is_wide(line: str) -> bool:
    """Whether the line reads ``key：value``: a full-width colon, which is no colon to YAML."""
    return _WIDE.match(line) is not None


def _wide_before(lines: list[str], line: int) -> int | None:
    """The nearest line ``key：value`` at or a little above `line`: what follows it is what YAML stumbles over."""
    return next((n for n in range(line, max(0, line - 1 - _LINES_BEFORE), -1) if is_wide(lines[n - 1])), None)


def _quote_before(text: str, line: int) -> int | None:
    """Where the quoted scalar began that runs over lines and ends on `line`, right before what YAML stumbles over."""
    last: yaml.Token | None = None
    try:
        for token in yaml.scan(text, Loader=_LOADER):
            if token.start_mark.line + 1 >= line:
                break
            last = token
    except yaml.YAMLError:
        pass  # the text is known to be no YAML; what came before counts
    if isinstance(last, yaml.ScalarToken) and last.style in ("'", '"') and last.end_mark.line + 1 >= line:
        began: int = last.start_mark.line + 1
        return began
    return None
