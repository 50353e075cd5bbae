"""Forgetting crossed by all that writes, and killed between any two of its steps: no byte of the workspace keeps a word.

`SEED` repeats a run, `ROUNDS` tries more of it; both are printed.
"""

import asyncio
import contextlib
import json
import os
import random
import shutil
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from memory.conversation import user_id
from tests.platforms.feishu_server import FakeFeishu
from tests.platforms.model_server import Message, ModelServer
from tests.scenarios.gateway import TOKEN, Clock, Inside, texts
from tests.scenarios.test_feishu_messages import BOT, bot_known, group
from tests.scenarios.test_forgetting import UNICORN, holding, left
from tests.waiting import until

ROUNDS = int(os.environ.get("ROUNDS", "1"))
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
BUSY = {
    "conversations": {"group-context": "shared"},
    "agent": {
        "context": {
            "window": {"max-messages": 4, "keep-recent": 2},
            "summary": {"enabled": True, "after-turns": 2, "every-messages": 3, "keep": 2, "model": "main"},
        }
    },
}
TOOLS = {"general-agent": {"tools": ["update_profile", "read_profile", "recall"]}}


class Copies:
    """Copies of the workspace, each as a kill at that moment leaves it on the disk."""

    def __init__(self, gateway: Inside) -> None:
        self.made: list[Path] = []
        self.on = False
        self._from, self._to = gateway.workspace, gateway.root.parent

    def copy(self) -> None:
        """Blocking."""
        if self.on:
            self.made.append(self._to / str(len(self.made)))
            shutil.copytree(self._from, self.made[-1] / "workspace", ignore=shutil.ignore_patterns(".lock"))


@contextlib.asynccontextmanager
async def copied(gateway: Inside) -> AsyncIterator[Copies]:
    """While it is `on`, a copy is made before each step of the database, and before each removal or replacement."""
    copies, database = Copies(gateway), gateway.app._database
    run, empty_log, loop = database.run, database.empty_log, asyncio.get_running_loop()
    ours = threading.get_ident()

    async def copy() -> None:
        if copies.on:
            await run(lambda db: copies.copy())  # on its own thread, so that it writes nothing meanwhile

    async def copied_run(work: Any) -> Any:
        await copy()
        return await run(work)

    async def copied_empty_log() -> bool:
        await copy()
        return await empty_log()

    def before(step: Callable[..., None]) -> Callable[..., None]:
        def copied_step(*args: Any, **more: Any) -> None:
            if copies.on and threading.get_ident() != ours:
                asyncio.run_coroutine_threadsafe(copy(), loop).result(10)
            step(*args, **more)

        return copied_step

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "run", copied_run)
        patch.setattr(database, "empty_log", copied_empty_log)
        for name in ("unlink", "rename", "rmdir"):
            patch.setattr(os, name, before(getattr(os, name)))
        yield copies


# ---- killed between any two steps


