"""Logs: one line per event, as text or as JSON, whatever stands in the values."""

import json
import logging
import sys
import traceback
from contextvars import ContextVar
from datetime import datetime, tzinfo
from typing import TextIO

from gateway.config.sections import LogSettings

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_LINE_SAFE = str.maketrans({**_CONTROL, 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x2028: "\\u2028", 0x2029: "\\u2029"})
_OURS = logging.getLogger("sanqiao")
_about: ContextVar[tuple[str, str]] = ContextVar("about", default=("", ""))


def about(trace: str, conversation: str) -> None:
    """From here on, each line that the present task (and what it starts) logs names this trace and conversation.

    `conversation` is the id's first four parts while no agent is chosen.
    """
    _about.set((trace, conversation))


def one_line(text: str) -> str:
    """The text with line ends and control characters escaped: no value can forge a second log line."""
    return text.translate(_LINE_SAFE).encode("utf-8", "backslashreplace").decode()


class _Lines(logging.Formatter):
    """What both forms share: the time in the configured zone, and how much of an exception is told.

    The whole trace only at level ``debug``: an exception's message can hold what users wrote or a secret.
    """

    def __init__(self, zone: tzinfo | None) -> None:
        super().__init__()
        self._zone = zone

    def at(self, record: logging.LogRecord) -> str:
        return (
            datetime.fromtimestamp(record.created, self._zone).astimezone(self._zone).isoformat(timespec="milliseconds")
        )

    def exception(self, record: logging.LogRecord) -> str:
        if not record.exc_info or record.exc_info[1] is None:
            return ""
        if _OURS.isEnabledFor(logging.DEBUG):
            return self.formatException(record.exc_info)
        error = record.exc_info[1]
        frames = traceback.extract_tb(error.__traceback__)
        place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        return f"{type(error).__name__}{place}"


class TextLines(_Lines):
    """``2026-11-30T18:10:05.123+08:00 INFO sanqiao.inbox: event key=value``, and `` | `` before an exception.

    Within a message's work each line ends with ``conversation=… trace=…``.
    """

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        trace, conversation = _about.get()
        if conversation and " conversation=" not in message:
            message = f"{message} conversation={conversation}"
        if trace:
            message = f"{message} trace={trace}"
        text = f"{self.at(record)} {record.levelname} {record.name}: {message}"
        exception = self.exception(record)
        return one_line(f"{text} | {exception}" if exception else text)


class JsonLines(_Lines):
    """One JSON object per line: ``at``, ``level``, ``logger``, ``message``, and ``exception`` where there is one.

    Within a message's work also ``conversation`` and ``trace``.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "at": self.at(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        trace, conversation = _about.get()
        if trace:
            fields |= {"conversation": conversation, "trace": trace}
        if exception := self.exception(record):
            fields["exception"] = exception
        return one_line(json.dumps(fields, ensure_ascii=False))


def configure(settings: LogSettings, *, zone: tzinfo | None = None, stream: TextIO | None = None) -> None:
    """Sends all logs to `stream` (standard error), with times in `zone` (the system's).

    Ours are of the level asked for, those of libraries from WARNING on. Called again, it takes its own place.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonLines(zone) if settings.format == "json" else TextLines(zone))
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old.formatter, _Lines):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    set_level(settings.level)


def set_level(level: str) -> None:
    """Changes the level of our own logs while running: ``debug``, ``info``, ``warning``, ``error``."""
    _OURS.setLevel(level.upper())


def log_failure(logger: logging.Logger, event: str, error: BaseException) -> None:
    """One line at a border: what failed and the kind of error. Its message may hold what users wrote: at debug only."""
    logger.error("%s error=%s", event, type(error).__name__)
    logger.debug("%s", event, exc_info=error)
