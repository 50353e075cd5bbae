"use strict";

/* Asks one question; calls on[event](data) for each server-sent event of its answer. Resolves after the last one. */
async function ask(question, on) {
  const response = await fetch("/api/chat", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(question),
  });
  if (response.status === 401) {
    location.assign("/login");
    return;
  }
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    on.error({ message: problem.error || "网关没有接受这条消息，请稍后再试。" });
    return;
  }
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let ended = false;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const blocks = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = parse(block);
      if (!event) continue;
      on[event.name]?.(event.data);
      ended = ended || event.name === "done" || event.name === "error";
    }
  }
  if (!ended) throw new Error("the stream ended early");
}

function parse(block) {
  let name = "";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    if (line.startsWith("data: ")) data += line.slice(6);
  }
  return name ? { name, data: JSON.parse(data) } : null;
}

async function getJson(path) {
  const response = await fetch(path);
  if (response.status === 401) location.assign("/login");
  if (!response.ok) throw new Error(String(response.status));
  return response.json();
}
