"""The on-disk form: what is written is read back to the character, by us and by every YAML loader."""

import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given

from memory.conversation import Role, ToolCall, Turn
from memory.handwritten import NotAnItem, read_by_hand
from memory.yamlform import read_item, sealed, split, torn, write_item
from tests.effort import effort
from tests.memory.pool import AT, NASTY, TURNS, answer, examples, turn, user

LOADERS = (yaml.SafeLoader, yaml.CSafeLoader)


def numbered(turns: list[Turn]) -> list[Turn]:
    return [replace(turn, n=n, epoch=0) for n, turn in enumerate(turns)]


def by_yaml(raw: bytes, loader: type) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.load(raw.decode("utf-8"), loader)
    return found


def expected(turn: Turn) -> dict[str, Any]:
    meta = {
        "id": turn.id,
        "n": turn.n,
        "epoch": turn.epoch,
        "to": turn.to,
        "at": turn.at,
        "ids": list(turn.ids) or None,
    }
    meta |= {"user": turn.user, "model": turn.model, "stopped": turn.stopped or None, "removed": turn.removed or None}
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in turn.tool_calls]
    item = {turn.role.value: turn.text, "name": turn.name, "tool_calls": calls or None, "call": turn.call}
    item["meta"] = {key: value for key, value in meta.items() if value is not None}
    return {key: value for key, value in item.items() if value is not None}


def test_the_form_of_the_contract() -> None:
    turns = [
        user("om_x1", "帮我推荐 Java 岗位，薪资 25k 以上", name="张三", n=0, epoch=0),
        answer(
            "m-2", "om_x1", "收到", tool_calls=(ToolCall("call_1", "f", '{"city": "上海"}'),), model="m", n=1, epoch=0
        ),
        Turn(role=Role.TOOL, text='{"jobs": []}', id="m-3", at=AT, to="om_x1", call="call_1", n=2, epoch=0),
        Turn(role=Role.RESET, text="new", id="m-9", at=AT, n=3, epoch=1),
    ]
    raw = b"".join(map(write_item, turns)).decode()
    bare = [line if "meta" not in line else line.partition(', "crc"')[0] for line in raw.splitlines()]
    assert bare == [
        "- user: |-",
        "    帮我推荐 Java 岗位，薪资 25k 以上",
        '  name: "张三"',
        f'  meta: {{"id": "om_x1", "n": 0, "epoch": 0, "at": "{AT}"',
        "- assistant: |-",
        "    收到",
        r'  tool_calls: [{"id": "call_1", "name": "f", "arguments": "{\"city\": \"上海\"}"}]',
        f'  meta: {{"id": "m-2", "n": 1, "epoch": 0, "to": "om_x1", "at": "{AT}", "model": "m"',
        "- tool: |-",
        '    {"jobs": []}',
        '  call: "call_1"',
        f'  meta: {{"id": "m-3", "n": 2, "epoch": 0, "to": "om_x1", "at": "{AT}"',
        "- reset: new",
        f'  meta: {{"id": "m-9", "n": 3, "epoch": 1, "at": "{AT}"',
    ]


def test_the_crc_is_that_of_the_item_without_it() -> None:
    raw = write_item(user("a"))
    bare, _, crc = raw.partition(b', "crc": "')
    assert crc == b'%08x"}\n' % zlib.crc32(bare + b"}\n")


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("a", "|-"),
        ("a\n", "|"),
        ("a\n\n", "|+"),
        (" a", "|2-"),
        ("\na\n", "|2"),
        ("", '""'),
        ("\n", r'"\n"'),
        ("a\r", r'"a\r"'),
        ("\x85", r'"\u0085"'),
    ],
)
def test_literal_where_it_can_carry_the_text(text: str, head: str) -> None:
    assert write_item(user("a", text)).decode().split("\n")[0] == f"- user: {head}"


