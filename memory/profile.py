"""What is known of a person, for all agents of that person: ``users/{user}.yaml``, kept by a tool and by admins.

The file is YAML that people may edit: the fields stand under ``profile``, everything beside them is kept as it is. Every
scalar is read as the text that is written (no ``no`` that turns into False).
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from memory.conversation import PERSON
from memory.errors import StoreError, typed_errors
from memory.folder import open_file, opened_folder, replaced
from memory.generations import Generations
from memory.sanitise import speakable

FOLDER = "users"
MAX_BYTES = 64 * 1024
MAX_FIELDS = 40
MAX_NAME = 32
MAX_VALUES = 30
MAX_TEXT = 300
"""The bounds of a file, of the number of fields, of a field's name, of its values, and of one value (characters)."""

_KEYS = 64
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

Profile = Mapping[str, tuple[str, ...]]
"""A profile's fields in their order, each with its values."""


class ProfileUnreadable(StoreError):
    """The file is not what a profile may be; it is left as it is. The message names it and the remedy."""


class ProfileTooLarge(ValueError):
    """A field, or all of them together, is over the bounds; nothing was changed. The message is for the model."""


class Profiles:
    """The profiles of one workspace; thread-safe. Every method blocks and may raise StoreError."""

    def __init__(self, workspace: Path, generations: Generations | None = None) -> None:
        self._workspace = workspace
        self._generations = generations or Generations()

    def read(self, user: str) -> Profile:
        """A person's profile; empty where there is none, and for the pseudo-user of a shared group."""
        return _fields(self._document(user).get("profile"), user) if re.fullmatch(PERSON, user) else {}

    def update(
        self, user: str, fields: Mapping[str, Sequence[str]], key: str, generation: int | None = None
    ) -> Profile:
        """Sets these fields, takes out those without values, and returns the profile then.

        `key` names this change: made once, it is not made again. Raises ProfileTooLarge, ProfileUnreadable, and
        Forgotten where the person was forgotten since `generation` (None: since this call).
        """
        if not re.fullmatch(PERSON, user):
            raise ProfileTooLarge("多人共用的群聊没有个人资料")
        asked = self._generations.now() if generation is None else generation
        change = {_name(name): _values(values) for name, values in fields.items()}
        mark = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        with self._generations.writing(asked, user):
            document = self._document(user)
            present = _fields(document.get("profile"), user)
            marks = document.get("applied")
            marks = [each for each in marks if isinstance(each, str)] if isinstance(marks, list) else []
            if mark in marks:
                return present
            profile = {name: values for name, values in {**present, **change}.items() if values}
            if len(profile) > MAX_FIELDS:
                raise ProfileTooLarge(f"最多 {MAX_FIELDS} 个字段，现有 {len(present)} 个；请合并或删去一些")
            # What an admin wrote and nobody changes stays in the form it has.
            written = document.get("profile")
            kept = dict(written) if isinstance(written, dict) else {}
            for name, values in change.items():
                kept.pop(name, None)
                if values:
                    kept[name] = list(values) if len(values) > 1 else values[0]
            self._write(user, {**document, "profile": kept, "applied": [*marks, mark][-_KEYS:]})
        return profile

    def _document(self, user: str) -> dict[str, object]:
        path = f"{FOLDER}/{user}.yaml"
        where = opened_folder(self._workspace, FOLDER)
        data = b""
        with typed_errors(path), contextlib.suppress(FileNotFoundError), where as folder:
            fd = open_file(folder, f"{user}.yaml", os.O_RDONLY)
            with os.fdopen(fd, "rb") as file:
                data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ProfileUnreadable(f"{path}: 超过 {MAX_BYTES // 1024} KiB；请精简")
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

    def _write(self, user: str, document: Mapping[str, object]) -> None:
        text = yaml.safe_dump(document, allow_unicode=True, sort_keys=False, width=120)
        data = text.encode()
        if len(data) > MAX_BYTES:
            raise ProfileTooLarge("资料太长；请精简")
        path = f"{FOLDER}/{user}.yaml"
        with typed_errors(path), opened_folder(self._workspace, FOLDER, create=True) as folder:
            replaced(folder, f"{user}.yaml", [data])


def _fields(written: object, user: str) -> dict[str, tuple[str, ...]]:
    if written in (None, ""):
        return {}
    if not isinstance(written, dict):
        raise ProfileUnreadable(f"{FOLDER}/{user}.yaml: profile: 应为“键: 值”的形式；请修正")
    fields = {str(name)[:MAX_NAME]: _shown(value) for name, value in list(written.items())[:MAX_FIELDS]}
    return {name: values for name, values in fields.items() if values}


def _shown(value: object) -> tuple[str, ...]:
    """A field's values; of what is nested, one level."""
    if isinstance(value, dict):
        parts = [f"{name} {each}" for name, each in value.items() if isinstance(each, str)]
    else:
        parts = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]
    return tuple(text for each in parts[:MAX_VALUES] if (text := _line(each)[:MAX_TEXT]))


def _line(text: str) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in speakable(text)).split())


def _name(name: str) -> str:
    line = _line(name)
    if not 0 < len(line) <= MAX_NAME:
        raise ProfileTooLarge(f"字段名应有 1 到 {MAX_NAME} 个字符")
    return line


def _values(values: Sequence[str]) -> tuple[str, ...]:
    lines = tuple(dict.fromkeys(line for each in values if (line := _line(each))))
    if len(lines) > MAX_VALUES or any(len(line) > MAX_TEXT for line in lines):
        raise ProfileTooLarge(f"一个字段最多 {MAX_VALUES} 项，每项最多 {MAX_TEXT} 个字符；请精简")
    return lines
