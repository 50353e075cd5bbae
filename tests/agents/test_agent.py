"""Agent files, their names and aliases."""

import pytest
import regex
import yaml
from pydantic import ValidationError

from agents.agent import AgentSettings
from agents.registry import AgentConflict, Agents, UnknownAgent
from agents.tools.registry import load_tools
from tests.shipped import shipped_config


def settings(**keys: object) -> AgentSettings:
    return AgentSettings.model_validate({"prompt": "你是助手。", **keys})


def shipped() -> dict[str, AgentSettings]:
    return {
        path.stem: AgentSettings.model_validate(yaml.safe_load(path.read_text("utf-8")))
        for path in shipped_config().glob("agents/*.yaml")
    }


def test_every_key_of_the_contract_is_taken() -> None:
    agent = settings(
        **{
            "description": "根据意向推荐岗位",
            "model": "main",
            "temperature": 0.3,
            "context": {"policy": "tech-support", "window": {"max-messages": 30}},
            "masking": ["id-card", "bank-card"],
            "intents": {"keywords": ["找工作"], "patterns": [r"薪资.*\d+k"], "examples": ["帮我推荐 Java 岗位"]},
            "tools": ["search_jobs"],
            "aliases": ["old-name"],
        }
    )
    assert agent.context.policy == "tech-support"
    assert agent.context.window.max_messages == 30
    assert agent.masking == ("id-card", "bank-card")
    assert agent.intents.patterns == (r"薪资.*\d+k",)


def test_an_empty_masking_list_is_not_the_same_as_none() -> None:
    assert settings(masking=[]).masking == ()
    assert settings().masking is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("promt", "x"),
        ("prompt", "  \n"),
        ("temperature", 3),
        ("intents", {"patterns": ["("]}),
        ("intents", {"keywords": [""]}),
        ("aliases", ["Bad Name"]),
        ("model", ""),
    ],
)
def test_a_wrong_key_is_refused_and_named(key: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        settings(**{key: value})
    assert caught.value.errors()[0]["loc"][0] == key


def test_agents_are_found_by_name_and_alias() -> None:
    agents = Agents({"b-agent": settings(aliases=["old"]), "a-agent": settings()}, "old")
    assert agents.get("old") is agents.get(" B-Agent ") is agents.default
    assert [agent.name for agent in agents] == ["a-agent", "b-agent"]
    assert len(agents) == 2
    assert "old" in agents
    assert "nobody" not in agents
    with pytest.raises(UnknownAgent):
        agents.get("nobody")


@pytest.mark.parametrize(
    ("agents", "default", "named"),
    [
        ({"a": settings()}, "b", "agent.default"),
        ({"a": settings(aliases=["b"]), "b": settings()}, "a", "agents/a.yaml"),
        ({"a": settings(aliases=["x"]), "b": settings(aliases=["x"])}, "a", "agents/b.yaml"),
    ],
)
def test_conflicts_name_the_file(agents: dict[str, AgentSettings], default: str, named: str) -> None:
    with pytest.raises(AgentConflict, match=named):
        Agents(agents, default)


def test_the_shipped_agents_are_three_and_say_what_they_are_for() -> None:
    agents = shipped()
    assert set(agents) == {"general-agent", "job-recommend-agent", "resume-optimise-agent"}
    for agent in agents.values():
        assert agent.description
        assert len(agent.prompt) > 300
        load_tools(agent.tools)
    assert agents["job-recommend-agent"].tools == ("search_jobs", "update_profile", "read_profile")


@pytest.mark.parametrize(
    ("text", "agent"),
    [
        ("帮我推荐岗位，Java 的", "job-recommend-agent"),
        ("薪资 25k 以上的", "job-recommend-agent"),
        ("我想跳槽", "job-recommend-agent"),
        ("有没有适合应届生的工作", "job-recommend-agent"),
        ("看看我的简历", "resume-optimise-agent"),
        ("这段项目经历太普通了", "resume-optimise-agent"),
        ("review my CV", "resume-optimise-agent"),
        ("你好呀", None),
        ("随便说说", None),
        ("帮我写一封请假邮件", None),
    ],
)
def test_the_shipped_intents_do_not_clash(text: str, agent: str | None) -> None:
    meant = {
        name
        for name, each in shipped().items()
        if any(word in text for word in each.intents.keywords)
        or any(regex.search(pattern, text) for pattern in each.intents.patterns)
    }
    assert meant == ({agent} if agent else set())
