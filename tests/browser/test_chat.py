"""The chat page in a real browser: login, streaming, captions, keys; nothing foreign, nothing inline, nothing wide."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from channels.message import Answered, Delta, Failed, InboundMessage, Progress, Routed
from gateway.console.application import Console
from gateway.server import Listener
from memory.conversation import Role, Turn
from tests.gateway.console.fake_backend import FakeBackend, echo

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed: no browser tests")
from playwright.async_api import Browser, BrowserContext, Page, expect  # noqa: E402

from tests.browser.watching import NEEDS_CHROMIUM, Watched  # noqa: E402
from tests.waiting import until  # noqa: E402

TOKEN = "a-token-for-browsers"
LONG = "上海的 Python 后端岗位主要集中在互联网和金融公司。\n\n" + "\n".join(
    f"{n}. 某某科技有限公司，{20 + n}k–{30 + n}k，https://jobs.example.com/{'p' * 60}/{n}" for n in range(1, 6)
)
HOSTILE = "<img src=x onerror=alert(1)><script>document.title='owned'</script><b>粗</b>"

pytestmark = [*NEEDS_CHROMIUM, pytest.mark.asyncio(loop_scope="module")]


def script(message: InboundMessage) -> list[Progress]:
    """Answers by what is asked for."""
    agent = message.agent or "job-recommend-agent"
    match message.text:
        case "/new" | "/stop":
            return [Answered({"/new": "好的，我们重新开始。", "/stop": "已停止。"}[message.text])]
        case "/help":
            return [Answered("可用的命令：/help /new /stop /agents")]
        case "坏":
            return [Routed(agent, "关键词 坏"), Failed("服务正忙，请稍后再试。")]
        case "毒":
            return [Routed(agent, HOSTILE), Delta(HOSTILE), Answered(HOSTILE, message.lane.with_agent(agent))]
        case "长":
            pieces: list[Progress] = [Delta(LONG[i : i + 20]) for i in range(0, len(LONG), 20)]
            return [Routed(agent, "关键词 岗位"), *pieces, Answered(LONG, message.lane.with_agent(agent))]
    return echo(message)


class Chat(Watched):
    """The chat page before a console whose backend answers by `script`."""

    def __init__(self, page: Page, base: str, backend: FakeBackend, console: Console) -> None:
        super().__init__(page, base)
        self.backend, self.console = backend, console

    async def enter(self) -> None:
        await self.page.goto(self.base + self.console.login_path())
        await expect(self.page.locator("#text")).to_be_focused()

    async def say(self, text: str) -> None:
        await self.page.locator("#text").fill(text)
        await self.page.keyboard.press("Enter")


@pytest_asyncio.fixture(loop_scope="module")
async def backend() -> FakeBackend:
    return FakeBackend(script, pause=0.002)


@pytest_asyncio.fixture(loop_scope="module")
async def console(backend: FakeBackend) -> AsyncIterator[tuple[Console, str]]:
    console = Console(backend, token=TOKEN, host="127.0.0.1")
    listener = Listener(console.app, "127.0.0.1", 0, key="console", grace=0.2)
    await listener.start()
    yield console, f"http://127.0.0.1:{listener.port}"
    await backend.close()
    await listener.stop()


async def watched(context: BrowserContext, console: tuple[Console, str], backend: FakeBackend) -> Chat:
    context.set_default_timeout(30_000)
    return Chat(await context.new_page(), console[1], backend, console[0])


@pytest_asyncio.fixture(loop_scope="module")
async def chat(browser: Browser, console: tuple[Console, str], backend: FakeBackend) -> AsyncIterator[Chat]:
    context = await browser.new_context(viewport={"width": 1100, "height": 760}, locale="zh-CN")
    chat = await watched(context, console, backend)
    yield chat
    await context.close()
    assert not chat.wrong


async def test_login_then_a_streamed_answer_with_its_agent_and_reason(chat: Chat) -> None:
    page = chat.page
    await page.goto(chat.base)
    await expect(page).to_have_url(chat.base + "/login")
    await chat.shot("login")
    await page.keyboard.type("wrong")
    chat.wrong.clear()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("令牌不对")
    assert all("401" in line for line in chat.wrong), chat.wrong
    chat.wrong.clear()
    await page.get_by_label("令牌").fill(TOKEN)
    await page.get_by_role("button", name="登录").click()
    await expect(page).to_have_url(chat.base + "/")
    await expect(page.locator("#agents button")).to_have_count(3)
    await chat.shot("welcome")

    chat.backend.gate.clear()
    await chat.say("你好，三桥")
    await expect(page.locator(".turn.mine .bubble")).to_have_text("你好，三桥")
    await expect(page.locator(".turn.waiting")).to_have_count(1)
    await expect(page.get_by_role("button", name="停止回答")).to_be_visible()
    await chat.shot("waiting")
    chat.backend.gate.set()
    answer = page.locator(".turn").last
    await expect(answer.locator(".bubble")).to_have_text("答复：你好，三桥")
    await expect(answer.locator(".caption")).to_have_text("general-agent · 没有更合适的，用默认智能体")
    await expect(page.locator(".turn.waiting")).to_have_count(0)
    await expect(page.get_by_role("button", name="停止回答")).to_be_hidden()
    (cookie,) = await page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert TOKEN not in await page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")


async def test_the_answer_grows_while_it_is_made(chat: Chat) -> None:
    await chat.enter()
    chat.backend.pause = 1.0
    await chat.say("长")
    bubble = chat.page.locator(".turn").last.locator(".bubble")
    await expect(bubble).to_contain_text("上海")
    assert len(await bubble.inner_text()) < len(LONG), "shown before it is whole"
    chat.backend.pause = 0.0
    await expect(bubble).to_contain_text("/5")
    assert await bubble.evaluate("e => e.textContent") == LONG


async def test_a_composition_is_not_sent(chat: Chat) -> None:
    await chat.enter()
    text = chat.page.locator("#text")
    await text.fill("nihao")
    for init in ("{isComposing: true}", "{keyCode: 229}"):
        event = f"new KeyboardEvent('keydown', {{key: 'Enter', bubbles: true, cancelable: true, ...{init}}})"
        await text.evaluate(f"e => e.dispatchEvent({event})")
    assert not chat.backend.accepted
    low = await text.evaluate("e => e.clientHeight")
    for _ in range(3):
        await chat.page.keyboard.press("Shift+Enter")
    assert await text.evaluate("e => e.clientHeight") > low, "the input grows"
    assert not chat.backend.accepted
    await chat.page.keyboard.press("Enter")
    await expect(text).to_have_value("")
    await until(lambda: chat.backend.accepted)
    assert [m.text for m in chat.backend.accepted] == ["nihao\n\n\n"]


async def test_stop_new_commands_and_failures(chat: Chat) -> None:
    page = chat.page
    await chat.enter()
    await chat.say("/help")
    await expect(page.locator(".turn.note .bubble")).to_contain_text("可用的命令")
    await expect(page.locator(".caption")).to_have_count(0)
    await chat.say("坏")
    await expect(page.locator(".turn.failed .bubble")).to_have_text("服务正忙，请稍后再试。")
    chat.backend.pause = 1.0
    await chat.say("长")
    await page.get_by_role("button", name="停止回答").click()
    await expect(page.locator(".divider")).to_have_text("已停止。")
    await chat.shot("states")
    chat.backend.pause = 0.0
    await expect(page.locator(".turn.waiting")).to_have_count(0)
    await page.get_by_role("button", name="新对话").click()
    await expect(page.locator(".divider")).to_have_text("好的，我们重新开始。")
    await expect(page.locator(".turn")).to_have_count(0)
    assert [m.text for m in chat.backend.accepted] == ["/help", "坏", "长", "/stop", "/new"]


async def test_name_group_and_agent_go_with_the_question(chat: Chat) -> None:
    page = chat.page
    await chat.enter()
    await page.get_by_text("设置").click()
    await page.get_by_label("我的名字").fill("张三")
    await page.get_by_label("群名").fill("求职群")
    await chat.shot("identity")
    await page.get_by_role("button", name="使用").click()
    await expect(page.locator("#as")).to_have_text("张三 在群「求职群」")
    await page.get_by_role("button", name=re.compile("resume-optimise-agent")).click()
    await expect(page.get_by_label("智能体", exact=True)).to_have_value("resume-optimise-agent")
    await chat.say("看看")
    await expect(page.locator(".caption")).to_contain_text("resume-optimise-agent")
    (message,) = chat.backend.accepted
    assert (message.platform_user, message.name, message.agent) == ("张三", "张三", "resume-optimise-agent")
    assert message.lane.group


async def test_hostile_texts_are_shown_as_text(chat: Chat) -> None:
    await chat.enter()
    await chat.say("毒")
    answer = chat.page.locator(".turn").last
    await expect(answer.locator(".bubble")).to_have_text(HOSTILE)
    await expect(answer.locator(".caption")).to_contain_text(HOSTILE)
    await chat.say(HOSTILE)
    await expect(chat.page.locator(".turn.mine").last.locator(".bubble")).to_have_text(HOSTILE)
    assert await chat.page.locator("#log img, #log script, #log b").count() == 0
    assert await chat.page.title() == "试聊 · 三桥"


async def test_a_reload_shows_what_was_said(chat: Chat) -> None:
    await chat.enter()
    await chat.say("你好")
    await expect(chat.page.locator(".caption")).to_have_count(1)
    lane = chat.backend.accepted[0].lane
    said = [(Role.USER, "旧"), (Role.RESET, "new"), (Role.USER, "你好"), (Role.ASSISTANT, "答复：你好")]
    chat.backend.turns[lane.with_agent("general-agent")] = [
        Turn(role=role, text=text, id=f"m-{n}", at="", n=n) for n, (role, text) in enumerate(said)
    ]
    await chat.page.reload()
    await expect(chat.page.locator(".turn .bubble")).to_have_text(["你好", "答复：你好"])


async def test_demo_hint_and_narrow_dark_screen(
    browser: Browser, console: tuple[Console, str], backend: FakeBackend
) -> None:
    backend.demo = True
    context = await browser.new_context(
        viewport={"width": 390, "height": 800}, color_scheme="dark", has_touch=True, is_mobile=True
    )
    chat = await watched(context, console, backend)
    await chat.page.goto(chat.base + "/login")
    await chat.fits()
    await chat.enter()
    await expect(chat.page.get_by_text("演示模型")).to_be_visible()
    await chat.fits()
    await chat.shot("narrow-welcome")
    await chat.say("上海有哪些 Python 后端岗位？" + "w" * 120)
    await chat.say("长")
    await expect(chat.page.locator(".caption")).to_have_count(2)
    await chat.fits()
    await chat.page.get_by_text("设置").click()
    await chat.fits()
    await chat.shot("narrow-identity")
    await chat.page.keyboard.press("Escape")
    await chat.shot("narrow")
    await context.close()
    assert not chat.wrong


async def test_everything_is_reached_by_keyboard_and_has_a_name(chat: Chat) -> None:
    page = chat.page
    await chat.enter()
    await expect(page.locator("#agents button")).to_have_count(3)
    await page.locator("body").evaluate("e => document.activeElement.blur()")
    seen = set()
    for _ in range(20):
        await page.keyboard.press("Tab")
        seen.add(await page.evaluate("(e => e.id || e.tagName)(document.activeElement)"))
    assert {"agent", "new", "SUMMARY", "BUTTON", "text"} <= seen, seen
    await chat.named()


async def test_a_narrow_long_light_conversation_for_the_eye(
    browser: Browser, console: tuple[Console, str], backend: FakeBackend
) -> None:
    context = await browser.new_context(viewport={"width": 1100, "height": 760})
    chat = await watched(context, console, backend)
    await chat.enter()
    for text in ("你好", "上海有哪些岗位？", "长", "/help"):
        await chat.say(text)
        await expect(chat.page.locator(".turn.waiting")).to_have_count(0)
    await chat.shot("conversation")
    assert await chat.page.locator("#content").evaluate("e => e.scrollHeight - e.scrollTop - e.clientHeight") < 5
    await context.close()
    assert not chat.wrong
