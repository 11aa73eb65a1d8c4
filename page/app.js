// The page: what is asked is in the form and in the address; a worker answers.

import { byId, h } from "./dom.js";
import { Form } from "./form.js";
import { costBar, figure, headline, table } from "./draw.js";
import { drawTree } from "./tree.js";

const OWN_FILE = "./config.json";
const MOST_BYTES = 16e6; // as the command line
const form = await fetch("form.json").then((response) => response.json());
const questions = Object.fromEntries(form.questions.map((one) => [one.command, one]));
const state = { command: form.questions[0].command, config: null, asked: 0, shown: null, opened: false };

// ---- the worker: inside a blob, so that the page's content security policy holds for it too

const entry = new Blob([`import ${JSON.stringify(new URL("worker.js", location.href).href)};`], { type: "text/javascript" });
const worker = new Worker(URL.createObjectURL(entry), { type: "module", name: "napkin" });
worker.onmessage = ({ data }) => ({ loading, ready, answer, defect, failed })[data.kind](data);
worker.onerror = (problem) => failed({ text: problem.message || "the worker did not start" });

function loading({ share }) {
  byId("loading").hidden = false;
  byId("progress").value = share;
  byId("loading-text").textContent = share < 1 ? `Loading Python, ${Math.round(share * 100)} %` : "Starting Python …";
}

function ready() {
  byId("loading").hidden = true;
  document.documentElement.dataset.ready = "yes";
}

function failed({ text }) {
  byId("loading").hidden = true;
  complain([{ message: `Python could not be started here: ${text}`, hint: "a current Firefox, Chrome, Edge or Safari runs it", option: "" }]);
}

function defect({ text }) {
  complain([{ message: `a defect of napkin, not of your input: ${text}`, hint: "please report it with the command", option: "" }]);
}

// ---- asking

function ask(explain = false) {
  const texts = fields.texts();
  state.texts = texts;
  state.width = innerWidth; // a phone's keyboard changes the height only
  state.asked += 1;
  const config = texts.model === OWN_FILE ? state.config : null;
  performance.mark(`asked-${state.asked}`);
  const width = Math.max(byId("answer").clientWidth - 50, 260);
  worker.postMessage({ id: state.asked, command: state.command, texts, config, width, explain: explain || state.opened });
  history.replaceState(null, "", `#${address(texts)}`);
  if (state.shown) byId("live").classList.add("stale");
}

function address(texts) {
  const stated = Object.entries(texts).filter(([name, text]) => !(name === "model" && text === OWN_FILE));
  const words = new URLSearchParams(stated.map(([name, text]) => [name, text === true ? "yes" : text === false ? "no" : text]));
  return stated.length ? `${state.command}?${words}` : state.command;
}

/** Return the question and texts that an address states; unknown names are left out. */
function stated() {
  const [command, words = ""] = location.hash.slice(1).split(/\?(.*)/s);
  const question = questions[command];
  if (!question) return null;
  const texts = {};
  for (const [name, text] of new URLSearchParams(words)) {
    const field = question.fields[name];
    if (field) texts[name] = field.kind === "flag" || field.kind === "two-way" ? text === "yes" : text;
  }
  return { command, texts: words ? texts : question.start };
}

