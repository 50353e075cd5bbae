"""A guard against other packages of our names: ``agents`` (openai-agents), ``channels`` (Django Channels) and others.

pip overwrites a package of the same name without a warning, and an installed one may come before ours on the path; the
first import from it then fails with a riddle. Run before anything of ours but this is imported.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path

NAMES = ("gateway", "agents", "channels", "memory")
DISTRIBUTION = "sanqiao"


def shadowed(root: Path | None = None) -> str | None:
    """One line (Chinese) that names the package in the way and the remedy; None when all is well.

    `root` is the folder our packages should lie in; by default the one `gateway` was imported from.
    """
    root = (root or Path(__file__).parent.parent).resolve()
    for name in NAMES:
        place = _place(find_spec(name))
        if place != root / name:
            here = Path.cwd()
            if place is not None and place.parent == here:
                return _folder_message(name, here)
            owner = _owner(name, place.parent) if place else None
            return _message(name, owner or (str(place) if place else "未找到"))
        owner = _owner(name, root)
        if owner:
            return _message(name, owner)
    return None


def _message(name: str, owner: str) -> str:
    return f"此环境中另有名为 {name} 的包（{owner}），与本程序冲突；请把本程序装到单独的虚拟环境"


def _folder_message(name: str, here: Path) -> str:
    command = Path(sys.executable).parent / "sanqiao"
    remedy = str(command) if command.exists() else ".venv/bin/sanqiao"
    return f"当前目录 {here} 里有名为 {name} 的文件夹，挡住了本程序的包；请换一个目录运行，或使用 {remedy}"


def _place(spec: ModuleSpec | None) -> Path | None:
    if spec is None:
        return None
    if spec.origin is None:  # a folder without __init__.py is a package too
        return next((Path(each).resolve() for each in spec.submodule_search_locations or ()), None)
    return Path(spec.origin).resolve().parent


def _owner(name: str, folder: Path) -> str | None:
    """The distribution other than ours that installed a package of this name into the folder."""
    for distribution in distributions(path=[str(folder)]):
        known = distribution.metadata["Name"]
        if known != DISTRIBUTION and name in _packages(distribution):
            return known
    return None


def _packages(distribution: Distribution) -> set[str]:
    listed = distribution.read_text("top_level.txt")
    if listed is not None:
        return set(listed.split())
    return {file.parts[0] for file in distribution.files or () if len(file.parts) > 1}
