/**
 * All heads at a glance: a row for each layer, a small map for each head, the mean of the heads in front.
 *
 * A small map is a sample of rows; the exact numbers are asked for when a token is pointed at. Layers arrive one after
 * the other, a few at a time, and are drawn on one canvas (map_canvas.js). The grid is one stop of Tab; arrows move over
 * layers and heads. A right click or the key X switches a head off, where the model can be changed.
 */

import { strength, strongest } from "./colours.js";
import { choice, element, number, percent, press } from "./element.js";
import { mount as mountLarge } from "./large_map.js";
import { MapCanvas } from "./map_canvas.js";
import { patchGrid } from "./sheets.js";
import { hasMean, headName, isAttention } from "./token_text.js";
import { view } from "./views.js";

const SIZE = 32; // cells to a side of a small map
const AT_ONCE = 4; // requests under way
const HOLD = 700; // milliseconds of a long press
const EDGE = 8; // pixels around a small map that is scrolled to
export const MEAN = -1;

/** Build the grid of small maps, and the large map of the chosen head beneath it. */
export function mount(host, store) {
  const grid = element("div", { class: "grid-host" });
  const large = element("section", { class: "large", "aria-label": "Selected map" });
  host.append(grid, large);
  new Grid(grid, store);
  mountLarge(large, store);
}

class Grid {
  constructor(host, store) {
    this.host = host;
    this.store = store;
    this.cells = new Map();
    this.sheet = null;
    this.group = null;
    store.on("inspection", () => this.open());
    store.on("select", () => this.mark());
    store.on("changes", () => this.cross());
    store.on("theme", () => this.sheet?.repaint());
    this.open();
  }

  /** A new inspection: sort its maps into groups and show the one the chosen map is in. */
  open() {
    const { store } = this;
    this.groups = store.inspection ? grouped(store.inspection.maps) : [];
    this.group = null;
    this.host.replaceChildren();
    if (!this.groups.length) return;
    const options = this.groups.map(({ title }, k) => ({ value: k, title }));
    this.tabs = choice("Which attention", options, (k) => this.enter(Number(k)));
    this.tabs.hidden = options.length < 2;
    this.box = element("div", { class: "grid-scroll" });
    this.hint = element("p", { class: "hint" });
    this.host.append(element("h2", { class: "pane-title" }, this.store.inspection.maps.some(isAttention) ? "Layers and heads" : "Maps"), this.tabs, this.box, this.hint);
    this.mark();
  }

  /** Choose another group: the same layer in it, or its last. */
  enter(k) {
    const now = this.store.map();
    const { maps } = this.groups[k];
    const map = maps.find((each) => each.layer === now?.layer) ?? maps[maps.length - 1];
    this.store.select({ map: map.name });
  }

  mark() {
    const { map, head } = this.store.selection;
    const k = this.groups.findIndex(({ maps }) => maps.some((each) => each.name === map));
    if (k < 0) return;
    press(this.tabs, k);
    if (this.group !== this.groups[k]) this.build(this.groups[k]);
    this.chosen?.classList.remove("chosen");
    this.chosen?.setAttribute("aria-selected", "false");
    if (this.chosen) this.chosen.tabIndex = -1;
    this.chosen = this.cells.get(key(map, head));
    this.chosen?.classList.add("chosen");
    this.chosen?.setAttribute("aria-selected", "true");
    if (this.chosen) this.chosen.tabIndex = 0;
    if (this.chosen) reveal(this.box, this.chosen);
  }

  build(group) {
    this.group = group;
    this.cells.clear();
    this.sheet?.end();
    const heads = Math.max(...group.maps.map((map) => map.heads));
    const mean = group.maps.some(hasMean);
    const grid = element("div", { class: "grid", role: "grid", "aria-label": `${group.title}: layers and heads` });
    grid.style.setProperty("--heads", heads + (mean ? 1 : 0));
    grid.append(header(group.maps[0], heads, mean), ...group.maps.map((map) => this.line(map, mean)));
    grid.addEventListener("keydown", (event) => this.move(event));
    grid.addEventListener("contextmenu", (event) => this.rightClick(event));
    grid.addEventListener("pointerdown", (event) => this.hold(event));
    for (const end of ["pointerup", "pointercancel", "pointerleave"]) grid.addEventListener(end, () => clearTimeout(this.holding));
    this.box.replaceChildren(grid);
    const patches = this.asPatches(group.maps[0]);
    const drawn = view("raw", group.maps[0]).square ?? (patches ? "Each square is one head: its weights on the grid of patches." : "Each square is one head: a row per query token, a column per key token.");
    const off = this.store.canChange && isAttention(group.maps[0]) ? "Right-click, a long press or X switches it off." : "";
    this.hint.textContent = [drawn, mean ? "x̄ is the mean of the heads." : "", off].filter(Boolean).join(" ");
    grid.classList.toggle("single", group.maps.length === 1 && heads === 1); // without numbers of layers and heads
    this.cross();
    this.sheet = new MapCanvas(grid, SIZE);
    this.store.painting = this.fetch(group);
  }

