"""What the documentation says is so: keys, commands, routes, links, paths, examples."""

import argparse
import ast
import importlib.util
import os
import re
import shlex
import sys
import tomllib
import typing
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from channels.channel import EntrySettings, Shelf
from channels.message import Admission, InboundMessage
from gateway import commands
from gateway.channel_factory import make_channel
from gateway.command_line import cli
from gateway.command_line.cli import _parser, run_command
from gateway.config.entries import KINDS
from gateway.config.environment import references
from gateway.config.sections import Settings
from gateway.config.texts import DEFAULTS
from gateway.config.unavailable import unavailable
from gateway.console.application import Console
from gateway.server import build_public
from tests.gateway.console.fake_backend import FakeBackend
from tests.shipped import shipped_config

ROOT = Path(__file__).parents[2]
WRITTEN = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "docs/architecture.md",
    "docs/known-gaps.md",
    "workspace/README.md",
)
PAGES = (*WRITTEN, "docs/config.md")
CONFIGS = ("config/gateway.yaml", "config/.env.example")
FOLDERS = r"(?:config|docs|memory|agents|channels|gateway|tests|workspace|\.ci)"
MADE_LATER = ("config/.env", "workspace/console-token", "tests/browser/shots")
"""Named in the documentation, but made by the admin or by the gateway."""


def place_of(page: str) -> Path:
    return shipped_config().parent / page if page.startswith("config/") else ROOT / page


def text_of(page: str) -> str:
    return place_of(page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of one language, without the indentation of a list they stand in."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", text_of(page), re.DOTALL | re.MULTILINE)
    return [re.sub(rf"^{indent}", "", body, flags=re.MULTILINE) for indent, body in found]


