// The state of the page (the open conversation, the running answer) and the user's actions.
import { complete, figures, models, roofShare } from "./client.js";
import {
  deleteChat, exportChat, isChatEntry, listChats, newChat, openId, readChat, saveChat, setOpenId, titleOf,
} from "./chats.js";
import { element } from "./markdown.js";
import { MessageView, addDelta, isSendKey } from "./messages.js";
import { chooseModel, openSettings, prepareSettings, prepareTheme, readSettings, requestFor } from "./settings.js";

const byId = (id) => document.getElementById(id);
const log = byId("log");
const input = byId("input");

let chat = newChat();
let views = [];
let running = null; // { abort, done } of the answer
let server = null; // { name, context, status }: the chosen model; status: if there are several

function say(text) {
  byId("status").textContent = text;
}

// The model

function showModels({ all, freeBytes }) {
  server = all.find((one) => one.name === readSettings().model) ?? all[0];
  const parts = server.context ? [`${server.context.toLocaleString("en")} tokens of context`] : [];
  if (freeBytes !== undefined) parts.push(`${(freeBytes / 1e9).toFixed(1)} GB of memory left`);
  byId("model").textContent = server.name;
  byId("model").hidden = Boolean(server.status);
  byId("models").hidden = !server.status;
  byId("models").replaceChildren(...all.map(({ name, status }) => {
    const percent = status?.value === "loading" ? ` ${Math.round(status.progress * 100)} %` : "";
    return element("option", { value: name, textContent: `${name} (${status?.value}${percent})` });
  }));
  byId("models").value = server.name;
  byId("context").textContent = parts.join(" · ");
  document.title = `${server.name} – Pinion`;
}

// What is loaded changes with the requests of all clients.
async function refreshModels() {
  if (server?.status && !document.hidden && document.activeElement !== byId("models")) {
    await models(readSettings().key).then(showModels, () => {});
  }
}

async function findModel() {
  try {
    showModels(await models(readSettings().key));
    say("");
    // The first request for metrics starts the bandwidth measurement: better while the user writes than during an answer.
    figures(readSettings().key, server.name).catch(() => {});
  } catch (failure) {
    server = null;
    say(failure.message);
    if (failure.status === 401) openSettings(failure.message);
    else setTimeout(findModel, 1000); // the model is being loaded, or the server is starting
  }
}

// Conversations

function showList() {
  const items = listChats().map((one) => {
    const button = element("button", { type: "button", textContent: titleOf(one) });
    if (one.id === chat.id) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => open(one.id));
    return element("li", {}, button);
  });
  byId("chats").replaceChildren(...items);
  for (const id of ["rename", "delete", "export"]) byId(id).disabled = chat.messages.length === 0;
}

function addView(message) {
  const view = new MessageView(message, { onEdit: edit, onRegenerate: regenerate });
  views.push(view);
  log.append(view.root);
  return view;
}

function showChat() {
  views = [];
  log.replaceChildren();
  chat.messages.forEach(addView);
  byId("hint").hidden = chat.messages.length > 0;
  setOpenId(chat.id);
  showList();
  scrollToEnd();
  if (matchMedia("(pointer: fine)").matches) input.focus(); // an on-screen keyboard would cover the page
}

async function open(id) {
  await stop();
  chat = readChat(id) ?? newChat();
  showSide(false);
  showChat();
}

// Narrow pages hide the list of conversations until it is opened.
function showSide(isOpen) {
  byId("side").classList.toggle("open", isOpen);
  byId("open-chats").setAttribute("aria-expanded", isOpen);
}

function save() {
  if (!saveChat(chat)) say("The browser's storage is full: this conversation is not kept. Delete old ones.");
  showList();
}

function rename() {
  const title = prompt("Title of this conversation", titleOf(chat));
  if (title === null) return;
  chat.title = title.trim();
  save();
}

async function remove() {
  if (!confirm(`Delete “${titleOf(chat)}”?`)) return;
  await stop();
  deleteChat(chat.id);
  await open(null);
}

// Answers

function scrollToEnd() {
  log.parentElement.scrollTop = log.parentElement.scrollHeight;
}

const isAtEnd = ({ scrollTop, scrollHeight, clientHeight }) => scrollHeight - scrollTop - clientHeight < 60;

// Updates at most once per frame, because the browser shares the CPU with the model.
function painter(view) {
  let isWaiting = false;
  return () => {
    if (isWaiting) return;
    isWaiting = true;
    requestAnimationFrame(() => {
      isWaiting = false;
      const follows = isAtEnd(log.parentElement);
      view.update();
      if (follows) scrollToEnd();
    });
  };
}

