"""``search_jobs``: the postings of ``workspace/knowledge/jobs.yaml`` that fit."""

import asyncio
import json
import logging
import math
from collections.abc import Iterable, Mapping

from agents.tools import job_query
from agents.tools.job_query import JobQuery, merged, query_of, words
from agents.tools.job_search import Found, search
from agents.tools.jobs import Job, JobBoard, JobsUnreadable, Span
from agents.tools.tool import Arguments, CallContext, Tool, ToolError

_log = logging.getLogger("sanqiao.tools")


async def _run(context: CallContext, arguments: Arguments) -> str:
    return await asyncio.to_thread(_looked_up, context.jobs, arguments)


def _looked_up(board: JobBoard, arguments: Arguments) -> str:
    try:
        jobs = board.jobs()
    except JobsUnreadable as error:
        _log.error("jobs.unreadable %s", error)
        raise ToolError("岗位数据现在读不到，请告诉对方稍后再试，不要编造岗位") from None
    known = sorted({job.city for job in jobs if job.city})
    query, unclear = _query(arguments, known)
    if unclear:
        return _compact({"total": 0, "jobs": [], "note": f"没有“{unclear}”的岗位；有岗位的城市：{'、'.join(known)}"})
    return _told(search(jobs, query), query)


def _query(arguments: Arguments, known: Iterable[str]) -> tuple[JobQuery, str]:
    """What is asked for, and a city that is none that is known ("")."""
    known = list(known)
    cities: list[str] = []
    for name in _strings(arguments.get("city")):
        if job_query.anywhere(name):
            continue
        read = query_of(name, known)
        found = job_query.city(name, known)
        cities += [found] if found else read.cities
        if not found and not read.cities and not read.remote:
            return JobQuery(), name[:20]
    skills = tuple(word for skill in _strings(arguments.get("skills")) for word in words(skill))
    wanted = next((arguments[key] for key in ("min_salary", "salary") if arguments.get(key) is not None), None)
    years = next((arguments[key] for key in ("years", "experience") if arguments.get(key) is not None), None)
    remote = arguments.get("remote") in (True, "true", "是") or any(
        query_of(name).remote for name in _strings(arguments.get("city"))
    )
    named = JobQuery(skills, tuple(dict.fromkeys(cities)), job_query.salary(wanted), job_query.number(years), remote)
    text = " ".join(text for key in ("query", "title", "keyword") for text in _strings(arguments.get(key)))
    return merged(named, query_of(text, known)), ""


def _strings(value: object) -> list[str]:
    if isinstance(value, (list, tuple)):
        return [text for each in value for text in _strings(each)]
    if isinstance(value, str):
        return [text for text in value.replace("，", ",").replace("、", ",").split(",") if text.strip()]
    return [] if value is None or isinstance(value, (bool, Mapping)) else [str(value)]


def _told(found: Found, query: JobQuery) -> str:
    told: dict[str, object] = {"total": found.total, "jobs": [_shown(job) for job in found.jobs]}
    if found.relaxed:
        told["note"] = f"没有完全符合的，已放宽：{'、'.join(found.relaxed)}"
    elif not found.jobs:
        told["note"] = "没有符合的岗位；可以换个说法，或放宽城市、薪资"
    return _compact(told)


def _shown(job: Job) -> dict[str, object]:
    shown: dict[str, object] = {"id": job.id, "title": job.title, "company": job.company, "city": job.city}
    if salary := _said(job.salary, "k"):
        shown["salary"] = salary
    if years := _said(job.years, "年"):
        shown["years"] = years
    shown["skills"] = list(job.skills)
    return shown | ({"remote": True} if job.remote else {})


def _said(span: Span, unit: str) -> str:
    """As the posting says it; "" where it says nothing."""
    if span.written or not math.isfinite(span.high):
        return span.written
    return f"{span.low:g}-{span.high:g}{unit}" if span.low < span.high else f"{span.low:g}{unit}"


def _compact(told: Mapping[str, object]) -> str:
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


SEARCH_JOBS = Tool(
    name="search_jobs",
    description="查岗位库。推荐具体岗位前先调用；对方改了条件就带上全部条件再查一次。只能推荐它返回的岗位",
    parameters={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "职位或方向，例如 Java 后端、产品经理"},
            "city": {"type": "string", "description": "城市，多个用逗号分开；不限则不写"},
            "min_salary": {"type": "number", "description": "最低月薪，单位千元，例如 25 表示 25k"},
            "skills": {"type": "array", "items": {"type": "string"}, "description": "必备技能"},
            "years": {"type": "number", "description": "对方的工作年限"},
            "remote": {"type": "boolean", "description": "只要远程岗位"},
        },
    },
    run=_run,
    repeatable=True,
)
