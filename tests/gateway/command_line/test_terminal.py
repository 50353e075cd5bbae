"""The command line at a terminal: what others wrote moves no cursor, what goes wrong is one line, Ctrl-C just ends."""

import asyncio
import contextlib
import json
import os
import pty
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given, strategies

from channels.message import Answered, Delta, Failed, Routed, Shown
from gateway.command_line.cli import run_command
from gateway.command_line.running import refused
from gateway.command_line.terminal import _show
from gateway.command_line.terminal_text import printable
from memory.memory import Memory
from tests.memory.pool import AT, CONVERSATION, user
from tests.shipped import shipped_config

ROOT = Path(__file__).parents[3]
NASTY = "甲\x1b[2J\x1b]0;t\x07乙\u202e丙\x9b31m\x7f\r丁\ud800"


def harmless(text: str) -> bool:
    return all(each in "\n\t" or (each.isprintable() or (each.isspace() and each not in "\r\x0b\x0c")) for each in text)


# ---------------------------------------------------------------- what others wrote
@given(strategies.text(strategies.characters(codec=None)))
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    shown = printable(text)
    assert not any((ord(each) < 0x20 and each not in "\n\t") or 0x7F <= ord(each) < 0xA0 for each in shown)
    assert not set(shown) & set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")
    shown.encode()
    assert json.loads(printable(json.dumps(text, ensure_ascii=False))) == text, "JSON says the same as before"


def test_plain_talk_stays_as_it_is() -> None:
    text = "你好 👨\u200d👩\u200d👧\n\tif x: {}"
    assert printable(text) == text
    assert printable("\x1b[31m\u202e") == "␛[31m\\u202e"


async def test_a_streamed_answer_is_shown_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    async def told(*events: Shown) -> AsyncIterator[Shown]:
        for each in events:
            yield each

    assert await _show(told(Routed("a", NASTY), Delta(NASTY), Answered(NASTY + "\n完"))) == 0
    assert await _show(told(Failed(NASTY))) == 1
    got = capsys.readouterr()
    assert harmless(got.out + got.err), repr(got)
    assert got.out.startswith("甲␛[2J")
    assert "\n完" in got.out


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """One conversation with a text that is not to be trusted, and a reset in it."""

    async def fill() -> None:
        memory = Memory(tmp_path / "workspace")
        await memory.remember(CONVERSATION, [user("q1", NASTY)])
        await memory.reset(CONVERSATION, "r1", AT)
        await memory.remember(CONVERSATION, [user("q2\x1b[2J", NASTY)])
        await memory.close()

    (tmp_path / "workspace").mkdir(mode=0o700)
    asyncio.run(fill())
    return tmp_path / "workspace"


def run(workspace: Path, *words: str) -> int:
    return run_command([*words, "--config", str(shipped_config()), "--workspace", str(workspace)])


