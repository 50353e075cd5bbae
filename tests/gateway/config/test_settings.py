"""The config from outside: files in; settings, or every problem with its line, out."""

import contextlib
import errno
import io
import os
import re
import shutil
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies

from channels.feishu.settings import FeishuSettings
from gateway.command_line.check import check
from gateway.config.entries import KINDS
from gateway.config.environment import BadReference, read_dotenv, substitute
from gateway.config.planned_channels import PLANNED
from gateway.config.problems import ConfigProblems, Problem
from gateway.config.sections import GatewayFile, Settings
from gateway.config.settings import load_settings
from gateway.config.texts import DEFAULTS, Texts, placeholders
from gateway.config.yaml_source import MapNode, TextNode, parse
from memory.settings import SettingsModel
from tests.shipped import shipped_config

SHIPPED = shipped_config()
AGENT = "prompt: 你是助手\n"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Makes a config folder: the gateway's file, agents by name (one good one by default), `.env`."""

    def make(gateway: str = "timezone: Asia/Shanghai\n", dotenv: str | None = None, **agents: str) -> Path:
        folder = tmp_path / "config"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "agents").mkdir(parents=True)
        (folder / "gateway.yaml").write_text(gateway, encoding="utf-8")
        for name, text in (agents or {"general_agent": AGENT}).items():
            (folder / "agents" / f"{name.replace('_', '-')}.yaml").write_text(text, encoding="utf-8")
        if dotenv is not None:
            (folder / ".env").write_text(dotenv, encoding="utf-8")
        return folder

    return make


def problems(folder: Path, environ: Mapping[str, str] | None = None) -> list[str]:
    """The problems as lines, without the folder's own path."""
    with pytest.raises(ConfigProblems) as caught:
        load_settings(folder, environ or {})
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def the_problem(folder: Path, environ: Mapping[str, str] | None = None) -> str:
    found = problems(folder, environ)
    assert len(found) == 1, found
    return found[0]


# ---------------------------------------------------------------- the shipped config
def test_shipped_config_is_good_and_holds_the_defaults() -> None:
    out = io.StringIO()
    assert check(SHIPPED, {}, out) == 0, out.getvalue()
    assert out.getvalue().startswith("配置没有问题\n")
    shipped, default = load_settings(SHIPPED, {}), Settings()
    for name in GatewayFile.model_fields.keys() - {"models", "agent"}:
        assert getattr(shipped, name) == getattr(default, name), name
    assert shipped.agent.context == default.agent.context
    assert shipped.agent.default in shipped.agents
    assert shipped.models["main"].model_copy(update={"provider": "openai"}) == default.models["main"]
    assert {name for name, entry in shipped.channels.items() if entry.enabled} == {"web"}


def keys(model: type[SettingsModel]) -> set[str]:
    """The dotted keys of a model, as written."""
    found = set()
    for name, info in model.model_fields.items():
        key = info.alias or name
        found.add(key)
        if isinstance(info.annotation, type) and issubclass(info.annotation, SettingsModel):
            found |= {f"{key}.{inner}" for inner in keys(info.annotation)}
    return found


def test_every_key_of_the_models_occurs_in_the_shipped_config() -> None:
    root = parse((SHIPPED / "gateway.yaml").read_text(encoding="utf-8"), "gateway.yaml", {}).root

    def written(node: MapNode) -> set[str]:
        found = set(node.items)
        for key, item in node.items.items():
            found |= {f"{key}.{inner}" for inner in written(item)} if isinstance(item, MapNode) else set()
        return found

    assert keys(GatewayFile) <= written(root)
    entries = root.items["channels"]
    assert isinstance(entries, MapNode)
    assert set(entries.items) == set(KINDS)
    common = keys(KINDS["web"]) | {"context"}
    for name, model in KINDS.items():
        entry = entries.items[name]
        assert isinstance(entry, MapNode)
        assert keys(model) - common <= set(entry.items), name
    feishu = entries.items["feishu"]
    assert isinstance(feishu, MapNode)
    assert common <= set(feishu.items), "what every entry takes is shown at one of them"


# ---------------------------------------------------------------- what is read
def test_values_are_the_very_text_written_where_text_is_wanted(write: Write) -> None:
    folder = write(
        "console: {token: 123456}\n"
        "models: {main: {api-key: 0123, model: no, base-url: 'http://m/v1'}}\n"
        "admins: [0123, 12:30, no, 1_2, 2026-01-01, ~]\n"
        "texts: {busy: on}\n"
        "channels: {feishu-1: {kind: feishu, app-id: 0x1F, app-secret: 1e3}}\n"
    )
    got = load_settings(folder, {})
    assert got.console.token.get_secret_value() == "123456"
    assert got.models["main"].api_key.get_secret_value() == "0123"
    assert got.models["main"].model == "no"
    assert got.admins == ("0123", "12:30", "no", "1_2", "2026-01-01", "~")
    assert got.texts["busy"] == "on"
    entry = got.channels["feishu-1"]
    assert isinstance(entry, FeishuSettings)
    assert (entry.kind, entry.app_id, entry.app_secret.get_secret_value()) == ("feishu", "0x1F", "1e3")


def test_environment_fills_in_and_is_never_read_as_yaml(write: Write) -> None:
    folder = write(
        "console:\n  token: ${TOKEN}\nserver:\n  port: ${PORT:-9000}\n  host: ${HOST:-h}\nadmins: ['a$${b}']\n"
        "channels:\n  web:\n    enabled: ${WEB:-true}\n",
        dotenv="# comment\nTOKEN='a: b # c'\nexport HOST=from-file  # why\nPORT=9001\n",
    )
    got = load_settings(folder, {"HOST": "from-process", "PORT": ""})
    assert got.console.token.get_secret_value() == "a: b # c"
    assert got.server.port == 9000, "the process's own variable wins, and an empty one takes the default"
    assert got.server.host == "from-process"
    assert got.admins == ("a${b}",)
    assert load_settings(folder, {}).server.port == 9001
    assert not load_settings(folder, {"WEB": "false"}).channels["web"].enabled
    inject = load_settings(folder, {"TOKEN": "x\nadmins: [evil]"})
    assert inject.admins == ("a${b}",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1", {"A": "1"}),
        ("A = 1 # c", {"A": "1"}),
        ("A=a#b", {"A": "a#b"}),
        ('A="x\\n\\"y\\" # z"  # c', {"A": 'x\n"y" # z'}),
        ("A='$x\\n'", {"A": "$x\\n"}),
        ("A=", {"A": ""}),
        ("A=#c", {"A": ""}),
        ("\n# c\nexport A=1\r\n", {"A": "1"}),
    ],
)
def test_dotenv_forms(text: str, expected: dict[str, str]) -> None:
    read = read_dotenv(text)
    assert read.values == expected
    assert read.bad_lines == ()


