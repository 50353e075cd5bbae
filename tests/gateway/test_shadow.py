"""Packages of our names that are not ours are named before they are imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.shadow import NAMES, shadowed

CHECKOUT = Path(__file__).parent.parent.parent


def package(folder: Path, name: str, text: str = "") -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "__init__.py").write_text(text)


def installed(folder: Path, distribution: str, *names: str, listed: bool = True) -> None:
    """What pip leaves behind: the packages and the distribution's metadata."""
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"{name}/__init__.py,,\n" for name in names))
    if listed:
        (info / "top_level.txt").write_text("\n".join(names))
    for name in names:
        package(folder, name)


def guard(*path: Path, cwd: Path) -> str:
    """What the guard says in a fresh process with this search path; it must import nothing of ours but itself."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from gateway.shadow import shadowed\n"
        "print(shadowed() or '')\n"
        "assert not {'agents', 'channels', 'memory'} & set(sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-c", code, *map(str, path)], capture_output=True, text=True, check=True, cwd=cwd
    )
    return run.stdout.strip()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An installation of ours."""
    site = tmp_path / "site"
    installed(site, "sanqiao", *NAMES)
    (site / "gateway" / "shadow.py").write_text((CHECKOUT / "gateway" / "shadow.py").read_text(encoding="utf-8"))
    return site


def test_nothing_is_in_the_way_here(tmp_path: Path, site: Path) -> None:
    assert shadowed(CHECKOUT) is None
    assert guard(CHECKOUT, cwd=tmp_path) == ""
    assert guard(site, cwd=tmp_path) == ""


@pytest.mark.parametrize("listed", [True, False])
def test_another_distribution_owns_a_package_beside_ours(tmp_path: Path, site: Path, listed: bool) -> None:
    installed(site, "openai-agents", "agents", listed=listed)
    said = guard(site, cwd=tmp_path)
    assert "openai-agents" in said
    assert "虚拟环境" in said
    assert len(said.splitlines()) == 1


def test_another_one_comes_first_on_the_path(tmp_path: Path) -> None:
    installed(tmp_path / "theirs", "channels", "channels")
    assert "channels" in guard(tmp_path / "theirs", CHECKOUT, cwd=tmp_path)
    package(tmp_path / "plain", "memory")
    assert str(tmp_path / "plain" / "memory") in guard(tmp_path / "plain", CHECKOUT, cwd=tmp_path)


def test_a_package_of_ours_is_gone(tmp_path: Path, site: Path) -> None:
    (site / "agents" / "__init__.py").unlink()
    (site / "agents").rmdir()
    assert "agents" in guard(site, cwd=tmp_path)


@pytest.mark.parametrize("regular", [True, False])
def test_a_folder_where_one_stands_is_named_with_a_way_round(tmp_path: Path, site: Path, regular: bool) -> None:
    here = tmp_path / "config"
    package(here, "agents")
    if not regular:  # comes before ours only where ours is found by a finder of its own, as an editable install is
        (here / "agents" / "__init__.py").unlink()
        (site / "agents" / "__init__.py").unlink()
    said = guard(here, site, cwd=here)
    assert f"当前目录 {here} 里有名为 agents 的文件夹" in said
    assert "换一个目录运行" in said
    assert "bin/sanqiao" in said
    assert len(said.splitlines()) == 1
