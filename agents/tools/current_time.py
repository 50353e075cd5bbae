"""``current_time``: date, time and weekday in the configured time zone."""

from agents.tools.tool import Arguments, CallContext, Tool

_DAYS = "一二三四五六日"


async def _run(context: CallContext, arguments: Arguments) -> str:
    now = context.now
    return f"{now:%Y-%m-%d %H:%M:%S}（UTC{now:%z}），星期{_DAYS[now.weekday()]}"


CURRENT_TIME = Tool(
    name="current_time",
    description="现在的日期、时间和星期。问到今天、现在、几点，或要推算日期时调用",
    parameters={"type": "object", "properties": {}},
    run=_run,
    repeatable=True,
)