def test_bad_dotenv_lines_are_named_without_their_text(write: Write) -> None:
    assert read_dotenv("A=1\nSECRETCANARY\n1A=2\nB='x\n").bad_lines == (2, 3, 4)
    line = the_problem(write(dotenv="A=1\nSECRETCANARY\n"))
    assert line.startswith(".env:2: ")
    assert "SECRETCANARY" not in line


def test_context_masking_and_model_of_an_agent(write: Write) -> None:
    folder = write(
        "models: {main: {provider: demo}, small: {provider: demo}}\n"
        "agent:\n  default: b\n  context: {window: {max-messages: 30}}\n"
        "  policies: {short: {window: {max-messages: 6}}}\n"
        "memory: {masking: [phone]}\n"
        "channels: {feishu: {context: {window: {max-messages: 4}}}}\n",
        a=AGENT + "model: small\nmasking: [id-card]\ncontext: {policy: short}\n",
        b=AGENT,
        c=AGENT + "masking: [string:capwords, phone, id-card]\n",
        d=AGENT + "masking: [string:capwords]\n",
    )
    got = load_settings(folder, {})
    caps = [got.context_for(*names).window.max_messages for names in (("a", "web"), ("b", "web"), ("a", "feishu"))]
    assert caps == [6, 30, 4]
    assert (got.model_for("a"), got.model_for("b"), got.model_name("summary")) == ("small", "main", "main")
    assert (got.masking_for("a"), got.masking_for("b")) == (("id-card",), ("phone",))
    assert got.strictest_masking == ("id-card", "phone", "string:capwords")


def test_aliases_and_merge_keys_of_yaml(write: Write) -> None:
    folder = write(
        "models:\n  main: &m {provider: demo, timeout: 5s}\n  other: *m\n  third: {<<: *m, timeout: 6s}\n",
        general_agent=AGENT,
    )
    got = load_settings(folder, {})
    assert got.models["other"] == got.models["main"]
    assert (got.models["third"].timeout, got.models["third"].provider) == (6.0, "demo")


# ---------------------------------------------------------------- what is refused


ALIAS_BOMB = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 4)}]\n" for n in range(9))
"""Nine levels of four aliases each: 350,000 nodes, were they built."""

