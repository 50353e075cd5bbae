"""The shipped agents and the router on labelled messages: nearly all right, and no follow-up ever leaves its agent."""

import pytest

from gateway.route import By
from tests.bench.intents.scoring import Labelled, Scripted, accuracy, labelled, outcomes, shipped_agents, wrong_switches


@pytest.fixture(scope="module")
def messages() -> list[Labelled]:
    return labelled()


@pytest.fixture(scope="module", autouse=True)
def _config_is_read_before_the_loop_runs() -> None:
    shipped_agents()


def test_the_set_is_what_it_says(messages: list[Labelled]) -> None:
    assert len(messages) >= 200
    assert len({(each.text, each.context) for each in messages}) == len(messages)
    named = {name for each in messages for name in (*each.agents, each.context) if name}
    assert named == shipped_agents().keys()
    examples = {example for agent in shipped_agents().values() for example in agent.intents.examples}
    greetings = {"你好", "在吗"}
    assert {each.text for each in messages} & examples <= greetings, "the messages are not copied into the config"


async def test_with_a_classifier_nearly_all_go_right(messages: list[Labelled]) -> None:
    model = Scripted(messages, errs_every=20)
    found = await outcomes(messages, model)
    assert accuracy(found) >= 0.95
    assert wrong_switches(found) == []
    assert 0 < model.asked < len(messages) / 2, "rules, stickiness and examples decide for the greater part"


async def test_without_a_classifier_what_is_decided_is_right(messages: list[Labelled]) -> None:
    """Rules and examples may leave it to the default agent, but hardly ever choose a wrong one."""
    found = await outcomes(messages, None)
    assert wrong_switches(found) == []
    wrong = [each for each in found if not each.right and each.route.by not in (By.DEFAULT, By.CLASSIFIER_FAILED)]
    assert len(wrong) <= len(found) * 0.02, wrong
    assert accuracy(found) >= 0.8


async def test_no_reason_holds_the_message(messages: list[Labelled]) -> None:
    """Words of the config may stand there, longer pieces of the message not."""
    known = "".join(word for agent in shipped_agents().values() for word in agent.intents.keywords)
    for each in await outcomes(messages, Scripted(messages)):
        pieces = {each.message.text[at : at + 8] for at in range(len(each.message.text) - 7)}
        assert not [piece for piece in pieces if piece in each.route.reason and piece not in known], each
