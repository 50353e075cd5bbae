"use strict";

/* Whatever comes from people or models enters the page through textContent only. */
const $ = (id) => document.getElementById(id);
const log = $("log");
const scroll = $("content");
const input = $("text");
let running = 0;
let group = "";

function make(tag, className, text) {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}

/* ---- who asks ---- */
function storedName() {
  let name = localStorage.getItem("sanqiao.name");
  if (!name) {
    const digits = crypto.getRandomValues(new Uint16Array(1))[0] % 10000;
    name = `访客${String(digits).padStart(4, "0")}`;
    localStorage.setItem("sanqiao.name", name);
  }
  return name;
}

function showIdentity() {
  $("as").textContent = group ? `${storedName()} 在群「${group}」` : `以 ${storedName()} 的身份私聊`;
}

$("user").value = storedName();
showIdentity();

$("identity").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = $("user").value.trim();
  if (!name) return;
  const changed = name !== storedName() || $("group").value.trim() !== group;
  localStorage.setItem("sanqiao.name", name);
  group = $("group").value.trim();
  $("who").open = false;
  showIdentity();
  if (changed) startAfresh();
  input.focus();
});

$("who").addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  $("who").open = false;
  $("who").querySelector("summary").focus();
});

document.addEventListener("click", (event) => {
  if (!$("who").contains(event.target)) $("who").open = false;
});

/* ---- messages ---- */
function atBottom() {
  return scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
}

function toBottom() {
  scroll.scrollTop = scroll.scrollHeight;
}

function addTurn(className, text) {
  $("welcome").hidden = true;
  const turn = make("article", `turn ${className}`, "");
  const bubble = make("div", "bubble", text);
  bubble.dir = "auto";
  turn.append(bubble);
  log.append(turn);
  return { turn, bubble };
}

function addCaption(turn, text) {
  turn.querySelector(".caption")?.remove();
  turn.append(make("div", "caption", text));
}

function startAfresh() {
  sessionStorage.removeItem("sanqiao.conversation");
  log.replaceChildren();
  $("welcome").hidden = false;
}

function remember(conversation) {
  if (!conversation) return;
  sessionStorage.setItem("sanqiao.conversation", JSON.stringify({ conversation, user: storedName(), group }));
}

/* The steps of this answer come as the server's escaped HTML; htmx puts it in. */
function addSteps(turn, conversation) {
  if (!conversation || typeof htmx === "undefined") return;
  const box = make("div", "steps-box", "");
  turn.append(box);
  htmx.ajax("GET", `/conversations/${encodeURIComponent(conversation)}/latest`, { target: box }).catch(() => box.remove());
}

/* ---- asking ---- */
function answering(more) {
  running += more;
  $("stop").hidden = running === 0;
}

function question(text) {
  return { user: storedName(), name: storedName(), text, group: group || null, agent: $("agent").value || null };
}

async function say(text) {
  addTurn("mine", text);
  const { turn, bubble } = addTurn("waiting", "");
  turn.setAttribute("aria-busy", "true");
  toBottom();
  let routed = false;
  const follow = (change) => {
    const stick = atBottom();
    change();
    if (stick) toBottom();
  };
  const fail = (message) => follow(() => {
    turn.classList.add("failed");
    bubble.textContent = message;
  });
  answering(1);
  try {
    await ask(question(text), {
      route: ({ agent, reason }) => follow(() => {
        routed = true;
        addCaption(turn, reason ? `${agent} · ${reason}` : agent);
      }),
      delta: ({ text: piece }) => follow(() => bubble.append(piece)),
      done: ({ text: whole, conversation }) => follow(() => {
        bubble.textContent = whole;
        if (!routed) turn.classList.add("note");
        else addSteps(turn, conversation);
        remember(conversation);
      }),
      error: ({ message }) => fail(message),
    });
  } catch {
    fail("连接断开了。回答可能仍在生成，稍后刷新页面即可看到。");
  } finally {
    answering(-1);
    turn.classList.remove("waiting");
    turn.removeAttribute("aria-busy");
  }
}

/* A command of a button: only its outcome is shown. */
async function command(text) {
  let outcome = "";
  let done = false;
  try {
    await ask(question(text), {
      done: (data) => { outcome = data.text; done = true; },
      error: (data) => { outcome = data.message; },
    });
  } catch {
    outcome = "连接断开了，请稍后再试。";
  }
  return { outcome, done };
}

function addDivider(text) {
  $("welcome").hidden = true;
  log.append(make("div", "divider", text));
  toBottom();
}

$("new").addEventListener("click", async () => {
  const { outcome, done } = await command("/new");
  if (done) startAfresh();
  if (outcome) addDivider(outcome);
  if (done) $("welcome").hidden = false;
  input.focus();
});

$("stop").addEventListener("click", async () => {
  const { outcome } = await command("/stop");
  if (outcome) addDivider(outcome);
  input.focus();
});

/* ---- composer ---- */
function fit() {
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight}px`;
  $("send").disabled = !input.value.trim();
}

input.addEventListener("input", fit);
input.addEventListener("keydown", (event) => {
  /* 229 is what Safari reports for the Enter that ends a composition. */
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  $("ask").requestSubmit();
});

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = input.value;
  if (!text.trim()) return;
  input.value = "";
  fit();
  say(text);
  input.focus();
});

/* ---- what the gateway tells about itself ---- */
async function showAgents() {
  const { agents } = await getJson("/api/agents");
  for (const { name, description } of agents) {
    const option = make("option", "", name);
    option.value = name;
    option.title = description;
    $("agent").append(option);
  }
  for (const { name, description } of agents.slice(0, 6)) {
    const button = make("button", "", name);
    button.type = "button";
    button.append(make("small", "", description));
    button.addEventListener("click", () => { $("agent").value = name; input.focus(); });
    const item = make("li", "", "");
    item.append(button);
    $("agents").append(item);
  }
}

async function showPast() {
  const stored = JSON.parse(sessionStorage.getItem("sanqiao.conversation") || "null");
  if (!stored || stored.user !== storedName()) return;
  const { turns } = await getJson(`/api/conversations/${encodeURIComponent(stored.conversation)}?limit=40`);
  group = stored.group;
  $("group").value = group;
  showIdentity();
  const since = turns.findLastIndex((turn) => turn.role === "reset") + 1;
  for (const { role, text } of turns.slice(since)) {
    if ((role === "user" || role === "assistant") && text) addTurn(role === "user" ? "mine" : "", text);
  }
  if (turns.length > since) addDivider("以上是刚才的对话");
}

getJson("/api/status").then((status) => { $("demo").hidden = status.demo !== true; }).catch(() => {});
showAgents().catch(() => {});
showPast().catch(() => sessionStorage.removeItem("sanqiao.conversation"));
fit();