WRONG = [
    ("server: {port: 70000}", 1, "server.port", "65535"),
    ("server: {port: 0}", 1, "server.port", "不小于 1"),
    ("server: {port: 0808}", 1, "server.port", "前导零"),
    ("server: {port: many}", 1, "server.port", "「many」"),
    ("server: {port: 8e3}", 1, "server.port", "整数"),
    ("server:\n  port:\n", 2, "server.port", "空"),
    ("server:\n", 1, "server", "空"),
    ("server: 8080", 1, "server", "键: 值"),
    ("server: {prot: 8080}", 1, "server.prot", "port"),
    ("server: {max_body_bytes: 8080}", 1, "server.max_body_bytes", "max-body-bytes"),
    ("server: {drain: 15}", 1, "server.drain", "15s"),
    ("server: {host: ''}", 1, "server.host", "空"),
    ("console: {port: 8080}", 1, "console.port", "server.port"),
    ('console: {enabled: "no"}', 1, "console.enabled", "true 或 false"),
    ("console: {enabled: yes}", 1, "console.enabled", "true 或 false"),
    ("console: {enabled: True}", 1, "console.enabled", "true 或 false"),
    ("console: {host: 0.0.0.0}", 1, "console.host", "allow-insecure"),
    ("console: {trusted-proxies: [10.0.0.300]}", 1, "console.trusted-proxies[0]", "IP"),
    ("console: {trusted-proxies: 10.0.0.1}", 1, "console.trusted-proxies", "列表"),
    ("timezone: Asia/Shangai", 1, "timezone", "Asia/Shanghai"),
    ("timezone: /etc/passwd", 1, "timezone", "Asia/Shanghai"),
    ("log: {level: loud}", 1, "log.level", "debug、info、warning、error"),
    ("models: {main: {provider: demo, fallback: [nope]}}", 1, "models.main.fallback[0]", "nope"),
    ("models: {main: {provider: demo, fallback: [main]}}", 1, "models.main.fallback[0]", "自己"),
    ("models: {main: {base-url: api.example.com}}", 1, "models.main.base-url", "http://"),
    ("models: {main: {base-url: 'http://user:pw@m/v1'}}", 1, "models.main.base-url", "用户名和密码；请去掉 @ "),
    ("models: {main: {base-url: 'http://m/v1/chat/completions'}}", 1, "models.main.base-url", "到 /v1"),
    (
        "channels: {feishu: {api-base-url: open.feishu.cn}}",
        1,
        "channels.feishu.api-base-url",
        "应以 http:// 或 https://",
    ),
    ("channels: {wecom-bot: {websocket-url: 'https://x'}}", 1, "channels.wecom-bot.websocket-url", "wss://"),
    ("channels: {feishu-hr: {app-id: x}}", 1, "channels.feishu-hr", "写明 kind，例如 kind: feishu"),
    ("channels: {hotline: {enabled: false}}", 1, "channels.hotline", "写明 kind"),
    (
        "models: {main: {provider: demo, max-output-tokens: 32000}}",
        1,
        "models.main.max-output-tokens",
        "context-tokens",
    ),
    ("models: {other: {model: x}}", 1, "models.other", "api-key"),
    ("models:\n  main: {api-key: [SECRETCANARY]}", 2, "models.main.api-key", "文字"),
    ("agent: {default: no-such}", 1, "agent.default", "no-such"),
    ("agent: {context: {window: {max-messages: 5, keep-recent: 9}}}", 1, "agent.context.window", "keep-recent"),
    ("agent: {context: {summary: {model: nope}}}", 1, "agent.context.summary.model", "nope"),
    ("agent: {policies: {a: {window: {keep-recent: 30}}}}", 1, "agent.policies.a", "keep-recent"),
    ("router: {classify: {model: nope}}", 1, "router.classify.model", "nope"),
    ("memory: {masking: [fone]}", 1, "memory.masking", "fone"),
    ("memory: {long-term: {min-score: .8}}", 1, "memory.long-term.min-score", "0.8"),
    ("texts: {bussy: x}", 1, "texts.bussy", "busy"),
    ("texts: {agent-unknown: '没有 {agnt}'}", 1, "texts.agent-unknown", "{agents}"),
    ("texts: {busy: ' '}", 1, "texts.busy", "空"),
    ("channels: {fieshu: {enabled: false}}", 1, "channels.fieshu", "feishu"),
    ("channels: {x: {kind: fieshu}}", 1, "channels.x.kind", "feishu"),
    ("channels: {Feishu: {kind: feishu}}", 1, "channels.Feishu", "小写"),
    ("channels: {feishu: true}", 1, "channels.feishu", "enabled"),
    ("channels: [web]", 1, "channels", "键: 值"),
    ("channels: {web: {agent: nobody}}", 1, "channels.web.agent", "nobody"),
    ("channels: {web: {contxt: {}}}", 1, "channels.web.contxt", "context"),
    ("channels: {web: {context: {policy: nope}}}", 1, "channels.web.context", "nope"),
    (
        "channels: {web: {context: {window: {max-mesages: 3}}}}",
        1,
        "channels.web.context.window.max-mesages",
        "max-messages",
    ),
    ("channels: {web: {dm-policy: closed}}", 1, "channels.web.dm-policy", "allowlist"),
    ("channels: {web: {enabled: true}, web2: {kind: web}}", 1, "channels.web2", "web"),
    ("prot: 8080", 1, "prot", "没有这个键"),
    ("log: {level: info}\nlog: {level: debug}", 2, "log", "第 1 行"),
    ("log: {level: info,\n  level: debug}", 2, "log.level", "重复"),
    ("console:\n  token: ${NO_SUCH}", 2, "console.token", "NO_SUCH"),
    ("console:\n  token: ${x", 2, "console.token", "${NAME}"),
    ("log:\n\tlevel: info", 2, "", "Tab"),
    ("server:\n  port：8080\n", 2, "server", "全角冒号"),
    ("server:\n  port：8080\n  drain: 15s\n", 2, "", "全角冒号"),
    ("server:\n  host: 127.0.0.1\n  port：8080\nlog: {}\n", 3, "", "全角冒号"),
    ("server:\n  host: 127.0.0.1\n  port：8080\n", 3, "", "全角冒号"),
    ("server:\n  host: 127.0.0.1\n  # why\n  port：8080\n", 4, "", "全角冒号"),
    ("timezone：UTC", 1, "", "全角冒号"),
    ("log: {}\nserver：\n  port: 1\n", 2, "", "全角冒号"),
    ('server:\n  host: "abc\n  port: 80\n# c\nlog:\n  level: "info"\n', 2, "", "引号"),
    ("server:\n  host: 'abc\n  port: 80\nlog: {level: 'info', format: text}\n", 2, "", "引号"),
    ("log: {level: info", 1, "", "右括号"),
    ("timezone: UTC\nlog: {level: info\nserver:\n  port: 1\n", 2, "", "这里开始的"),
    ("server:\n  host: 127.0.0.1\n  port 8080\n  drain: 15s\n", 3, "", "缺少冒号"),
    ("server\n  port: 8080\n", 1, "", "缺少冒号"),
    ("server:\n  port:8080\n  drain: 15s\n", 2, "", "要有一个空格"),
    ("server:\n  port:\u00a08080\n  drain: 15s\n", 2, "", "要有一个空格"),
    ("server:\n  host: 127.0.0.1\n\u3000port: 8080\n  drain: 15s\n", 3, "", "全角空格"),
    ("server:\n  host: 127.0.0.1\n\u00a0\u00a0port: 8080\n  drain: 15s\n", 3, "", "全角空格"),
    ("server:\nhost: 127.0.0.1\n  port: 8080\n", 3, "", "比第 2 行深"),
    ("log: {}\nserver:\n  host: 127.0.0.1 # here\n   port: 8080\n", 4, "", "第 3 行开始的那一层对不齐"),
    ("server:\n    host: 127.0.0.1\n  port: 8080\n", 3, "", "对不齐"),
    ('timezone: UTC\nlog: {level: "info}', 2, "", "引号"),
    ("admins: *SECRETCANARY", 1, "", "加引号"),
    ("timezone: UTC: x", 1, "", "冒号"),
    ("- a", 1, "", "键: 值"),
    ("", 1, "", "空"),
    ("timezone: UTC\n---\nlog: {}", 2, "", "---"),
    ("timezone: UTC\nx: \x07", 2, "", "控制字符"),
    ("? [a]\n: b", 1, "", "名字"),
    ("a: &a [*a]", 1, "", "别名"),
    (ALIAS_BOMB, 1, "", "展开后过大"),
]


@pytest.mark.parametrize(("text", "line", "key", "said"), WRONG)
def test_a_wrong_config_is_named_with_file_line_and_key(
    write: Write, text: str, line: int, key: str, said: str
) -> None:
    found = the_problem(write(text))
    assert found.startswith(f"gateway.yaml:{line}: {key}: " if key else f"gateway.yaml:{line}: "), found
    assert said in found
    assert "SECRETCANARY" not in found
    assert "\n" not in found
    assert re.search(r"；|例如|可写|可选", found), "the remedy is told"


def test_a_full_width_colon_that_is_meant_is_text(write: Write) -> None:
    folder = write("texts: {busy: 稍等：排队中}\nadmins: [a：b]\n", general_agent="prompt:\n  先问：\n  tone：warm\n")
    got = load_settings(folder, {})
    assert (got.texts["busy"], got.admins) == ("稍等：排队中", ("a：b",))
    assert got.agents["general-agent"].prompt == "先问： tone：warm"


