"""What somebody looks for, as models and people write it → a `JobQuery`: cities by any name, salaries in any form. Pure."""

import difflib
import math
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

_CITIES: dict[str, str] = {
    "北京": "beijing 帝都 京城 首都",
    "上海": "shanghai 魔都 沪",
    "广州": "guangzhou 羊城 花城 穗",
    "深圳": "shenzhen 鹏城",
    "杭州": "hangzhou 杭城",
    "成都": "chengdu 蓉城 蓉",
    "南京": "nanjing 金陵",
    "武汉": "wuhan 江城",
    "西安": "xian xi'an 长安",
    "苏州": "suzhou 姑苏",
    "重庆": "chongqing 山城 渝",
    "天津": "tianjin 津",
    "长沙": "changsha 星城",
    "厦门": "xiamen 鹭岛",
    "合肥": "hefei",
    "青岛": "qingdao 岛城",
    "郑州": "zhengzhou",
    "宁波": "ningbo 甬",
    "无锡": "wuxi",
    "大连": "dalian",
    "济南": "jinan 泉城",
    "福州": "fuzhou 榕城",
    "东莞": "dongguan",
    "珠海": "zhuhai",
    "佛山": "foshan",
    "沈阳": "shenyang",
    "昆明": "kunming 春城",
}
_NAMES = {alias: city for city, aliases in _CITIES.items() for alias in (city, *aliases.split())}
_REMOTE = ("远程", "居家", "在家办公", "remote")
_ANYWHERE = ("", "不限", "全国", "任意", "any", "都可以")
_NUMBER = r"(\d+(?:\.\d+)?)\s*(k|千|w|万|元)?"
_SALARY = re.compile(rf"{_NUMBER}(?:\s*[-~至到—－]\s*\d+(?:\.\d+)?\s*(?:k|千|w|万|元)?)?")
_SPAN = re.compile(rf"{_NUMBER}(?:\s*(?:年)?\s*[-~至到—－–]+\s*{_NUMBER})?")
_IN_TEXT = re.compile(
    r"(?:(?:薪资|工资|月薪|薪水|年薪|期望)[^\d,。;!?]{0,4})?\d+(?:\.\d+)?\s*(?:k|千|w|万)(?![a-z])(?:以上|起|左右|\+)?"
)
_YEARS = re.compile(r"(\d+(?:\.\d+)?)\s*年(?!薪)(?:以上|多|左右)?(?:的)?(?:工作)?(?:经验)?|应届")
# What stands in a request and names no posting.
_FILLERS = re.compile(
    r"请|换成|改成|改为|帮我|帮忙|给我|我想要?|我要|推荐|找|查|看看|搜索?|一下|一些|几个|有没有|有什么|有哪些|哪些|岗位|职位|工作|机会|"
    r"招聘|适合|合适|薪资|工资|月薪|薪水|以上|左右|期望|方向|相关|经验|要求|的|吗|呢|吧|和|在|是|再|换|只|要"
)
_WORDS = re.compile(r"[a-z0-9][a-z0-9+#.]*|[\u4e00-\u9fff]+")


@dataclass(frozen=True, slots=True)
class JobQuery:
    """What is looked for: words, cities ("" entries never), the least salary (thousands a month), years, remote."""

    words: tuple[str, ...] = ()
    cities: tuple[str, ...] = ()
    salary: float | None = None
    years: float | None = None
    remote: bool = False


def plain(text: str) -> str:
    """Width and case taken away."""
    return unicodedata.normalize("NFKC", text[:500]).casefold()


def words(text: str) -> tuple[str, ...]:
    """The words of a text: runs of Latin letters and digits, runs of Chinese characters."""
    return tuple(word.rstrip(".") for word in _WORDS.findall(plain(text)))


def city(name: str, known: Iterable[str] = ()) -> str | None:
    """The city meant: by its name, another name, or one slip of the pen; None where that is not clear."""
    wanted = plain(name).strip().removesuffix("市")
    cities = dict.fromkeys([*known, *_CITIES])
    if found := _NAMES.get(wanted) or next((each for each in cities if plain(each) == wanted), None):
        return found
    if wanted.isascii():
        close = difflib.get_close_matches(wanted, [alias for alias in _NAMES if alias.isascii()], n=1, cutoff=0.8)
        return _NAMES[close[0]] if close else None
    near = [each for each in cities if len(each) == len(wanted) > 1 and _slips(each, wanted) == 1]
    return near[0] if len(near) == 1 else None


