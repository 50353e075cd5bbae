"""The entries under `channels`, each read as its kind wants; what concerns contexts is kept apart."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from channels.channel import EntrySettings
from channels.dingtalk.settings import DingTalkSettings
from channels.feishu.settings import FeishuSettings
from channels.wechat.settings import WeChatSettings
from channels.wecom.settings import WeComBotSettings
from gateway.config.model_reader import read_model
from gateway.config.planned_channels import PLANNED, WeComAppSettings
from gateway.config.problems import KeyPath, Problem, close_to
from gateway.config.yaml_source import Document, MapNode, TextNode
from memory.context import ContextOverrides


class WebSettings(EntrySettings):
    """`channels.web`: the web chat of the console."""

    enabled: bool = True


KINDS: Mapping[str, type[EntrySettings]] = {
    "wechat": WeChatSettings,
    "wecom-app": WeComAppSettings,
    "wecom-bot": WeComBotSettings,
    "dingtalk": DingTalkSettings,
    "feishu": FeishuSettings,
    "web": WebSettings,
}
"""What may stand in `kind`; an entry without it is of the kind it is named after."""

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


@dataclass(slots=True)
class Entries:
    """The entries by name, with `kind` filled in, and what each overrides of the context."""

    channels: dict[str, EntrySettings] = field(default_factory=dict)
    context: dict[str, ContextOverrides] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_entries(document: Document) -> Entries:
    """Reads `channels` of the document. The web chat is there, and on, unless it is written otherwise."""
    entries = Entries()
    section = document.root.items.get("channels", MapNode(1))
    if not isinstance(section, MapNode):
        entries.problems.append(document.problem(("channels",), "应为一组「键: 值」；写出渠道，没有就删去这个键"))
        section = MapNode(1)
    for name, node in section.items.items():
        path: KeyPath = ("channels", name)
        if not isinstance(node, MapNode):
            entries.problems.append(document.problem(path, "应为一组「键: 值」；至少写 {enabled: false}"))
        elif not set(name) <= _NAME_CHARACTERS:
            entries.problems.append(document.problem(path, "名字只能由小写字母、数字和 - 组成；请改名"))
        else:
            _read_entry(entries, document, name, node)
    if not any(entry.kind == "web" for entry in entries.channels.values()):
        entries.channels["web"] = WebSettings(kind="web")
    return entries


def _read_entry(entries: Entries, document: Document, name: str, node: MapNode) -> None:
    path: KeyPath = ("channels", name)
    written = node.items.get("kind")
    kind = written.text if isinstance(written, TextNode) else name
    if kind not in KINDS:
        place: KeyPath = (*path, "kind") if written else path
        entries.problems.append(document.problem(place, _no_kind(kind, named=written is None)))
        return
    settings, problems = read_model(KINDS[kind], document, path, node.without("context", "kind"), ("context", "kind"))
    if settings is None:  # still there, for the checks of other things
        on = node.items.get("enabled")
        settings = EntrySettings(enabled=isinstance(on, TextNode) and on.text == "true")
    entries.channels[name] = settings.model_copy(update={"kind": kind})
    entries.problems += problems
    if "context" in node.items:
        context, problems = read_model(ContextOverrides, document, (*path, "context"), node.items["context"])
        entries.problems += problems
        if context:
            entries.context[name] = context


def _no_kind(kind: str, *, named: bool) -> str:
    """A kind that does not exist; `named`: it was taken from the entry's name, for no `kind` is written."""
    usable = [each for each in KINDS if each not in PLANNED]
    if named and (account_of := next((each for each in usable if kind.startswith(f"{each}-")), None)):
        return f"缺少 kind；名字不是渠道的种类时请写明 kind，例如 kind: {account_of}"
    if meant := close_to(kind, KINDS):
        return f"没有这种渠道；是不是 {meant} ？"
    remedy = "请写明 kind" if named else "请改写"
    return f"没有这种渠道；{remedy}，可写：{'、'.join(sorted(usable))}"