@pytest.mark.parametrize(
    ("agent", "line", "said"),
    [
        ("prompt: |\n你是助手\n不要说谎\n", 2, "比它的键缩进"),
        ("prompt:\n  你是助手：\n  规则: 好\n", 3, "在键后面写 |"),
        ("prompt: x\nintents:\n  keywords:\n    -岗位\n", 3, "每行一个「- 值」"),
        ("prompt: **你是助手**\n", 1, "以 * 或 & 开头"),
        ("prompt: |你是助手\n  简短\n", 1, "| 的后面不能有文字"),
        ('prompt: "你是"助手"\n', 1, "整个加上引号"),
        ("prompt: [角色] 你是助手\ndescription: x\n", 1, "整个加上引号"),
    ],
)
def test_a_wrong_agent_is_named_with_its_line(write: Write, agent: str, line: int, said: str) -> None:
    found = the_problem(write(general_agent=agent))
    assert found.startswith(f"agents/general-agent.yaml:{line}: "), found
    assert said in found


def test_what_comes_from_a_variable_is_said_to(write: Write) -> None:
    text = "models:\n  main: {provider: demo, base-url: '${ADDRESS:-http://x}', api-key: '${KEY:-}'}\n"
    found = the_problem(write(text), {"ADDRESS": "SECRETCANARY", "KEY": ""})
    assert found.endswith("（值取自 ADDRESS）")
    assert "SECRETCANARY" not in found
    entry = "channels: {feishu: {enabled: true, app-id: '${APP_ID:-}', app-secret: '${APP_SECRET:-}', agent: ''}}\n"
    assert the_problem(write(text + entry)).endswith("（对应 .env 的 APP_ID、APP_SECRET）")
    assert the_problem(write(text + entry), {"APP_ID": "cli_x"}).endswith("（对应 .env 的 APP_SECRET）")


def test_a_kind_that_does_not_exist_lists_those_that_can_be_used(write: Write) -> None:
    found = the_problem(write("channels: {x: {kind: slack}}"))
    assert all(kind in found for kind in KINDS.keys() - PLANNED)
    assert not any(kind in found for kind in PLANNED)


def test_what_is_not_there_yet_asks_for_no_key(write: Write) -> None:
    assert "not available yet" in the_problem(write("channels: {wecom-app: {enabled: true}}"))


# ---------------------------------------------------------------- what is remarked
@pytest.mark.parametrize(
    ("dotenv", "said"),
    [
        ("OPENAI_KEY=x", "OPENAI_KEY 没有用到；是不是 OPENAI_API_KEY ？"),
        ("openai_api_key=x", "openai_api_key 没有用到；是不是 OPENAI_API_KEY ？"),
        ("OPENAI_KEY=x\nOPENAI_API_KEY=y", ""),
        ("HTTPS_PROXY=http://p", ""),
    ],
)
def test_a_misspelt_name_in_dotenv_is_remarked(write: Write, dotenv: str, said: str) -> None:
    folder = write("models: {main: {provider: demo, api-key: '${OPENAI_API_KEY:-}'}}\n", dotenv=dotenv)
    notes = [note for note in load_settings(folder, {}).notes if "没有用到" in note]
    assert [note.partition("：")[2] for note in notes] == ([said] if said else [])
    assert "没有用到" not in "".join(load_settings(folder, {"OPENAI_API_KEY": "set-elsewhere"}).notes)


@pytest.mark.parametrize("name", ["config/.env.txt", "config/env", "config/.env.example", ".env"])
def test_a_file_that_stands_in_for_the_dotenv_is_remarked(write: Write, name: str) -> None:
    folder = write("models: {main: {provider: demo, api-key: '${OPENAI_API_KEY:-}'}}\n")
    stray = folder.parent / name
    for text, said in (("OPENAI_API_KEY=SECRETCANARY\n", True), ("OPENAI_API_KEY=\n", False), ("OTHER=x\n", False)):
        stray.write_text(text)
        notes = [note for note in load_settings(folder, {}).notes if "不会读" in note]
        assert len(notes) == said
        assert not said or (notes[0].startswith(f"{stray} 里有 OPENAI_API_KEY") and "SECRETCANARY" not in notes[0])
    stray.write_text("OPENAI_API_KEY=SECRETCANARY\n")
    (folder / ".env").write_text("")
    assert not [note for note in load_settings(folder, {}).notes if "不会读" in note]


def test_an_agent_beside_the_folder_of_agents_is_remarked(write: Write) -> None:
    folder = write()
    (folder / "my-agent.yaml").write_text(AGENT)
    assert [note for note in load_settings(folder, {}).notes if note.startswith(f"{folder / 'my-agent.yaml'} 不会读")]


@pytest.mark.parametrize(
    ("keywords", "said"),
    [("[岗位，工作]", True), ("[岗位、工作]", True), ("[岗位, 工作]", False), ("['岗位，']", False)],
)
def test_a_full_width_comma_between_keywords_is_remarked(write: Write, keywords: str, said: bool) -> None:
    folder = write(general_agent=f"{AGENT}intents:\n  keywords: {keywords}\n")
    notes = [note for note in load_settings(folder, {}).notes if "半角逗号" in note]
    assert len(notes) == said
    assert not said or "general-agent.yaml:3：" in notes[0]


def test_a_full_width_bar_before_a_prompt_is_remarked(write: Write) -> None:
    for bar, said in (("｜", True), ("|", False)):
        notes = load_settings(write(general_agent=f"prompt: {bar}\n  你是助手\n  简短\n"), {}).notes
        assert any("general-agent.yaml:1：prompt 后面是全角的" in note for note in notes) == said


