// napkin's own Python, next to the page: one question at a time, the newest first, advice in a second message.

import { loadPyodide } from "./pyodide/pyodide.mjs";

const here = new URL(".", import.meta.url).href;
const FOLDER = "/your-model"; // a model is called by its folder
const CONFIG = `${FOLDER}/config.json`;
let answered; // napkin.cli.web_answer.answered, behind JSON
let python;
let newest = 0;
let warming = []; // questions that no one asked yet: asked once while nothing else is, so that their modules are loaded

/** Report what has been loaded of `total` bytes. */
function counted(total) {
  const fetched = self.fetch.bind(self);
  let seen = 0;
  self.fetch = async (...request) => {
    const response = await fetched(...request);
    if (!response.ok || !response.body) return response;
    const counter = new TransformStream({
      transform(chunk, out) {
        seen += chunk.byteLength;
        self.postMessage({ kind: "loading", share: Math.min(seen / total, 1) });
        out.enqueue(chunk);
      },
    });
    const { status, statusText, headers } = response;
    return new Response(response.body.pipeThrough(counter), { status, statusText, headers });
  };
}

async function boot() {
  const built = await (await fetch(`${here}built.json`, { cache: "no-cache" })).json();
  counted(built.bytes);
  const [loaded, archive] = await Promise.all([
    loadPyodide({ indexURL: `${here}pyodide/`, checkIntegrity: false, stdin: () => null }),
    fetch(`${here}${built.archive}?${built.digest}`).then((response) => response.arrayBuffer()),
  ]);
  python = loaded;
  self.postMessage({ kind: "loading", share: 1 });
  python.FS.mkdir(FOLDER);
  python.FS.chdir(FOLDER);
  python.FS.writeFile("/napkin.zip", new Uint8Array(archive));
  answered = python.runPython(`
import json, sys
sys.path.insert(0, "/napkin.zip")
from napkin.cli.web_answer import answered
from napkin.cli.web_form import QUESTIONS

def asked(question):
    asks = json.loads(question)
    return json.dumps(answered(asks["command"], asks["texts"], asks["advice"], asks["explain"], asks["width"]))

asked
`);
  warming = python.runPython("json.dumps([[one.command, dict(one.start)] for one in QUESTIONS])");
  warming = JSON.parse(warming);
  self.postMessage({ kind: "ready" });
}

const booted = boot().catch((problem) => self.postMessage({ kind: "failed", text: String(problem) }));
const channel = new MessageChannel();
/** Let newer questions in: a message of one's own comes after those that wait, and sooner than a timer. */
const turn = () => new Promise((done) => {
  channel.port1.onmessage = () => done();
  channel.port2.postMessage(0);
});

function ask(question, advice) {
  const { id, command, texts, explain, width } = question;
  const started = performance.now();
  try {
    const answer = JSON.parse(answered(JSON.stringify({ command, texts, advice, explain: Boolean(explain), width })));
    self.postMessage({ kind: "answer", id, advice, explain, answer, took: performance.now() - started });
  } catch (problem) {
    self.postMessage({ kind: "defect", id, text: String(problem).trim().split("\n").pop() });
  }
}

self.onmessage = async ({ data }) => {
  newest = data.id;
  await booted;
  await turn();
  if (data.id !== newest || !answered) return;
  if (data.config === null) python.FS.analyzePath(CONFIG).exists && python.FS.unlink(CONFIG);
  else python.FS.writeFile(CONFIG, data.config);
  if (data.explain || data.command !== "memory") ask(data, true);
  else {
    ask(data, false);
    await turn();
    if (data.id === newest) ask(data, true);
  }
  await warm(data.id);
};

async function warm(id) {
  while (warming.length && id === newest) {
    await new Promise((done) => setTimeout(done, 300));
    if (id !== newest) return;
    const [command, texts] = warming.shift();
    answered(JSON.stringify({ command, texts, advice: true, explain: false, width: 640 }));
  }
}