@pytest.mark.parametrize("reason", ["new", "off", "null", "forget", "New thing", "x: y", ""])
def test_reasons_of_a_reset_stay_texts(reason: str) -> None:
    turn = Turn(role=Role.RESET, text=reason, id="r", at=AT)
    raw = write_item(turn)
    assert read_item(raw) == turn
    assert by_yaml(raw, yaml.SafeLoader)[0]["reset"] == reason


@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("loader", LOADERS)
def test_nasty_texts(text: str, loader: type) -> None:
    turns = numbered([user("a", text, name=text or None), answer("b", "a", text)])
    raw = b"".join(map(write_item, turns))
    assert [read_item(item) for _, item in split(raw)] == turns
    assert by_yaml(raw, loader) == [
        item | {"meta": item["meta"] | {"crc": read["meta"]["crc"]}}
        for item, read in zip(map(expected, turns), by_yaml(raw, loader), strict=True)
    ]


@examples(300)
@given(TURNS)
def test_written_is_read_back_by_everyone(turns: list[Turn]) -> None:
    turns = numbered(turns)
    raw = b"".join(map(write_item, turns))
    assert [read_item(item) for _, item in split(raw)] == turns
    assert all(sealed(item) == len(item) for _, item in split(raw))
    for loader in LOADERS:
        items = by_yaml(raw, loader)
        assert all(len(item["meta"].pop("crc")) == 8 for item in items)
        assert items == list(map(expected, turns))


@examples(300)
@given(turn())
def test_a_person_may_break_the_seal_without_harm(turn: Turn) -> None:
    raw = write_item(turn)
    broken = raw[:-11] + (b"00000000" if raw[-11:-3] != b"00000000" else b"11111111") + raw[-3:]
    assert sealed(broken) == 0
    assert read_item(broken) == turn


@examples(300)
@given(turn(), st.data())
def test_any_change_breaks_the_seal(turn: Turn, data: st.DataObject) -> None:
    raw = write_item(turn)
    place = data.draw(st.integers(0, len(raw) - 22))
    changed = raw[:place] + bytes([raw[place] ^ data.draw(st.integers(1, 255))]) + raw[place + 1 :]
    assert sealed(changed) != len(raw)


def test_what_follows_a_sealed_item_is_no_part_of_it() -> None:
    raw = write_item(user("a", "好"))
    for rest in (b"-", b"- us", b"\0\0", b"foo: bar\n", b"\n"):
        assert sealed(raw + rest) == len(raw)
        assert read_item(raw + rest).text == "好"
    assert sealed(raw[:-1]) == len(raw) - 1, "an editor may take the last line feed"


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("- user: off\n", "off"),
        ("- user: 12:30\n", "12:30"),
        ("- user: 0123\n", "0123"),
        ("- user: 2026-01-01\n", "2026-01-01"),
        ("- user: ~\n", "~"),
        ("- user:\n", ""),
        ("- user: |\n    我叫手工\n", "我叫手工"),
        ("- user: |\n   两\n\n   行\n", "两\n\n行"),
        ("- user: 'it''s'\n", "it's"),
        ("- user: [1, 2]\n", "[1, 2]"),
        ("- user: {a: 1}\n", "{a: 1}"),
        ("- user: *x\n", "*x"),
        ("- user: &x hi\n", "hi"),
        ("- user: !!int '7'\n", "7"),
        (
            "- user: !!python/object/apply:os.system ['touch pwned']\n",
            "!!python/object/apply:os.system ['touch pwned']",
        ),
        ("- user: hi # remark\n", "hi"),
        ("-   user: hi\n    name: x\n", "hi"),
        ("\ufeff- user: hi\r\n", "hi"),
        ("- name: x\n  user: hi\n", "hi"),
        ("- user: first\n  user: second\n", "first"),
        ('- user: "简历\\ud83d怎么改"\n', "简历\ufffd怎么改"),
        ('- user: "\\ud83d\\ude00 \\\\ud83d"\n', "😀 \\ud83d"),
    ],
)
def test_hand_written_scalars_stay_the_text_written(item: str, text: str) -> None:
    found = read_item(item.encode())
    assert (found.role, found.text, found.id, found.n, found.epoch, found.at) == (Role.USER, text, "", -1, -1, "")
    assert not Path("pwned").exists()


