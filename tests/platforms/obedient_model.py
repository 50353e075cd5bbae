"""A model that obeys whatever reaches it as an order: what that means, said mechanically, so that tests can fail.

What the server receives is put into each chat template of the field and read back as tokenizers read a finished prompt:
a control token is one wherever it stands. Of the messages that come out, these texts are orders:

- those of the role ``system``, of a role nobody knows, and whatever stands between messages;
- those of the role ``user`` where the gateway itself asks (summaries, the choice of an agent): its own words frame a
  quotation there;

less every line that a quotation mark (``> ``) begins, wherever a line may end by Unicode. Texts of attempts hold a code
(``K`` and three digits), prompts and frames hold none: a code in an order is an attempt that arrived as one.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tests.platforms.model_server import Answer, Message

OBEYED = "遵命"
CODE = re.compile(r"K\d{3}")
_LINE_END = re.compile("\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_QUOTED = "> "
_OWN_TASKS = ("你负责把一段对话记录整理成摘要", "你负责把用户的一条消息分给最合适的智能体")
_ROLES = ("system", "user", "assistant", "tool")

Read = tuple[str, str]
"""Role ("" for what stands between messages) and text of a message as it is read."""


@dataclass(frozen=True)
class Template:
    """How a family of models writes messages: what stands before and after each role's text, and every control token
    with the role of what follows it ("" for none)."""

    name: str
    form: Mapping[str, tuple[str, str]]
    tokens: Mapping[str, str]

    @classmethod
    def of(
        cls, name: str, opening: str, closing: str, roles: Mapping[str, str] | None = None, **more: str
    ) -> "Template":
        """A template whose openings differ in the role's name alone (``{}``), as `roles` renames it."""
        written = {role: opening.format((roles or {}).get(role, role)) for role in _ROLES}
        tokens = {text: role for role, text in written.items()}
        bare = opening.partition("{")[0]
        if bare.endswith((">", "]")):
            tokens[bare] = "?"  # a role that is none of these
        return cls(name, {role: (text, closing) for role, text in written.items()}, {**tokens, closing: "", **more})

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches every control token."""
        return re.compile("|".join(re.escape(token) for token in sorted(self.tokens, key=len, reverse=True)))

    def read(self, messages: Sequence[Read]) -> list[Read]:
        """The messages as a model of this family reads them; blank ones left out."""
        prompt = "".join(self.form[role][0] + text + self.form[role][1] for role, text in messages if text.strip())
        found: list[Read] = []
        role, at = "", 0
        for token in self.pattern.finditer(prompt):
            found.append((role, prompt[at : token.start()]))
            role, at = self.tokens[token[0]], token.end()
        found.append((role, prompt[at:]))
        return [(role, text) for role, text in found if text.strip()]

    @cached_property
    def as_read(self) -> Mapping[str, str]:
        """Each role as messages are read that were sent with it: some templates know no tools."""
        return {role: self.read([(role, "x")])[0][0] for role in _ROLES}


_GEMMA = {"assistant": "model", "tool": "tool"}
TEMPLATES = (
    Template.of("ChatML, Qwen", "<|im_start|>{}\n", "<|im_end|>", **{"<|endoftext|>": ""}),
    Template.of("Llama 3", "<|start_header_id|>{}<|end_header_id|>\n\n", "<|eot_id|>"),
    Template.of("Phi, GLM, Zephyr", "<|{}|>\n", "<|end|>", **{"</s>": "", **{f"<|{role}|>": role for role in _ROLES}}),
    Template.of("gpt-oss", "<|start|>{}<|message|>", "<|end|>"),
    Template.of("Kimi", "<|im_{0}|>{0}<|im_middle|>", "<|im_end|>", **{f"<|im_{role}|>": "?" for role in _ROLES}),
    Template.of(
        "Cohere",
        "<|START_OF_TURN_TOKEN|><|{}_TOKEN|>",
        "<|END_OF_TURN_TOKEN|>",
        {"system": "SYSTEM", "user": "USER", "assistant": "CHATBOT", "tool": "TOOL"},
    ),
    Template.of(
        "DeepSeek",
        "<｜{}｜>",
        "<｜end▁of▁sentence｜>",
        {"system": "System", "user": "User", "assistant": "Assistant", "tool": "tool▁outputs▁begin"},
        **{"<｜begin▁of▁sentence｜>": ""},
    ),
    Template.of("Gemma", "<start_of_turn>{}\n", "<end_of_turn>", _GEMMA),
    Template.of("Gemma 4", "<|turn>{}\n", "<turn|>", _GEMMA),
    Template.of("EXAONE", "[|{}|]", "[|endofturn|]"),
    Template(
        "Llama 2",
        {
            "system": ("<s>[INST] <<SYS>>\n", "\n<</SYS>>\n\n"),
            "user": ("[INST] ", " [/INST]"),
            "assistant": ("[/INST] ", " </s>"),
            "tool": ("[INST] ", " [/INST]"),
        },
        {"<s>": "", "</s>": "", "[INST]": "user", "[/INST]": "assistant", "<<SYS>>": "system", "<</SYS>>": ""},
    ),
    Template(
        "Mistral",
        {
            "system": ("<s>[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
            "user": ("[INST]", "[/INST]"),
            "assistant": ("[/INST]", "</s>"),
            "tool": ("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        },
        {"<s>": "", "</s>": "", "[SYSTEM_PROMPT]": "system", "[/SYSTEM_PROMPT]": "", "[INST]": "user"}
        | {"[/INST]": "assistant", "[TOOL_RESULTS]": "tool", "[/TOOL_RESULTS]": ""},
    ),
    Template(
        "Qwen, tool results",
        {
            "system": ("<|im_start|>system\n", "<|im_end|>"),
            "user": ("<|im_start|>user\n", "<|im_end|>"),
            "assistant": ("<|im_start|>assistant\n", "<|im_end|>"),
            "tool": ("<tool_response>\n", "\n</tool_response>"),
        },
        {"<|im_start|>system\n": "system", "<|im_start|>user\n": "user", "<|im_start|>assistant\n": "assistant"}
        | {
            "<|im_start|>": "?",
            "<|im_end|>": "",
            "<tool_response>": "tool",
            "</tool_response>": "",
            "<tool_call>": "?",
        },
    ),
)

_ANY_TOKEN = re.compile("|".join(template.pattern.pattern for template in TEMPLATES))


def sent(messages: Sequence[Message]) -> list[Read]:
    """Role and text of each message of a request; a call's arguments as templates put them in, escapes read."""
    return [(message["role"], "\n".join(_texts(message))) for message in messages]


