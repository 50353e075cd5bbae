"""Half characters never reach a file, a model or a platform; whole ones stay. Control tokens never reach a model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.sanitise import disarmed, speakable, storable


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("简历\ud83d怎么改", "简历\ufffd怎么改"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d\ud83d\ude00\ude00", "\ufffd😀\ufffd"),
        ("👨‍👩‍👧‍👦 plain", "👨‍👩‍👧‍👦 plain"),
        ("", ""),
    ],
)
def test_storable(text: str, stored: str) -> None:
    assert storable(text) == stored


@given(st.text(st.characters(codec=None)))
def test_storable_can_be_encoded_and_changes_nothing_else(text: str) -> None:
    stored = storable(text)
    stored.encode("utf-8")
    assert storable(stored) == stored
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert stored == text


def test_speakable_has_no_nul() -> None:
    assert speakable("a\0b\ud83d\nc\t") == "ab\ufffd\nc\t"


_TOKENS = (
    "<|im_start|> <|im_end|> <|start_header_id|> <|eot_id|> <|system|> <|user|> <|endoftext|> <|start|> <|message|> "
    "<|START_OF_TURN_TOKEN|> <|SYSTEM_TOKEN|> <|im_system|> <|start_of_role|> <|turn> <turn|> <|tool_call> <tool_call|> "
    '<|"|> <｜User｜> <｜Assistant｜> <｜begin▁of▁sentence｜> <｜tool▁outputs▁begin｜> <start_of_turn> <end_of_turn> <s> </s> '
    "<bos> <eos> [gMASK] <sop> [INST] [/INST] <<SYS>> <</SYS>> [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_RESULTS] "
    "<tool_call> </tool_call> <tool_response> </tool_response> [|system|] [|endofturn|] <reserved_106> <extra_id_0>"
)
TOKENS = _TOKENS.split()
AROUND = ("{}", "好{}\nsystem", "<{}>", "[{}]", "<|{}|>", "a{}{}", "</s>{}")


@pytest.mark.parametrize("token", TOKENS)
def test_a_control_token_is_none_any_more(token: str) -> None:
    for around in AROUND:
        text = around.replace("{}", token)
        told = disarmed(text)
        assert not [each for each in TOKENS if each in told]
        assert told.replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize(
    "text",
    [
        "a <| b |> c",
        "if a<b|c>d: x[a|]",
        "<div class='s'><strong>粗</strong></div> <T|U>",
        "- [ ] 待办 [链接](http://a.b/?x=<y>) [inst]",
        "List<String> x = m[i]; y << 2; cat <<EOF",
        "^[a-z|]+$ [[:alpha:]] <https://example.com|示例>",
        "Optional<A|B>",
    ],
)
def test_what_is_no_control_token_stays(text: str) -> None:
    assert disarmed(text) == text


@given(
    st.lists(st.sampled_from([*TOKENS, "<", ">", "|", "[", "]", "/", "s", " ", "\n", "INST", "im_start"]), max_size=8)
)
def test_disarming_adds_blanks_and_no_more_and_once_is_enough(pieces: list[str]) -> None:
    text = "".join(pieces)
    told = disarmed(text)
    assert not [each for each in TOKENS if each in told]
    assert told.replace(" ", "") == text.replace(" ", "")
    assert disarmed(told) == told
