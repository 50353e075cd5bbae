"""Changed config files are taken over while running: as a whole or not at all."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from channels.channel import EntrySettings
from gateway.config.cross_checks import cross_checks
from gateway.config.problems import ConfigProblems, Problem
from gateway.config.secret_values import told
from gateway.config.sections import Settings
from gateway.config.settings import Loaded, agent_files, load, secrets_in
from memory.settings import SettingsModel

log = logging.getLogger("sanqiao.config")

OnChange = Callable[[Settings, Settings], None]
"""Told the old and the new settings after they were swapped; must not block."""

Fingerprint = tuple[tuple[str, int, int, int, int], ...]
"""Name, inode, mode, size and time of the last change, also of its rights, in nanoseconds of each file there is."""

_RESTART = ("server", "console", "timezone", "cluster")
"""Sections that hold until the next start; `memory`, `log`, `conversations` and `channels` do in part."""

_AS_RUNNING = "（渠道的启停要到重启才生效，所以这里按正在运行的渠道检查）"

_LIVE_ENTRY = ("agent", "group_policy", "dm_policy", "allow_from")


class LiveSettings:
    """The settings that hold now. `current` is swapped at once; who needs one state for long keeps what it got."""

    def __init__(
        self,
        config_dir: Path,
        environ: Mapping[str, str],
        settings: Settings,
        *,
        poll: float = 0.5,
        settle: float = 0.3,
        again: float = 10.0,
    ) -> None:
        """Files are looked at each `poll` seconds and read when they were at rest for `settle` seconds.

        What could not be taken over is read again after `again` seconds, changed or not: it may have been the moment's
        fault.
        """
        self.current = settings
        self.problems: tuple[Problem, ...] = ()
        self.waiting: tuple[str, ...] = ()
        self.config_dir = config_dir
        self._environ = environ
        self._poll = poll
        self._settle = settle
        self._again = again
        self._callbacks: list[OnChange] = []

    def on_change(self, callback: OnChange) -> None:
        """Has `callback` told of each take-over."""
        self._callbacks.append(callback)

    async def watch(self) -> None:
        """Takes changes over until cancelled."""
        clock, good, failure = asyncio.get_running_loop().time, True, ""
        seen: Fingerprint | None = None
        taken: Fingerprint | None = None  # what was read before the watch began is not known: read once more
        read_at = 0.0
        while True:
            try:
                seen = await asyncio.to_thread(fingerprint, self.config_dir)
                if seen != taken or not (good or clock() < read_at + self._again):
                    await asyncio.sleep(self._settle)
                    if await asyncio.to_thread(fingerprint, self.config_dir) != seen:
                        continue
                    good, taken, read_at = False, seen, clock()
                    good, failure = await self.take_over(), ""
            except Exception as error:  # border: the watch goes on, whatever one state of the files or the machine did
                if failure != str(error):
                    log.error("config_watch_failed error=%s", type(error).__name__, exc_info=error)
                failure = str(error)
            await asyncio.sleep(self._poll)

    async def look(self) -> tuple[Settings, tuple[str, ...]]:
        """The settings as the files give them now, and the keys of them that wait for a restart; takes nothing over.

        Raises ConfigProblems.
        """
        loaded = await asyncio.to_thread(load, self.config_dir, self._environ)
        merged = await asyncio.to_thread(_merged, self.current, loaded)
        return loaded.settings, changed_keys(merged, loaded.settings)

    def written_secrets(self) -> frozenset[str]:
        """Every secret that stands in the files and the environment now, good or not. Blocking."""
        return secrets_in(self.config_dir, self._environ)

    async def take_over(self) -> bool:
        """Reads the files now; False (and `problems`) when they cannot be taken over."""
        try:
            loaded = await asyncio.to_thread(load, self.config_dir, self._environ)
            merged = await asyncio.to_thread(_merged, self.current, loaded)
        except ConfigProblems as error:
            if error.problems != self.problems:
                log.error("config_refused problems=%d 配置有误，继续使用原来的配置", len(error.problems))
                for problem in error.problems:
                    log.error("config_problem %s", problem)
            self.problems = error.problems
            return False
        if self.problems:
            log.info("config_mended 配置已改好")
        self.problems = ()
        self._wait_for_restart(changed_keys(merged, loaded.settings))
        self._swap(merged)
        return True

    def _wait_for_restart(self, keys: tuple[str, ...]) -> None:
        if keys and keys != self.waiting:
            log.warning("config_waits keys=%s 需重启生效", ",".join(keys))
        self.waiting = keys

    def _swap(self, settings: Settings) -> None:
        for note in settings.notes:
            if note not in self.current.notes:
                log.warning("config_note %s", note)
        changed = changed_keys(self.current, settings)
        if not changed:
            if settings.notes != self.current.notes:
                self.current = settings
            return
        old, self.current = self.current, settings
        log.info("config_taken_over keys=%s", ",".join(changed))
        for callback in self._callbacks:
            try:
                callback(old, settings)
            except Exception as error:  # border: one subscriber must not keep the others from the new settings
                log.error("config_subscriber_failed error=%s", type(error).__name__, exc_info=error)


def fingerprint(config_dir: Path) -> Fingerprint:
    """What the config files look like from outside; changes with every write. Blocking."""
    found = []
    for path in (config_dir / "gateway.yaml", config_dir / ".env", *agent_files(config_dir)):
        try:
            stat = os.stat(path)
        except OSError:
            continue
        found.append((str(path), stat.st_ino, stat.st_mode, stat.st_size, stat.st_ctime_ns))
    return tuple(found)


def _merged(old: Settings, loaded: Loaded) -> Settings:
    """The new settings with the old ones where a restart is needed. Raises ConfigProblems if they do not fit together."""
    new = loaded.settings
    merged = new.model_copy(
        update={
            **{section: getattr(old, section) for section in _RESTART},
            "log": old.log.model_copy(update={"level": new.log.level}),
            "memory": old.memory.model_copy(update={"masking": new.memory.masking}),
            "conversations": new.conversations.model_copy(update={"group_context": old.conversations.group_context}),
            "channels": {name: _merged_entry(entry, new.channels.get(name)) for name, entry in old.channels.items()},
            "entry_context": {name: each for name, each in new.entry_context.items() if name in old.channels},
        }
    )
    problems = [replace(each, message=each.message + _AS_RUNNING) for each in cross_checks(merged, loaded.documents)]
    if problems:
        raise ConfigProblems(told(problems, loaded.secrets))
    return merged


def _merged_entry(old: EntrySettings, new: EntrySettings | None) -> EntrySettings:
    return old.model_copy(update={name: getattr(new, name) for name in _LIVE_ENTRY}) if new else old


def changed_keys(old: Settings, new: Settings) -> tuple[str, ...]:
    """The keys in which two settings differ, as deep as sections and names go, without their values."""
    return tuple(_changed(old, new, ""))


def _changed(old: object, new: object, path: str) -> list[str]:
    if old == new:
        return []
    fields_old, fields_new = _parts(old), _parts(new)
    if fields_old is None or fields_new is None or type(old) is not type(new):
        return [path]
    keys = sorted(fields_old.keys() | fields_new.keys())
    found: list[str] = []
    for key in keys:
        inside = f"{path}.{key}" if path else key
        if key in fields_old and key in fields_new:
            found += _changed(fields_old[key], fields_new[key], inside)
        else:
            found.append(inside)
    return found


def _parts(value: object) -> dict[str, object] | None:
    if isinstance(value, SettingsModel):
        fields = type(value).model_fields
        return {info.alias or name: getattr(value, name) for name, info in fields.items() if name != "notes"}
    if isinstance(value, Mapping):
        return dict(value)
    return None
