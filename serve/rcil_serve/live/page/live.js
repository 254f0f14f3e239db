// The live view: asks for one picture after another, and twice a second for the numbers.

import { send } from "./api.js";

const MIN_MS = 66; // at most 15 pictures per second
const STATE_MS = 500;
const RETRY_MS = 1000;
const LOST_S = 5; // without a frame
const $ = (id) => document.getElementById(id);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const percent = (share) => `${(100 * share).toFixed(1)} %`;

function element(name, className, text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

// ---- pictures

async function showPicture(blob) {
  const [before, next] = [$("picture").src, URL.createObjectURL(blob)];
  $("picture").src = next;
  await $("picture").decode().catch(() => {});
  if (before) URL.revokeObjectURL(before);
  $("picture").hidden = false;
  $("empty").hidden = true;
}

async function followPictures() {
  let after = 0;
  for (;;) {
    const begun = performance.now();
    try {
      const answer = await send(`frame.jpg?after=${after}`);
      if (answer.status === 200) {
        after = Number(answer.headers.get("X-Rcil-Frame"));
        await showPicture(await answer.blob());
      }
    } catch {
      await sleep(RETRY_MS); // the numbers say what is wrong
    }
    await sleep(Math.max(0, MIN_MS - (performance.now() - begun)));
  }
}

// ---- numbers

function row(entry) {
  const swatch = element("span", "swatch");
  swatch.style.background = `rgb(${entry.colour.join(",")})`;
  const bar = element("span", "bar");
  const filled = element("i");
  filled.style.width = `${100 * entry.share}%`;
  bar.append(filled);
  const made = element("li", entry.share ? "" : "absent");
  made.append(swatch, element("span", "name", entry.name), element("span", "share", percent(entry.share)), bar);
  return made;
}

function eventItem(said) {
  const made = element("li", said.kind);
  const when = element("time", "", new Date(said.at).toLocaleTimeString());
  when.dateTime = said.at;
  made.append(when, said.text.replace(/ +/g, " "));
  return made;
}

// Replaces the children of a list only if they differ, so that screen readers and selections are left alone.
function fill(list, made) {
  const text = made.map((one) => one.outerHTML).join("");
  if (list.dataset.text === text) return;
  list.dataset.text = text;
  list.replaceChildren(...made);
}

function showLight(state) {
  const lost = state.age === null ? null : state.age > LOST_S;
  $("light").className = lost === null ? "waiting" : lost ? "lost" : "playing";
  const text = { waiting: "Waiting for the first frame", lost: `No frame for ${Math.round(state.age)} s`, playing: "Live" };
  const said = state.live || $("light").className !== "playing" ? text[$("light").className] : "Playing";
  if ($("light").textContent !== said) $("light").textContent = said;
}

function show(state) {
  $("source").textContent = state.source;
  document.title = `${state.alarms.length ? `(${state.alarms.length}) ` : ""}${state.source} – live view`;
  $("model").textContent = `${state.size.join(" × ")} · step ${state.step} on ${state.device}`;
  showLight(state);
  $("rate").textContent = state.frame ? state.rate.toFixed(1) : "–";
  $("infer").textContent = state.infer_ms === null ? "–" : `${state.infer_ms.toFixed(state.infer_ms < 10 ? 1 : 0)} ms`;
  $("lag").textContent = state.lag_ms === null ? "–" : `${state.lag_ms} ms`;
  $("dropped").textContent = state.dropped;
  fill($("classes"), state.classes.sort((a, b) => b.share - a.share).map(row));
  $("alarms").hidden = !state.alarms.length;
  fill($("standing"), state.alarms.map((text) => element("li", "", text)));
  $("log").hidden = !state.watching;
  fill($("events"), state.events.map(eventItem));
}

async function followNumbers() {
  for (;;) {
    try {
      show(await (await send("state")).json());
      $("problem").hidden = true;
    } catch (error) {
      $("problem").textContent = `The view is not up to date: ${error.message}.`;
      $("problem").hidden = false;
      $("light").className = "lost";
      $("light").textContent = "Not connected";
      await sleep(RETRY_MS);
    }
    await sleep(STATE_MS);
  }
}

followNumbers();
followPictures();
