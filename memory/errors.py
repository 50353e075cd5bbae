"""What may go wrong with the files of a conversation, and the border where the system's errors become these."""

import contextlib
import errno
from collections.abc import Iterator


class StoreError(Exception):
    """A file could not be read or written; nothing of the append is in it. The message names file and remedy."""


class StoreFull(StoreError):
    """No space is left, or a quota is used up."""


class StoreBusy(StoreError):
    """Another process has held the file for too long."""


class StoreUnavailable(StoreError):
    """No right, a broken disk, or something that is no ordinary file."""


class StoreClosed(StoreUnavailable):
    """The store was closed, because the gateway stops."""


@contextlib.contextmanager
def typed_errors(subject: str) -> Iterator[None]:
    """Turns an OSError into the StoreError that names `subject` (a path in the workspace) and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(f"磁盘或配额已满，无法写入 {subject}；请清理空间") from error
        why = error.strerror or str(error)
        raise StoreUnavailable(f"无法读写 {subject}：{why}；请检查文件类型、权限和磁盘") from error