DEEPSEEK = {"OPENAI_BASE_URL": "https://api.deepseek.com/v1", "OPENAI_API_KEY": "x"}


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        (DEEPSEEK, "请设置 OPENAI_MODEL"),
        ({**DEEPSEEK, "OPENAI_MODEL": ""}, "请设置 OPENAI_MODEL"),
        ({**DEEPSEEK, "OPENAI_MODEL": "deepseek-chat"}, ""),
        ({**DEEPSEEK, "OPENAI_MODEL": "gpt-4o-mini"}, ""),
        ({"OPENAI_API_KEY": "x"}, ""),
        ({}, ""),
    ],
)
def test_another_provider_without_the_name_of_a_model_is_remarked(environ: Mapping[str, str], said: str) -> None:
    out = io.StringIO()
    assert check(SHIPPED, environ, out) == 0
    lines = [line for line in out.getvalue().splitlines() if "没有填模型的名字" in line]
    assert len(lines) == bool(said)
    assert not said or (said in lines[0] and "api.deepseek.com" in lines[0])


def test_a_model_without_a_name_in_the_file_is_remarked(write: Write) -> None:
    notes = load_settings(write("models: {main: {base-url: 'http://127.0.0.1:1/v1'}}\n"), {}).notes
    assert [note for note in notes if "请写 models.main.model" in note]
    named = write("models: {main: {base-url: 'http://127.0.0.1:1/v1', model: gpt-4o-mini}}\n")
    assert not [note for note in load_settings(named, {}).notes if "模型的名字" in note]


def test_a_weak_token_is_remarked_without_being_shown(write: Write) -> None:
    for token, weak in [("letmein7", True), ("x1" * 3, True), ("correct-horse-battery", False), ("", False)]:
        notes = load_settings(write(f"console: {{token: '{token}'}}\n"), {}).notes
        assert any("console.token" in note for note in notes) == weak
        assert not weak or token not in "".join(notes)
    off = load_settings(write("console: {token: x, enabled: false}\n"), {}).notes
    assert not any("console.token" in note for note in off)


WRONG_AGENTS = [
    ("description: x", 1, "prompt", "缺少"),
    ("prompt: ' '", 1, "prompt", "空"),
    ("promt: x\nprompt: y", 1, "promt", "prompt"),
    (AGENT + "model: nope", 2, "model", "nope"),
    (AGENT + "temperature: hot", 2, "temperature", "hot"),
    (AGENT + "temperature: 3", 2, "temperature", "2"),
    (AGENT + "context: {policy: nope}", 2, "context.policy", "nope"),
    (AGENT + "context: {window: {keep-recent: 30}}", 2, "context", "keep-recent"),
    (AGENT + "context: {summary: {model: nope}}", 2, "context.summary.model", "nope"),
    (AGENT + "masking: [fone]", 2, "masking", "fone"),
    (AGENT + "masking: ['m:f']", 2, "masking", "找不到"),
    (AGENT + "intents:\n  patterns:\n    - ok\n    - '(['", 5, "intents.patterns[1]", "正则"),
    (AGENT + "intents: {keywords: 岗位}", 2, "intents.keywords", "列表"),
    (AGENT + "tools: [search_job]", 2, "tools", "search_jobs"),
    (AGENT + "tools: ['no_such_module:f']", 2, "tools", "找不到"),
    (AGENT + "tools: ['json:no_such_function']", 2, "tools", "no_such_function"),
    (AGENT + "aliases: [Ä]", 2, "aliases[0]", "小写"),
    (AGENT + "aliases: [general-agent]", 2, "aliases[0]", "general-agent"),
]


@pytest.mark.parametrize(("text", "line", "key", "said"), WRONG_AGENTS)
def test_a_wrong_agent_is_named_with_file_line_and_key(write: Write, text: str, line: int, key: str, said: str) -> None:
    found = the_problem(write(general_agent=AGENT, other=text))
    assert found.startswith(f"agents/other.yaml:{line}: {key}: "), found
    assert said in found


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("channels: {wecom-app: {enabled: true}}", "channels.wecom-app.enabled"),
        ("channels: {wecom-bot: {enabled: true, mode: webhook}}", "channels.wecom-bot.mode"),
        (
            "channels: {ding-2: {kind: dingtalk, enabled: true, client-id: a, client-secret: b, card-template-id: c}}",
            "channels.ding-2.card-template-id",
        ),
        ("memory: {long-term: {store: milvus}}", "memory.long-term.store"),
        ("memory: {long-term: {embedding: main}}", "memory.long-term.embedding"),
        ("memory: {long-term: {uri: http://milvus}}", "memory.long-term.uri"),
        ("memory: {long-term: {top-k: 4}}", "memory.long-term.top-k"),
        ("memory: {long-term: {min-score: 0.5}}", "memory.long-term.min-score"),
        ("cluster: {enabled: true}", "cluster.enabled"),
    ],
)
def test_what_is_not_built_yet_is_refused(write: Write, text: str, key: str) -> None:
    found = the_problem(write(f"models: {{main: {{provider: demo}}}}\n{text}\n"))
    assert found.startswith(f"gateway.yaml:2: {key}: "), found
    assert "暂不可用" in found
    assert "SECRETCANARY" not in found


def test_what_is_on_by_default_and_not_built_is_remarked(write: Write) -> None:
    said = load_settings(write(), {}).notes
    assert all("not available yet" in note for note in said)
    off = (
        "agent: {context: {summary: {enabled: false}}}\nrouter: {classify: {enabled: false}}\n"
        "memory: {long-term: {enabled: false}}\n"
    )
    assert load_settings(write(off), {}).notes == ()
    assert len(load_settings(write(off + "channels: {web: {enabled: false}}"), {}).notes) == 1
    assert len(load_settings(write(off + "console: {enabled: false}"), {}).notes) == 1
    assert "allow-from" in load_settings(write(off + "channels: {web: {dm-policy: allowlist}}"), {}).notes[0]


def test_all_problems_of_all_files_are_found_in_one_run(write: Write) -> None:
    folder = write(
        "server: {port: 70000, prot: 1}\n"
        "agent:\n  default: no-such\n  context:\n    window: {max-mesages: 20, max-tokens: many, keep-recent: 99}\n"
        "channels:\n  feishu: {enabled: true, mode: webhook, app-id: cli_x, encrypt-key: SECRETCANARY, group-policy: x}\n"
        "timezone: Mars\n",
        a="promt: x\n",
        b=AGENT + "model: nope\n",
    )
    found = problems(folder)
    named = {line.split(": ")[1] for line in found}
    assert named == {
        "server.port", "server.prot", "agent.default", "agent.context.window.max-mesages", "agent.context.window",
        "agent.context.window.max-tokens", "channels.feishu", "channels.feishu.group-policy", "timezone", "prompt",
        "promt", "model", "models.main",
    }  # fmt: skip
    assert not any("SECRETCANARY" in line for line in found)
    secrets = next(line for line in found if ": channels.feishu: " in line)
    assert re.search(r"\bapp-secret\b", secrets)
    assert re.search(r"\bverification-token\b", secrets)