def test_hand_edited_meta() -> None:
    item = "- assistant: 好\n  call: 7\n  tool_calls: [{id: 1, name: f, arguments: '{}'}, 3, {id: 2}]\n"
    item += "  meta: {id: 12, n: 3, epoch: 0, to: 9, stopped: true, ids: [1, [2]], at: 2026-01-01}\n"
    found = read_item(item.encode())
    assert (found.id, found.n, found.to, found.at, found.stopped) == ("12", 3, "9", "2026-01-01", True)
    assert found.tool_calls == (ToolCall("1", "f", "{}"),)
    assert (found.ids, found.call) == (("1",), "7")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"- null\n",
        b"- {role: user}\n",
        b"- x\n",
        b'- {role: "x", content: [1]}\n',
        b"just: a mapping\n",
        b"\0" * 64,
        b"- user: [\n",
        b"- user: a\nfoo\n",
        b"- user: '\n",
        b"- user: a: b\n",
        b"- user: \x01\n",
        b"# only a remark\n",
    ],
)
def test_no_item(raw: bytes) -> None:
    with pytest.raises(NotAnItem):
        read_item(raw)


@pytest.mark.parametrize(
    "text",
    [
        "- user: " + "[" * 100_000,
        "- user: " + "{a: " * 50_000,
        "- user: [" + "[], " * 100_000 + "]",
        "- a: &a [x, x]\n  b: &b [*a, *a]\n"
        + "".join(f"  c{i}: &c{i} [*b, *b]\n" for i in range(5000))
        + "  user: hi\n",
        "- user: |\n    " + "x" * (3 << 20) + "\n",
    ],
    ids=["deep list", "deep mapping", "wide list", "aliases", "size"],
)
def test_bombs_cost_little(text: str) -> None:
    def read() -> None:
        with pytest.raises(NotAnItem):
            read_by_hand(text.encode())

    assert effort(read) < 400


def test_few_aliases_are_text_not_copies() -> None:
    found = read_item(b"- user: [&a [x, x], *a, *a]\n")
    assert found.text == "[&a [x, x], *a, *a]"


# ---- torn tails


@examples(300)
@given(turn(), st.data())
def test_a_cut_item_is_torn(turn: Turn, data: st.DataObject) -> None:
    raw = write_item(replace(turn, n=3, epoch=0))
    cut = raw[: data.draw(st.integers(1, len(raw) - 2))]
    taken_for_a_person = cut.startswith(b"- user: |\n") and cut.endswith(b"\n")
    assert torn(cut, after_ours=True) or taken_for_a_person
    assert torn(cut + b"\0" * 7, after_ours=True)


@pytest.mark.parametrize("raw", [b"- user: |\n    hi\n", b"- assistant: hi\n", b"- user: off", b"- user: 'x'\n"])
def test_a_persons_last_item_is_not_torn(raw: bytes) -> None:
    assert not torn(raw, after_ours=True)


def test_after_a_persons_item_nothing_is_torn_that_reads() -> None:
    assert not torn(b"- assistant: |-\n    hi\n", after_ours=False)
    assert torn(b"- assistant: |-\n    hi\n", after_ours=True)
    assert torn(b"- us", after_ours=False)


def test_an_edited_last_item_is_not_torn() -> None:
    raw = write_item(user("a", "旧", n=0, epoch=0)).replace("旧".encode(), "新".encode())
    assert not torn(raw, after_ours=True)
    assert read_item(raw).text == "新"


def test_fields_are_json_lines() -> None:
    raw = write_item(user("a", name="a\u2028b\x85c\x7f")).decode()
    (line,) = [line for line in raw.split("\n") if line.startswith("  name: ")]
    assert line == r'  name: "a\u2028b\u0085c\u007f"'
    assert json.loads(line.removeprefix("  name: ")) == "a\u2028b\x85c\x7f"
