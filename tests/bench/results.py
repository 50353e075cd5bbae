"""What was measured → the table, in Markdown and Chinese, as all that admins read. Pure."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.bench.cold_start import ColdStart
from tests.bench.endurance import Idle, Turns
from tests.bench.load import Figures
from tests.bench.machine import Machine
from tests.bench.subject import FLOOR, PRODUCT

Row = Sequence[str]


@dataclass(frozen=True)
class Cell:
    """One load: the channel as the tables name it, people at once, seconds of the model."""

    channel: str
    people: int
    model_seconds: float


@dataclass(frozen=True)
class Rounds:
    """What the rounds of one cell showed; each pair was measured one right after the other."""

    product: Sequence[Figures]
    floor: Sequence[Figures]

    def medians(self, of: Callable[[Figures], float]) -> tuple[float, float, float]:
        """The medians of product and floor, and the median of the ratios of the rounds."""
        product, floor = [of(each) for each in self.product], [of(each) for each in self.floor]
        ratios = [ours / theirs if theirs else float("nan") for ours, theirs in zip(product, floor, strict=True)]
        return statistics.median(product), statistics.median(floor), statistics.median(ratios)


@dataclass(frozen=True)
class Results:
    """All of a run. Parts that were not measured are empty or None; `memory` is what bench_memory printed."""

    command: str
    at: str
    minutes: float
    rounds: int
    seconds: float
    machine: Machine
    load: Mapping[Cell, Rounds]
    turns: Sequence[Turns] = ()
    idle: Idle | None = None
    cold_start: Mapping[str, ColdStart] | None = None
    memory: str = ""


def markdown(results: Results) -> str:
    """The whole page."""
    parts = [_head(results)]
    if results.load:
        parts += [_cost(results), _times(results.load), _losses(results.load)]
    if results.turns:
        parts.append(_turns(results.turns))
    if results.idle:
        parts.append(_idle(results.idle))
    if results.cold_start:
        parts.append(_cold_start(results.cold_start))
    if results.memory:
        parts.append(
            f"## 会话文件：追加与取窗口\n\n`python -m tests.bench.bench_memory`：\n\n```text\n{results.memory}\n```"
        )
    return "\n\n".join(parts) + "\n"


def _head(results: Results) -> str:
    of = results.machine
    facts = [
        ("命令", f"`{results.command}`"),
        ("时间", f"{results.at}，用了 {results.minutes:.0f} 分钟"),
        ("代码", f"`{of.commit}`"),
        ("处理器", f"{of.processor}，{of.cores} 核"),
        ("内存", f"{of.memory_gib:.0f} GiB"),
        ("系统", f"{of.system}；工作目录在 {of.filesystem} 上，一次 fdatasync {of.sync_ms:.2f} 毫秒"),
        ("Python", f"{of.python}；{of.packages}"),
        ("开始时的负载", f"{of.load:.2f}"),
    ]
    return f"""# 测量结果

