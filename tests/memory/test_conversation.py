"""Ids: golden values, and that different people, chats and agents never share one."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from memory.conversation import CHANNELS, ConversationId, InvalidId, LaneKey, session_id, shared_group_id, user_id
from tests.memory.pool import examples

TEXT = st.text(max_size=12) | st.sampled_from(
    ["a:b", "b:c", "../../etc/x", ".", "CON", "a\0b", "好" * 86, "$:LWCP_v1:$Ab/Cd+Ef=="]
)


def lane(user: str = "u1", chat: str = "c1", group: bool = False) -> LaneKey:
    return LaneKey(user_id("web", "web", user), "web", session_id("web", "web", chat), group)


def test_golden_values() -> None:
    assert user_id("feishu", "cli_a1", "ou_b2") == "uu3r7qbo6l6i3"
    assert session_id("feishu", "cli_a1", "oc_c3") == "b759cea3338c"
    assert user_id("wechat", "wx1", "oÜ:/=好") == "ueyvbddhftr73"


def test_a_group_is_no_person() -> None:
    assert shared_group_id("web", "web", "x")[0] == "g"
    assert shared_group_id("web", "web", "x")[1:] != user_id("web", "web", "x")[1:]


def test_equal_tails_of_platform_ids() -> None:
    assert session_id("dingtalk", "d", "cidAAAA/D2th61w=") != session_id("dingtalk", "d", "cidBBBB/D2th61w=")


@examples(300)
@given(st.tuples(TEXT, TEXT, TEXT, TEXT), st.tuples(TEXT, TEXT, TEXT, TEXT))
def test_different_parts_give_different_ids(one: tuple[str, ...], two: tuple[str, ...]) -> None:
    assert (session_id(*one) == session_id(*two)) == (one == two)
    assert (user_id(*one[:3]) == user_id(*two[:3])) == (one[:3] == two[:3])


CONVERSATIONS = st.builds(
    ConversationId,
    st.builds(
        lambda kind, user, channel, chat, group: LaneKey(
            kind(channel, "acc", user), channel, session_id(channel, "acc", chat), group
        ),
        st.sampled_from([user_id, shared_group_id]),
        TEXT,
        st.sampled_from(CHANNELS),
        TEXT,
        st.booleans(),
    ),
    st.from_regex(r"[a-z0-9][a-z0-9-]{0,47}", fullmatch=True),
)


@examples(300)
@given(CONVERSATIONS, CONVERSATIONS)
def test_ids_and_paths_name_one_conversation(one: ConversationId, two: ConversationId) -> None:
    assert ConversationId.parse(str(one)) == one
    assert LaneKey.parse(str(one.lane)) == one.lane
    assert ConversationId.of_file(one.lane.user, one.file_name) == one
    paths = {(c.lane.user, c.file_name) for c in (one, two)}
    assert len({str(one), str(two)}) == len(paths) == len({one, two})
    assert "/" not in one.file_name
    assert len(one.file_name) < 120


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "../../etc/passwd",
        "u:web:x:0:a",
        f"{lane()}:",
        f"{lane()}:A",
        f"{lane()}:a/b",
        f"{lane()}:a\n",
        f" {lane()}:a",
    ],
)
def test_no_other_text_is_an_id(text: str) -> None:
    with pytest.raises(InvalidId):
        ConversationId.parse(text)


@pytest.mark.parametrize(
    "name", ["", "chat-web-b759cea3338c-0-a.yaml.bak", ".chat-web-b759cea3338c-0-a.yaml.new", "notes.txt"]
)
def test_no_other_name_is_a_conversation_file(name: str) -> None:
    with pytest.raises(InvalidId):
        ConversationId.of_file("uu3r7qbo6l6i3", name)


def test_agents_and_groups_have_their_own_files() -> None:
    names = {lane(group=group).with_agent(agent).file_name for group in (False, True) for agent in ("a", "b")}
    assert len(names) == 4
