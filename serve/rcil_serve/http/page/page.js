// The page: takes an image or a clip, sends its frames one by one, and shows the results.

import { models as fetchModels, sample, segment } from "./api.js";
import { MAX_CLASSES, changedShare, difference, line, maskOf, paint, pixelsOf, tableOf } from "./draw.js";
import { fill, percent, rowsOf } from "./legend.js";

const MAX_CLIP_SIDE = 1280;
const IDLE_MS = 40;
const $ = (id) => document.getElementById(id);
const [picture, video] = [$("picture"), $("video")];

let models = null;
let shown = null; // { frame, now, before }: pixels and the answers of both models
let job = 0; // incremented for every new file; work for an older file stops
const hidden = new Set();

const view = () => document.querySelector("input[name=view]:checked").value;

function showError(error) {
  $("problem").textContent = error ? `Sorry: ${error.message}` : "";
  $("problem").hidden = !error;
}

// ---- models

async function loadModels() {
  const found = await fetchModels();
  const { current, previous } = found;
  if (Math.max(current.classes.length, previous?.classes.length ?? 0) > MAX_CLASSES) {
    throw new Error(`this page shows models of up to ${MAX_CLASSES} classes`);
  }
  models = found;
  const count = current.classes.length;
  $("model").textContent = `Step ${current.step} · ${count} classes · ${current.precision} on ${current.device}`;
  $("views").hidden = !previous;
  $("view-new").textContent = previous ? `New (${current.step})` : "New";
  $("view-old").textContent = previous ? `Old (${previous.step})` : "Old";
  if (!previous) document.querySelector("input[value=new]").checked = true;
}

function tables() {
  const previous = models.previous?.classes ?? [];
  const names = [...new Set([...models.current.classes, ...previous].map((entry) => entry.name))];
  return [tableOf(models.current.classes, hidden, names), tableOf(previous, hidden, names)];
}

// ---- one frame

// Sends a frame to the new model, and to the old one if `both`; `source` is what was sent, for drawing.
async function look(blob, source, width, height, both, mine) {
  const now = await segment(blob, "current");
  if (now.sha256 !== models.current.sha256) await loadModels(); // reloaded since
  if (mine !== job) return; // another file was opened meanwhile
  if (now.sha256 !== models.current.sha256) return look(blob, source, width, height, both, mine); // and again
  if (now.bitmap.width !== width || now.bitmap.height !== height) {
    throw new Error(`the mask has ${now.bitmap.width}x${now.bitmap.height} pixels, the picture ${width}x${height}`);
  }
  const frame = pixelsOf(source, width, height);
  shown = { frame, now: { ...now, mask: maskOf(now.bitmap) }, before: null };
  if (!both || !models.previous) return refresh();
  if (view() === "new") refresh();
  const before = await segment(blob, "previous");
  if (mine !== job) return;
  if (before.sha256 !== models.previous.sha256) {
    await loadModels(); // reloaded since
    return look(blob, source, width, height, both, mine);
  }
  shown.before = { ...before, mask: maskOf(before.bitmap) };
  refresh();
}

function refresh() {
  showError(null);
  $("drop").hidden = true;
  picture.hidden = $("controls").hidden = $("panel").hidden = false;
  document.querySelector("main").classList.add("filled");
  draw();
  showNumbers();
  showClasses();
}

function draw() {
  if (!shown) return;
  const { frame, now, before } = shown;
  const [nowTable, beforeTable] = tables();
  const alpha = Number($("alpha").value);
  const out = new ImageData(frame.width, frame.height);
  const chosen = before ? view() : "new";
  if (chosen === "new") paint(out, frame, now.mask, nowTable, alpha);
  if (chosen === "old") paint(out, frame, before.mask, beforeTable, alpha);
  if (chosen === "difference") difference(out, frame, now.mask, before.mask, nowTable, beforeTable);
  if (chosen === "wipe") {
    const border = Math.round(Number($("wipe").value) * frame.width);
    paint(out, frame, before.mask, beforeTable, alpha, 0, border);
    paint(out, frame, now.mask, nowTable, alpha, border);
    line(out, border);
  }
  picture.width = frame.width;
  picture.height = frame.height;
  picture.getContext("2d").putImageData(out, 0, 0);
  $("wipe-row").hidden = chosen !== "wipe";
  $("alpha-row").hidden = chosen === "difference";
  $("difference-note").hidden = chosen !== "difference";
}

// ---- numbers and legend

function showNumbers() {
  const { now, before } = shown;
  $("latency").textContent = `${now.latency.toFixed(now.latency < 10 ? 1 : 0)} ms`;
  $("trip").textContent = `${now.trip.toFixed(0)} ms`;
  $("changed-box").hidden = $("compared").hidden = !before;
  if (!before) return;
  const [nowTable, beforeTable] = tables();
  $("changed").textContent = percent(changedShare(now.mask, before.mask, nowTable, beforeTable));
}

