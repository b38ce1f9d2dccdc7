/**
 * Taking something away: the inspection as a page that needs no server, as numbers, or the chosen map as a picture.
 *
 * Page and numbers of a served inspection come from the server; an exported page has its numbers with it and makes them here.
 */

import { canvasPen, draw, svgPen } from "./drawing.js";
import { element } from "./element.js";
import * as embedded from "./embedded.js";
import { headName, word } from "./token_text.js";

const WORDS = 96; // rows or columns that are still labelled
const CELLS = 256; // a side of a picture has no more

/** Four buttons, and a line that says what was saved. */
export function mount(box, store) {
  const said = element("p", { role: "status", class: "hint" });
  const button = (title, make, hint) => {
    const press = async () => {
      if (!store.inspection) return;
      try {
        const [blob, suffix] = await make(store);
        const name = `${stem(store)}.${suffix}`;
        save(blob, name);
        said.textContent = `Saved ${name}.`;
      } catch (error) {
        said.textContent = error.message;
      }
    };
    return element("button", { type: "button", class: "quiet", "data-export": title, title: hint, disabled: true, on: { click: press } }, title);
  };
  const buttons = [
    ...(embedded.here() ? [] : [button("HTML", page, "One file with this inspection, to be opened without a server")]),
    button("JSON", numbers, "The weights as numbers"),
    button("PNG", (all) => drawn(all, canvasPen, "png"), "The chosen map as a picture"),
    button("SVG", (all) => drawn(all, svgPen, "svg"), "The chosen map as a drawing"),
  ];
  const ready = () => buttons.forEach((each) => (each.disabled = !store.inspection));
  box.replaceChildren(element("div", { class: "save", role: "group", "aria-label": "Save" }, ...buttons), said);
  store.on("inspection", ready);
  ready();
}

async function page(store) {
  return [await asked(store.inspection.id, "html"), "html"];
}

async function numbers(store) {
  if (!embedded.here()) return [await asked(store.inspection.id, "json"), "json"];
  const { about } = embedded.held();
  const maps = Object.fromEntries(about.maps.map(({ name }) => [name, embedded.numbers(name)]));
  return [new Blob([JSON.stringify({ about, maps })], { type: "application/json" }), "json"];
}

async function asked(id, format) {
  const answer = await fetch(`/explore/inspections/${encodeURIComponent(id)}/export?format=${format}`);
  if (answer.ok) return answer.blob();
  const told = await answer.json().catch(() => ({}));
  throw new Error(told.error?.message ?? `The server refused (${answer.status}).`);
}

async function drawn(store, pen, suffix) {
  const { map: name, head } = store.selection, map = store.map();
  const rows = Math.min(map.n, CELLS), columns = Math.min(map.m, CELLS);
  const bytes = await store.tile(name, head, [0, map.n], [0, map.m], Math.max(rows, columns));
  const values = Float32Array.from(bytes, (byte) => byte / 255);
  const words = (name, count, most) => {
    const side = store.side(name);
    return side && count <= Math.min(WORDS, most) ? side.tokens.slice(0, count).map((_, k) => word(side, k)) : [];
  };
  const style = getComputedStyle(document.body);
  const picture = {
    values, rows, columns, left: words(map.rows, map.n, rows), top: words(map.columns, map.m, columns),
    title: `${store.inspection.model}  ${name}  ${headName(map, head)}`,
  };
  const paper = style.backgroundColor === "rgba(0, 0, 0, 0)" ? "#ffffff" : style.backgroundColor;
  return [await draw(picture, pen(style.color, paper)), suffix];
}

function stem(store) {
  return `regard-${store.inspection.model}`.replace(/[^\w.-]+/g, "-").slice(0, 60);
}

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = element("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
