"""The console's pages in a real browser, before a whole gateway with long, hostile and failed conversations."""

import asyncio
import json
import re
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from memory.conversation import ConversationId
from tests.platforms.model_server import ModelServer
from tests.scenarios.gateway import CANARY, TOKEN, Inside
from tests.waiting import until

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed: no browser tests")
from playwright.async_api import Browser, Page, Route, expect  # noqa: E402

from tests.browser.watching import NEEDS_CHROMIUM, Watched  # noqa: E402

pytestmark = [*NEEDS_CHROMIUM, pytest.mark.asyncio(loop_scope="module")]

LONG = ConversationId.parse("uu3r7qbo6l6i3:feishu:b759cea3338c:0:general-agent")
TURNS = 100_000
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">{{ 7*7 }}'\"</textarea>"
QUICK = 0.1
"""Seconds a page may take; the best of a few tries, for the machine has other things to do."""


def write_long(workspace: Path) -> None:
    """A conversation of 100,000 turns. Blocking."""
    path = workspace / "conversations" / LONG.lane.user / LONG.file_name
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        for n in range(TURNS):
            role, to = ("assistant", f', "to": "m{n - 1}"') if n % 2 else ("user", "")
            text = f"第 {n} 个回答：上海有十二个岗位。" if n % 2 else f"第 {n} 个问题：上海的后端岗位"
            head = f'- {role}: |-\n    {text}\n  meta: {{"id": "m{n}", "n": {n}, "epoch": 0{to}, '
            head += '"at": "2026-11-05T10:00:00.000+08:00"'
            crc = zlib.crc32(f"{head}}}\n".encode())
            file.write(f'{head}, "crc": "{crc:08x}"}}\n'.encode())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory, model: ModelServer) -> AsyncIterator[Inside]:
    root = tmp_path_factory.mktemp("console")
    gateway = Inside(root, model)
    await asyncio.to_thread(write_long, gateway.workspace)
    async with gateway:
        for text in ("我在找工作，上海的", "谢谢", "薪资 25k 以上", "有没有离地铁近的？" * 30, "第二个的要求是什么"):
            await gateway.chat("小王", text, name="小王")
        await gateway.chat("黑客", HOSTILE, name=HOSTILE)
        await gateway.chat("韩梅梅", "周五团建去哪", group="产品组")
        model.fail = [(401, {"error": {"message": "no"}}, {})]
        await gateway.chat("小李", "在吗", name="小李")
        model.fail = []
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one_page(browser: Browser, gateway: Inside) -> AsyncIterator[Watched]:
    context = await browser.new_context(viewport={"width": 1280, "height": 860}, locale="zh-CN")
    context.set_default_timeout(30_000)
    yield await logged_in(await context.new_page(), gateway)
    await context.close()


@pytest.fixture
def admin(one_page: Watched) -> Iterator[Watched]:
    """Somebody who is logged in; nothing may go wrong in their page."""
    one_page.wrong.clear()
    yield one_page
    assert not one_page.wrong


async def logged_in(page: Page, gateway: Inside) -> Watched:
    watched = Watched(page, gateway.console(""))
    await page.goto(watched.base + "/login")
    await page.get_by_label("令牌").fill(TOKEN)
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(watched.base + "/")
    return watched


async def conversation_of(gateway: Inside, user: str, agent: str) -> str:
    _, found = await gateway.get(f"/api/traces?q={user}")
    return str(next(each["conversation"] for each in found["traces"] if each["conversation"].endswith(agent)))


