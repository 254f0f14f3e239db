// The list of classes: colour, name, share, and the share in the old model.

import { sharesOf } from "./draw.js";

export const percent = (share) => `${(100 * share).toFixed(1)} %`;
const length = (share) => `${100 * share}%`;

// One entry per class of the new model, largest share first.
export function rowsOf(models, now, before) {
  const shares = sharesOf(now);
  const oldShares = before && sharesOf(before);
  const old = new Map((models.previous?.classes ?? []).map((entry, row) => [entry.name, row]));
  const list = models.current.classes.map((entry, row) => ({
    ...entry,
    background: row === 0,
    isNew: models.previous ? !old.has(entry.name) : entry.step > 0 && entry.step === models.current.step,
    share: shares[row],
    old: oldShares && old.has(entry.name) ? oldShares[old.get(entry.name)] : null,
  }));
  return list.sort((a, b) => b.share - a.share);
}

function element(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

function bar(entry) {
  const made = element("span", "bar");
  const filled = element("i", "");
  filled.style.width = length(entry.share);
  made.append(filled);
  if (entry.old !== null) {
    const mark = element("b", "");
    mark.style.left = length(entry.old);
    made.append(mark);
  }
  return made;
}

function item(entry, hidden, changed) {
  const box = Object.assign(element("input", ""), { type: "checkbox", checked: !hidden.has(entry.name) });
  box.disabled = entry.background; // never painted
  box.setAttribute("aria-label", `Paint ${entry.name}`);
  box.addEventListener("change", () => {
    if (box.checked) hidden.delete(entry.name);
    else hidden.add(entry.name);
    changed();
  });
  const swatch = element("span", "swatch");
  swatch.style.background = `rgb(${entry.colour.join(",")})`;
  const name = element("span", "name", entry.name);
  if (entry.isNew) name.append(" ", element("span", "badge", "new"));
  const share = element("span", "share", percent(entry.share));
  if (entry.old !== null) {
    const change = 100 * (entry.share - entry.old);
    share.append(" ", element("span", "dim", `${change < 0 ? "−" : "+"}${Math.abs(change).toFixed(1)}`));
  }
  const label = element("label", entry.share === 0 && !entry.old ? "absent" : "");
  label.append(box, swatch, name, share, bar(entry));
  const made = document.createElement("li");
  made.append(label);
  return made;
}

// Fills the list; the checkboxes add and remove names in `hidden` and call `changed`.
export function fill(list, entries, hidden, changed) {
  const focused = document.activeElement?.closest("#classes") && document.activeElement.getAttribute("aria-label");
  list.replaceChildren(...entries.map((entry) => item(entry, hidden, changed)));
  if (focused) list.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
}
