"""Looking for postings: the sample, every way to say a city or a salary, slips, and files that are broken."""

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.tools import job_query
from agents.tools.current_time import CURRENT_TIME
from agents.tools.data.generate import postings
from agents.tools.job_query import JobQuery, query_of
from agents.tools.job_search import SHOWN, likeness
from agents.tools.jobs import FILE, FOLDER, JobBoard, JobsUnreadable
from agents.tools.search_jobs import SEARCH_JOBS
from agents.tools.tool import BadArguments, ToolError
from tests.agents.test_tool_loop import context


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


async def found(workspace: Path, **arguments: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(await SEARCH_JOBS.run(context("k", workspace), arguments))
    return told


def low(job: dict[str, Any]) -> float:
    return float(job["salary"].split("-")[0])


def test_the_sample_is_what_its_script_writes_and_looks_like_postings(workspace: Path) -> None:
    shipped = Path(job_query.__file__).parent / "data" / FILE
    assert shipped.read_text(encoding="utf-8") == postings()
    jobs = JobBoard(workspace).jobs()
    assert len({job.id for job in jobs}) == 200
    assert len({job.city for job in jobs}) >= 12
    assert len({job.title for job in jobs}) >= 40
    assert all(3 <= job.salary[0] < job.salary[1] <= 120 for job in jobs)
    assert all(len(job.skills) >= 3 and job.years[0] < job.years[1] for job in jobs)
    assert 5 <= sum(job.remote for job in jobs) <= 40


async def test_what_is_asked_for_is_what_is_found(workspace: Path) -> None:
    java = await found(workspace, query="帮我推荐 Java 岗位")
    assert java["total"] > SHOWN == len(java["jobs"])
    assert all("Java" in job["title"] or "Java" in job["skills"] for job in java["jobs"])
    dear = await found(workspace, query="Java", min_salary=25)
    assert 0 < dear["total"] < java["total"]
    assert all(low(job) >= 25 for job in dear["jobs"])
    there = await found(workspace, query="产品经理", city="上海")
    assert {job["city"] for job in there["jobs"] if not job.get("remote")} == {"上海"}
    assert all("产品经理" in job["title"] for job in there["jobs"])


@pytest.mark.parametrize("city", ["上海市", "魔都", "Shanghai", "SHANGHAI", "上孩", "shanghia", " 上海 ", ["上海"]])
async def test_cities_in_any_form(workspace: Path, city: Any) -> None:
    plain = await found(workspace, query="后端", city="上海", min_salary=20)
    assert plain["jobs"]
    assert await found(workspace, query="后端", city=city, min_salary=20) == plain
    if city in ("魔都", "Shanghai"):
        assert (await found(workspace, query=f"{city} 后端 20k以上"))["jobs"] == plain["jobs"]


@pytest.mark.parametrize("salary", ["20", "20k", "20K", 20000, "20000", "2万", "2w", "２０ｋ", "20k-40k", "年薪24万"])
async def test_salaries_in_any_form(workspace: Path, salary: Any) -> None:
    plain = await found(workspace, query="后端", city="上海", min_salary=20)
    assert await found(workspace, query="后端", city="上海", min_salary=salary) == plain


@pytest.mark.parametrize(
    ("slip", "meant"),
    [("Jvaa", "Java"), ("pyhton", "Python"), ("Kubernets", "Kubernetes"), ("前段工程师", "前端工程师"), ("ＧＯ", "Go")],
)
async def test_slips_are_forgiven(workspace: Path, slip: str, meant: str) -> None:
    right, wrong = await found(workspace, query=meant), await found(workspace, query=slip)
    assert right["jobs"]
    assert {job["id"] for job in wrong["jobs"]} & {job["id"] for job in right["jobs"]}


def test_other_words_are_no_slips() -> None:
    assert likeness("java", "javascript") < 0.5
    assert likeness("算法工程师", "前端工程师") == 0
    assert likeness("c", "c++") == 0


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("帮我推荐 Java 岗位，薪资 25k 以上", JobQuery(("java",), salary=25)),
        ("薪资 25k 以上的", JobQuery(salary=25)),
        ("北京、上海的产品经理，2.5万起", JobQuery(("产品经理",), ("北京", "上海"), 25)),
        ("远程的前端，3年经验", JobQuery(("前端",), years=3, remote=True)),
        ("应届生做运营", JobQuery(("生做运营",), years=0)),
        ("年薪 36 万的 Go", JobQuery(("go",), salary=30)),
        ("5k 的 k8s", JobQuery(("k8s",), salary=5)),
        ("", JobQuery()),
    ],
)
def test_a_free_text_is_understood(text: str, query: JobQuery) -> None:
    assert query_of(text) == query


