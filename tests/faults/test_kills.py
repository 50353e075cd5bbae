"""kill -9 between the parts of an answer, and of a process that does nothing but append.

`ROUNDS` raises the number of kills, `SEED` repeats a run; both are printed. Kills of a gateway that is written to on
every platform are in test_everything_at_once.
"""

import contextlib
import multiprocessing
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from memory.conversation import ConversationId
from tests.faults.appending_loop import append_until_killed
from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.model_server import ModelServer
from tests.scenarios.conversation_files import checked
from tests.scenarios.gateway import Process, shown
from tests.waiting import until

ROUNDS = int(os.environ.get("ROUNDS", "30"))
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 10**6)


async def test_a_kill_between_two_parts_of_an_answer(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    """The parts that were not sent are sent after the next start, each once, in order; the model is not asked again."""
    answer = "".join(f"第{n:04d}句。" for n in range(3000))
    model.answers = [answer]
    take, taken = feishu._message, 0

    def two_then_none(asked: str, body: dict[str, Any]) -> tuple[int, int, dict[str, Any]]:
        nonlocal taken
        taken += 1
        feishu.api_delay = 60.0 if taken == 2 else 0.0
        found: tuple[int, int, dict[str, Any]] = take(asked, body)
        return found

    feishu._message = two_then_none  # type: ignore[method-assign]
    async with Process(tmp_path, model, feishu=feishu) as gateway:
        number = await gateway.feishu_event("说来话长")
        await until(lambda: len(shown(feishu, number)) == 2)
        await gateway.kill()
        feishu.api_delay = 0.0
        assert "".join(each.text for each in shown(feishu, number)) != answer
        await gateway.start()
        await until(lambda: "".join(each.text for each in shown(feishu, number)) == answer)
        assert len(model.requests) == 1
        assert await gateway.said() == [("user", "说来话长"), ("assistant", answer)]


@pytest.mark.timeout(60 + ROUNDS)
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
    acknowledged = set(stored)
    assert [number for number in found if number in acknowledged] == stored, "none lost, in the order of the appends"
    assert len(found) <= len(stored) + ROUNDS, "at most the append under way is there untold"