def test_a_channel_that_does_not_exist_is_told(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(workspace, "conversations", "--channel", "nosuch") == 2
    assert capsys.readouterr().err == "没有 nosuch 这个渠道；可以是 wechat、wecom、dingtalk、feishu、web\n"
    assert run(workspace, "conversations", "--channel", "feishu") == 0


def test_window_and_conversations_are_shown_harmless(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["window", str(CONVERSATION)], ["window", str(CONVERSATION), "--json"], ["conversations"]):
        assert run(workspace, *words) == 0
        out = capsys.readouterr().out
        assert harmless(out), repr(out)
        assert "甲" in out or words == ["conversations"]


def test_turns_are_counted_and_not_the_marks_between(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(workspace, "conversations", "--json") == 0
    assert [each["turns"] for each in json.loads(capsys.readouterr().out)["conversations"]] == [2]
    assert run(workspace, "conversations") == 0
    assert "  2 条  " in capsys.readouterr().out


def test_what_a_person_wrote_into_meta_forges_no_line(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = (workspace / "conversations").rglob("*.yaml")
    meta = json.dumps({"id": "q9\nforged", "n": 3, "epoch": 1, "at": "now\nforged"})
    with path.open("a", encoding="utf-8") as file:
        file.write(f"- user: |-\n    收到\n  meta: {meta}\n- user: |-\n    再问\n")
    for words in (["window", str(CONVERSATION)], ["conversations"]):
        assert run(workspace, *words) == 0
        assert not [line for line in capsys.readouterr().out.splitlines() if line.startswith("forged")]


def test_what_repair_found_is_shown_harmless(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = (workspace / "conversations").rglob("*.yaml")
    with path.open("ab") as file:
        file.write(b"- user: |-\n    \x1b[2J torn")
    run(workspace, "repair")
    assert harmless(capsys.readouterr().out)


# ---------------------------------------------------------------- the workspace
def test_a_workspace_is_closed_to_others(workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.chmod(0o755)
    assert run(workspace, "conversations") == 0
    assert stat.S_IMODE(workspace.stat().st_mode) == 0o700
    assert run(tmp_path / "new" / "one", "conversations") == 0
    assert stat.S_IMODE((tmp_path / "new" / "one").stat().st_mode) == 0o700
    assert capsys.readouterr().err == ""


def test_a_workspace_that_cannot_be_closed_is_remarked(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "not yours")

    workspace.chmod(0o750)
    monkeypatch.setattr(Path, "chmod", refuse)
    assert run(workspace, "conversations") == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert str(workspace) in line
    assert "0700" in line


def test_a_folder_for_everybody_is_not_closed(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.chmod(0o1777)
    assert run(workspace, "conversations") == 0
    assert stat.S_IMODE(workspace.stat().st_mode) == 0o1777
    assert "0700" in capsys.readouterr().err


# ---------------------------------------------------------------- a running gateway that refuses
@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, "{}", "console.token"),
        (429, '{"error": "x"}', "一分钟后再试"),
        (503, '{"error": "网关正在停止\\n\\u001b"}', "网关正在停止 ␛"),
        (502, "<html>", "网关的日志"),
        (400, "[]", "HTTP 400"),
    ],
)
async def test_a_refusal_is_told_with_its_remedy(status: int, body: str, said: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=status, text=body, content_type="application/json")

    app = web.Application()
    app.router.add_get("/", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{site.port}/") as response:
            text = await refused(response)
    finally:
        await runner.cleanup()
    assert said in text
    assert f"HTTP {status}" in text
    assert len(text.splitlines()) == 1


# ---------------------------------------------------------------- terminals
def test_a_terminal_without_chinese_gets_question_marks_and_no_traceback(tmp_path: Path) -> None:
    places = ["--config", str(shipped_config()), "--workspace", str(tmp_path / "w")]
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "chat", "--message", "我叫 Wang", *places],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"Wang" in done.stdout
    assert b"Traceback" not in done.stderr


def test_a_damaged_database_is_told_without_a_traceback(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    words = [sys.executable, "-m", "gateway", "--config", str(shipped_config()), "--workspace", str(workspace)]
    ask = partial(subprocess.run, [*words, "chat", "--message", "在吗"], cwd=ROOT, capture_output=True, timeout=100)
    for _ in range(2):
        assert ask(check=False).returncode == 0
    database = workspace / "gateway.db"
    raw = database.read_bytes()
    database.write_bytes(raw[:4096] + b"\xa5" * (len(raw) - 4096))
    done = ask(check=False)
    told = done.stderr.decode()
    assert done.returncode == 1
    assert "Traceback" not in told
    assert f"{database} 不是数据库，或已损坏；请从备份恢复" in told
    assert told.splitlines()[-1] == "这句话没能存下；原因见上面的日志"


@pytest.mark.parametrize("after", [None, 0.0, 0.05, 0.1, 0.2, 0.4])
def test_ctrl_c_ends_a_chat_at_once_and_quietly(tmp_path: Path, after: float | None) -> None:
    """At its prompt, and so many seconds after our modules have begun to be imported."""
    ours, theirs = pty.openpty()
    places = ["--config", str(shipped_config()), "--workspace", str(tmp_path / "w")]
    command = [sys.executable, "-m", "gateway", "chat", *places]
    with subprocess.Popen(command, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        try:
            if after is None:
                while "你：".encode() not in said:
                    said += os.read(ours, 4096)
            else:
                until_loaded(process.pid, "pydantic_core")
                time.sleep(after)
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(OSError):  # the terminal is gone with the process
                while more := os.read(ours, 4096):
                    said += more
            assert process.wait(60) in ((0,) if after is None else (0, -signal.SIGINT)), said
        finally:
            process.kill()
            os.close(ours)
    assert b"Traceback" not in said, said.decode(errors="replace")
    assert b"gateway.yaml" not in said, "no problem is made up"


def test_ctrl_c_stays_ignored_where_it_was(tmp_path: Path) -> None:
    """As a shell without job control starts what is to run in the background."""
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "import sys; from gateway.__main__ import main; code = main()\n"
        "sys.exit(code or signal.getsignal(signal.SIGINT) is not signal.SIG_IGN)"
    )
    places = ["--config", str(shipped_config()), "--workspace", str(tmp_path / "w")]
    done = subprocess.run([sys.executable, "-c", code, "conversations", *places], cwd=ROOT, timeout=100, check=False)
    assert done.returncode == 0


def until_loaded(pid: int, library: str) -> None:
    for _ in range(6000):
        if library in Path(f"/proc/{pid}/maps").read_text():
            return
        time.sleep(0.01)
    raise AssertionError(f"{library} is not loaded after 60 s")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "缺少 COMMAND；用 sanqiao -h 查看用法"),
        (["chek"], "没有 chek 这个命令（是不是 check ？）；用 sanqiao -h 查看用法"),
        (["start"], "没有 start 这个命令（可写 run、check、chat、"),
        (["window"], "缺少 CONVERSATION；用 sanqiao window -h 查看用法"),
        (["forget", "--user"], "--user 后面缺少值；用 sanqiao forget -h 查看用法"),
        (["forget"], "缺少 --user；"),
        (["run", "--confg", "x"], "不认识的参数：--confg x；"),
        (["check", "--online=x"], "参数不对（"),
    ],
)
def test_wrong_arguments_are_told_in_one_chinese_line(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    try:
        code: object = run_command(words)
    except SystemExit as ended:
        code = ended.code
    printed = capsys.readouterr().err
    assert code == 2
    assert printed.startswith(said)
    assert printed.count("\n") == 1


def test_places_may_stand_before_the_command_or_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SANQIAO_CONFIG", str(tmp_path / "of-environment"))
    for words, read in (
        (["check"], "of-environment"),
        (["--config", str(tmp_path / "before"), "check"], "before"),
        (["check", "--config", str(tmp_path / "behind")], "behind"),
        (["--config", str(tmp_path / "before"), "check", "--config", str(tmp_path / "behind")], "behind"),
        (["--workspace", str(tmp_path), f"--config={tmp_path / 'before'}", "check"], "before"),
    ):
        assert run_command(words) == 1
        assert capsys.readouterr().out.startswith(f"{tmp_path / read}/gateway.yaml:1: "), words


def test_a_workspace_that_cannot_be_one_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for workspace in (tmp_path / "file", tmp_path / "file" / "below"):
        assert run(workspace, "conversations") == 2
        assert capsys.readouterr().err == f"工作目录 {workspace} 处已有文件；请用 --workspace 指定一个目录\n"
    assert run(tmp_path / "ws", "repair", "nonsense") == 2
    assert capsys.readouterr().err == "nonsense 不是会话编号；用 conversations 查看有哪些会话\n"
