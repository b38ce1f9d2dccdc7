/**
 * Export: the inspection as an HTML page that needs no server or as JSON, the selected map as PNG or SVG.
 *
 * HTML and JSON of a served inspection come from the server; an exported page makes its JSON here.
 */

import { canvasPen, draw, svgPen } from "./drawing.js";
import { element } from "./element.js";
import * as embedded from "./embedded.js";
import { ask } from "./remote.js";
import { sheetOf } from "./sheets.js";
import { headName } from "./token_text.js";
import { view } from "./views.js";

const WORDS = 96; // rows or columns, at most, that are labelled
const CELLS = 256; // per side of a picture, at most

/** Build the export buttons and a status line. */
export function mount(box, store) {
  const status = element("p", { role: "status", class: "hint" });
  const button = (title, make, hint, isDrawn = false) => {
    const press = async () => {
      if (!store.inspection) return;
      try {
        const [blob, suffix] = await make(store);
        const name = `${stem(store)}.${suffix}`;
        save(blob, name);
        status.textContent = `Saved ${name}.`;
      } catch (error) {
        status.textContent = error.message;
      }
    };
    return element("button", { type: "button", class: "quiet", "data-export": title, "data-drawn": isDrawn, title: hint, disabled: true, on: { click: press } }, title);
  };
  const buttons = [
    ...(embedded.isExported() ? [] : [button("HTML", page, "One file with this inspection that works offline")]),
    button("JSON", numbers, "The weights as numbers"),
    button("PNG", (all) => drawMap(all, canvasPen, "png"), "The selected map as an image", true),
    button("SVG", (all) => drawMap(all, svgPen, "svg"), "The selected map as vector graphics", true),
  ];
  const ready = () => {
    for (const each of buttons) {
      each.disabled = !store.inspection;
      each.hidden = each.hasAttribute("data-drawn") && store.inspection?.maps.length === 0;
    }
  };
  box.replaceChildren(element("div", { class: "save", role: "group", "aria-label": "Save" }, ...buttons), status);
  store.on("inspection", ready);
  ready();
}

async function page(store) {
  return [await download(store.inspection.id, "html"), "html"];
}

async function numbers(store) {
  if (!embedded.isExported()) return [await download(store.inspection.id, "json"), "json"];
  const { about } = embedded.content();
  const maps = Object.fromEntries(about.maps.map(({ name }) => [name, embedded.numbers(name)]));
  return [new Blob([JSON.stringify({ about, maps })], { type: "application/json" }), "json"];
}

async function download(id, format) {
  return (await ask(`/explore/inspections/${encodeURIComponent(id)}/export?format=${format}`)).blob();
}

async function drawMap(store, pen, suffix) {
  const { map: name, head, view: chosen } = store.selection, map = store.map(), sheet = sheetOf(store);
  if (!sheet) throw new Error("There is no map to save: choose a token first.");
  const rows = Math.min(sheet.n, CELLS), columns = Math.min(sheet.m, CELLS);
  const bytes = await sheet.ask([0, sheet.n], [0, sheet.m], CELLS);
  const values = Float32Array.from(bytes, (byte) => byte / 255);
  const words = (of, count, most) => (count <= Math.min(WORDS, most) ? Array.from({ length: count }, (_, k) => of(k)) : []);
  const style = getComputedStyle(document.body);
  const { title, whole } = view(chosen, map);
  const picture = {
    values, rows, columns, left: words(sheet.names[0], sheet.n, rows), top: words(sheet.names[1], sheet.m, columns),
    title: [store.inspection.model, ...(whole ? [title] : [name, headName(map, head), ...(chosen === "raw" ? [] : [title])])].join("  "),
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