@pytest.mark.parametrize("way", ["message", "admin"])
async def test_killed_anywhere_it_is_finished_by_the_next_start(
    way: str, tmp_path: Path, model: ModelServer, feishu: FakeFeishu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much later that is; nothing said before is answered or sent then, and whoever asked is told."""
    print(f"SEED={SEED} ROUNDS={ROUNDS}")
    rng = random.Random(SEED)
    user = user_id("feishu", feishu.app_id, "ou_zhang")
    async with Inside(tmp_path / "first", model, feishu=feishu) as gateway, copied(gateway) as copies:
        await gateway.feishu_says(UNICORN)
        await gateway.feishu_says("推荐岗位，独角兽公司")
        await gateway.feishu_says("我的秘密是凤凰", "ou_li")
        async with model.held("角") as released:
            await gateway.feishu_event("独角兽的角")
            await until(lambda: len(model.requests) == 4)
            await gateway.feishu_event("还有独角兽的角")
            put = gateway.app._inbox.marks.put

            async def from_here(*args: Any) -> None:
                copies.on = True
                await put(*args)

            monkeypatch.setattr(gateway.app._inbox.marks, "put", from_here)
            if way == "message":
                await gateway.feishu_says("/forget", message_id="om_forget")
                await until(lambda: not holding(gateway.workspace, "ou_zhang"))
            else:
                await gateway.app.backend.forget(user)
            copies.on = False
            released.set()
    print(f"{len(copies.made)} moments")
    asked, told = len(model.requests), len(feishu.sent)
    # Before the very first one nothing was done yet: a message asks for it all the same, an admin has to do so again.
    moments = copies.made if way == "message" else copies.made[1:]
    for root in rng.sample(moments, min(ROUNDS, len(moments))):
        after = Inside(root, model, feishu=feishu)
        after.clock = clock = Clock()
        clock.ahead = 3600.0 * rng.choice((0, 1, 50))
        print(root.name, clock.ahead, await asyncio.to_thread(holding, root, "独角兽"))
        async with after:
            await until(lambda root=root: not holding(root, "ou_zhang") and not holding(root, user), what=root.name)
            assert await left(after, "独角兽") == [], root.name
            assert await left(after, "凤凰"), root.name
            clock.ahead = 0.0
            assert await after.feishu_says("我叫什么？") == "我不知道你的名字"
        assert [request["messages"][-1]["content"] for request in model.requests[asked:]] == ["我叫什么？"]
        asked = len(model.requests)
        answers = [each for each in feishu.sent[told:] if "om_forget" in each["path"]]
        assert not [each for each in answers if "独角兽" in str(each["body"])]
        told = len(feishu.sent)


async def test_who_asked_is_answered_after_the_restart_too(
    tmp_path: Path, model: ModelServer, feishu: FakeFeishu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, with what was removed; and a channel that is off by then keeps nobody from being forgotten."""
    async with Inside(tmp_path / "first", model, feishu=feishu) as gateway:
        await gateway.feishu_says(UNICORN)
        broken_off, copied = asyncio.Event(), asyncio.Event()
        forget = gateway.app._memory.forget

        async def held_up(user: str) -> Any:
            broken_off.set()
            await copied.wait()
            return await forget(user)

        monkeypatch.setattr(gateway.app._memory, "forget", held_up)
        await gateway.feishu_event("/forget", message_id="om_forget")
        await broken_off.wait()
        for name in ("on", "off"):
            await asyncio.to_thread(shutil.copytree, gateway.workspace, tmp_path / name / "workspace")
        copied.set()
        await until(lambda: texts(feishu, "om_forget"))
    feishu.sent.clear()
    after = Inside(tmp_path / "on", model, feishu=feishu)
    after.clock = clock = Clock()
    clock.ahead = 7200.0
    async with after:
        await until(lambda: texts(feishu, "om_forget"))
        await until(lambda: not holding(after.workspace, "ou_zhang"))
    assert texts(feishu, "om_forget") == ["已删除你的全部资料：1 个会话、1 条收件记录。"]
    assert len([call for call in feishu.sent if "om_forget" in call["path"]]) == 1
    off = {"channels": {"feishu": {"enabled": False}}}
    async with Inside(tmp_path / "off", model, off, feishu=feishu) as gateway:
        await until(lambda: not holding(gateway.workspace, "ou_zhang"))
        assert await left(gateway, "独角兽") == []


# ---- crossed by all that writes


def chatty(messages: list[Message]) -> str | Message:
    """Repeats whatever it is told wherever it is kept: in answers, in summaries, in the profile."""
    last = str(messages[-1]["content"])
    if messages[-1]["role"] == "user" and "记下" in last and "摘要" not in last:
        function = {"name": "update_profile", "arguments": json.dumps({"skills": [last]}, ensure_ascii=False)}
        return {
            "role": "assistant",
            "content": last,
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        }
    return f"答复：{last[-400:]}"


class Storm:
    """One person who wrote in a direct chat and a group, is forgotten, and all that crosses it."""

    def __init__(self, gateway: Inside, feishu: FakeFeishu, rng: random.Random, number: int) -> None:
        self.word, self.friends = f"独角兽{number}号", f"凤凰{number}号"
        self.gateway, self.feishu, self.rng = gateway, feishu, rng
        self.name = f"ou_person_{number}"
        self.user = user_id("feishu", feishu.app_id, self.name)
        self.late: list[str] = []
        self.stopped = self.back = False

    async def say(self, text: str, who: str = "") -> None:
        """To the bot, in the direct chat or in the group."""
        who = who or self.name
        if who != self.name or self.rng.random() < 0.4:
            await self.gateway.feishu_event(f"@_user_1 {text}", who, **group(BOT))
        else:
            await self.gateway.feishu_event(text, who)

    async def begin(self) -> None:
        """What is known of them before, and what is under way when it begins; some of it in a file that takes nothing."""
        for number in range(3):
            await self.gateway.feishu_says(f"{self.word}第{number}，记下", self.name)
            await self.gateway.feishu_says(f"@_user_1 {self.word}，群{number}", self.name, **group(BOT))
            await self.gateway.feishu_says(f"@_user_1 {self.friends}，群{number}", "ou_friend", **group(BOT))
        if self.rng.random() < 0.5:
            await asyncio.to_thread(self._spoil)
        for _ in range(4):
            await self.say(self.rng.choice(("推荐岗位，", "记下：", "")) + self.word)

    def _spoil(self) -> None:
        for path in self.gateway.workspace.glob(f"conversations/{self.user}/chat-*"):
            path.unlink()
            path.mkdir()

    async def cross(self) -> None:
        """All at once, each at a moment of its own."""
        app = self.gateway.app
        likely: list[Callable[[], Awaitable[object]]] = [
            self.say_late,
            self.say_late,
            self.command,
            self.stop,
            lambda: self.say(f"{self.friends}又说", "ou_friend"),
            lambda: self.gateway.get(f"/api/conversations?user={self.user}"),
            self.look,
            self.repair,
            app._index.refresh,
            app._memory._backlog.retry,
            app._shelf.clear_old,
        ]
        forgets = [lambda: self.gateway.feishu_event(self.rng.choice(("/forget", "忘记我")), self.name), self.admin]
        self.rng.shuffle(forgets)
        steps = [self.rng.choice(likely) for _ in range(14)]
        await asyncio.gather(
            self.at(0.02, forgets[0]), self.at(0.1, forgets[1]), *(self.at(0.08, step) for step in steps)
        )

    async def at(self, most: float, step: Callable[[], Awaitable[object]]) -> None:
        await asyncio.sleep(self.rng.random() * most)
        await step()

    async def say_late(self) -> None:
        self.back = True
        self.late.append(f"迟到{self.name[10:]}之{len(self.late)}。")
        await self.say(self.late[-1])

    async def command(self) -> None:
        self.back = True
        await self.say(self.rng.choice(("/new", "/history", "/status", "/agent job", "/agent auto")))

    async def stop(self) -> None:
        self.stopped = self.back = True
        await self.say("/stop")

    async def admin(self) -> None:
        await self.gateway.app.backend.forget(self.user)

    async def look(self) -> None:
        """At every conversation of theirs, as the console does."""
        _, listed = await self.gateway.get(f"/api/conversations?user={self.user}")
        for each in listed["conversations"]:
            await self.gateway.get(f"/api/conversations/{each['id']}/window")

    async def repair(self) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(self.gateway.console("/api/repair"), json={}) as response,
        ):
            assert response.status == 200