async def test_what_is_not_there_is_said(workspace: Path) -> None:
    assert "上海" in (await found(workspace, city="火星"))["note"]
    none = await found(workspace, query="宇航员")
    assert (none["total"], none["jobs"]) == (0, [])
    assert "没有符合" in none["note"]
    young = await found(workspace, query="C++", years=0, min_salary=44)
    assert young["jobs"]
    assert "放宽" in young["note"]
    dear = await found(workspace, query="会计", min_salary=500)
    assert dear["jobs"] == []


@pytest.mark.parametrize("arguments", [{}, {"query": None, "city": "不限"}, {"skills": "Java、MySQL"}, {"query": 25}])
async def test_odd_arguments_do_no_harm(workspace: Path, arguments: dict[str, Any]) -> None:
    assert (await found(workspace, **arguments))["total"] >= 0


@given(
    st.dictionaries(
        st.sampled_from(["query", "city", "min_salary", "skills", "years", "remote", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner, max_size=3),
        ),
    )
)
def test_nothing_a_model_may_write_breaks_it(arguments: dict[str, Any]) -> None:
    from agents.tools.search_jobs import _query

    query, _ = _query(arguments, ["上海"])
    assert query.salary is None or query.salary > 0


async def test_a_changed_file_is_read_anew_and_broken_postings_are_passed_over(workspace: Path) -> None:
    await found(workspace)
    file = workspace / FOLDER / FILE
    file.write_text(
        "- {title: 飞行员, city: 拉萨, salary: [30, 50], skills: [飞行]}\n- 坏的\n- {city: 北京}\n", "utf-8"
    )
    told = await found(workspace, query="飞行员")
    assert told["jobs"] == [
        {"id": "1", "title": "飞行员", "company": "", "city": "拉萨", "salary": "30-50k", "skills": ["飞行"]}
    ]
    assert (await found(workspace, city="拉萨"))["total"] == 1


@pytest.mark.parametrize(
    ("written", "span", "told"),
    [
        ("面议", (0, math.inf), "面议"),
        ("20-30k", (20, 30), "20-30k"),
        ("20k-30k", (20, 30), "20k-30k"),
        ("２０Ｋ～３０Ｋ", (20, 30), "２０Ｋ～３０Ｋ"),
        ("15-25K·14薪", (15, 25), "15-25K·14薪"),
        ("2-3万", (20, 30), "2-3万"),
        ("8千-1.2万", (8, 12), "8千-1.2万"),
        ("15000-25000 元", (15, 25), "15000-25000 元"),
        ("年薪 36-48 万", (30, 40), "年薪 36-48 万"),
        ("25k 以上", (25, math.inf), "25k 以上"),
        ("30k 以内", (0, 30), "30k 以内"),
        ("[20, 30]", (20, 30), "20-30k"),
        ("25", (25, 25), "25k"),
        ("", (0, math.inf), None),
    ],
)
async def test_salaries_of_postings_in_any_form(
    workspace: Path, written: str, span: tuple[float, float], told: str | None
) -> None:
    """Shown as written; the numbers in them decide whether they are enough."""
    form = "- {{title: 飞行员, salary: {}}}\n" if "[" in written else "- title: 飞行员\n  salary: {}\n"
    await asyncio.to_thread(put, workspace, form.format(written))
    (job,) = await asyncio.to_thread(JobBoard(workspace).jobs)
    assert job.salary[:2] == span
    (shown,) = (await found(workspace, query="飞行员"))["jobs"]
    assert shown.get("salary") == told
    asked = await found(workspace, query="飞行员", min_salary=25)
    assert bool(asked["jobs"]) == (span[1] >= 25)
    assert ("note" in asked) == (span[0] < 25)


