"""kill -9 at random moments: what was acknowledged is in its file once and answered once; files stay in their form.

`ROUNDS` raises the number of kills, `SEED` repeats a run, `MODE=websocket` takes the long connection; all are printed.
"""

import asyncio
import collections
import contextlib
import multiprocessing
import os
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from memory.conversation import ConversationId
from tests.faults.appending_loop import append_until_killed
from tests.platforms.feishu_server import FakeFeishu, message_event
from tests.platforms.model_server import Message, ModelServer
from tests.scenarios.conversation_files import checked
from tests.scenarios.gateway import Process, id_of, shown
from tests.waiting import until

ROUNDS = int(os.environ.get("ROUNDS", "30"))
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
MODE = os.environ.get("MODE", "webhook")
PEOPLE = 6


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
async def feishu() -> AsyncIterator[FakeFeishu]:
    async with FakeFeishu() as platform:
        yield platform


class Crowd:
    """People who write without pause while the gateway comes and goes; the platform delivers until it is told 200."""

    def __init__(self, gateway: Process, rng: random.Random) -> None:
        self.acknowledged: dict[str, str] = {}  # message id → text
        self._gateway = gateway
        self._rng = rng
        self._count = 0

    async def write(self, end: asyncio.Event) -> None:
        """One person at a time posts messages until `end`; what got no 200 is delivered again, sometimes what did."""
        while not end.is_set():
            self._count += 1
            person, text = f"ou_{self._rng.randrange(PEOPLE)}", f"问{self._count:05d}。"
            event = message_event(text, open_id=person, chat_id="oc_" + person)
            while not await self._delivered(event):
                if end.is_set():
                    return
                await asyncio.sleep(0.05)
            self.acknowledged[id_of(event)] = text
            if self._rng.random() < 0.1:
                await self._delivered(event)
            await asyncio.sleep(self._rng.random() * 0.2)

    async def _delivered(self, event: dict[str, object]) -> bool:
        try:
            return await self._gateway.deliver(event)
        except (aiohttp.ClientError, ConnectionError, TimeoutError, IndexError):  # IndexError: the connection is gone
            return False