@pytest.mark.parametrize(
    ("mode", "missing"),
    [
        ("websocket", ["app-id", "app-secret"]),
        ("webhook", ["app-id", "app-secret", "encrypt-key", "verification-token"]),
    ],
)
def test_secrets_of_an_enabled_channel_are_required(write: Write, mode: str, missing: list[str]) -> None:
    models = "models: {main: {provider: demo}}\n"
    found = the_problem(write(f"{models}channels:\n  feishu: {{enabled: true, mode: {mode}}}\n"))
    assert found.startswith("gateway.yaml:3: channels.feishu: ")
    assert all(key in found for key in missing)
    load_settings(write(f"{models}channels:\n  feishu: {{enabled: false, mode: {mode}}}\n"), {})


def test_one_app_is_connected_once(write: Write) -> None:
    entry = "enabled: true, app-id: cli_1, app-secret: s"
    found = the_problem(
        write(
            f"models: {{main: {{provider: demo}}}}\nchannels: {{feishu: {{{entry}}}, f2: {{kind: feishu, {entry}}}}}\n"
        )
    )
    assert "channels.f2.app-id: " in found


def test_a_parrot_answers_in_the_web_chat_only(write: Write) -> None:
    web = load_settings(write(), {})
    assert web.demo_stands_in
    assert web.models["main"].provider == "demo"
    feishu = "channels: {feishu: {enabled: true, app-id: a, app-secret: b}}\n"
    found = the_problem(write(feishu))
    assert found.startswith("gateway.yaml:1: models.main: ")
    assert "provider: demo" in found
    asked = load_settings(write("models: {main: {provider: demo}}\n" + feishu), {})
    assert not asked.demo_stands_in
    keyed = load_settings(write("models: {main: {api-key: '${K}'}}\n" + feishu), {"K": "sk-1"})
    assert (keyed.models["main"].provider, keyed.demo_stands_in) == ("openai", False)
    own = load_settings(write("models: {main: {base-url: 'http://127.0.0.1:9/v1'}}\n" + feishu), {})
    assert own.models["main"].provider == "openai"


def test_files_that_cannot_be_read(write: Write, tmp_path: Path) -> None:
    assert "gateway.yaml:1: 找不到" in problems(tmp_path / "nowhere")[0]
    folder = write()
    (folder / "gateway.yaml").write_bytes("timezone: 中文".encode("gbk"))
    assert "UTF-8" in the_problem(folder)
    folder = write(general_agent=AGENT, Bad_Name=AGENT)
    assert "agents/Bad-Name.yaml:1: " in the_problem(folder)
    folder = write()
    (folder / "agents" / "other.yml").write_text(AGENT)
    assert the_problem(folder) == "agents/other.yml:1: 扩展名应为 .yaml；请改名"
    for name in ("general-agent.yaml.txt", "general-agent.YAML", "General-Agent.yaml"):
        folder = write(other=AGENT)
        (folder / "agents" / name).write_text(AGENT)
        assert the_problem(folder).startswith(f"agents/{name}:1: "), "nor is it said that there is no such agent"
    for name in ("gateway.yml", "gateway.yaml.txt"):
        folder = write()
        (folder / "gateway.yaml").rename(folder / name)
        assert the_problem(folder) == f"gateway.yaml:1: 找不到这个文件，却有 {name}；请改名"
    folder = write()
    (folder / "agents" / "other.yaml").mkdir()
    assert "是一个目录" in the_problem(folder)
    folder = write(general_agent="prompt: [")
    assert the_problem(folder).startswith("agents/general-agent.yaml:")
    folder = write()
    (folder / "agents" / "general-agent.yaml").unlink()
    assert "agents/general-agent.yaml" in the_problem(folder)
    (folder / "agents" / ".general-agent.yaml").write_text(AGENT)
    assert "agents/general-agent.yaml" in the_problem(folder), "what an editor leaves is no agent"


@pytest.mark.parametrize("name", ["gateway.yaml", ".env", "agents/general-agent.yaml", "agents/other.yaml"])
def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(write: Write, name: str) -> None:
    folder = write(general_agent=AGENT)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert the_problem(folder) == f"{name}:1: 不是普通的文件；请移走"


