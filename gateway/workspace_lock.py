"""One gateway owns a workspace: an advisory lock on `workspace/.lock`, which says who holds it."""

import errno
import fcntl
import json
import os
import socket
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a lock: its id, its machine, since when (ISO 8601)."""

    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"进程 {self.pid}（{self.host}，自 {self.since}）"


class WorkspaceError(Exception):
    """The workspace cannot be used; the message (Chinese, one line) says why and what to do."""


class WorkspaceBusy(WorkspaceError):
    """Another gateway owns the workspace. `holder` is None where it has not written its name yet."""

    def __init__(self, workspace: Path, holder: Holder | None) -> None:
        self.holder = holder
        who = str(holder) if holder else "另一个进程"
        super().__init__(f"工作区 {workspace} 正由{who}使用；请先停止它，或用 --workspace 指定另一个目录")


class WorkspaceLock:
    """The lock of one workspace. The system frees it when the process ends, however it ends. Blocking calls."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._file: int | None = None

    def acquire(self) -> None:
        """Takes the lock, making the folder if need be. Raises WorkspaceBusy, or WorkspaceError where it cannot be used."""
        try:
            self._workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(_path(self._workspace), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise WorkspaceError(f"工作区 {self._workspace} 无法写入（{error.strerror}）；请检查路径和权限") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            now = datetime.now(UTC).astimezone().isoformat(timespec="seconds")
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps(asdict(Holder(os.getpid(), socket.gethostname(), now))).encode(), 0)
        except BlockingIOError:
            os.close(file)
            raise WorkspaceBusy(self._workspace, holder(self._workspace)) from None
        except OSError as error:
            os.close(file)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise WorkspaceError(
                    f"工作区 {self._workspace} 无法写入（{error.strerror}）；请清理磁盘空间"
                ) from error
            raise WorkspaceError(f"工作区 {self._workspace} 无法加锁（{error.strerror}）；请换到本地磁盘") from error
        self._file = file

    def held(self) -> bool:
        """Whether the workspace at the path is still the one that was locked: not moved away, replaced or removed."""
        if self._file is None:
            return False
        try:
            found = os.stat(_path(self._workspace), follow_symlinks=False)
        except OSError:
            return False
        mine = os.fstat(self._file)
        return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)

    def release(self) -> None:
        """Gives the lock back. The file stays: to remove it would let two processes lock two files of one name."""
        if self._file is not None:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def holder(workspace: Path) -> Holder | None:
    """Who wrote their name into the workspace's lock file; they may be gone. None without a readable one."""
    try:
        fields = json.loads(_path(workspace).read_text(encoding="utf-8"))
        return Holder(int(fields["pid"]), str(fields["host"]), str(fields["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path(workspace: Path) -> Path:
    return workspace / ".lock"