// Rate of chunks. Most chunks are one token; the usage at the end has the exact number.
class Speed {
  constructor() {
    this.start = performance.now();
    this.pieces = 0;
  }
  put() {
    this.last = performance.now();
    this.first ??= this.last;
    ++this.pieces;
  }
  of(tokens) {
    const seconds = (this.last - this.first) / 1000;
    return seconds > 0 && tokens > 1 ? `${((tokens - 1) / seconds).toFixed(1)} tokens/s` : "";
  }
  wait() {
    return `${((this.first - this.start) / 1000).toFixed(2)} s to the first`;
  }
}

function figuresText({ ending, speed, usage, share, seed }) {
  const tokens = usage?.completion_tokens ?? speed.pieces;
  const parts = [ending, tokens > 0 ? `${tokens} tokens` : "", speed.of(tokens)];
  if (share) parts.push(`${Math.round(share * 100)} % of the roof`);
  if (speed.first) parts.push(speed.wait());
  if (usage && server?.context) parts.push(`${Math.min(usage.total_tokens, server.context)} of ${server.context} of the context`);
  if (seed) parts.push(`seed ${seed}`);
  return parts.filter((part) => part).join(" · ");
}

// Streams the next answer into `message`. A failed request for metrics only omits the share of the roof.
async function receive(message, view, signal) {
  const settings = readSettings();
  const look = () => figures(settings.key, server?.name).catch(() => null);
  const speed = new Speed();
  const paint = painter(view);
  let before, usage, seed, ending;
  try {
    const request = requestFor(chat.messages.slice(0, -1), settings);
    if (server?.status) request.model = server.name;
    seed = await complete(request, settings.key, signal, (chunk) => {
      usage = chunk.usage ?? usage;
      const choice = chunk.choices[0];
      if (!choice) return;
      addDelta(message, choice.delta);
      if (choice.finish_reason === "length") ending = "cut at the limit";
      const { content, reasoning_content, tool_calls } = choice.delta;
      if (!content && !reasoning_content && !tool_calls) return;
      before ??= look();
      speed.put();
      message.figures = speed.of(speed.pieces);
      paint();
    });
  } catch (failure) {
    if (failure.name === "AbortError") ending = "stopped";
    else message.failure = failure.message;
    if (failure.status === 401) openSettings(failure.message);
  }
  const [from, to] = await Promise.all([before, before && look()]);
  message.figures = figuresText({ ending, speed, usage, share: from && to ? roofShare(from, to) : NaN, seed });
}

async function answer() {
  const message = { role: "assistant", content: "" };
  chat.messages.push(message);
  const view = addView(message);
  const abort = new AbortController();
  view.setBusy(true);
  byId("hint").hidden = true;
  setRunning({ abort, done: receive(message, view, abort.signal) });
  scrollToEnd();
  save();
  say("Answering…");
  await running.done;
  view.setBusy(false);
  view.update();
  setRunning(null);
  say("");
  save();
  refreshModels();
}

function setRunning(now) {
  running = now;
  byId("send").hidden = running !== null;
  byId("stop").hidden = running === null;
  document.body.classList.toggle("running", running !== null);
}

async function stop() {
  running?.abort.abort();
  while (running) await running.done;
}

function send() {
  const text = input.value.trim();
  if (!text || running) return;
  input.value = "";
  fit();
  const message = { role: "user", content: text };
  chat.messages.push(message);
  addView(message);
  answer();
}

// Removes this message and all later ones.
async function cutFrom(message) {
  await stop();
  chat.messages.length = chat.messages.indexOf(message);
  showChat();
}

async function regenerate(message) {
  await cutFrom(message);
  answer();
}

async function edit(message, text) {
  await cutFrom(message);
  input.value = text;
  send();
}

// The page

function fit() {
  input.style.height = "auto";
  input.style.height = `${Math.min(input.scrollHeight + 2, innerHeight / 3)}px`;
}

function prepareKeys() {
  input.addEventListener("input", fit);
  input.addEventListener("keydown", (event) => {
    if (!isSendKey(event)) return;
    event.preventDefault();
    send();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || byId("settings").open) return;
    stop();
    showSide(false);
  });
  document.querySelector("main").addEventListener("click", () => showSide(false));
}

function prepareButtons() {
  const actions = {
    stop,
    new: () => open(null),
    rename,
    delete: remove,
    export: () => exportChat(chat),
    "open-settings": () => openSettings(),
    "open-chats": () => showSide(!byId("side").classList.contains("open")),
  };
  for (const [id, run] of Object.entries(actions)) byId(id).addEventListener("click", run);
  byId("models").addEventListener("change", ({ target }) => {
    chooseModel(target.value);
    target.blur();
    findModel();
  });
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
}

prepareTheme();
prepareSettings(findModel);
prepareKeys();
prepareButtons();
addEventListener("pagehide", () => running && saveChat(chat));
addEventListener("storage", (event) => isChatEntry(event.key) && showList());
open(openId());
findModel();
setInterval(refreshModels, 2000);
