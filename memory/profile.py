"""What is known of a person, for all agents of that person: ``users/{user}.yaml``, kept by a tool and by admins.

The file is YAML that people may edit: the fields stand under ``profile``, everything beside them is kept as it is. A
person with several accounts (see memory.person) has one profile: what stands in the file of the account that stands for
them, and beside it what only the others' files have. So an account that is unlinked has its own again.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from memory import person_file
from memory.conversation import PERSON
from memory.generations import Generations
from memory.person import Persons
from memory.person_file import MAX_BYTES, PersonFileTooLarge, ProfileUnreadable
from memory.sanitise import speakable

__all__ = [
    "MAX_BYTES",
    "MAX_FIELDS",
    "MAX_NAME",
    "MAX_TEXT",
    "MAX_VALUES",
    "Profile",
    "ProfileTooLarge",
    "ProfileUnreadable",
    "Profiles",
]

MAX_FIELDS = 40
MAX_NAME = 32
MAX_VALUES = 30
MAX_TEXT = 300
"""The bounds of the number of fields, of a field's name, of its values, and of one value (characters)."""

_KEYS = 64

Profile = Mapping[str, tuple[str, ...]]
"""A profile's fields in their order, each with its values."""


class ProfileTooLarge(ValueError):
    """A field, or all of them together, is over the bounds; nothing was changed. The message is for the model."""


class Profiles:
    """The profiles of one workspace; thread-safe. Every method blocks and may raise StoreError."""

    def __init__(self, workspace: Path, generations: Generations | None = None, persons: Persons | None = None) -> None:
        self._workspace = workspace
        self._generations = generations or Generations()
        self._persons = persons or Persons(workspace, self._generations)

    def read(self, user: str) -> Profile:
        """A person's profile; empty where there is none, and for the pseudo-user of a shared group."""
        return self._seen(self._accounts(user)) if re.fullmatch(PERSON, user) else {}

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
        first, *others = accounts = self._accounts(user)
        for other in others:  # before the mark is set, so that a repeat after a crash does it too
            self._take_out(other, [name for name, values in change.items() if not values], asked, user)
        with self._generations.writing(asked, first, user):
            profile = self._set(first, change, mark)
        return self._seen(accounts) if others else profile

    def _accounts(self, user: str) -> tuple[str, ...]:
        """All accounts of the person, the one that stands for them first."""
        links = self._persons.loaded()
        return tuple(dict.fromkeys((links.root(user), *sorted(links.ids_of(user)))))

    def _seen(self, accounts: Sequence[str]) -> Profile:
        fields: dict[str, tuple[str, ...]] = {}
        for each in accounts:
            more = _fields(self._document(each).get("profile"), each)
            fields |= {name: values for name, values in more.items() if name not in fields}
        return dict(list(fields.items())[:MAX_FIELDS])

    def _set(self, user: str, change: Profile, mark: str) -> Profile:
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

    def _take_out(self, user: str, names: Sequence[str], generation: int, by: str) -> None:
        with self._generations.writing(generation, user, by):
            document = self._document(user)
            written = document.get("profile")
            kept = dict(written) if isinstance(written, dict) else {}
            if kept.keys() & set(names):
                self._write(user, {**document, "profile": {name: kept[name] for name in kept if name not in names}})

    def _document(self, user: str) -> dict[str, object]:
        return person_file.read(self._workspace, user)

    def _write(self, user: str, document: Mapping[str, object]) -> None:
        try:
            person_file.write(self._workspace, user, document)
        except PersonFileTooLarge:
            raise ProfileTooLarge("资料太长；请精简") from None


def _fields(written: object, user: str) -> dict[str, tuple[str, ...]]:
    if written in (None, ""):
        return {}
    if not isinstance(written, dict):
        raise ProfileUnreadable(f"{person_file.path_of(user)}: profile: 应为“键: 值”的形式；请修正")
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