function go(command, texts) {
  state.command = command;
  state.opened = false;
  for (const tab of byId("questions").children) {
    if (tab.value === command) {
      tab.setAttribute("aria-current", "page");
      tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else tab.removeAttribute("aria-current");
  }
  fields.draw(questions[command], texts);
  showFile();
  ask();
}

/** Return the texts with which another question begins: its own, and what both ask for first. */
function carried(command) {
  const { takes, start } = questions[command];
  const kept = Object.fromEntries(Object.entries(fields.texts()).filter(([name]) => takes.includes(name)));
  const { params, ...others } = start;
  return { ...("model" in kept ? others : start), ...kept }; // a model has its own number of parameters
}

// ---- showing

function answer({ id, advice, explain, answer: found, took }) {
  if (id !== state.asked) return;
  state.shown = found;
  complain(found.problems);
  const live = byId("live");
  live.classList.remove("stale");
  byId("lecture").hidden = true;
  if (found.json) show(found, explain);
  else if (!live.hidden) live.classList.add("stale");
  performance.mark(`shown-${id}${advice ? "-advice" : ""}`, { detail: { took } });
  const said = found.screen?.headline.map((part) => part.text).join(", ") || found.problems[0]?.message || "";
  byId("strip").hidden = false;
  byId("strip").firstElementChild.textContent = said;
  clearTimeout(state.telling); // screen readers hear where a slider stopped, not every stop
  state.telling = setTimeout(() => (byId("status").textContent = said), 600);
  document.documentElement.dataset.shown = `${id}${advice ? "-advice" : ""}`;
}

function show(found, explain) {
  const { screen } = found;
  for (const [name, { value }] of Object.entries(JSON.parse(found.json).inputs)) fields.shows(name, value);
  const live = byId("live");
  live.hidden = false;
  const chosen = Object.fromEntries(found.remedies.map((one) => [one.change, one]));
  const most = Math.max(...found.remedies.map((one) => one.high ?? 0), 0.05);
  const remedy = (row) => {
    const one = chosen[row[0]];
    if (!one || !questions[one.command]) return ["", ""];
    const cost = typeof one.extra === "number" ? costBar(one, most) : "";
    return [cost, h("button", { type: "button", class: "quiet", onclick: () => go(one.command, one.texts) }, "Apply", h("span", { class: "unseen" }, ` ${row[0]}`))];
  };
  live.replaceChildren(
    ...headline(screen),
    ...found.figures.map(figure),
    table(screen.table, found.colors),
    ...screen.remarks.map((text) => h("p", { class: "remarks" }, text)),
    screen.more ? h("div", { class: "more" }, table(screen.more, [], remedy)) : "",
    screen.assumed.length ? h("p", { class: "assumed" }, `assumed: ${screen.assumed.join(", ")}`) : "",
    h("pre", { class: "line", id: "command", "aria-label": "Command line" }, found.line.join(" ")),
    tools(found),
    explained(found, explain),
  );
}

function tools(found) {
  const next = found.screen.next;
  return h("div", { class: "tools" },
    copier("Copy command", () => found.line.join(" ")),
    copier("Copy link", () => location.href),
    h("button", { type: "button", class: "tool", onclick: () => download(found.json) }, "Download JSON"),
    h("button", { type: "button", class: "tool", onclick: () => keep(found) }, "Keep to compare"),
    next && questions[next.command] ? h("button", { type: "button", class: "tool", title: next.text, onclick: () => go(next.command, next.texts) }, `Next: ${following(next)}`) : "",
    state.config !== null && state.texts.model === OWN_FILE ? h("span", { class: "remark" }, "the link leaves out your config.json") : "");
}

/** Keep lines 1 and 2 of an answer above the next ones, with the way back to it. */
function keep(found) {
  const { command, texts } = state;
  const kept = h("div", { class: "kept" }, h("div", {}, headline(found.screen)),
    h("button", { type: "button", class: "quiet", onclick: () => go(command, texts) }, "Go back to it"),
    h("button", { type: "button", class: "quiet", onclick: () => kept.remove() }, "Remove"));
  byId("kept").append(kept);
}

/** Return what a proposed command asks: another question, or the options that it changes. */
function following(next) {
  if (next.command !== state.command) return questions[next.command].title;
  const now = Object.entries(next.texts).filter(([name, text]) => state.texts[name] !== text);
  const gone = Object.keys(state.texts).filter((name) => !(name in next.texts));
  return [...now.map(([name, text]) => `--${name} ${text === true ? "" : text}`.trim()), ...gone.map((name) => `no --${name}`)].join(" ");
}

function copier(name, text) {
  const button = h("button", { type: "button", class: "tool" }, name);
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text());
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = name), 1200);
  });
  return button;
}

function download(json) {
  const url = URL.createObjectURL(new Blob([json], { type: "application/json" }));
  h("a", { href: url, download: `napkin-${state.command}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function explained(found, explain) {
  const box = h("details", { class: "explain", open: explain }, h("summary", {}, "Where each number is from"));
  if (explain) box.append(drawTree(found.tree));
  box.addEventListener("toggle", () => {
    if (box.open === state.opened) return;
    state.opened = box.open;
    if (box.open && !found.tree) ask(true);
  });
  return box;
}

function complain(problems) {
  fields.complain(problems);
  byId("errors").replaceChildren(...problems.flatMap((one) => [
    h("p", {}, h("strong", {}, "error: "), one.message),
    one.hint ? h("p", { class: "hint" }, `hint: ${one.hint}`) : "",
  ]));
}

// ---- a config.json of the reader's own: it goes to the worker and nowhere else

const chosenFile = h("input", { type: "file", accept: ".json,application/json", class: "unseen", onchange: () => read(chosenFile.files[0]) });
const pasted = h("textarea", { rows: 6, "aria-label": "config.json", placeholder: '{"model_type": "llama", …}', spellcheck: "false" });
pasted.addEventListener("input", () => own(pasted.value));
const about = h("span", { class: "remark" });
const modelTools = h("div", { class: "file" }, h("label", {}, "Choose config.json", chosenFile), " ", about,
  h("details", {}, h("summary", {}, "or paste it, or drop it on the page"), pasted));

async function read(file) {
  if (!file) return;
  if (file.size > MOST_BYTES) {
    complain([{ message: `${file.name}: is larger than 16 MB`, hint: "name a config.json", option: "model" }]);
    return;
  }
  own(await file.text());
}

function own(text) {
  state.config = text;
  if (!("model" in fields.inputs)) go("memory", { ...questions.memory.start });
  fields.inputs.model.value = OWN_FILE;
  showFile();
  ask();
}

function showFile() {
  about.textContent = state.config === null ? "" : `${OWN_FILE} is yours and stays on this machine`;
}

document.addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
});
for (const name of ["dragleave", "drop"]) document.addEventListener(name, () => document.body.classList.remove("dropping"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  read(event.dataTransfer.files[0]);
});

// ---- start

const fields = new Form(byId("form"), form.lists, () => ask(), modelTools);
byId("questions").append(...form.questions.map((one) =>
  h("button", { type: "button", value: one.command, title: one.summary, onclick: () => go(one.command, carried(one.command)) }, one.title)));
byId("form").addEventListener("submit", (event) => event.preventDefault());
addEventListener("hashchange", () => {
  const found = stated();
  if (found) go(found.command, found.texts);
});
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => innerWidth !== state.width && ask(), 150);
});
const first = stated() ?? { command: form.questions[0].command, texts: form.questions[0].start };
go(first.command, first.texts);
if ("serviceWorker" in navigator) navigator.serviceWorker.register("service-worker.js");
