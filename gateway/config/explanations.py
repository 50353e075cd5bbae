"""What pydantic finds wrong, in the words of an admin: what is wrong; what to write."""

import re

from pydantic_core import ErrorDetails

_WANTED = {
    "text": ("文字", "写成一行文字，含特殊字符时加引号"),
    "integer": ("整数", "写数字，不带前导零、引号和单位"),
    "number": ("数字", "写数字，例如 0.8"),
    "switch": (" true 或 false", "写 true 或 false，不加引号"),
    "list": ("列表", "写成 [值, 值]，或每行一个「- 值」，没有就写 []"),
    "map": ("一组「键: 值」", "写出内容，没有就写 {} 或删去这个键"),
    "model": ("一组「键: 值」", "写出内容，没有就写 {} 或删去这个键"),
}
_ADDRESSES = {
    "^https?": "应以 http:// 或 https:// 开头，后面是主机名",
    "^wss?": "应以 ws:// 或 wss:// 开头，后面是主机名",
}
_BOUNDS = {"ge": "应不小于", "gt": "应大于", "le": "应不大于", "lt": "应小于"}


def quoted(written: str) -> str:
    """A value as it may stand in a message: one short line."""
    line = "".join(character if character.isprintable() else " " for character in written)
    return f"「{line[:40]}{'…' if len(line) > 40 else ''}」"


def unlike(kind: str, *, blank: bool, written: str | None = None, plain: bool = True) -> str:
    """A value that has not the form its key wants."""
    wanted, remedy = _WANTED[kind]
    if blank:
        return f"后面是空的，应为{wanted}；{remedy}"
    if written is None:
        return f"应为{wanted}；{remedy}"
    said = quoted(written) if plain else f"带引号的{quoted(written)}"
    return f"应为{wanted}，写的是{said}；{remedy}"


def explained(error: ErrorDetails, written: str | None) -> str:
    """An error of pydantic. `written` is the value, None where it is secret or no single text."""
    context = error.get("ctx", {})
    said = f"，写的是{quoted(written)}" if written is not None else ""
    if error["type"] == "value_error":
        return _once(str(context.get("error", error["msg"])))
    if error["type"] == "literal_error":
        return f"没有这种取值{said}；可写 {str(context['expected']).replace(chr(39), '').replace(' or ', '、')}"
    if error["type"] == "string_pattern_mismatch":
        choices = re.fullmatch(r"\^\(([\w|-]+)\)\$", str(context["pattern"]))
        if choices:
            return f"没有这种取值{said}；可写 {choices[1].replace('|', '、')}"
        address = _ADDRESSES.get(str(context["pattern"]).partition("://")[0])
        return f"不是完整的地址{said}；{address}" if address else f"格式不对{said}；应符合 {context['pattern']}"
    if error["type"] == "string_too_short":
        return "不能为空；请写出"
    for name, words in _BOUNDS.items():
        if name in context:
            bound = f"{words} {context[name]}"
            return f"{bound}{said}；请改写"
    return f"取值不对{said}；{error['msg']}"


def _once(message: str) -> str:
    """A message of ours on one line; one that holds no remedy gets the plain one."""
    line = " ".join(message.split())
    return line if "；" in line or "例如" in line or "可选" in line else f"{line}；请改写"