@pytest.mark.parametrize(
    ("written", "span"),
    [("3-5年", (3, 5)), ("3 年以上", (3, math.inf)), ("应届", (0, 0)), ("不限", (0, math.inf)), ("1年~3年", (1, 3))],
)
def test_years_of_postings_in_any_form(workspace: Path, written: str, span: tuple[float, float]) -> None:
    put(workspace, f"- title: 飞行员\n  years: {written}\n")
    (job,) = JobBoard(workspace).jobs()
    assert (job.years[:2], job.years.written) == (span, written)


def put(workspace: Path, text: str | bytes) -> None:
    (workspace / FOLDER).mkdir(parents=True, exist_ok=True)
    (workspace / FOLDER / FILE).write_bytes(text if isinstance(text, bytes) else text.encode())


def test_what_is_left_out_is_logged_once_for_each_version_of_the_file(
    workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line with file, line, place and key; the postings beside it are there."""
    put(
        workspace,
        "- {title: 甲}\n- 坏的\n- {city: 北京}\n- {title: 乙, salary: [1, 2, 3]}\n- {title: 丙, years: [5, 3]}\n",
    )
    board = JobBoard(workspace)
    assert [job.title for job in board.jobs()] == ["甲"]
    assert [job.title for job in board.jobs()] == ["甲"]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("jobs.left_out count=4 ")
    assert "knowledge/jobs.yaml:2: 第 2 条不算：应由「键: 值」组成" in line
    assert "knowledge/jobs.yaml:3: 第 3 条不算：缺少 title" in line
    assert "knowledge/jobs.yaml:4: 第 4 条不算：salary 应为" in line
    assert "knowledge/jobs.yaml:5: 第 5 条不算：years 应为" in line


def test_a_file_saved_as_gbk_is_said_to_be_so(workspace: Path) -> None:
    put(workspace, "- title: pilot\n- title: 飞行员\n".encode("gbk"))
    with pytest.raises(JobsUnreadable, match=r"knowledge/jobs\.yaml:2: 不是 UTF-8 编码"):
        JobBoard(workspace).jobs()
    put(workspace, "- title: 飞行员\n".encode("utf-16"))
    assert [job.title for job in JobBoard(workspace).jobs()] == ["飞行员"]


@pytest.mark.parametrize("text", ["a: [", "jobs: 1", ""])
async def test_a_broken_file_is_told_to_the_admin_and_kept(
    workspace: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    await found(workspace)
    (workspace / FOLDER / FILE).write_text(text, "utf-8")
    with pytest.raises(JobsUnreadable, match=r"knowledge/jobs\.yaml"):
        await asyncio.to_thread(JobBoard(workspace).jobs)
    with pytest.raises(ToolError, match="读不到"):
        await found(workspace, query="Java")
    assert "jobs.unreadable" in caplog.text
    assert (workspace / FOLDER / FILE).read_text("utf-8") == text


def test_an_admins_postings_are_not_replaced_by_the_sample(workspace: Path) -> None:
    (workspace / FOLDER).mkdir(parents=True)
    (workspace / FOLDER / FILE).write_text("[]", "utf-8")
    board = JobBoard(workspace)
    board.put_sample()
    assert board.jobs() == ()


async def test_the_time_is_told_in_the_configured_zone() -> None:
    assert await CURRENT_TIME.run(context("k"), {}) == "2026-11-30 08:00:00（UTC+0000），星期一"


async def test_arguments_that_are_needed_are_asked_for() -> None:
    from agents.tools.recall import RECALL

    with pytest.raises(BadArguments, match="query"):
        await RECALL.run(context("k"), {"query": " "})