  line(map, mean) {
    const heads = [...(mean ? [MEAN] : []), ...Array(map.heads).keys()];
    const cells = heads.map((head) => {
      const name = headName(map, head);
      const attributes = { type: "button", role: "gridcell", class: head === MEAN ? "cell mean" : "cell", tabindex: "-1", "aria-keyshortcuts": this.store.canChange ? "X" : null };
      const choose = () => this.store.select({ map: map.name, head });
      const made = element("button", { ...attributes, "data-head": head, "data-map": map.name, "data-name": `Layer ${map.layer}, ${name}`, "aria-label": `Layer ${map.layer}, ${name}`, on: { click: choose } });
      this.cells.set(key(map.name, head), made);
      return made;
    });
    return element("div", { role: "row", class: "line" }, element("span", { role: "rowheader", class: "layer" }, String(map.layer)), ...cells);
  }

  rightClick(event) {
    if (!this.store.canChange) return;
    clearTimeout(this.holding);
    if (this.held) event.preventDefault(); // the same long press has switched it already
    else this.flip(event, event.target.closest(".cell"));
  }

  /** A finger that stays switches a head off as a right click does, which not every phone has. */
  hold(event) {
    this.held = false;
    clearTimeout(this.holding);
    if (event.pointerType !== "touch" || !this.store.canChange) return;
    this.holding = setTimeout(() => {
      this.held = true;
      this.flip(event, event.target.closest(".cell"));
    }, HOLD);
  }

  /** Switch the head under a cell off or on. */
  flip(event, cell) {
    if (!cell) return;
    event.preventDefault();
    this.store.toggle(cell.dataset.map, Number(cell.dataset.head));
  }

  /** Cross out what is switched off. */
  cross() {
    for (const cell of this.cells.values()) {
      const { map, head } = cell.dataset;
      const off = Number(head) === MEAN ? [...Array(this.store.map(map)?.heads ?? 0).keys()].every((one) => this.store.isOff(map, one)) : this.store.isOff(map, Number(head));
      cell.classList.toggle("off", off && this.store.changes.length > 0);
      cell.setAttribute("aria-label", `${cell.dataset.name}${off ? ", switched off" : ""}`);
    }
  }

  /** The grid of patches that the only query of a map attends to; null where there is none. */
  asPatches(map) {
    return map.n === 1 ? patchGrid(this.store.axis(map.columns)) : null;
  }

  /** The heads of a map of one query, as the grids of their patches: {bytes, scale}. */
  async sampleOfPatches(map, grid) {
    const rows = await Promise.all(Array.from({ length: map.heads }, (_, head) => this.store.row({ map: map.name, head, query: 0, view: "raw" })));
    const bytes = new Uint8Array(map.heads * SIZE * SIZE);
    const scale = rows.map((row) => row.reduce((a, b) => Math.max(a, b), 0));
    rows.forEach((row, head) => {
      for (let y = 0; y < SIZE; y++) for (let x = 0; x < SIZE; x++) {
        const index = grid.cells[Math.floor((y * grid.rows) / SIZE) * grid.columns + Math.floor((x * grid.columns) / SIZE)];
        bytes[(head * SIZE + y) * SIZE + x] = scale[head] > 0 ? Math.round((255 * row[index]) / scale[head]) : 0;
      }
    });
    return { bytes, scale };
  }