产品对照一个底线：验真、解析、问一次模型、答复一次，没有任何状态，只用 aiohttp（`tests/bench/floor.py`）。产品就是 `python -m gateway run`，落盘等设置都是默认的；只有一个智能体，不限每人的频率，模型不限同时的请求数（`tests/bench/subject.py`）。驱动、平台、模型在别的进程里，与被测的进程共用处理器。怎么量，见 [CONTRIBUTING.md](../../CONTRIBUTING.md#测量)。

{_table(("", ""), facts)}"""


def _cost(results: Results) -> str:
    rows = []
    for cell, rounds in results.load.items():
        rate, cpu = rounds.medians(lambda each: each.rate), rounds.medians(lambda each: each.cpu)
        rows.append(
            (*_where(cell), f"{rate[0]:.0f}", f"{rate[1]:.0f}", f"{rate[2]:.2f}", *map(_two, cpu[:2]), f"{cpu[2]:.1f}")
        )
    columns = ("每秒答复", "底线", "比", "每条 CPU 毫秒", "底线", "比")
    return f"""## 多少人同时说话

每个人收到答复才说下一句，说 {results.seconds:g} 秒；产品和底线轮流，各从空的工作目录启动，共 {results.rounds} 轮。每格是各轮的中位数，「比」是每轮产品与底线之比的中位数。两者和驱动、模型共用处理器，所以模型不花时间时，「每秒答复」是整台机器的；模型花一秒时，至多是人数。

{_table((*_WHERE, *columns), rows)}"""


def _times(load: Mapping[Cell, Rounds]) -> str:
    rows = []
    for cell, rounds in load.items():
        fields = (
            lambda each: each.ack_p50,
            lambda each: each.ack_p99,
            lambda each: each.overhead_p50,
            lambda each: each.overhead_p99,
        )
        figures = [rounds.medians(field) for field in fields]
        pairs = [(figures[0], figures[1]), (figures[2], figures[3])]
        shown = [f"{_ms(half[who])} / {_ms(most[who])}" for half, most in pairs for who in (0, 1)]
        rows.append((*_where(cell), *shown, f"{figures[2][2]:.1f}"))
    columns = ("应答", "底线", "额外", "底线", "额外的比")
    return f"""### 时间

毫秒，p50 / p99。「应答」：平台送来到收到应答；被动回复的应答就是答案，含模型的时间。「额外」：送来到收到答案，减去模型的时间；其中包括等处理器。

{_table((*_WHERE, *columns), rows)}"""


def _losses(load: Mapping[Cell, Rounds]) -> str:
    rows = []
    for cell, rounds in load.items():
        sides = (rounds.product, rounds.floor)
        sums = [
            " / ".join(f"{sum(getattr(each, name) for each in side):,}" for side in sides)
            for name in ("sent", "lost", "doubled", "unacked")
        ]
        most = rounds.medians(lambda each: each.most_at_model)
        asked = rounds.medians(lambda each: each.requests)
        start, peak = rounds.medians(lambda each: each.rss_start), rounds.medians(lambda each: each.rss_peak)
        driver, others = rounds.medians(lambda each: each.driver), rounds.medians(lambda each: each.others)
        rows.append(
            (
                *_where(cell),
                *sums,
                f"{most[0]:.0f} / {most[1]:.0f}",
                f"{asked[0]:.2f}",
                f"{start[0]:.0f} → {peak[0]:.0f}",
                f"{start[1]:.0f} → {peak[1]:.0f}",
                f"{driver[0]:.2f} / {driver[1]:.2f}",
                f"{others[0]:.2f} / {others[1]:.2f}",
            )
        )
    columns = (
        "说了",
        "丢失",
        "重复",
        "未应答",
        "模型处最多",
        "每条问模型",
        "内存 MiB",
        "底线的内存",
        "驱动占核",
        "别人占核",
    )
    return f"""### 丢失、模型、内存

产品 / 底线。「丢失」：三十秒内没有答复。前四列是各轮之和。「每条问模型」多于 1 的是摘要。最后一列是机器上无关的进程占用的处理器核数：它大，其余各列就不可信。

{_table((*_WHERE, *columns), rows)}"""


def _turns(turns: Sequence[Turns]) -> str:
    rows = [
        (
            f"{each.place:,}",
            _two(each.cpu),
            _two(each.ratio),
            _ms(each.overhead_p50),
            _ms(each.overhead_p99),
            f"{each.requests:.2f}",
        )
        for each in turns
    ]
    columns = ("第几轮", "CPU 毫秒", "比", "额外 p50", "额外 p99", "每条问模型")
    return f"""## 一段越来越长的对话

公众号被动回复，一个人一句接一句，模型不花时间。第一行是许多段新对话的开头，到那一轮的两倍为止，共两百轮。其余各行是到那里为止的六百轮，每两百轮之后再量一次新的短对话；「比」是与它们的 CPU 之比，三次的中位数，其余是 CPU 居中的一次。

{_table(columns, rows)}"""


def _idle(idle: Idle) -> str:
    rows = [
        ("启动后", f"{idle.start:.0f}"),
        (f"{idle.few:,} 段对话之后", f"{idle.after_few:.0f}"),
        (f"{idle.conversations:,} 段对话之后", f"{idle.after_all:.0f}"),
        ("启动后多出", f"{idle.after_all - idle.start:.0f}"),
    ]
    return f"""## 不再说话的对话

每段对话只说一句，答完之后空闲；常驻内存，MiB。后来的每段 {idle.each:.1f} KiB。

{_table(("", "MiB"), rows)}"""


def _cold_start(found: Mapping[str, ColdStart]) -> str:
    names = {PRODUCT: "产品", FLOOR: "底线"}
    rows = [(names[kind], f"{each.seconds:.2f}", f"{each.rss:.0f}") for kind, each in found.items()]
    return f"""## 冷启动

从 exec 到 `/healthz` 为 200；飞书 webhook、公众号、钉钉 HTTP 都启用（底线没有钉钉）；字节码已经编译过，工作目录是新的。中位数。

{_table(("", "秒", "MiB"), rows)}"""


_WHERE = ("渠道", "人数", "模型")


def _where(cell: Cell) -> Row:
    return cell.channel, f"{cell.people}", f"{cell.model_seconds:g} 秒"


def _two(value: float) -> str:
    return f"{value:.2f}"


def _ms(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _table(head: Row, rows: Iterable[Row]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
