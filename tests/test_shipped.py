"""The tests' config is the shipped one, whatever an admin made of the checkout."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.shipped import shipped_config, taken_out


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """One with a config of its own, not in git, in which an admin wrote a key."""
    folder = tmp_path / "checkout"
    shutil.copytree(shipped_config(), folder / "config")
    (folder / "config" / ".env").write_text("OPENAI_API_KEY=sk-canary\n")
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_what_an_admin_changed_is_left_out(checkout: Path, tmp_path: Path) -> None:
    (checkout / ".gitignore").write_text("config/.env\n")
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=checkout, check=True)
    (checkout / "config" / "gateway.yaml").write_text("channels: {feishu: {enabled: true}}\n")
    (checkout / "config" / "agents" / "mine.yaml").write_text("prompt: x\n")
    taken_out(checkout, tmp_path / "out")
    assert files(tmp_path / "out" / "config") == files(shipped_config())


def test_without_git_all_but_the_keys_is_copied(checkout: Path, tmp_path: Path) -> None:
    taken_out(checkout, tmp_path / "out")
    assert files(tmp_path / "out" / "config") == files(shipped_config())


def test_no_key_is_among_the_shipped() -> None:
    assert "gateway.yaml" in files(shipped_config())
    assert ".env" not in files(shipped_config())