async def pages(gateway: Inside) -> dict[str, str]:
    talk = await conversation_of(gateway, "小王", "job-recommend-agent")
    hostile = await conversation_of(gateway, "黑客", "general-agent")
    _, failed = await gateway.get("/api/traces?outcome=failed")
    return {
        "overview": "/overview",
        "conversations": "/conversations",
        "conversation": f"/conversations/{talk}",
        "hostile": f"/conversations/{hostile}",
        "long": f"/conversations/{LONG}",
        "traces": "/traces",
        "trace": f"/traces/{failed['traces'][0]['id']}",
        "config": "/config",
        "chat-page": "/",
    }


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
async def test_every_page_is_quick_named_and_clean(browser: Browser, gateway: Inside, scheme: str, width: int) -> None:
    context = await browser.new_context(
        viewport={"width": width, "height": 844}, color_scheme="dark" if scheme == "dark" else "light"
    )
    admin = await logged_in(await context.new_page(), gateway)
    for name, path in (await pages(gateway)).items():
        best = 1.0
        for _ in range(10):
            await admin.page.goto(admin.base + path)
            timing = "(t => t.responseEnd - t.requestStart)(performance.getEntriesByType('navigation')[0])"
            best = min(best, await admin.page.evaluate(timing) / 1000)
            if best < QUICK:
                break
        await expect(admin.page.locator("nav a")).to_have_count(5)
        assert best < QUICK, f"{name} took {best:.3f} s"
        await admin.settled()
        await admin.fits()
        await admin.named()
        await admin.shot(f"{name}-{width}-{scheme}")
        assert not admin.wrong, name
    await context.close()


async def test_whatever_people_wrote_stays_text(admin: Watched, gateway: Inside) -> None:
    page, known = admin.page, await pages(gateway)
    for path in (known["conversations"], known["hostile"], known["traces"], "/traces?q=" + "%3Cscript%3Ealert(1)"):
        await page.goto(admin.base + path)
        await admin.settled()
        assert "owned" not in await page.title()
        assert await page.locator("main script, main img").count() == 0
        assert "49" not in await page.locator("h1").first.inner_text()
    await page.goto(admin.base + known["hostile"])
    await expect(page.locator("#said .turn.user .text")).to_have_text(HOSTILE)
    await expect(page.locator("#said .turn.user .role")).to_have_text(HOSTILE)
    await expect(page.locator("#seen .message.user .text")).to_have_text(HOSTILE)
    for path in ("/conversations/nobody", "/traces/t-none", "/conversations?channel=%3Cb%3E"):
        response = await page.request.get(admin.base + path)
        assert response.status in (400, 404)
        assert "<b>" not in await response.text()


async def test_the_list_is_filtered_and_paged_from_the_index(admin: Watched) -> None:
    page = admin.page
    await page.goto(admin.base + "/conversations")
    rows = page.locator("#rows tr")
    whole = await rows.count()
    assert whole >= 5
    await expect(rows.filter(has_text="小王").first).to_contain_text("网页 · 私聊")
    await page.get_by_label("渠道").select_option("feishu")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("100,000")
    await page.get_by_label("渠道").select_option("")
    await page.get_by_label("场合").select_option("1")
    await expect(rows).to_have_count(1)
    await page.get_by_label("场合").select_option("")
    await page.get_by_label("用户编号").fill("u" + "a" * 12)
    await expect(page.locator("#rows .empty")).to_contain_text("没有会话")
    await page.get_by_label("用户编号").fill(LONG.lane.user)
    await expect(rows).to_have_count(1)
    await rows.locator("a").click()
    await expect(page).to_have_url(f"{admin.base}/conversations/{LONG}")


