"""`check`: every problem of the config on a line of its own, or that there is none."""

from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from agents.tools.jobs import JobBoard, JobsUnreadable
from agents.tools.search_jobs import SEARCH_JOBS
from gateway.command_line import interruptible
from gateway.config.problems import ConfigProblems, shown
from gateway.config.settings import load_settings


def check(
    config_dir: Path, environ: Mapping[str, str], out: TextIO, *, workspace: Path | None = None, online: bool = False
) -> int:
    """Writes what is wrong (or to be remarked) to `out`; returns the exit code, 1 with problems.

    With a `workspace`, the postings there are read too where an agent looks through them. `online`: a config without problems is tried as well: platforms and models are asked.
    """
    try:
        settings = load_settings(config_dir, environ)
    except ConfigProblems as error:
        for problem in error.problems:
            out.write(f"{problem}\n")
        return 1
    notes = settings.notes
    if workspace is not None and any(SEARCH_JOBS.name in agent.tools for agent in settings.agents.values()):
        try:
            notes += tuple(f"{shown(workspace)}/{line}" for line in JobBoard(workspace).left_out())
        except JobsUnreadable as error:
            out.write(f"{shown(workspace)}/{error}\n")
            return 1
    out.write("配置没有问题\n")
    for note in notes:
        out.write(f"提示：{note}\n")
    if not online:
        return 0
    from gateway.command_line.online_check import online_check

    return interruptible.run(online_check(settings, out))