@pytest.mark.parametrize("name", [".env", "agents"])
def test_what_may_not_be_read_is_all_that_is_told(write: Write, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what follows from it: that keys or agents are missing."""
    folder = write("channels: {feishu: {enabled: true, app-id: '${APP}', app-secret: '${SECRET}'}}")
    (folder / ".env").write_text("APP=a\nSECRET=s\nOPENAI_API_KEY=k\n")
    refused = str(folder / name)
    for function in ("open", "scandir"):
        real = getattr(os, function)

        def refusing(path: object, *more: object, real: Any = real) -> object:
            if str(path) == refused:
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return real(path, *more)

        monkeypatch.setattr(os, function, refusing)
    assert the_problem(folder) == f"{name}:1: 无法读取（Permission denied）；请检查权限"


@pytest.mark.parametrize("name", ["gateway.yaml", "../.env", "agents/other.yaml"])
def test_a_folder_in_the_place_of_a_file_is_left_closed(write: Write, name: str) -> None:
    folder = write(general_agent=AGENT)
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        with contextlib.suppress(ConfigProblems):
            load_settings(folder, {})
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_socket_in_the_place_of_a_file_is_told(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(general_agent=AGENT)
    monkeypatch.chdir(folder)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(".env")
        assert the_problem(folder).endswith(".env:1: 不是普通的文件；请移走")


def test_a_null_device_is_an_empty_file(write: Write) -> None:
    folder = write()
    without = load_settings(folder, {})
    (folder / ".env").symlink_to(os.devnull)
    assert load_settings(folder, {}) == without


def test_a_dotenv_of_another_name_is_noticed_in_any_encoding(write: Write) -> None:
    folder = write("models: {main: {base-url: 'http://x/v1', api-key: '${OPENAI_API_KEY:-}', model: m}}")
    (folder / "env.txt").write_bytes("# 中文\nOPENAI_API_KEY=k\n".encode("gbk"))
    assert any("env.txt 里有 OPENAI_API_KEY，但这个文件不会读" in note for note in load_settings(folder, {}).notes)


def test_a_file_in_the_place_of_the_agents_folder(write: Write) -> None:
    folder = write()
    shutil.rmtree(folder / "agents")
    (folder / "agents").write_text("")
    assert the_problem(folder) == "agents:1: 应是一个目录；请移走这个文件"


@pytest.mark.parametrize(
    ("written", "key", "tag"),
    [
        ("admins: !!python/object/apply:os.system ['true']", "admins", "!!python/object/apply:os.system"),
        ("admins: [!secret u1]", "admins[0]", "!secret"),
        ("server: !vault {port: 9000}", "server", "!vault"),
        ("timezone: !!binary QQ==", "timezone", "!!binary"),
        ("!secret admins: [u1]", "", "!secret"),
    ],
)
def test_tags_are_not_passed_over_in_silence(write: Write, written: str, key: str, tag: str) -> None:
    told = [each for each in problems(write(written)) if "标签" in each]
    at = f"{key}: " if key else ""
    assert told == [f"gateway.yaml:1: {at}不支持 YAML 标签 {tag}；请删去"]


def test_tags_that_say_nothing_new(write: Write) -> None:
    settings = load_settings(write('server: !!map {port: !!int 9000}\ntimezone: !!str "UTC"\nadmins: !!seq [u1]\n'), {})
    assert (settings.server.port, settings.timezone, settings.admins) == (9000, "UTC", ("u1",))


def test_byte_order_mark_and_crlf_do_no_harm(write: Write) -> None:
    folder = write()
    (folder / "gateway.yaml").write_bytes(b"\xef\xbb\xbfserver:\r\n  port: 9000\r\n")
    assert load_settings(folder, {}).server.port == 9000


def test_no_secret_in_any_repr(write: Write) -> None:
    folder = write(
        "console: {token: CANARY1}\nmodels: {main: {api-key: CANARY2}}\ncluster: {redis: 'redis://:CANARY6@h'}\n"
        "channels:\n  feishu: {app-secret: CANARY3, encrypt-key: CANARY4, verification-token: CANARY5}\n"
        "  wechat: {app-secret: CANARY7, token: CANARY8, encoding-aes-key: CANARY9}\n"
    )
    got = load_settings(folder, {})
    assert "CANARY" not in repr(got) + str(got)


def test_problems_read_as_file_line_key() -> None:
    problem = Problem("config/gateway.yaml", 3, "server.port", "应为整数；写数字")
    assert str(problem) == "config/gateway.yaml:3: server.port: 应为整数；写数字"
    assert str(ConfigProblems([problem, problem])) == str(problem), "told once"


def test_check_prints_one_line_each(write: Write) -> None:
    out = io.StringIO()
    assert check(write("prot: 1\nserver: {port: 0}\n"), {}, out) == 1
    assert len(out.getvalue().splitlines()) == 2


# ---------------------------------------------------------------- texts
KEY = "CANARY-Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MDEyMzQ1Njc4OTA"


@pytest.mark.parametrize(
    "wrong",
    [
        f"models: {{main: {{api-key: {KEY}, provider: {KEY}}}}}",
        f"models: {{main: {{api-key: {KEY}, provider: 'x {KEY}'}}}}",
        f"models: {{main: {{api-key: {KEY}, {KEY}: 1}}}}",
        f"models: {{main: {{api-key: '${{A:-{KEY}}}'}}}}\nagent: {{default: {KEY}}}",
        "models: {main: {api-key: '${A_KEY}', provider: '${A_KEY}'}}\ntimezone: '${A_KEY}'",
        "timezone: '${A_KEY}'",
        "models: {main: {api-key: '${A}'}}\nrouter: {classify: {model: '${A}'}}\ntimezone: '${A}'",
        f"tools: {{mcp: {{s: {{url: 'http://h/{KEY}', headers: {{X-Y: {KEY}}}}}}}}}\ntimezone: {KEY}",
    ],
)
def test_a_secret_at_a_wrong_place_is_not_quoted(write: Write, wrong: str) -> None:
    told = problems(write(wrong), {"A_KEY": KEY, "A": KEY})
    assert told
    assert "CANARY" not in "\n".join(told)


def test_what_looks_like_a_key_is_not_quoted_even_where_it_is_known_from_nowhere(write: Write) -> None:
    told = the_problem(write("models: {main: {provider: sk-LITERAL1122334455}}"))
    assert "LITERAL" not in told
    assert "••••••" in told


def test_texts() -> None:
    texts = Texts({"busy": "忙", "agent-unknown": "没有 {name}"})
    assert texts.get("busy") == "忙"
    assert texts.get("agent-unknown", name="{agents}", agents="a") == "没有 {agents}", "a value is not filled in again"
    assert "/new" in texts.get("help")
    with pytest.raises(KeyError):
        texts.get("no-such")
    for name, text in DEFAULTS.items():
        assert text.strip(), name
        assert "{" not in Texts().get(name, **dict.fromkeys(placeholders(text), "x")), name


# ---------------------------------------------------------------- anything at all
shipped_text = (SHIPPED / "gateway.yaml").read_text(encoding="utf-8")


@given(strategies.text())
@example("---")
@example("--- ")
@example("---\n...")
@settings(deadline=None)
def test_no_text_makes_the_parser_raise(text: str) -> None:
    document = parse(text, "f", {})
    assert document.readable or document.problems
    lines = max(len(text.splitlines()), 1)
    assert all(1 <= problem.line <= lines + 1 for problem in document.problems)


@given(strategies.text(alphabet=strategies.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1))
@settings(deadline=None)
def test_quoted_text_is_kept_to_the_character(text: str) -> None:
    written = text.replace("'", "''").replace("${", "$${")
    document = parse(f"key: '{written}'\n", "f", {})
    node = document.root.items["key"]
    assert isinstance(node, TextNode)
    assert node.text == text


@given(
    cut=strategies.integers(0, len(shipped_text)),
    length=strategies.integers(0, 60),
    insert=strategies.sampled_from(
        ["", " ", "\t", "\n", ":", "{", "[", '"', "- ", "*", "&a ", "x: y", "${", "0", "yes"]
    ),
)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_config_is_refused_or_good_but_never_a_traceback(
    tmp_path: Path, cut: int, length: int, insert: str
) -> None:
    folder = tmp_path / "config"
    (folder / "agents").mkdir(parents=True, exist_ok=True)
    (folder / "agents" / "general-agent.yaml").write_text(AGENT, encoding="utf-8")
    damaged = shipped_text[:cut] + insert + shipped_text[cut + length :]
    (folder / "gateway.yaml").write_text(damaged, encoding="utf-8")
    environ = {"OPENAI_API_KEY": "SECRETCANARY", "CONSOLE_TOKEN": "SECRETCANARY", "FEISHU_APP_SECRET": "SECRETCANARY"}
    out = io.StringIO()
    code = check(folder, environ, out)
    assert (code == 0) == out.getvalue().startswith("配置没有问题")
    assert "SECRETCANARY" not in out.getvalue()


@pytest.mark.parametrize(
    ("data", "code", "said"),
    [
        (None, 0, ""),
        ("- {title: 甲, salary: 面议}\n".encode(), 0, ""),
        ("- {title: 甲}\n- {city: 北京}\n".encode(), 0, "jobs.yaml:2: 第 2 条不算：缺少 title"),
        (b"- {title: a}\n- {title: [\n", 1, "jobs.yaml:3: 不是有效的 YAML；请修正"),
        ("- {title: a}\n- {title: 甲}\n".encode("gbk"), 1, "jobs.yaml:2: 不是 UTF-8 编码；请另存为 UTF-8"),
    ],
)
def test_the_postings_are_checked_too(tmp_path: Path, data: bytes | None, code: int, said: str) -> None:
    """A line for what is wrong; looking makes no file."""
    file = tmp_path / "knowledge" / "jobs.yaml"
    if data is not None:
        file.parent.mkdir()
        file.write_bytes(data)
    out, without = io.StringIO(), io.StringIO()
    assert check(SHIPPED, {}, without) == 0
    assert check(SHIPPED, {}, out, workspace=tmp_path) == code
    told = [line for line in out.getvalue().splitlines() if line not in without.getvalue().splitlines()]
    assert len(told) == bool(said), told
    assert all(f"{tmp_path}/knowledge/{said}" in line for line in told)
    assert file.exists() == (data is not None)


@given(strategies.text(), strategies.dictionaries(strategies.sampled_from(["A", "B"]), strategies.text()))
@settings(deadline=None)
def test_substitution_changes_nothing_else(text: str, variables: dict[str, str]) -> None:
    if "${" not in text:
        assert substitute(text, variables) == text
    escaped = text.replace("${", "$${")
    assert substitute(escaped, variables) == text
    with pytest.raises(BadReference):
        substitute("${NOT_SET}", variables)


# ---------------------------------------------------------------- MCP servers
SERVERS = (
    "tools:\n  mcp:\n    amap: {url: 'https://h/mcp?key=SECRETCANARY'}\n    files: {command: [npx, SECRETCANARY]}\n"
)


def test_mcp_servers_and_what_agents_may_call_of_them(write: Write) -> None:
    folder = write(SERVERS, general_agent=AGENT + "tools: ['mcp:amap/maps_weather', 'mcp:files/*', current_time]\n")
    settings = load_settings(folder, {})
    assert settings.tools.mcp["files"].command == ("npx", "SECRETCANARY")
    assert settings.tools.mcp["amap"].url.get_secret_value() == "https://h/mcp?key=SECRETCANARY"
    assert "SECRETCANARY" not in repr(settings)


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("mcp:amp/x", "是不是 amap"),
        ("mcp:other/*", "没有名为 other 的 MCP 服务"),
        ("mcp:amap", "mcp:amap/*"),
        ("mcp:/x", "mcp:服务/*"),
    ],
)
def test_an_agent_that_names_no_mcp_server_is_told_at_its_line(write: Write, tool: str, said: str) -> None:
    found = the_problem(write(SERVERS, general_agent=AGENT + f"tools:\n  - current_time\n  - '{tool}'\n"))
    assert found.startswith("agents/general-agent.yaml:4: tools"), found
    assert said in found


def test_an_mcp_grant_without_any_server_says_where_servers_go(write: Write) -> None:
    assert "gateway.yaml 的 tools.mcp" in the_problem(write(general_agent=AGENT + "tools: ['mcp:amap/*']\n"))


@pytest.mark.parametrize(
    ("entry", "key", "said"),
    [
        ("a: {}", "tools.mcp.a", "二者取一"),
        ("a: {url: '${NOT_SET:-}'}", "tools.mcp.a", "二者取一"),
        ("a: {command: npx SECRETCANARY}", "tools.mcp.a.command", "列表"),
        ("a: {url: 'ftp://SECRETCANARY'}", "tools.mcp.a.url", "http://"),
        ("a: {url: 'http://h', header: {}}", "tools.mcp.a.header", "headers"),
        ("a: {url: 'http://h', headers: {X: 'SECRETCANARY密'}}", "tools.mcp.a.headers", "非 ASCII"),
        ("a: {command: [x], timeout: 20}", "tools.mcp.a.timeout", "15s"),
        ("A: {command: [x]}", "tools.mcp.A", "小写"),
    ],
)
def test_a_wrong_mcp_server_is_told_at_its_line(write: Write, entry: str, key: str, said: str) -> None:
    found = the_problem(write(f"tools:\n  mcp:\n    {entry}\n"))
    assert found.startswith(f"gateway.yaml:3: {key}: "), found
    assert said in found
    assert "SECRETCANARY" not in found


def test_mcp_without_its_package_says_how_to_get_it(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install" in the_problem(write(SERVERS))
    load_settings(write(), {})
