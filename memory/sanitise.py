"""Texts that can be stored, sent and told to a model: half characters become U+FFFD, NUL goes, no control token is left.

All else stays.
"""

import re

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LONE = re.compile("[\ud800-\udfff]")

# What chat templates mark roles, turns and tool results with. ChatML, Qwen, Llama 3, Phi, GLM, Granite, gpt-oss, Cohere:
# <|…|>; Gemma 4: <|turn> <turn|>; DeepSeek: <｜…｜>; EXAONE: [|…|]; Gemma: <start_of_turn>; Mistral, Llama 2: [INST]
# [SYSTEM_PROMPT] [TOOL_RESULTS] <<SYS>>; Qwen: <tool_response>; many: <s> </s> <bos> <eos>.
_CONTROL = re.compile(
    r"<(?=[|｜][^\s<>|｜]{1,64}[|｜]?>|/?[^\s<>|｜/]{1,64}[|｜]>"
    r"|</?SYS>>|/?(?:s|bos|eos|sop|eop|pad|unk)>|/?(?:start|end|begin|beginning)_of_[a-z_]{1,40}>"
    r"|/?tool_(?:call|response)s?>|extra_id_\d+>|reserved_\d+>|seed:[a-z_]{1,24}>)"
    r"|\[(?=\|[^\s\[\]|]{1,64}\|\]"
    r"|/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS|TOOL_CONTENT|[gs]MASK|UNUSED_TOKEN_\d+)\])"
)


def _joined(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16", "surrogatepass").decode("utf-16")


def storable(text: str) -> str:
    """The text as UTF-8 can carry it: pairs of surrogates become the one character they spell, lone ones U+FFFD."""
    if text.isascii() or not _LONE.search(text):
        return text
    return _LONE.sub("\ufffd", _PAIR.sub(_joined, text))


def speakable(text: str) -> str:
    """A model's answer as it may be shown and stored: as `storable`, and without NUL."""
    return storable(text).replace("\0", "")


def disarmed(text: str) -> str:
    """The text with a blank inside everything that a chat template may take for one of its control tokens.

    Servers look for those tokens in the finished prompt: llama.cpp reads ``<|im_start|>`` in a user's text as the
    beginning of a message of its own, in whatever role it names (measured in tests/real_model).
    """
    if "<" not in text and "[" not in text:
        return text
    return _CONTROL.sub(r"\g<0> ", text)