def prose(page: str) -> str:
    """A page without code and links' targets."""
    without = re.sub(r"^ *```.*?^ *```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`|\]\([^)]*\)|https?://\S+", "", without)


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table after a heading."""
    after = text_of(page).partition(heading)[2]
    lines = re.search(r"(^ *\|.*\n)+", after, re.MULTILINE)
    assert lines, f"no table after {heading}"
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines[0].splitlines()[2:]]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# ---- configuration


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_config", ROOT / "docs" / "generate_config.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_config_page_is_what_the_settings_say(generator: ModuleType) -> None:
    remedy = "run .venv/bin/python docs/generate_config.py"
    assert text_of("docs/config.md") == generator.page(), remedy


def test_every_key_of_the_shipped_files_is_explained(generator: ModuleType) -> None:
    known = generator.MEANINGS
    shipped = yaml.safe_load(text_of("config/gateway.yaml"))
    paths = {path.replace("models.main.", "models.NAME.") for path in _leaves(shipped) if _is_fixed(path)}
    shared = {f"channels.NAME.{key.rpartition('.')[2]}" for key in known if key.startswith("channels.NAME.")}
    unexplained = {path for path in paths if path not in known and _of_any_channel(path) not in shared}
    assert len(paths) > 80
    assert unexplained == set()


def _leaves(node: object, prefix: str = "") -> Iterator[str]:
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix


def _is_fixed(path: str) -> bool:
    """Not below a name that an admin chose."""
    return not path.startswith("agent.policies.")


def _of_any_channel(path: str) -> str:
    return re.sub(r"^channels\.[^.]+\.", "channels.NAME.", path)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"^#? ?([A-Z_]+)=", text_of("config/.env.example"), re.M))))
def test_every_variable_of_the_sample_env_is_explained(name: str) -> None:
    assert f"`{name}`" in text_of("docs/config.md")


def test_the_sample_env_has_every_variable_of_the_sample_config_and_no_other() -> None:
    sampled = re.findall(r"^(?:# )?([A-Z_]+)=", text_of("config/.env.example"), re.M)
    asked = {name for path in shipped_config().rglob("*.yaml") for name in references(path.read_text("utf-8"))}
    assert sorted(sampled) == sorted(asked - {"NAME"})


@pytest.mark.parametrize("name", DEFAULTS)
def test_every_fixed_text_is_listed(name: str) -> None:
    assert f"| `{name}` |" in text_of("docs/config.md")


# ---- channels


def refused_kinds() -> set[str]:
    channels = {kind: model(kind=kind).model_copy(update={"enabled": True}) for kind, model in KINDS.items()}
    refused = unavailable(Settings(channels=channels))
    return {str(each.path[1]) for each in refused if each.path[0] == "channels" and each.path[2] == "enabled"}


def test_the_readme_says_which_channels_there_are() -> None:
    said = {code(cells[0])[0]: cells[1] for cells in rows("README.md", "# 三桥")}
    assert said == {kind: "还没有" if kind in refused_kinds() else "可用" for kind in KINDS}


NOT_YET = {
    "channels.wecom-app.enabled": "企业微信自建应用",
    "channels.wecom-bot.mode": "企业微信智能机器人的 webhook 模式",
    "channels.dingtalk.card-template-id": "钉钉卡片",
    "memory.long-term": "知识库",
    "memory.long-term.store": "知识库",
    "memory.long-term.uri": "知识库",
    "memory.long-term.embedding": "知识库",
    "memory.long-term.top-k": "知识库",
    "memory.long-term.min-score": "知识库",
    "cluster.enabled": "多实例",
}
"""What a reader is told of each key that does nothing yet."""


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "docs/known-gaps.md"])
def test_pages_name_all_that_is_not_there_yet_and_nothing_else(page: str, generator: ModuleType) -> None:
    said = re.search(r"^还没有：([^。]*)。", text_of(page), re.MULTILINE)
    listed = said[1].split("、") if said else []
    assert generator.not_yet().keys() == NOT_YET.keys()
    assert listed == list(dict.fromkeys(NOT_YET.values()))


# ---- command line


def subcommands() -> dict[str, argparse.ArgumentParser]:
    actions = _parser()._actions
    return next(action.choices for action in actions if isinstance(action, argparse._SubParsersAction))


def test_every_command_and_option_is_in_the_readme() -> None:
    section = text_of("README.md").partition("## 命令行")[2].partition("\n## ")[0]
    for name, parser in subcommands().items():
        assert re.search(rf"`{name}[ `]", section), name
        for action in parser._actions:
            for option in action.option_strings:
                assert re.search(rf"[\[`]{option}[ \]`]", section), f"{name} {option}"


def test_the_readme_tells_of_no_command_that_does_not_exist() -> None:
    named = [each.split()[0] for cells in rows("README.md", "## 命令行") for each in code(cells[0])]
    assert sorted(named) == sorted(subcommands())


def test_commands_that_are_not_there_yet_are_said_not_to_be() -> None:
    planned = set(getattr(cli, "_PLANNED", ()))
    said = {name for cells in rows("README.md", "## 命令行") if cells[1] == "还没有" for name in code(cells[0])}
    assert said == planned
    shipped = re.search(r"^- \*命令行\*：(.*)$", text_of("CHANGELOG.md"), re.MULTILINE)
    assert shipped is not None
    assert set(code(shipped[1])) == subcommands().keys() - planned


def shell_lines() -> Iterator[tuple[str, str]]:
    """Every command that a page shows: in blocks, in code spans, in the systemd unit."""
    for page in PAGES:
        spans = [
            span for span in re.findall(r"`([^`\n]+)`", prose_with_code(page)) if span.startswith(("make ", ".venv"))
        ]
        spans += re.findall(r"`(python -m gateway [^`\n]+)`", prose_with_code(page))
        lines = [line for body in blocks(page, "sh") for line in body.replace("\\\n", " ").splitlines()]
        units = [line for body in blocks(page, "ini") for line in body.splitlines() if line.startswith("ExecStart=")]
        for line in (*spans, *lines, *units):
            yield page, line.strip()


def prose_with_code(page: str) -> str:
    return re.sub(r"^ *```.*?^ *```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)


def test_every_command_that_is_shown_can_be_typed() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*|\.venv/\.\w+):", text_of("Makefile"), re.MULTILINE))
    seen = 0
    for page, line in shell_lines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["make"]:
            assert words[1] in targets, f"{page}: {line}"
        elif "gateway" in words and words[words.index("gateway") - 1] == "-m":
            _parser().parse_args(words[words.index("gateway") + 1 :])
        elif words[:2] == [".venv/bin/python", "-m"]:
            assert importlib.util.find_spec(words[2]), f"{page}: {line}"
        elif words and words[0].startswith(".venv/bin/python"):
            assert (ROOT / words[1]).exists(), f"{page}: {line}"
        else:
            continue
        seen += 1
    assert seen > 15


def test_make_targets_are_all_told() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", text_of("Makefile"), re.MULTILINE)
    assert phony
    assert [code(cells[0])[0] for cells in rows("CONTRIBUTING.md", "## 准备")] == [
        f"make {each}" for each in phony[1].split()
    ]


# ---- commands of users


def test_the_readme_lists_every_command_of_users() -> None:
    table = rows("README.md", "## 用户的命令")
    assert {code(cells[0])[0].split()[0] for cells in table} == {f"/{name}" for name in commands._NAMES}
    for cells in table:
        main = code(cells[0])[0].split()[0].removeprefix("/")
        for spelling in (*code(cells[0]), *code(cells[1])):
            found = commands.parse(spelling)
            assert found is not None, spelling
            assert found.name == main, spelling


def test_the_readme_shows_what_the_start_prints() -> None:
    shown = next(body for body in blocks("README.md", "text") if body.startswith("三桥已启动"))
    printed = text_of("gateway/command_line/serving.py")
    pieces = [piece for piece in re.findall(r"[\u4e00-\u9fff，。：；（）]+", shown) if len(piece) > 3]
    assert len(pieces) > 4
    assert [piece for piece in pieces if piece not in printed] == []


# ---- HTTP


async def accept(message: InboundMessage) -> Admission:
    raise AssertionError("nothing is received here")


def modes(settings: type[EntrySettings]) -> tuple[str, ...]:
    field = settings.model_fields.get("mode")
    return typing.get_args(field.annotation) if field else ()


async def routes() -> set[str]:
    found = set()
    for kind in sorted(KINDS.keys() - refused_kinds()):
        for mode in modes(KINDS[kind]):
            keys = {"kind": kind, "mode": mode, "encoding-aes-key": "a" * 43}
            known = {key: value for key, value in keys.items() if key.replace("-", "_") in KINDS[kind].model_fields}
            channel = make_channel(kind, KINDS[kind].model_validate(known), accept, typing.cast(Shelf, None), str)
            found |= {(route.method, route.path) for route in channel.routes()}
            await channel.close()
    backend = FakeBackend()
    apps = (build_public([], lambda: (200, "ok"), 1024), Console(backend, token="t" * 20, host="127.0.0.1").app)
    await backend.close()
    found |= {(each.method, each.resource.canonical) for app in apps for each in app.router.routes() if each.resource}
    return {f"{method} {path}" for method, path in found if method != "HEAD"}


async def test_every_route_is_told_and_no_other() -> None:
    section = text_of("docs/architecture.md").partition("## HTTP")[2]
    told = set(re.findall(r"`((?:GET|POST) /[^`]*)`", section))
    assert told == await routes()


# ---- what pages name


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)\s]+)\)", text_of(page)):
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, target


@pytest.mark.parametrize("page", PAGES)
def test_paths_that_are_named_exist(page: str) -> None:
    assert missing(re.findall(rf"`({FOLDERS}/[\w./-]*)`", text_of(page), re.A)) == []


@pytest.mark.parametrize("file", CONFIGS)
def test_paths_that_comments_name_exist(file: str) -> None:
    comments = "\n".join(re.findall(r"(?:^| )#(.*)", text_of(file), re.MULTILINE))
    assert missing(re.findall(rf"(?<![\w./-]){FOLDERS}/[\w./-]*", comments, re.A)) == []


def missing(named: list[str]) -> list[str]:
    return [path for path in named if path not in MADE_LATER and "NAME" not in path and not place_of(path).exists()]


def test_the_layers_of_gateway_are_those_that_are_checked() -> None:
    contracts = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each.get("containers") == ["gateway"])
    assert next(body for body in blocks("docs/architecture.md", "text") if body.startswith("__main__")) == "".join(
        f"{layer}\n" for layer in layers
    )


def distributions(listed: list[str]) -> list[str]:
    return re.findall(r"^[\w.-]+", "\n".join(listed), re.MULTILINE)


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    table = rows("CONTRIBUTING.md", "## 依赖")
    assert [code(cells[0])[0] for cells in table] == distributions(project["dependencies"])
    others = text_of("CONTRIBUTING.md").partition("\n测试：")[2].partition("\n## ")[0]
    extras = [each for extra in project["optional-dependencies"].values() for each in extra]
    assert set(code(others)) == set(distributions(extras))


def normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def imported(*folders: str) -> dict[str, set[str]]:
    """What these folders import of others: each module's top name and the distributions it may come from."""
    found: set[str] = set()
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    origins = metadata.packages_distributions()
    foreign = found - sys.stdlib_module_names - {"memory", "agents", "channels", "gateway", "tests"}
    return {name: {normal(each) for each in origins.get(name, [name])} for name in foreign}


