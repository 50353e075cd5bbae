"""A text that is no YAML → the line to look at, and what to write there. Nothing of the text itself is passed on."""

import re

import yaml

WIDE_COLON = "用了全角冒号「：」；请改成半角冒号加一个空格「: 」"

_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")
_WIDE = re.compile(r" *(?:- )?[A-Za-z][\w-]*\s*：")
_LINES_BEFORE = 3
_ODD_BLANK = re.compile(r"[ \t]*[\u00a0\u2000-\u200b\u202f\u3000\ufeff]")
_NO_BLANK = re.compile(r"\s*(?:- )?[\w-]+:(?! |//|$)")
_LONE_WORD = re.compile(r"\s*(?:- )?[A-Za-z][\w-]*\s*(?:#.*)?")
_VALUE = re.compile(r"( *)(?:- )?[\w-]+: +[^ #|>&{\[]")
_OPENS_TEXT = re.compile(r".*: [|>][-+0-9]*\s*(?:#.*)?")
_FORM = "请写成「键: 值」"

_SYNTAX = (
    # What PyYAML says → what to do. Its quoted details are not passed on: they can be a piece of a secret.
    (r"found character .*\\t.*cannot start", "缩进或值的开头有 Tab；请改用空格"),
    (r"undefined alias|scanning an (alias|anchor)", "以 * 或 & 开头的文字会被当作别名；请加引号"),
    (r"scanning a block scalar", "| 的后面不能有文字；请另起一行，并缩进"),
    (r"cannot start any token", "值以特殊字符（@、` 或 %）开头；请加引号"),
    (
        r"mapping values are not allowed",
        "多了一个冒号，或上面一行的缩进不对；含「: 」的文字请加引号，多行的文字请在键后面写 |",
    ),
    (r"could not find expected ':'|expected ':'", f"缺少冒号，或缩进不对；{_FORM}"),
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
    if (odd := _nearest(lines, line, _ODD_BLANK)) is not None:
        return odd, "缩进里有全角空格一类的字符；请改用普通的空格"
    colons = re.search(r"mapping values|expected ':'", said)
    if colons and (wide := _nearest(lines, line, _WIDE)) is not None:
        return wide, WIDE_COLON
    if (opened := _quote_before(text, line)) is not None:
        return opened, "这里开始的引号没有在本行结束；请补上右引号"
    if mark and "block mapping" in said and lines[line - 1][: mark.column].strip():
        return line, "值的后面还有别的文字；含引号、方括号的文字请整个加上引号，或在键后面写 | 再另起一行"
    began = error.context_mark.line + 1 if error.context_mark else line
    if (precise := _precise(said, lines, line, began)) is not None:
        return precise
    for pattern, message in _SYNTAX:
        if re.search(pattern, said):
            return line, message
    return line, "不是有效的 YAML；请检查缩进、冒号和引号"


def _precise(said: str, lines: list[str], line: int, began: int) -> tuple[int, str] | None:
    """The very line at fault where it can be told: YAML stumbles behind it. `began`: where what it was reading began."""
    above = next((n for n in range(line - 1, 0, -1) if lines[n - 1].strip() and lines[n - 1].lstrip()[0] != "#"), 0)
    colon = began if "expected ':'" in said and began < line else above if "mapping values" in said else 0
    if colon and _NO_BLANK.match(lines[colon - 1]):
        return colon, f"冒号后面要有一个空格；{_FORM}"
    if "expected ':'" in said and began < line:
        if began > 1 and _OPENS_TEXT.fullmatch(lines[began - 2]):
            return began, "多行的文字要比它的键缩进；请在 | 下面的每一行前面加两个空格"
        return began, f"缺少冒号；{_FORM}"
    if "mapping values" in said and above:
        if _LONE_WORD.fullmatch(lines[above - 1]):
            return above, f"缺少冒号；{_FORM}"
        value = _VALUE.match(lines[above - 1])
        if value and len(value[1]) < len(lines[line - 1]) - len(lines[line - 1].lstrip()):
            return line, f"缩进比第 {above} 行深，而那一行已经有值；同一层的键要左对齐"
    if "block mapping" in said and began < line:
        return line, f"缩进不对，和第 {began} 行开始的那一层对不齐；同一层的键要左对齐"
    if "flow" in said and began < line:
        return began, "这里开始的方括号或花括号里少了逗号或右括号；其中的 ${…} 要加引号"
    return None


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


def _nearest(lines: list[str], line: int, form: re.Pattern[str]) -> int | None:
    """The nearest line of this form at or a little above `line`: what follows it is what YAML stumbles over."""
    return next((n for n in range(line, max(0, line - 1 - _LINES_BEFORE), -1) if form.match(lines[n - 1])), None)


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
