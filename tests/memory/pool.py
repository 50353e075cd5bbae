"""Turns to test the files with: texts that YAML or a careless writer would change, and hypothesis' own."""

import os
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings

from memory.conversation import ConversationId, Role, ToolCall, Turn

AT = "2026-11-30T18:10:05.123+08:00"
CONVERSATION = ConversationId.parse("uu3r7qbo6l6i3:feishu:b759cea3338c:0:job-recommend-agent")
OTHER = ConversationId.parse("uu3r7qbo6l6i3:feishu:b759cea3338c:0:general-agent")

NASTY = [
    *(
        "yes",
        "no",
        "on",
        "off",
        "null",
        "~",
        "1e3",
        "1_000",
        "0x1F",
        "017",
        "12:30",
        "2026-01-01",
        "a: b",
        "- x",
        "a # b",
    ),
    *(
        "  lead",
        "trail  ",
        "a\n",
        "a\n\n",
        "\n",
        "\n\n\n",
        "",
        " ",
        "\t",
        "a\r\nb",
        "a\rb",
        "\ta",
        "---",
        "...",
        "a\n...\nb",
    ),
    *(
        "<<",
        "=",
        "&a",
        "*a",
        "!x",
        "%YAML 1.1",
        "@x",
        "`x",
        "|",
        ">",
        "''",
        '"',
        "\\",
        "a\x85b",
        "a\u2028b",
        "a\u2029b",
    ),
    *(
        "\ufeffa",
        "a\ufeff",
        "a\0b",
        "\x7f",
        "\x1b[31m",
        "a\x9fb",
        "\ufffe",
        "\uffff",
        "👨‍👩‍👧",
        "\u202eabc",
        "𠮷",
        "长" * 5000,
    ),
    *("a\n\nb", "\n\na", "a\n  \n", "a\n  ", "  \na", " \n\n a", "a\n\t\n", "a \nb ", "　", "a\n- user: |-\n    x\nb"),
    '- user: |-\n    x\n  meta: {"id": "x", "crc": "00000000"}\n- y',
    '\n  meta: {"id": "x", "n": 7, "crc": "00000000"}\n',
    "!!python/object/apply:os.system ['true']",
    "{a: [1, 2]}",
    "# not a comment",
    "\U0010ffff\U0001fffe",
]


def user(id: str, text: str = "问", **more: Any) -> Turn:
    return Turn(role=Role.USER, text=text, id=id, at=AT, **more)


def answer(id: str, to: str, text: str = "答", **more: Any) -> Turn:
    return Turn(role=Role.ASSISTANT, text=text, id=id, at=AT, to=to, **more)


def reset(id: str) -> Turn:
    return Turn(role=Role.RESET, text="new", id=id, at=AT)


def examples(count: int) -> Callable[[Any], Any]:
    """`count` examples, times HYPOTHESIS_FACTOR from the environment (10 for thousands)."""
    factor = int(os.environ.get("HYPOTHESIS_FACTOR", "1"))
    return settings(max_examples=count * factor, deadline=None, suppress_health_check=list(HealthCheck))


TEXTS = st.sampled_from(NASTY) | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
_SHORT = st.sampled_from(NASTY[:60]) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_OPTIONAL = st.none() | _SHORT
_CALLS = st.lists(st.builds(ToolCall, _SHORT, _SHORT, TEXTS), max_size=2).map(tuple)
_NAMES = st.integers(0, 10**9).map(lambda n: f"om_{n}") | _SHORT.filter(bool)


@st.composite
def turn(draw: st.DrawFn) -> Turn:
    role = draw(st.sampled_from(Role))
    answering = role in (Role.ASSISTANT, Role.TOOL)
    return Turn(
        role=role,
        text=draw(TEXTS),
        id=draw(_NAMES),
        at=AT,
        to=draw(_OPTIONAL) if answering else None,
        ids=draw(st.lists(_NAMES, max_size=3).map(tuple)) if role is Role.USER else (),
        name=draw(_OPTIONAL),
        user=draw(_OPTIONAL) if role is Role.USER else None,
        tool_calls=draw(_CALLS) if role is Role.ASSISTANT else (),
        call=draw(_OPTIONAL) if role is Role.TOOL else None,
        model=draw(_OPTIONAL) if role is Role.ASSISTANT else None,
        stopped=draw(st.booleans()) if role is Role.ASSISTANT else False,
        removed=draw(st.booleans()),
    )


TURNS = st.lists(turn(), min_size=1, max_size=8)
