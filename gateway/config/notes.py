"""What is allowed and yet probably not meant: one line each, said by `check` and at the start."""

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from agents.model import ModelSettings
from gateway.config.environment import references, unused
from gateway.config.explanations import quoted
from gateway.config.problems import shown
from gateway.config.sections import Settings
from gateway.config.token_strength import is_strong
from gateway.config.yaml_source import Document, ListNode, TextNode


def token_note(settings: Settings) -> tuple[str, ...]:
    """A console token so short that it might be guessed. What holds its place is not named."""
    token = settings.console.token.get_secret_value()
    if not settings.console.enabled or not token or is_strong(token):
        return ()
    return (
        "console.token 太短或太单调，容易被猜中，别人猜错太多时自己也要等一分钟；请写至少 16 个随机字符，或留空由网关生成",
    )


def model_notes(settings: Settings, document: Document, variables: Mapping[str, str]) -> tuple[str, ...]:
    """Models at another provider than the default one that are left at the default name: few others have that model."""
    default, notes = ModelSettings(), []
    for name, model in settings.models.items():
        host = urlsplit(model.base_url).hostname
        if model.provider != "openai" or host == urlsplit(default.base_url).hostname or model.model != default.model:
            continue
        node = document.node(("models", name, "model"))
        lacking = (
            [each for each in references(node.written) if not variables.get(each)] if isinstance(node, TextNode) else []
        )
        if node is None or lacking:
            remedy = f"设置 {'、'.join(lacking)}" if lacking else f"写 models.{name}.model"
            notes.append(
                f"models.{name}：base-url 是 {host}，却没有填模型的名字，会用默认的 {default.model}；"
                f"请{remedy}，名字从服务商的文档抄"
            )
    return tuple(notes)


def wide_notes(documents: Mapping[str, Document]) -> tuple[str, ...]:
    """Full-width characters in agents' files that are text to YAML: commas between keywords, a bar before a prompt."""
    notes = []
    for document in documents.values():
        prompt = document.node(("prompt",))
        if isinstance(prompt, TextNode) and prompt.plain and prompt.written.startswith("｜"):
            notes.append(f"{document.file}:{prompt.line}：prompt 后面是全角的「｜」，各行会并成一行；请改成半角的 |")
        node = document.node(("intents", "keywords"))
        for item in node.items if isinstance(node, ListNode) else ():
            if isinstance(item, TextNode) and item.plain and re.search("[，、；]", item.text):
                notes.append(
                    f"{document.file}:{item.line}：intents.keywords 的{quoted(item.written)}算一个词；"
                    "要分成几个，请用半角逗号加空格"
                )
    return tuple(notes)


def dotenv_notes(
    dotenv: Path, names: Iterable[str], asked: Collection[str], variables: Mapping[str, str]
) -> tuple[str, ...]:
    """Names in the `.env` that the config does not ask for, where one that it asks for has no value and reads alike."""
    found = unused(names, asked, variables)
    return tuple(f"{shown(dotenv)}：{name} 没有用到；是不是 {meant} ？" for name, meant in found.items())