async def test_the_inspector_shows_the_file_beside_the_window(admin: Watched, gateway: Inside) -> None:
    page = admin.page
    await page.goto(f"{admin.base}/conversations/{LONG}")
    turns, seen = page.locator("#said .turn"), page.locator("#seen")
    await expect(turns).to_have_count(50)
    assert await turns.last.get_attribute("data-n") == str(TURNS - 1)
    _, window = await gateway.get(f"/api/conversations/{LONG}/window")
    kept = [id for message in window["messages"] for id in message["ids"]]
    await expect(page.locator('#said .turn[data-fate="kept"]')).to_have_count(len(kept))
    for dropped in window["dropped"][:-1]:
        row = page.locator(f".dropped li[data-dropped='{json.dumps(dropped['id'])}']")
        await expect(row).to_contain_text(dropped["reason"])
    texts = await seen.locator(".request .text").evaluate_all("all => all.map(e => e.textContent)")
    assert texts == [window["system"]["text"], *(message["content"] for message in window["messages"])]
    figures = await seen.locator(".legend dd").all_inner_texts()
    *parts, whole = (int(each.replace(",", "")) for each in figures)
    assert sum(parts) == whole == 32_000
    assert int((await seen.locator('[data-fact="window"]').inner_text()).replace(",", "")) == window["tokens"]["window"]
    await page.get_by_role("button", name="更早的内容").click()
    await expect(turns).to_have_count(100)
    assert await turns.first.get_attribute("data-n") == str(TURNS - 100)
    await expect(turns.first.locator(".mark")).to_contain_text("未读取")


async def test_sliders_try_out_other_settings_and_change_nothing(admin: Watched, gateway: Inside) -> None:
    page = admin.page
    await page.goto(f"{admin.base}/conversations/{LONG}")
    before = await gateway.get(f"/api/conversations/{LONG}/window")
    count = page.locator('#seen [data-fact="messages"]')
    await expect(count).to_have_text("18")
    await page.locator("#max-messages").focus()
    for _ in range(10):
        await page.keyboard.press("ArrowLeft")
    await expect(page.locator(".knobs output").first).to_have_text("10")
    await expect(count).to_have_text("8")
    await expect(page.locator('#said .turn[data-fate="kept"]')).to_have_count(8)
    await expect(page.locator(".change")).to_contain_text("少看到 10 条")
    await expect(page.locator("#as-config")).to_contain_text(
        "max-messages: 10\n    keep-recent: 10\n    max-tokens: 8000"
    )
    await page.get_by_role("button", name="复制为配置").click()
    await expect(page.locator(".copy")).to_contain_text(re.compile("已复制|已选中"))
    await page.get_by_role("button", name="回到现在的设置").click()
    await expect(count).to_have_text("18")
    await expect(page.locator(".change")).to_have_count(0)
    assert await gateway.get(f"/api/conversations/{LONG}/window") == before


async def test_a_past_turn_is_shown_as_the_model_got_it_to_the_byte(
    admin: Watched, gateway: Inside, model: ModelServer
) -> None:
    page = admin.page
    talk = await conversation_of(gateway, "小王", "job-recommend-agent")
    await gateway.chat("小王", "最后再问一个", name="小王")
    sent = [request for request in model.requests if request["messages"][-1]["content"] == "最后再问一个"][-1]
    await page.goto(f"{admin.base}/conversations/{talk}")
    await page.get_by_role("button", name="当时").last.click()
    seen = page.locator("#seen")
    await expect(seen).to_contain_text("与当时发出的逐字相同")
    shown = json.loads(await seen.locator("#as-json").evaluate("e => e.textContent"))
    assert shown["messages"] == sent["messages"]
    texts = await seen.locator(".request .text").evaluate_all("all => all.map(e => e.textContent)")
    assert texts == [message["content"] for message in sent["messages"]]
    await expect(page.locator("#said .turn.user .mark").last).to_have_text("当时的问题")
    await gateway.change({"agent": {"context": {"window": {"max-messages": 4, "keep-recent": 2}}}})
    await until(lambda: gateway.app.live.current.agent.context.window.max_messages == 4, what="taken over")
    await page.get_by_role("button", name="当时").last.click()
    await expect(seen).to_contain_text("与当时发出的逐字相同")
    shown = json.loads(await seen.locator("#as-json").evaluate("e => e.textContent"))
    assert shown["messages"] == sent["messages"], "as it was, whatever holds now"
    await page.get_by_role("button", name="回到下一次提问").click()
    await expect(seen.locator('[data-fact="messages"]')).to_have_text("2")
    await gateway.change({"agent": {"context": {"window": {"max-messages": 20, "keep-recent": 10}}}})
    await until(lambda: gateway.app.live.current.agent.context.window.max_messages == 20, what="taken back")