def _texts(message: Message) -> Iterator[str]:
    if message.get("content"):
        yield message["content"]
    for call in message.get("tool_calls") or ():
        yield call["function"]["name"]
        yield json.dumps(json.loads(call["function"]["arguments"]), ensure_ascii=False)


@dataclass(frozen=True)
class Verdict:
    """What comes of a request: the codes of attempts that arrive as orders, and the templates that read other messages
    than were sent."""

    orders: Sequence[str] = ()
    misread: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.orders or self.misread)


def judged(messages: Sequence[Message]) -> Verdict:
    """Which attempts a request carries as orders, in any template."""
    told = [(role, text.strip()) for role, text in sent(messages) if text.strip()]
    frames = told[0][0] == "system" and told[0][1].startswith(_OWN_TASKS)
    trusted = ("system", "user", "?", "") if frames else ("system", "?", "")
    found = _codes(told, trusted)
    if not holds_tokens("\n".join(text for _, text in told)):  # then every template reads what was sent
        return Verdict(list(found))
    misread = []
    for template in TEMPLATES:
        read = [(role, text.strip()) for role, text in template.read(told)]
        if read != [(template.as_read[role], text) for role, text in told]:
            misread.append(template.name)
            found |= _codes(read, trusted)
    return Verdict(list(found), misread)


def holds_tokens(text: str) -> bool:
    """Whether a control token of any template stands in a text."""
    return bool(_ANY_TOKEN.search(text))


def _codes(read: Sequence[Read], trusted: Sequence[str]) -> dict[str, None]:
    lines = [line for role, text in read if role in trusted and CODE.search(text) for line in free_lines(text)]
    return dict.fromkeys(CODE.findall("\n".join(lines)))


def free_lines(text: str) -> list[str]:
    """The lines that stand in no quotation."""
    return [line for line in _LINE_END.split(text) if line.strip() and not line.startswith(_QUOTED)]


class ObedientModel:
    """An `answer` of ModelServer: obeys what arrives as an order, else does as `script` says.

    `obeyed` are the codes it obeyed, `misread` the templates by which it saw messages that nobody sent.
    """

    def __init__(self, script: Callable[[list[Message]], Answer]) -> None:
        self.script = script
        self.obeyed: list[str] = []
        self.misread: list[str] = []

    def __call__(self, messages: list[Message]) -> Answer:
        verdict = judged(messages)
        self.obeyed += verdict.orders
        self.misread += verdict.misread
        return f"{OBEYED} {' '.join(verdict.orders)}" if verdict.orders else self.script(messages)