  /** Small maps of all layers, those by the chosen one first; a group that is no longer shown asks for no more. */
  async fetch(group) {
    const chosen = this.store.map().layer;
    const left = [...group.maps].sort((a, b) => Math.abs(a.layer - chosen) - Math.abs(b.layer - chosen));
    const work = async () => {
      while (left.length && this.group === group) {
        const map = left.shift();
        try {
          const grid = this.asPatches(map);
          const { bytes, scale } = await (grid ? this.sampleOfPatches(map, grid) : this.store.sample(map.name, SIZE));
          if (this.group === group) this.paint(map, bytes, scale);
        } catch (error) {
          if (this.group === group) this.store.fail(error);
          return;
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    if (this.group === group) this.host.dispatchEvent(new CustomEvent("drawn", { bubbles: true }));
  }

  /** The heads of a layer, and their mean. */
  paint(map, bytes, scale) {
    const area = SIZE * SIZE;
    const one = (head) => bytes.subarray(head * area, (head + 1) * area);
    const maps = Array.from({ length: map.heads }, (_, head) => this.labelled(map, head, one(head), scale[head]));
    if (this.cells.has(key(map.name, MEAN))) maps.push(this.labelled(map, MEAN, ...mean(map.heads, one, scale)));
    this.sheet.put(maps);
  }

  labelled(map, head, bytes, peak = 1) {
    const cell = this.cells.get(key(map.name, head));
    cell.title = `${cell.dataset.name}: largest weight ${peak > 1.001 ? number(peak) : percent(peak)}`;
    cell.classList.add("drawn");
    return [cell, bytes, strength(peak, strongest(peak, map.m))];
  }

  move(event) {
    if (event.key.toLowerCase() === "x" && !event.ctrlKey && !event.metaKey && !event.altKey && this.store.canChange) return this.flip(event, event.target.closest(".cell"));
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    const lines = this.group.maps;
    const { map, head } = this.store.selection;
    const at = lines.findIndex((each) => each.name === map);
    const line = lines[Math.max(0, Math.min(lines.length - 1, at + step[0]))];
    const least = hasMean(line) ? MEAN : 0;
    const next = Math.max(least, Math.min(line.heads - 1, head + step[1]));
    this.store.select({ map: line.name, head: next });
    this.chosen?.focus();
  }
}

/** Scroll a box, and not the page, so far that something in it is seen. */
function reveal(box, inner) {
  const [outside, inside] = [box.getBoundingClientRect(), inner.getBoundingClientRect()];
  const short = (low, high, least, most) => Math.max(0, high - most) || Math.min(0, low - least);
  const by = [short(inside.left - EDGE, inside.right + EDGE, outside.left, outside.right), short(inside.top - EDGE, inside.bottom + EDGE, outside.top, outside.bottom)];
  if (by[0] || by[1]) box.scrollBy(...by);
}

function header({ named }, heads, mean) {
  const names = [...(mean ? ["x̄"] : []), ...Array.from({ length: heads }, (_, k) => named?.[k] ?? String(k))];
  const spans = names.map((name, k) => element("span", { role: "columnheader", class: mean && k === 0 ? "head-name mean" : "head-name", title: mean && k === 0 ? "mean of heads" : null }, name));
  return element("div", { role: "row", class: "line names" }, element("span", { class: "layer" }), ...spans);
}

/** The mean of the heads, made of what was sent. */
function mean(heads, one, scale) {
  const sum = new Float32Array(SIZE * SIZE);
  for (let head = 0; head < heads; head++) one(head).forEach((byte, k) => (sum[k] += (byte * (scale[head] ?? 1)) / heads));
  const peak = sum.reduce((a, b) => Math.max(a, b), 1e-12);
  return [Uint8Array.from(sum, (value) => Math.round((255 * value) / peak)), peak / 255];
}

/** Maps that belong together: the same kind between the same axes, from the same part of the model. */
function grouped(maps) {
  const groups = new Map();
  for (const map of maps) {
    const part = map.name.split(/[.\d]/)[0];
    const name = [map.kind, map.rows, map.columns, part].join("|");
    if (!groups.has(name)) groups.set(name, { title: title(map, part), maps: [] });
    groups.get(name).maps.push(map);
  }
  return numbered([...groups.values()]);
}

/** Groups of one title, as the stages of a pyramid have it, are told apart by their number. */
function numbered(groups) {
  const count = (name) => groups.filter(({ title }) => title === name).length;
  const met = new Map();
  return groups.map((group) => {
    if (count(group.title) < 2) return group;
    met.set(group.title, (met.get(group.title) ?? 0) + 1);
    return { ...group, title: `${group.title} ${met.get(group.title)}` };
  });
}

function title(map, part) {
  if (map.kind === "rollout") return map.part ? `Rollout: ${map.part}` : "Rollout";
  const named = { cross: "Cross", align: "Alignment", lattice: "Lattice", labels: "Labels", gradcam: "Grad-CAM", layercam: "LayerCAM" };
  if (map.kind !== "self") return named[map.kind] ?? map.kind;
  return { encoder: "Encoder", decoder: "Decoder" }[part] ?? capitalised(map.rows.replaceAll("_", " "));
}

const capitalised = (text) => text[0].toUpperCase() + text.slice(1);

const key = (map, head) => `${map} ${head}`;