def test_every_import_is_declared_or_comes_with_what_is() -> None:
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    extras = project["optional-dependencies"]
    own = {normal(each) for each in distributions([*project["dependencies"], *extras["mcp"]])}
    all_of_them = own | {normal(each) for extra in extras.values() for each in distributions(extra)}
    table = rows("CONTRIBUTING.md", "随它们而来")
    told = {normal(name): normal(code(cells[1])[0]) for cells in table for name in code(cells[0])}
    carried = set()
    for declared, folders in ((own, ("memory", "agents", "channels", "gateway")), (all_of_them, ("tests", "docs"))):
        undeclared = {name: origins for name, origins in imported(*folders).items() if not origins & declared}
        assert [name for name, origins in undeclared.items() if not any(told.get(o) in declared for o in origins)] == []
        carried |= {origin for origins in undeclared.values() for origin in origins}
    assert carried == told.keys()
    for name, parent in told.items():
        assert name in {normal(each) for each in distributions(metadata.requires(parent) or [])}, f"{parent}: {name}"


@pytest.mark.parametrize("page", WRITTEN)
def test_chinese_and_latin_stand_apart(page: str) -> None:
    touching = re.findall(r".{0,8}(?:[\u4e00-\u9fff][A-Za-z0-9]|[A-Za-z0-9][\u4e00-\u9fff]).{0,8}", prose(page))
    assert touching == []


