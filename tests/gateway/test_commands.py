"""What is a command and what is talk."""

import pytest

from gateway.commands import Command, parse, said


@pytest.mark.parametrize(
    "text",
    [
        "/new",
        " /new",
        "／new",
        "/NEW",
        "/new\u200b",
        "\u3000/clear ",
        "/reset",
        "新对话",
        " 新对话\n",
        "/新对话",
        "／新会话",
        "/ new",
        "／ 新对话",
        "新对话。",
        "新对话！！",
        "/new。",
        "/new.",
        "/ new ~",
    ],
)
def test_a_new_conversation_in_every_spelling(text: str) -> None:
    assert parse(text) == Command("new")


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/agent job-recommend-agent", Command("agent", "job-recommend-agent")),
        ("/Agent  general-agent ", Command("agent", "general-agent")),
        ("/agent", Command("agent")),
        ("切换 简历", Command("agent", "简历")),
        ("切换", Command("agent")),
        ("帮助", Command("help")),
        ("停止", Command("stop")),
        ("/nothing", Command("unknown", "/nothing")),
        ("/agent 简历。", Command("agent", "简历。")),
        ("/nothing。", Command("unknown", "/nothing。")),
        ("/nothing at all", Command("unknown", "/nothing")),
        ("/new 帮我写简历", Command("new", "帮我写简历")),
        ("／CLEAR\n帮我\n写简历 ", Command("new", "帮我\n写简历")),
        ("/new ！", Command("new")),
        ("/stop 算了", Command("stop", "算了")),
        ("/forget", Command("forget")),
        ("/forget。", Command("forget")),
        ("/forget 我刚才说的地址", Command("not-alone", "/forget")),
        ("/取消关联 谁", Command("not-alone", "/取消关联")),
    ],
)
def test_names_and_arguments(text: str, command: Command) -> None:
    assert parse(text) == command


@pytest.mark.parametrize(
    "text",
    [
        "",
        "你好",
        "新对话怎么开始？",
        "帮助 我写简历",
        "请给我帮助",
        "/etc/passwd 是什么",
        "/",
        "//",
        "a /new",
        "new",
        "/var/log",
        "/a.b",
        "停止 服务",
        "我想切换 工作",
        "切换 到 别的 工作",
        "新对话？",
        "新对话。怎么开始",
        "/ 新对话 怎么开始",
        "/ nothing",
        "/ etc",
        "。",
        "停止……吗",
    ],
)
def test_talk_is_not_a_command(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "question", "unhandled"),
    [
        ("/new 帮我写简历", "帮我写简历", False),
        ("/new", "", False),
        ("/help 怎么用", "", True),
        ("/help", "", False),
        ("/agent 简历", "", False),
        ("/link abcde-fghjk", "", False),
        ("/nothing at all", "", False),
        ("/forget 这一句", "", False),
    ],
)
def test_what_stands_behind_a_command(text: str, question: str, unhandled: bool) -> None:
    command = parse(text)
    assert command is not None
    assert (command.question, command.unhandled) == (question, unhandled)
    assert said(text) == (question or text)


def test_what_overtakes() -> None:
    overtaking = ("stop", "help", "agents", "status", "whoami", "history", "unknown", "not-alone")
    assert all(Command(name).overtakes for name in overtaking)
    assert not Command("new").overtakes
    assert not Command("agent").overtakes


def test_signs_newer_than_the_tables_are_no_blanks() -> None:
    assert said("/new \U0001fae9") == "\U0001fae9"
