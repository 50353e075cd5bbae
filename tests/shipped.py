"""The config as it is shipped: what an admin changed in the checkout, and the `.env`, are no part of it."""

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


@cache
def shipped_config() -> Path:
    """A folder `config` with the files as they are staged in git; without git a copy of `config/` without `.env`."""
    _FOLDERS.append(tempfile.TemporaryDirectory(prefix="shipped-"))
    folder = Path(_FOLDERS[-1].name)
    taken_out(ROOT, folder)
    return folder / "config"


def taken_out(checkout: Path, into: Path) -> None:
    """Puts the shipped `config` of a checkout into this folder. Raises OSError."""
    try:
        names = _git(checkout, "ls-files", "-z", "--", "config").split("\0")[:-1]
        if "config/gateway.yaml" in names:
            _git(checkout, "checkout-index", f"--prefix={into}/", "--", *names)
            if (into / "config" / "gateway.yaml").exists():  # not so where the checkout lies inside another
                return
    except (OSError, subprocess.CalledProcessError):  # no git, or a checkout it will not read
        pass
    shutil.copytree(checkout / "config", into / "config", ignore=shutil.ignore_patterns(".env"))


def _git(checkout: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=checkout, capture_output=True, check=True, text=True).stdout
