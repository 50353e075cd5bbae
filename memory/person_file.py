"""The file of a person, ``users/{user}.yaml``: YAML that people may edit, each scalar read as the text that is written.

No ``no`` turns into False, no ``0123`` into a number.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import yaml

from memory.charset import line_not_utf8
from memory.errors import StoreError, typed_errors
from memory.folder import open_file, opened_folder, removed, replaced

FOLDER = "users"
MAX_BYTES = 64 * 1024
"""The most bytes of one file."""

_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class ProfileUnreadable(StoreError):
    """The file is not what a person's file may be; it is left as it is. The message names it and the remedy."""


class PersonFileTooLarge(StoreError):
    """The file would be over its bounds; it is left as it is. The message names it and the remedy."""


def path_of(user: str) -> str:
    """The file's path from the workspace."""
    return f"{FOLDER}/{user}.yaml"


def read_bytes(workspace: Path, user: str) -> bytes:
    """What stands in a person's file; nothing where there is none. Blocks; raises StoreError."""
    path, data = path_of(user), b""
    if not os.path.lexists(f"{workspace}/{path}"):  # as most people's: known by one call of the system
        return data
    where = opened_folder(workspace, FOLDER)
    with typed_errors(path), contextlib.suppress(FileNotFoundError), where as folder:
        fd = open_file(folder, f"{user}.yaml", os.O_RDONLY)
        with os.fdopen(fd, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ProfileUnreadable(f"{path}: 超过 {MAX_BYTES // 1024} KiB；请精简")
    return data


def parsed(user: str, data: bytes) -> dict[str, object]:
    """The file's keys with what stands under them. Raises ProfileUnreadable."""
    path = path_of(user)
    if foreign := line_not_utf8(data):
        raise ProfileUnreadable(f"{path}:{foreign}: 不是 UTF-8 编码；请另存为 UTF-8")
    try:
        document = yaml.load(data, Loader=_LOADER)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ProfileUnreadable(f"{path}{line}: 不是有效的 YAML；请修正") from None
    if document in (None, ""):
        return {}
    if not isinstance(document, dict):
        raise ProfileUnreadable(f"{path}: 应为“键: 值”的形式；请修正")
    return document


def read(workspace: Path, user: str) -> dict[str, object]:
    """`parsed` of `read_bytes`."""
    return parsed(user, read_bytes(workspace, user))


def write(workspace: Path, user: str, document: Mapping[str, object]) -> None:
    """Puts these keys in the place of the file, whole at every moment; without any it goes. Blocks; raises StoreError."""
    path = path_of(user)
    if not document:
        with typed_errors(path):
            removed(workspace, FOLDER, lambda name: name == f"{user}.yaml")
        return
    data = yaml.safe_dump(dict(document), allow_unicode=True, sort_keys=False, width=120).encode()
    if len(data) > MAX_BYTES:
        raise PersonFileTooLarge(f"{path}: 将超过 {MAX_BYTES // 1024} KiB；请精简")
    with typed_errors(path), opened_folder(workspace, FOLDER, create=True) as folder:
        replaced(folder, f"{user}.yaml", [data])
