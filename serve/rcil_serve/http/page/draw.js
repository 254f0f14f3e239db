// Converts masks of class rows to coloured pixels, without access to the page.

const DIMMED = 0.45;
const STRIPE = 4;
export const MAX_CLASSES = 256; // browsers decode grey images to one byte per pixel

export function pixelsOf(source, width, height) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(source, 0, 0, width, height);
  return context.getImageData(0, 0, width, height);
}

// Converts a bitmap of class rows to one byte per pixel.
export function maskOf(bitmap) {
  const { data } = pixelsOf(bitmap, bitmap.width, bitmap.height);
  const mask = new Uint8Array(bitmap.width * bitmap.height);
  for (let i = 0; i < mask.length; i++) mask[i] = data[4 * i];
  return mask;
}

// Share of the pixels by class row.
export function sharesOf(mask) {
  const counts = new Float64Array(MAX_CLASSES);
  for (const row of mask) counts[row]++;
  return counts.map((count) => count / mask.length);
}

// For each row: colour, whether it is painted, and a number that is equal for classes of the same name.
export function tableOf(classes, hidden, names) {
  const [colour, painted, key] = [new Uint8Array(3 * MAX_CLASSES), new Uint8Array(MAX_CLASSES), new Uint16Array(MAX_CLASSES)];
  classes.forEach((entry, row) => {
    colour.set(entry.colour, 3 * row);
    painted[row] = row > 0 && !hidden.has(entry.name) ? 1 : 0;
    key[row] = 1 + names.indexOf(entry.name);
  });
  return { colour, painted, key };
}

function blend(out, at, from, colour, row, alpha) {
  for (let c = 0; c < 3; c++) out[at + c] = from[at + c] * (1 - alpha) + colour[3 * row + c] * alpha;
}

// Paints the mask over the frame, from column `left` to `right`.
export function paint(out, frame, mask, table, alpha, left = 0, right = frame.width) {
  const { data, width } = frame;
  for (let y = 0; y < frame.height; y++) {
    for (let x = left; x < right; x++) {
      const i = y * width + x;
      if (table.painted[mask[i]]) blend(out.data, 4 * i, data, table.colour, mask[i], alpha);
      else out.data.set(data.subarray(4 * i, 4 * i + 3), 4 * i);
      out.data[4 * i + 3] = 255;
    }
  }
}

// Draws a vertical line between the two halves.
export function line(out, x) {
  for (let y = 0; y < out.height; y++) {
    for (let dx = -1; dx <= 1; dx++) {
      if (x + dx >= 0 && x + dx < out.width) out.data.fill(255, 4 * (y * out.width + x + dx), 4 * (y * out.width + x + dx) + 4);
    }
  }
}

// Grey where both models agree; elsewhere the new class, or stripes of the old class where it disappeared.
export function difference(out, frame, now, before, nowTable, beforeTable) {
  const { data, width } = frame;
  for (let i = 0; i < now.length; i++) {
    const at = 4 * i;
    const grey = DIMMED * (0.299 * data[at] + 0.587 * data[at + 1] + 0.114 * data[at + 2]);
    out.data[at] = out.data[at + 1] = out.data[at + 2] = grey;
    out.data[at + 3] = 255;
    if (nowTable.key[now[i]] === beforeTable.key[before[i]]) continue;
    const striped = ((i % width) + Math.floor(i / width)) % (2 * STRIPE) < STRIPE;
    if (nowTable.painted[now[i]]) blend(out.data, at, data, nowTable.colour, now[i], 0.85);
    else if (beforeTable.painted[before[i]] && striped) blend(out.data, at, data, beforeTable.colour, before[i], 0.85);
  }
}

// Share of the pixels to which the models give different classes.
export function changedShare(now, before, nowTable, beforeTable) {
  let changed = 0;
  for (let i = 0; i < now.length; i++) changed += nowTable.key[now[i]] !== beforeTable.key[before[i]];
  return changed / now.length;
}