async def settled(gateway: Inside) -> None:
    """Returns when nothing is under way any more."""
    app, calm = gateway.app, 0
    while calm < 3:
        busy = app._pipeline.lanes._tasks or app._pipeline.forgetting._under_way or app._outbox._tasks
        calm = 0 if busy or app._summaries._running else calm + 1
        await asyncio.sleep(0.02)


async def quoted(gateway: Inside, word: str) -> bool:
    """Whether a system message that is kept for the traces, deflated, holds the word."""
    database = gateway.app._traces._database
    assert database is not None
    bodies = await database.run(lambda db: [row["body"] for row in db.execute("SELECT body FROM frames")])
    return any(word in str(json.loads(zlib.decompress(body))) for body in bodies)


async def check(gateway: Inside, storm: Storm, feishu: FakeFeishu) -> None:
    """Nothing is left of what was said before; what was said meanwhile is answered, or gone; friends' words stay."""
    await settled(gateway)
    assert await left(gateway, storm.word) == []
    assert not await quoted(gateway, storm.word)
    assert await left(gateway, storm.friends)
    said = "".join(texts(feishu))
    for late in storm.late:
        assert late in said or storm.stopped or await left(gateway, late) == [], late
    if not storm.back:
        await until(lambda: not holding(gateway.workspace, storm.name), what="the last of the command itself")


async def test_crossed_by_all_that_writes(tmp_path: Path, model: ModelServer, feishu: FakeFeishu) -> None:
    """And the same after a kill at any moment of it."""
    print(f"SEED={SEED} ROUNDS={ROUNDS}")
    rng = random.Random(SEED)
    model.answer, model.delay = chatty, lambda messages: rng.random() * 0.05
    async with Inside(tmp_path / "first", model, BUSY, TOOLS, feishu=feishu) as gateway, copied(gateway) as copies:
        await bot_known(feishu)
        for number in range(ROUNDS):
            storm = Storm(gateway, feishu, rng, number)
            await storm.begin()
            put = gateway.app._inbox.marks.put

            async def from_here(users: Any, put: Any = put, last: bool = number == ROUNDS - 1) -> None:
                await put(users)
                copies.on = last

            gateway.app._inbox.marks.put = from_here  # type: ignore[method-assign]
            await storm.cross()
            await settled(gateway)
            copies.on = False
            gateway.app._inbox.marks.put = put  # type: ignore[method-assign]
            await check(gateway, storm, feishu)
    for root in rng.sample(copies.made, min(ROUNDS, len(copies.made))):
        print(root.name, len(copies.made))
        async with Inside(root, model, BUSY, TOOLS, feishu=feishu) as after:
            await check(after, storm, feishu)
