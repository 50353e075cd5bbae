"""The job postings of a workspace: ``knowledge/jobs.yaml``, read anew when it changes, and looked through.

A posting: id, title, company, city, salary ``[low, high]`` in thousands of yuan a month, skills, years ``[least, most]``
of experience, remote. Salary and years may also be written as people write them (``20-30k``, ``面议``). The file is made from the sample of this package where there is none.
"""

import contextlib
import logging
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import yaml

from agents.tools import job_query
from memory.charset import line_not_utf8
from memory.errors import StoreError, typed_errors
from memory.folder import open_file, opened_folder, replaced

_log = logging.getLogger("sanqiao.tools")

FOLDER, FILE = "knowledge", "jobs.yaml"
MAX_BYTES = 8 << 20
_TOLD = 20
"""How many of the postings left out are named."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class JobsUnreadable(Exception):
    """The file is no list of postings, or too large; the message names the place and the remedy (Chinese, for admins)."""


class _Unfit(Exception):
    """A posting that cannot be shown; the message names the key and the remedy."""


class Span(NamedTuple):
    """From `low` to `high`; `written` is the text it was read from, "" where it was given in numbers."""

    low: float
    high: float
    written: str = ""


ANY = Span(0.0, math.inf)


@dataclass(frozen=True, slots=True)
class Job:
    """One posting. `salary` in thousands of yuan a month, `years` of experience."""

    id: str
    title: str
    company: str
    city: str
    salary: Span
    skills: tuple[str, ...]
    years: Span
    remote: bool


class JobBoard:
    """The postings of one workspace. Every method blocks; thread-safe."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._jobs: tuple[Job, ...] = ()

    def put_sample(self) -> None:
        """Makes the file from the sample, unless there is one. Raises StoreError."""
        where = opened_folder(self._workspace, FOLDER, create=True)
        with typed_errors(f"{FOLDER}/{FILE}"), where as folder:
            if FILE not in os.listdir(folder):
                replaced(folder, FILE, [resources.files("agents.tools").joinpath("data", FILE).read_bytes()])

    def jobs(self) -> tuple[Job, ...]:
        """All postings; the sample's where there is no file. Raises JobsUnreadable."""
        with self._lock:
            try:
                self.put_sample()
                file = self._opened()
            except (OSError, StoreError) as error:
                raise _unread(error) from None
            with file:
                about = os.fstat(file.fileno())
                stamp = about.st_mtime_ns, about.st_size, about.st_ino
                if stamp != self._stamp:
                    self._jobs, left_out = _jobs(file.read(MAX_BYTES + 1))
                    self._stamp = stamp
                    if left_out:
                        _log.warning("jobs.left_out count=%d %s", len(left_out), " ".join(left_out[:_TOLD]))
            return self._jobs

    def left_out(self) -> tuple[str, ...]:
        """Why some postings are not shown, a line (Chinese, for admins) each. Makes no file. Raises JobsUnreadable."""
        try:
            with self._opened() as file:
                return _jobs(file.read(MAX_BYTES + 1))[1]
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise _unread(error) from None

    def _opened(self) -> BinaryIO:
        with opened_folder(self._workspace, FOLDER) as folder:
            return os.fdopen(open_file(folder, FILE, os.O_RDONLY), "rb")


def _unread(error: Exception) -> JobsUnreadable:
    return JobsUnreadable(f"{FOLDER}/{FILE}: 读不到（{type(error).__name__}）；请检查文件")


def _jobs(data: bytes) -> tuple[tuple[Job, ...], tuple[str, ...]]:
    """The postings that can be read; place, key and remedy of the others. Raises JobsUnreadable."""
    jobs: list[Job] = []
    left_out: list[str] = []
    for place, (line, item) in enumerate(_entries(data), 1):
        try:
            jobs.append(_job(item, place))
        except _Unfit as unfit:
            left_out.append(f"{FOLDER}/{FILE}:{line}: 第 {place} 条不算：{unfit}")
    return tuple(jobs), tuple(left_out)


def _entries(data: bytes) -> list[tuple[int, object]]:
    """What stands in the list, each with its line. Raises JobsUnreadable."""
    if len(data) > MAX_BYTES:
        raise JobsUnreadable(f"{FOLDER}/{FILE}: 超过 {MAX_BYTES >> 20} MiB；请精简")
    if foreign := line_not_utf8(data):
        raise JobsUnreadable(f"{FOLDER}/{FILE}:{foreign}: 不是 UTF-8 编码；请另存为 UTF-8")
    loader: Any = _LOADER(data)
    try:
        root = loader.get_single_node()
        items = None if root is None else loader.construct_document(root)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise JobsUnreadable(f"{FOLDER}/{FILE}:{mark.line + 1 if mark else 1}: 不是有效的 YAML；请修正") from None
    finally:
        loader.dispose()
    if not isinstance(items, list):
        raise JobsUnreadable(f"{FOLDER}/{FILE}:1: 应为岗位的列表，每个岗位以「- 」开头；请修正")
    return [(node.start_mark.line + 1, item) for node, item in zip(root.value, items, strict=True)]


def _job(item: object, place: int) -> Job:
    """Raises _Unfit."""
    if not isinstance(item, Mapping):
        raise _Unfit("应由「键: 值」组成")
    if item.get("title") in (None, ""):
        raise _Unfit("缺少 title")
    skills = item.get("skills") or ()
    return Job(
        id=str(item.get("id") or place),
        title=str(item["title"]),
        company=str(item.get("company") or ""),
        city=str(item.get("city") or ""),
        salary=_span("salary", item.get("salary"), job_query.salary_span),
        skills=tuple(map(str, skills))
        if isinstance(skills, Sequence) and not isinstance(skills, str)
        else (str(skills),),
        years=_span("years", item.get("years"), job_query.years_span),
        remote=bool(item.get("remote")),
    )


def _span(key: str, written: object, read: Callable[[str], tuple[float, float] | None]) -> Span:
    """A number, two of them, or a text that `read` knows; one without numbers (``面议``) says no more than nothing.

    Raises _Unfit.
    """
    if written is None:
        return ANY
    if isinstance(written, str):
        return Span(*(read(written) or ANY[:2]), " ".join(written.split())[:40])
    numbers = written if isinstance(written, list) else [written, written]
    if len(numbers) == 2 and all(isinstance(each, (str, int, float)) for each in numbers):
        with contextlib.suppress(ValueError, OverflowError):
            low, high = map(float, numbers)
            if low <= high:
                return Span(low, high)
    raise _Unfit(f"{key} 应为 [下限, 上限]、一个数或文字")
