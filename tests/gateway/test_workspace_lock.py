"""One owner per workspace."""

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.workspace_lock import WorkspaceBusy, WorkspaceError, WorkspaceLock, holder


def test_the_second_is_told_who_holds_it(tmp_path: Path) -> None:
    workspace = tmp_path / "deep" / "workspace"
    with WorkspaceLock(workspace):
        held = holder(workspace)
        assert held is not None
        assert (held.pid, held.host) == (os.getpid(), socket.gethostname())
        assert (workspace / ".lock").stat().st_mode & 0o777 == 0o600
        with pytest.raises(WorkspaceBusy, match=str(os.getpid())) as caught:
            WorkspaceLock(workspace).acquire()
        assert caught.value.holder == held
        assert "--workspace" in str(caught.value)
    assert holder(workspace) is None
    with WorkspaceLock(workspace):
        pass


def test_a_killed_owner_holds_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from gateway.workspace_lock import WorkspaceLock\n"
        "WorkspaceLock(Path(sys.argv[1])).acquire(); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(WorkspaceBusy, match=str(other.pid)):
            WorkspaceLock(tmp_path).acquire()
        other.kill()
        other.wait()
    with WorkspaceLock(tmp_path):
        held = holder(tmp_path)
        assert held is not None
        assert held.pid == os.getpid()


def test_a_full_disk_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("gateway.workspace_lock.os.pwrite", full)
    with pytest.raises(WorkspaceError, match="No space left on device）；请清理磁盘空间"):
        WorkspaceLock(tmp_path).acquire()
    monkeypatch.undo()
    with WorkspaceLock(tmp_path):
        pass


def test_a_holder_that_wrote_no_name_yet(tmp_path: Path) -> None:
    with WorkspaceLock(tmp_path):
        for text in ("", "{", "[]", '{"pid": "x"}'):
            (tmp_path / ".lock").write_text(text)
            assert holder(tmp_path) is None
        with pytest.raises(WorkspaceBusy, match="另一个进程"):
            WorkspaceLock(tmp_path).acquire()


def test_a_workspace_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError, match="权限"):
        WorkspaceLock(tmp_path / "file" / "workspace").acquire()
    target = tmp_path / "elsewhere"
    target.write_text("kept")
    (tmp_path / ".lock").symlink_to(target)
    with pytest.raises(WorkspaceError):
        WorkspaceLock(tmp_path).acquire()
    assert target.read_text() == "kept"
