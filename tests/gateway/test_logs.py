"""Log lines: one each, in the configured zone, no exception's message above debug."""

import asyncio
import io
import json
import logging
import re
from collections.abc import Iterator
from zoneinfo import ZoneInfo

import pytest

from gateway.config.sections import LogSettings
from gateway.logs import JsonLines, TextLines, about, configure, set_level

log = logging.getLogger("sanqiao.test")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("sanqiao")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def lines(level: str = "info", form: str = "text") -> io.StringIO:
    out = io.StringIO()
    configure(LogSettings(level=level, format=form), zone=ZoneInfo("Asia/Shanghai"), stream=out)
    return out


@pytest.mark.parametrize("formatter", [TextLines(None), JsonLines(None)])
def test_no_value_forges_a_line(formatter: logging.Formatter) -> None:
    nasty = "a\nINFO forged\r\u2028\x1b[31m\x00\x85 中文 \ud800"
    # Formatted by hand: a record with half a character would end up in the test runner's own report.
    said = formatter.format(logging.LogRecord("sanqiao.test", logging.INFO, "x", 1, "event name=%s", (nasty,), None))
    assert len(said.splitlines()) == 1
    assert "\x1b" not in said
    assert "中文" in said
    said.encode()


def test_text_lines() -> None:
    out = lines()
    log.info("event key=%s", 1)
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+08:00 INFO sanqiao\.test: event key=1\n", out.getvalue()
    )


def test_json_lines() -> None:
    out = lines(form="json")
    log.warning("event key=%s", '"')
    fields = json.loads(out.getvalue())
    assert (fields["level"], fields["logger"], fields["message"]) == ("warning", "sanqiao.test", 'event key="')
    assert fields["at"].endswith("+08:00")


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_exception_is_named_and_only_told_whole_at_debug(form: str) -> None:
    def fail() -> None:
        try:
            raise ValueError("SECRETCANARY\nsecond line")
        except ValueError:
            log.exception("event_failed")

    out = lines(form=form)
    fail()
    assert "ValueError at " in out.getvalue()
    assert "SECRETCANARY" not in out.getvalue()
    out = lines("debug", form)
    fail()
    assert "SECRETCANARY" in out.getvalue()
    assert len(out.getvalue().splitlines()) == 1


def test_level_changes_while_running() -> None:
    out = lines()
    log.debug("not yet")
    set_level("debug")
    log.debug("now")
    set_level("error")
    log.warning("no more")
    logging.getLogger("library").info("never")
    assert [line.rsplit(": ", 1)[1] for line in out.getvalue().splitlines()] == ["now"]


def test_configured_twice_logs_once() -> None:
    first, second = lines(), lines()
    log.info("event")
    assert (first.getvalue(), second.getvalue().count("\n")) == ("", 1)


async def test_lines_within_a_messages_work_name_trace_and_conversation() -> None:
    async def work(trace: str, conversation: str) -> None:
        about(trace, conversation)
        log.info("event key=1")
        await asyncio.sleep(0)
        log.info("routed conversation=%s", conversation)
        await asyncio.to_thread(log.info, "from a thread")

    text = lines()
    await asyncio.gather(*(asyncio.create_task(work(f"t{n}", f"u{n}:web:s:0:a")) for n in range(2)))
    log.info("outside")
    told = sorted(line.rsplit("sanqiao.test: ")[1] for line in text.getvalue().splitlines())
    expected = ["outside"]
    for n in range(2):
        about_it = f"conversation=u{n}:web:s:0:a trace=t{n}"
        expected += [f"event key=1 {about_it}", f"from a thread {about_it}", f"routed {about_it}"]
    assert told == sorted(expected)
    form = lines(form="json")
    await asyncio.create_task(work("t1", "u1:web:s:0:a"))
    log.info("outside")
    *inside, outside = map(json.loads, form.getvalue().splitlines())
    assert {(line["trace"], line["conversation"]) for line in inside} == {("t1", "u1:web:s:0:a")}
    assert "trace" not in outside
