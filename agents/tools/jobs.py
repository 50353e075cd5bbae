"""The job postings of a workspace: ``knowledge/jobs.yaml``, read anew when it changes, and looked through.

A posting: id, title, company, city, salary ``[low, high]`` in thousands of yuan a month, skills, years ``[least, most]``
of experience, remote. The file is made from the sample of this package where there is none.
"""

import logging
import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import yaml

from memory.errors import StoreError, typed_errors
from memory.folder import open_file, opened_folder, replaced

_log = logging.getLogger("sanqiao.tools")

FOLDER, FILE = "knowledge", "jobs.yaml"
MAX_BYTES = 8 << 20
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class JobsUnreadable(Exception):
    """The file is no list of postings, or too large; the message names the place and the remedy (Chinese, for admins)."""


@dataclass(frozen=True, slots=True)
class Job:
    """One posting. `salary` in thousands of yuan a month, `years` of experience: least and most."""

    id: str
    title: str
    company: str
    city: str
    salary: tuple[float, float]
    skills: tuple[str, ...]
    years: tuple[float, float]
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
                with opened_folder(self._workspace, FOLDER) as folder:
                    file = os.fdopen(open_file(folder, FILE, os.O_RDONLY), "rb")
            except (OSError, StoreError) as error:
                raise JobsUnreadable(f"{FOLDER}/{FILE}: 读不到（{type(error).__name__}）；请检查文件") from None
            with file:
                about = os.fstat(file.fileno())
                stamp = about.st_mtime_ns, about.st_size, about.st_ino
                if stamp != self._stamp:
                    self._jobs = tuple(_jobs(file.read(MAX_BYTES + 1)))
                    self._stamp = stamp
            return self._jobs


def _jobs(data: bytes) -> Iterator[Job]:
    """The postings that can be read; the others are logged by their place. Raises JobsUnreadable."""
    if len(data) > MAX_BYTES:
        raise JobsUnreadable(f"{FOLDER}/{FILE}: 超过 {MAX_BYTES >> 20} MiB；请精简")
    try:
        items = yaml.load(data, Loader=_LOADER)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise JobsUnreadable(f"{FOLDER}/{FILE}:{mark.line + 1 if mark else 1}: 不是有效的 YAML；请修正") from None
    if not isinstance(items, list):
        raise JobsUnreadable(f"{FOLDER}/{FILE}: 应为岗位的列表；请修正")
    for place, item in enumerate(items, 1):
        try:
            yield _job(item, place)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            _log.warning("jobs.skipped place=%d error=%s", place, type(error).__name__)


def _job(item: Mapping[str, object], place: int) -> Job:
    skills = item.get("skills") or ()
    return Job(
        id=str(item.get("id") or place),
        title=str(item["title"]),
        company=str(item.get("company") or ""),
        city=str(item.get("city") or ""),
        salary=_span(item.get("salary"), (0.0, math.inf)),
        skills=tuple(map(str, skills))
        if isinstance(skills, Sequence) and not isinstance(skills, str)
        else (str(skills),),
        years=_span(item.get("years"), (0.0, math.inf)),
        remote=bool(item.get("remote")),
    )


def _span(written: object, default: tuple[float, float]) -> tuple[float, float]:
    if written is None:
        return default
    if isinstance(written, (int, float)):
        return float(written), float(written)
    if not isinstance(written, Sequence) or isinstance(written, str):
        raise TypeError
    low, high = map(float, written)
    return low, high
