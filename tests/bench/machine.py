"""The facts of the machine without which figures say nothing."""

import importlib.metadata
import os
import platform
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

_PACKAGES = ("aiohttp", "openai", "pydantic", "PyYAML")
_SYNCS = 50


@dataclass(frozen=True)
class Machine:
    """`load` is the average over a minute as the measurements began; `sync_ms` what putting 200 bytes on the disk took."""

    processor: str
    cores: int
    memory_gib: float
    system: str
    filesystem: str
    sync_ms: float
    python: str
    packages: str
    commit: str
    load: float


def machine(folder: Path, root: Path) -> Machine:
    """Asks the machine; `folder` is where workspaces are made, `root` the source tree. Blocking."""
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory_gib=psutil.virtual_memory().total / 2**30,
        system=f"{platform.system()} {platform.release()}",
        filesystem=_filesystem(folder),
        sync_ms=_sync(folder / "sync"),
        python=platform.python_version(),
        packages=packages,
        commit=_commit(root),
        load=os.getloadavg()[0],
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _filesystem(folder: Path) -> str:
    mounts = [each for each in psutil.disk_partitions(all=True) if folder.is_relative_to(each.mountpoint)]
    return max(mounts, key=lambda each: len(each.mountpoint)).fstype if mounts else "?"


def _sync(path: Path) -> float:
    times = []
    with path.open("ab", buffering=0) as file:
        for _ in range(_SYNCS):
            began = time.perf_counter()
            file.write(b"x" * 200)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    path.unlink()
    return 1000 * statistics.median(times)


def _commit(root: Path) -> str:
    """The commit, with a mark when files differ from it; "?" outside of git."""
    try:
        said = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "?"
    return said.stdout.strip()