def _slips(one: str, other: str) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


def salary(value: object) -> float | None:
    """Thousands of yuan a month: ``25``, ``25k``, ``25000``, ``2.5万``, ``25k-40k`` (its lower end), ``年薪 36 万``."""
    if isinstance(value, bool) or value is None:
        return None
    text = plain(str(value)).replace(",", "")
    found = _SALARY.search(text)
    if not found:
        return None
    number, unit = float(found[1]), found[2]
    if unit is None or unit == "元":
        number = number / 1000 if number >= 1000 or unit == "元" else number
    elif unit in ("w", "万"):
        number *= 10
    if "年薪" in text or "/年" in text:
        number /= 12
    return number if 0 < number < 10_000 else None


def salary_span(text: str) -> tuple[float, float] | None:
    """Least and most, in thousands of yuan a month, of a salary as postings state it; None for one without a number.

    ``20-30k``, ``2-3万``, ``15000-25000 元``, ``25k 以上``, ``30k 以内``, ``年薪 36-48 万``.
    """
    text = plain(text).replace(",", "")
    found = _SPAN.search(text)
    if not found:
        return None
    yearly = "年薪" in text or "/年" in text
    low, unit, high, last = found.groups()
    ends = [
        salary(f"{'年薪' if yearly else ''}{each}{own or last or unit or ''}")
        for each, own in ((low, unit), (high or low, last))
    ]
    if ends[0] is None or ends[1] is None:
        return None
    return _open_ended(ends[0], ends[1], text)


def years_span(text: str) -> tuple[float, float] | None:
    """Least and most years of experience as postings state them: ``3-5 年``, ``3 年以上``; None without a number."""
    text = plain(text)
    found = _SPAN.search(text)
    if not found:
        return (0.0, 0.0) if "应届" in text else None
    return _open_ended(float(found[1]), float(found[3] or found[1]), text)


def _open_ended(low: float, high: float, text: str) -> tuple[float, float]:
    if low == high and re.search(r"以上|起|\+|不低于|至少", text):
        return low, math.inf
    if low == high and re.search("以下|以内|不超过|不高于|最高|至多", text):
        return 0.0, high
    return min(low, high), max(low, high)


def number(value: object) -> float | None:
    """The first number of a value."""
    found = None if isinstance(value, bool) or value is None else re.search(r"\d+(?:\.\d+)?", plain(str(value)))
    return float(found[0]) if found else 0.0 if value is not None and "应届" in str(value) else None


def query_of(text: str, known: Iterable[str] = ()) -> JobQuery:
    """What a free text asks for; cities, salary, years and remote are taken out of it, the rest are words."""
    left = plain(text)
    cities = []
    for alias, name in sorted([*_NAMES.items(), *((each, each) for each in known)], key=lambda item: -len(item[0])):
        pattern = rf"\b{re.escape(alias)}\b" if alias.isascii() else re.escape(alias)
        if (len(alias) > 1) and re.search(pattern, left):
            cities.append(name)
            left = re.sub(pattern, " ", left)
    remote = any(word in left for word in _REMOTE)
    for word in _REMOTE:
        left = left.replace(word, " ")
    least = None
    if found := _IN_TEXT.search(left):
        least = salary(found[0])
        left = _IN_TEXT.sub(" ", left)
    years = None
    if found := _YEARS.search(left):
        years = number(found[0])
        left = _YEARS.sub(" ", left)
    return JobQuery(words(_FILLERS.sub(" ", left)), tuple(dict.fromkeys(cities)), least, years, remote)


def merged(first: JobQuery, second: JobQuery) -> JobQuery:
    """Both together; where both say something of the same kind, `first` holds."""
    return JobQuery(
        tuple(dict.fromkeys(first.words + second.words)),
        first.cities or second.cities,
        second.salary if first.salary is None else first.salary,
        second.years if first.years is None else first.years,
        first.remote or second.remote,
    )


def anywhere(name: str) -> bool:
    """Whether this stands for no city in particular."""
    return plain(name).strip() in _ANYWHERE