async def test_a_turn_is_forgotten_by_keyboard_after_a_second_look(admin: Watched, gateway: Inside) -> None:
    page = admin.page
    for text in ("我的秘密是独角兽", "再说说凤凰"):
        await gateway.chat("小赵", text, name="小赵")
    _, found = await gateway.get("/api/traces?q=小赵")
    await page.goto(f"{admin.base}/conversations/{found['traces'][0]['conversation']}")
    said, seen = page.locator("#said .turn"), page.locator("#seen")
    await expect(seen).to_contain_text("独角兽")
    sure = page.get_by_role("button", name="确认忘记这一轮").first
    await expect(sure).to_be_hidden()
    await said.first.locator("summary").focus()
    await page.keyboard.press("Enter")
    await expect(sure).to_be_visible()
    await admin.fits()
    await admin.shot("forget-a-turn")
    await page.keyboard.press("Tab")
    await expect(sure).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(seen.get_by_role("status")).to_have_text("已删除：2 条内容。")
    await expect(page.locator("#said .turn.removed .text")).to_have_text(["（已删除）"] * 2)
    await expect(said).to_have_count(4)
    await expect(said.first.locator(".mark")).to_contain_text("已删除")
    await expect(seen.locator(".request")).not_to_contain_text("独角兽")
    await expect(seen.locator(".request")).to_contain_text("再说说凤凰")
    assert "独角兽" not in await page.content()
    await page.reload()
    await expect(page.locator("#said .turn.removed")).to_have_count(2)
    assert "独角兽" not in await page.content()


async def test_i_wrote_and_it_did_not_answer(admin: Watched) -> None:
    page = admin.page
    await page.goto(admin.base + "/traces")
    rows = page.locator("#rows tr")
    await page.get_by_label("编号").fill("小李")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("没能回答")
    await expect(rows).to_contain_text("请检查 api-key")
    await what_fails_is_told(admin)
    await page.get_by_label("编号").fill("")
    await page.get_by_label("结果").select_option("bad")
    await expect(rows).to_have_count(1)
    await rows.locator("a").click()
    await expect(page.locator(".steps tr")).not_to_have_count(0)
    steps = await page.locator(".steps tbody b").all_inner_texts()
    assert steps[:4] == ["收到", "选智能体", "取窗口", "模型回答"]
    await expect(page.locator(".attention-line")).to_contain_text("401")
    await expect(page.locator("#seen .message.user .text")).to_have_text("在吗")


async def what_fails_is_told(admin: Watched) -> None:
    """A search that fails says so at the head of the page, until one succeeds."""
    search, trouble = admin.page.get_by_label("编号"), admin.page.get_by_role("alert")
    plain = {"status": 503, "body": "数据库暂时读不出", "content_type": "text/plain; charset=utf-8"}
    foreign = {"status": 502, "body": "<html><h1>Bad Gateway</h1></html>"}
    answers: list[dict[str, Any] | None] = [plain, foreign, None]

    async def answered(route: Route) -> None:
        answer = answers.pop(0)
        await (route.fulfill(**answer) if answer else route.abort())

    await admin.page.route("**/traces?*", answered)
    for text, told in (("甲", "数据库暂时读不出"), ("乙", "状态 502"), ("丙", "连不上网关")):
        await search.fill(text)
        await expect(trouble).to_contain_text(told)
        await expect(trouble).not_to_contain_text("Bad Gateway")
    await admin.fits()
    await admin.page.unroute("**/traces?*")
    await search.fill("小李")
    await expect(trouble).to_be_hidden()
    assert len(admin.wrong) >= 3
    admin.wrong.clear()  # what the browser itself says of the three