# ---- the example of the window


def test_the_readme_shows_the_real_window(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    conversation = "uu3r7qbo6l6i3:feishu:b759cea3338c:0:general-agent"
    folder = tmp_path / "conversations" / "uu3r7qbo6l6i3"
    folder.mkdir(parents=True)
    file = next(body for body in blocks("README.md", "yaml") if body.startswith("- user"))
    (folder / "chat-feishu-b759cea3338c-0-general-agent.yaml").write_text(file, "utf-8")
    mask = os.umask(0o077)
    try:
        result = run_command(["window", conversation, "--config", str(shipped_config()), "--workspace", str(tmp_path)])
    finally:
        os.umask(mask)
    shown = [body for body in blocks("README.md", "text") if body.startswith("模型会看到")]
    assert result == 0
    assert capsys.readouterr().out.partition("\n\n")[2] == shown[0]


def test_the_metrics_are_where_the_readme_sends_prometheus() -> None:
    console = yaml.safe_load(text_of("config/gateway.yaml"))["console"]
    place = f"{console['host']}:{console['port']}"
    (job,) = next(yaml.safe_load(b) for b in blocks("README.md", "yaml") if b.startswith("scrape"))["scrape_configs"]
    assert job["static_configs"] == [{"targets": [place]}]
    assert job["authorization"]["type"] == "Bearer"
    assert f"`http://{place}/metrics`" in text_of("README.md")