function showClasses() {
  const list = rowsOf(models, shown.now.mask, shown.before?.mask);
  fill($("classes"), list, hidden, draw);
  const seen = list.filter((entry) => entry.share > 0).map((entry) => `${entry.name} ${percent(entry.share)}`);
  picture.setAttribute("aria-label", `The picture with what the model sees: ${seen.join(", ")}`);
}

// ---- images and clips

async function open(file) {
  const mine = ++job;
  showError(null);
  video.pause();
  video.removeAttribute("src");
  $("clip").hidden = $("rate-box").hidden = true;
  $("status").textContent = "Working…";
  try {
    if (!models) await loadModels();
    if (file.type.startsWith("video/")) await openClip(file, mine);
    else await openImage(file, mine);
    if (mine === job) $("status").textContent = picture.getAttribute("aria-label");
  } catch (error) {
    if (mine !== job) return;
    $("status").textContent = ""; // the error is an alert and is read out by itself
    showError(error);
  }
}

async function openImage(file, mine) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error(`${file.name ?? "this file"} is not an image or clip that this browser can show`);
  }
  const known = ["image/png", "image/jpeg"].includes(file.type);
  const blob = known ? file : await asBlob(bitmap, bitmap.width, bitmap.height, "image/png");
  await look(blob, bitmap, bitmap.width, bitmap.height, true, mine);
}

function asBlob(source, width, height, type) {
  const canvas = new OffscreenCanvas(width, height);
  canvas.getContext("2d").drawImage(source, 0, 0, width, height);
  return canvas.convertToBlob({ type, quality: 0.92 });
}

function loaded(file) {
  return new Promise((resolve, reject) => {
    video.onloadeddata = resolve;
    video.onerror = () => reject(new Error(`this browser cannot play ${file.name ?? "this clip"}; H.264 and WebM play nearly everywhere`));
    video.src = URL.createObjectURL(file);
  });
}

// The frame that the clip shows now; null while there is none yet.
async function stillOf(width, height) {
  try {
    return await createImageBitmap(video, { resizeWidth: width, resizeHeight: height });
  } catch {
    return null;
  }
}

// Plays the clip and segments its newest frame, one at a time, until another file is opened.
async function openClip(file, mine) {
  await loaded(file);
  const source = video.src;
  const scale = Math.min(1, MAX_CLIP_SIDE / Math.max(video.videoWidth, video.videoHeight));
  const [width, height] = [video.videoWidth, video.videoHeight].map((side) => Math.max(1, Math.round(scale * side)));
  $("clip").hidden = $("rate-box").hidden = false;
  $("status").textContent = "Playing the clip";
  await video.play().catch(() => {}); // it may stay paused until the user says so
  let [last, lastView, lastEnd, rate] = [-1, "", performance.now(), 0];
  try {
    while (mine === job) {
      showTime();
      const [at, chosen] = [video.currentTime, view()];
      const seen = at === last && chosen === lastView;
      const still = seen || video.seeking ? null : await stillOf(width, height);
      if (!still) {
        await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
        lastEnd = performance.now();
        continue;
      }
      [last, lastView] = [at, chosen];
      await look(await asBlob(still, width, height, "image/jpeg"), still, width, height, chosen !== "new", mine);
      still.close();
      const passed = performance.now() - lastEnd;
      lastEnd += passed;
      rate = rate ? 0.8 * rate + 0.2 * (1000 / passed) : 1000 / passed;
      if (mine === job) $("rate").textContent = rate.toFixed(1);
    }
  } finally {
    URL.revokeObjectURL(source);
    if (mine === job) video.pause();
  }
}

function showTime() {
  const at = video.currentTime;
  $("play").textContent = video.paused ? "Play" : "Pause";
  $("time").textContent = `${Math.floor(at / 60)}:${String(Math.floor(at % 60)).padStart(2, "0")}`;
  if (document.activeElement !== $("seek") && video.duration) $("seek").value = at / video.duration;
}

// ---- user input

$("choose").addEventListener("click", () => $("file").click());
$("another").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", (event) => {
  if (event.target.files[0]) open(event.target.files[0]);
  event.target.value = "";
});
$("sample").addEventListener("click", async () => {
  try {
    await open(await sample());
  } catch (error) {
    showError(error);
  }
});
$("play").addEventListener("click", () => (video.paused ? video.play() : video.pause()));
$("seek").addEventListener("input", (event) => {
  if (video.duration) video.currentTime = Number(event.target.value) * video.duration;
});
for (const id of ["alpha", "wipe"]) $(id).addEventListener("input", draw);
$("views").addEventListener("change", draw);
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("over");
});
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("over");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  if (event.dataTransfer.files[0]) open(event.dataTransfer.files[0]);
});

loadModels().catch(showError);