async def test_the_live_chat_tells_how_it_went_and_is_listed(admin: Watched) -> None:
    page = admin.page
    await page.goto(admin.base + "/")
    await page.locator("#text").fill("我的简历怎么写")
    await page.keyboard.press("Enter")
    turn = page.locator(".turn").last
    await expect(turn.locator(".caption")).to_contain_text("resume-optimise-agent · 规则：简历")
    await turn.locator("summary").click()
    await expect(turn.locator(".steps")).to_contain_text("模型回答")
    await expect(turn.locator(".steps .fall rect").first).to_be_attached()
    await turn.get_by_role("link", name="模型看到了什么").click()
    await expect(page.locator("#said .turn.user .text")).to_have_text("我的简历怎么写")


async def test_a_broken_config_is_shown_at_its_line_and_changes_nothing(admin: Watched, gateway: Inside) -> None:
    page = admin.page
    await page.goto(admin.base + "/config")
    await expect(page.locator("#state")).to_contain_text("正在运行的就是文件里写的")
    assert CANARY not in await page.content()
    path = gateway.config / "agents" / "general-agent.yaml"
    good = await asyncio.to_thread(path.read_text, "utf-8")
    await asyncio.to_thread(path.write_text, good + "temperatur: 0.5\n", "utf-8")
    line = good.count("\n") + 1
    await until(lambda: bool(gateway.app.live.problems), what="the broken file is seen")
    await page.get_by_role("button", name="检查").click()
    await expect(page.locator("#state")).to_contain_text(f"general-agent.yaml:{line} temperatur")
    await page.get_by_role("button", name="重新载入").click()
    await expect(page.locator("#state")).to_contain_text("没有载入")
    await page.reload()
    await expect(page.locator(".source li.wrong .problem")).to_contain_text("temperature")
    await page.goto(admin.base + "/overview")
    await expect(page.locator(".attention")).to_contain_text("配置有误")
    said = await gateway.chat("小赵", "还在吗")
    assert said.text
    await asyncio.to_thread(path.write_text, good, "utf-8")
    await until(lambda: not gateway.app.live.problems, what="the file is good again")
    await gateway.change({"server": {"drain": "7s"}})
    await until(lambda: bool(gateway.app.live.waiting), what="a change that waits")
    await page.goto(admin.base + "/config")
    await expect(page.locator("#state .diff")).to_contain_text("server.drain")
    await expect(page.locator("#state .diff")).to_contain_text("重启后")
    await gateway.change({"server": {"drain": "5s"}})
    await until(lambda: not gateway.app.live.waiting, what="taken back")


async def test_everything_is_reached_by_keyboard(admin: Watched, gateway: Inside) -> None:
    page = admin.page
    await page.goto(admin.base + (await pages(gateway))["conversation"])
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.className") == "skip"
    await page.keyboard.press("Enter")
    assert await page.evaluate("document.activeElement.id") == "content"
    seen = set()
    for _ in range(24):
        await page.keyboard.press("Tab")
        seen.add(await page.evaluate("(e => e.id || e.className || e.tagName)(document.activeElement)"))
        hidden = "(e => getComputedStyle(e).outlineStyle === 'none' && e !== document.body ? e.outerHTML : '')"
        assert await page.evaluate(hidden + "(document.activeElement)") == "", "where the focus is can be seen"
    assert {"said", "then", "max-messages", "keep-recent", "max-tokens", "seen", "SUMMARY"} <= seen, seen


async def test_a_login_that_ended_leads_to_the_login(browser: Browser, gateway: Inside) -> None:
    context = await browser.new_context()
    admin = await logged_in(await context.new_page(), gateway)
    await admin.page.goto(f"{admin.base}/conversations/{LONG}")
    await context.clear_cookies()
    started = time.monotonic()
    await admin.page.locator("#max-messages").fill("6")
    await expect(admin.page).to_have_url(admin.base + "/login")
    assert time.monotonic() - started < 20
    await admin.page.goto(admin.base + "/overview")
    await expect(admin.page).to_have_url(admin.base + "/login")
    await context.close()
    assert all("401" in line for line in admin.wrong), admin.wrong
