"""MCP servers as they are written in the config, the names of their tools, and what of them a model is told."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agents.tools.mcp import (
    Grant,
    McpServerSettings,
    function_name,
    grant_of,
    grants_of,
    problem_of,
)
from agents.tools.mcp_results import (
    MOST_DESCRIPTION,
    MOST_SCHEMA,
    MOST_TEXT,
    Piece,
    remote_tool,
    result_text,
)

SERVERS = st.from_regex(r"[a-z0-9][a-z0-9-]{0,31}", fullmatch=True)
TOOLS = st.one_of(
    st.text(min_size=1, max_size=130), st.from_regex(r"[a-zA-Z0-9_.-]{1,70}(_[0-9a-f]{8})?", fullmatch=True)
)


# ---- names


@given(SERVERS, TOOLS, st.booleans())
def test_every_name_is_one_that_openai_takes(server: str, tool: str, hashed: bool) -> None:
    name = function_name(server, tool, hashed=hashed)
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)
    assert name == function_name(server, tool, hashed=hashed)


@given(st.lists(st.tuples(SERVERS, TOOLS), min_size=2, max_size=20, unique=True), st.data())
def test_different_tools_have_different_names(pairs: list[tuple[str, str]], data: st.DataObject) -> None:
    server, tool = data.draw(st.sampled_from(pairs))
    pairs.append((server, function_name(server, tool).removeprefix(f"{server}_")))  # one that is named like a hash
    names = {function_name(*pair) for pair in pairs}
    assert len(names) == len(set(pairs))


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("amap", "maps_weather", "amap_maps_weather"),
        ("a-b", "Get-It", "a-b_Get-It"),
        ("fs", "read.file", "fs_read_file_8f4e11b9"),
    ],
)
def test_names_stay_readable_where_they_can(server: str, tool: str, name: str) -> None:
    assert re.sub("[0-9a-f]{8}$", "", function_name(server, tool)) == re.sub("[0-9a-f]{8}$", "", name)


# ---- grants


def test_grants_stand_among_other_tools() -> None:
    names = ["search_jobs", "mcp:amap/maps_weather", "my_tools:stock", "mcp:fs/*", "mcp:fs/*", "mcp:x/a/b"]
    grants = grants_of(names)
    assert grants == (Grant("amap", "maps_weather"), Grant("fs", "*"), Grant("x", "a/b"))
    assert grants[0].covers("amap", "maps_weather")
    assert not grants[0].covers("amap", "maps_geo")
    assert not grants[0].covers("fs", "maps_weather")
    assert grants[1].covers("fs", "anything")


@pytest.mark.parametrize("name", ["mcp:amap", "mcp:", "mcp:/x", "mcp:amap/"])
def test_a_grant_that_names_no_tool_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"mcp:.*/\*"):
        grant_of(name)


# ---- settings


@pytest.mark.parametrize(
    ("name", "entry", "said"),
    [
        ("Amap", {"command": ["x"]}, "名字只能"),
        ("a", {}, "二者取一"),
        ("a", {"command": ["x"], "url": "http://h/mcp"}, "二者取一"),
        ("a", {"url": "http://h/mcp", "env": {"A": "b"}}, "env 只用于"),
        ("a", {"command": ["x"], "headers": {"A": "b"}}, "headers 只用于"),
        ("a", {"command": ["x"], "env": {"A": "b"}}, ""),
        ("a", {"url": "https://h/mcp?key=1", "headers": {"A": "b"}}, ""),
    ],
)
def test_keys_that_do_not_go_together_are_told(name: str, entry: dict[str, Any], said: str) -> None:
    problem = problem_of(name, McpServerSettings.model_validate(entry))
    assert (said in problem) if said and problem else problem is None


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "example.com/mcp"},
        {"url": "http://h h/mcp"},
        {"url": "http://[::1/mcp"},
        {"headers": {"A b": "c"}},
        {"headers": {"Authorization": "Bearer CANARY\r\nX: y"}},
        {"headers": {"Authorization": "CANARY 密钥"}},
        {"env": {"A=B": "CANARY"}},
        {"env": {"A": "CANARY\0"}},
        {"command": [" "]},
        {"timeout": "0s"},
    ],
)
def test_values_that_cannot_be_used_are_refused_without_being_shown(entry: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        McpServerSettings.model_validate(entry)
    assert "CANARY" not in str(caught.value)


def test_nothing_of_an_entry_is_shown() -> None:
    entry = {"command": ["npx", "--key=CANARY"], "env": {"KEY": "CANARY"}}
    address = {"url": "http://h/mcp?key=CANARY", "headers": {"X": "CANARY"}}
    for each in (entry, address):
        settings = McpServerSettings.model_validate(each)
        assert "CANARY" not in repr(settings) + str(settings)


# ---- tools


def test_a_tool_is_described_within_bounds() -> None:
    schema = {"$schema": "x", "type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    tool = remote_tool("t", "说明\0" + "长" * 5000, schema)
    assert tool is not None
    assert len(tool.description) == MOST_DESCRIPTION
    assert "\0" not in tool.description
    assert tool.parameters == {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert remote_tool("t", None, {}) is not None
    assert remote_tool("t", " ", {}).description == "t"  # type: ignore[union-attr]
    assert remote_tool("t", "", {"type": "array"}).parameters["type"] == "object"  # type: ignore[union-attr]


def test_a_tool_beyond_all_bounds_is_not_offered() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    assert remote_tool("t", "", {"properties": {"a": {"description": "长" * MOST_SCHEMA}}}) is None
    assert remote_tool("t", "", {"properties": deep}) is None
    assert remote_tool("", "", {}) is None
    assert remote_tool("t" * 200, "", {}) is None


# ---- results


def test_a_result_is_its_texts_and_a_note_for_the_rest() -> None:
    pieces = [Piece("text", "一"), Piece("image"), Piece("resource_link", "表：file:///a"), Piece("unknown")]
    assert result_text(pieces) == "一\n（图片，无法显示）\n表：file:///a"
    assert result_text([], {"温度": 3}) == json.dumps({"温度": 3}, ensure_ascii=False)
    assert result_text([Piece("text", "三度")], {"温度": 3}) == "三度"
    assert result_text([]) == ""


@given(st.lists(st.integers(0, MOST_TEXT)))
def test_a_result_is_bounded(sizes: list[int]) -> None:
    text = result_text(Piece("text", "长" * size) for size in sizes)
    assert len(text.replace("\n", "")) <= MOST_TEXT