@pytest.mark.timeout(60 + 6 * ROUNDS)
async def test_kills_under_load(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    print(f"SEED={SEED} ROUNDS={ROUNDS} MODE={MODE}")
    rng = random.Random(SEED)
    lives = 0
    asked: collections.Counter[tuple[int, str]] = collections.Counter()

    def delay(messages: list[Message]) -> float:
        asked[lives, messages[-1]["content"]] += 1
        return rng.random() * 0.3

    model.delay = delay
    gateway = Process(tmp_path, model, feishu=feishu, mode=MODE)
    crowd, end = Crowd(gateway, rng), asyncio.Event()
    try:
        await gateway.start()
        writers = [asyncio.create_task(crowd.write(end)) for _ in range(8)]
        for _ in range(ROUNDS):
            await asyncio.sleep(rng.random() * 0.5)
            await gateway.kill()
            await asyncio.sleep(0.02)  # a request on its way still belongs to the old life
            lives += 1
            if rng.random() < 0.4:  # also while it starts and takes up what was left
                await gateway.launch()
            else:
                await gateway.start()
        end.set()
        await asyncio.gather(*writers)
        texts = crowd.acknowledged
        await until(lambda: not _unanswered(feishu, texts), timeout=40, what="every acknowledged message answered")
        assert await gateway.stop() == 0
    finally:
        end.set()
        await gateway.kill()
    print(f"{len(texts)} messages, {len(model.requests)} calls of the model")
    assert len(texts) > ROUNDS
    await asyncio.to_thread(_check_files, gateway, texts)
    _check_answers(feishu, texts)
    _check_calls(asked, texts)


async def test_a_kill_between_two_parts_of_an_answer(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    """The parts that were not sent are sent after the next start, each once, in order; the model is not asked again."""
    answer = "".join(f"第{n:04d}句。" for n in range(3000))
    model.answers = [answer]
    async with Process(tmp_path, model, feishu=feishu) as gateway:
        number = await gateway.feishu_event("说来话长")
        await until(lambda: len(shown(feishu, number)) >= 2)
        await gateway.kill()
        assert "".join(each.text for each in shown(feishu, number)) != answer
        await gateway.start()
        await until(lambda: "".join(each.text for each in shown(feishu, number)) == answer)
        assert len(model.requests) == 1
        assert await gateway.said() == [("user", "说来话长"), ("assistant", answer)]


def _unanswered(feishu: FakeFeishu, texts: dict[str, str]) -> list[str]:
    said = "".join(each.text for each in shown(feishu))
    return [text for text in texts.values() if text not in said]


def _check_files(gateway: Process, texts: dict[str, str]) -> None:
    """Each message is in one user turn of one file, under its id; each user turn has one answer, right behind it."""
    found: collections.Counter[str] = collections.Counter()
    for path in gateway.files():
        items = checked(path)
        assert [item.role for item in items] == ["user", "assistant"] * (len(items) // 2), path
        for question, answer in zip(items[::2], items[1::2], strict=True):
            ids = question.meta.get("ids", [question.meta["id"]])
            found.update(ids)
            assert question.text.split("\n") == [texts.get(number, line) for number, line in _lines(question.text, ids)]
            assert (answer.meta["to"], answer.text) == (question.meta["id"], f"答复：{question.text}")
    assert set(texts) <= set(found), "acknowledged and lost"
    assert set(found.values()) == {1}, [number for number, times in found.items() if times > 1]


def _lines(text: str, ids: list[str]) -> list[tuple[str, str]]:
    return list(zip(ids, text.split("\n"), strict=True))


def _check_answers(feishu: FakeFeishu, texts: dict[str, str]) -> None:
    """Each answer is seen once: a repeat under the same uuid is none."""
    said = collections.Counter(line for each in shown(feishu) for line in each.text.removeprefix("答复：").split("\n"))
    assert {text: said[text] for text in texts.values() if said[text] != 1} == {}
    assert all(each.text.startswith("答复：") for each in shown(feishu)), "nobody was told of a failure"


def _check_calls(asked: collections.Counter[tuple[int, str]], texts: dict[str, str]) -> None:
    """A kill costs at most the call that was under way: no life asks the same twice, and no turn is made up anew."""
    assert [question for question, times in asked.items() if times > 1] == []
    turns = {question for _, question in asked}
    lines = collections.Counter(line for question in turns for line in question.split("\n"))
    assert [text for text in texts.values() if lines[text] != 1] == [], "a turn is the same turn after a kill"


def test_kills_of_a_writer_lose_nothing_that_was_said_to_be_stored(tmp_path: Path) -> None:
    """B25: one process appends without pause and is killed, again and again; files and acknowledgements agree."""
    print(f"SEED={SEED} ROUNDS={ROUNDS}")
    rng = random.Random(SEED)
    workspace = tmp_path / "workspace"
    conversation = ConversationId.parse("uu3r7qbo6l6i3:feishu:b759cea3338c:0:general-agent")
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.faults.appending_loop"])
    stored: list[str] = []
    for round_ in range(ROUNDS):
        told, telling = processes.Pipe(duplex=False)
        arguments = (workspace, conversation, f"r{round_}", telling)
        writer = processes.Process(target=append_until_killed, args=arguments, daemon=True)
        writer.start()
        telling.close()
        stored.append(told.recv())
        time.sleep(rng.random() * 0.05)
        writer.kill()
        with contextlib.suppress(EOFError):
            while True:
                stored.append(told.recv())
        writer.join()
        told.close()
        writer.close()
    items = checked(workspace / "conversations" / conversation.lane.user / conversation.file_name)
    found = [item.meta["id"] for item in items]
    print(f"{len(stored)} appends")
    assert [number for number in found if number in set(stored)] == stored, "none lost, in the order of the appends"
    assert len(found) <= len(stored) + ROUNDS, "at most the append under way is there untold"
