"use strict";

/* What people or models said enters the page through the server's escaped templates, here through textContent only. */

/* ---- beside each turn of the history: where it is in the window that is shown ---- */
function fates(seen) {
  const found = new Map();
  for (const message of seen.querySelectorAll("[data-kept]")) {
    for (const id of JSON.parse(message.dataset.kept)) found.set(id, ["kept", "模型看得到"]);
  }
  const through = Number(seen.querySelector("[data-through]")?.dataset.through ?? -1);
  for (const drop of seen.querySelectorAll("[data-dropped]")) {
    const covered = Number(drop.dataset.n) >= 0 && Number(drop.dataset.n) <= through;
    const reason = drop.querySelector(".reason").textContent;
    found.set(JSON.parse(drop.dataset.dropped), ["lost", `${drop.dataset.label}：${reason}${covered ? "（在摘要里）" : ""}`]);
  }
  const asked = seen.querySelector("[data-question]");
  const question = asked && JSON.parse(asked.dataset.question);
  if (asked) found.set(question, ["kept", "当时的问题"]);
  return { found, through, question };
}

function mark() {
  const said = document.getElementById("said");
  const seen = document.getElementById("seen");
  if (!said || !seen) return;
  const { found, through, question } = fates(seen);
  const turns = [...said.querySelectorAll(".turn")];
  const asked = turns.find((turn) => question && JSON.parse(turn.dataset.ids).includes(question));
  const end = asked ? Number(asked.dataset.n) : Infinity;
  const epoch = Math.max(-1, ...[...said.querySelectorAll("[data-epoch]")].map((each) => Number(each.dataset.epoch)));
  for (const turn of turns) {
    const n = Number(turn.dataset.n);
    const known = JSON.parse(turn.dataset.ids).map((id) => found.get(id)).find(Boolean);
    const before = Number(turn.dataset.epoch) < epoch;
    const [fate, text] = known
      || (n > end && ["past", "之后才说的"])
      || (before ? ["past", "新对话之前，不再看"] : n <= through ? ["covered", "在摘要里"] : ["lost", "未读取：窗口已满"]);
    turn.dataset.fate = seen.querySelector("[data-through]") ? fate : "";
    turn.querySelector(".mark").textContent = turn.dataset.fate ? text : "";
  }
}

/* ---- sliders ---- */
function showKnobs(form) {
  const most = form.elements["max-messages"];
  const recent = form.elements["keep-recent"];
  if (Number(recent.value) > Number(most.value)) recent.value = most.value;
  for (const output of form.querySelectorAll("output")) output.value = form.elements[output.htmlFor.value].value;
}

/* The clipboard is closed to pages that came over plain HTTP from elsewhere; then the text is selected instead. */
async function copy(button) {
  const source = document.getElementById(button.dataset.copies);
  try {
    await navigator.clipboard.writeText(source.textContent);
    button.textContent = "已复制";
  } catch {
    getSelection().selectAllChildren(source);
    button.textContent = "已选中，请按 Ctrl+C";
  }
}

document.addEventListener("input", (event) => {
  const form = event.target.closest(".knobs");
  if (form) showKnobs(form);
}, true);
document.addEventListener("reset", (event) => {
  if (event.target.matches(".knobs")) setTimeout(() => showKnobs(event.target), 0);
}, true);
document.addEventListener("click", (event) => {
  const button = event.target.closest(".copy");
  if (button) copy(button);
});

/* ---- what went wrong, beside what was asked for, else at the head of the page ---- */
function tell(problem, text) {
  if (problem && problem.textContent !== text) problem.textContent = text; // not read out again at every poll
}

/* The gateway refuses in one line; what it did not write itself, or a proxy before it did, is no line to show. */
function refusal({ responseText, status }) {
  if (/^[^<\n]{1,300}$/.test(responseText)) return responseText;
  return `网关没有做成（状态 ${status}）；请再试一次，不成就查看网关的日志`;
}

for (const [name, told] of [
  ["htmx:responseError", (event) => refusal(event.detail.xhr)],
  ["htmx:sendError", () => "连不上网关，没有做成；请检查网络，以及网关是否在运行"],
]) {
  document.addEventListener(name, (event) => {
    const beside = event.detail.elt.closest(".forget")?.querySelector(".problem");
    tell(beside ?? document.getElementById("trouble"), told(event));
  });
}

/* ---- pages ---- */
/* What asks for itself again and again does not while nobody looks, nor under somebody's fingers. */
document.addEventListener("htmx:beforeRequest", (event) => {
  const part = event.detail.elt;
  if ("polls" in part.dataset && (document.hidden || part.contains(document.activeElement))) event.preventDefault();
});

let kept = null;
document.addEventListener("htmx:beforeSwap", (event) => {
  const said = document.getElementById("said");
  kept = said && said.contains(event.detail.target) ? said.scrollHeight - said.scrollTop : null;
});
document.addEventListener("htmx:afterSwap", () => {
  tell(document.getElementById("trouble"), "");
  const said = document.getElementById("said");
  if (kept !== null && said) said.scrollTop = said.scrollHeight - kept;
  mark();
});
document.addEventListener("DOMContentLoaded", () => {
  const said = document.getElementById("said");
  if (said) said.scrollTop = said.scrollHeight;
  mark();
});
