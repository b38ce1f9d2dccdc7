/**
 * The large map of what is chosen: a head in a view, or all layers (sheets.js). The row and the column of the token under
 * the pointer are framed, and pointing into the map points at both.
 *
 * It zooms and moves (gestures.js), in tiles of the resolution that is shown (tiles.js). Where cells are large enough
 * their tokens stand beside them. Another head is shown at the same place, so that heads can be compared.
 */

import { element, number, percent, times } from "./element.js";
import { gestures } from "./gestures.js";
import { sheetOf } from "./sheets.js";
import { Tiles } from "./tiles.js";
import { view } from "./views.js";
import { Zoom } from "./zoom.js";

const MIN_LABEL_PIXELS = 12; // pixels to a cell, from which on a name fits beside it
const MAX_NAME_PIXELS = [0.4, 236]; // of the names beside the map and above it, at most: a share of its width, pixels
const [LETTER, LINE] = [6.4, 15]; // pixels
const REST = 80; // milliseconds of rest before finer tiles are asked for
const MAX_HEIGHT = 0.52; // of the window
const MAX_NAMED_ROWS = 40; // for whose names a map is made higher
const HINT = "Wheel, pinch, + and − zoom; arrows and dragging move.";

/** Build the large map. */
export function mount(host, store) {
  new LargeMap(host, store);
}

class LargeMap {
  constructor(host, store) {
    Object.assign(this, { host, store, zoom: new Zoom(1, 1), tiles: null });
    this.canvas = element("canvas", { class: "large-map", role: "img", tabindex: "0", "aria-label": `Map of the selected head. ${HINT}` });
    this.marks = [element("i", { class: "row-mark" }), element("i", { class: "column-mark" })];
    this.frame = element("div", { class: "frame" }, this.canvas, ...this.marks);
    this.rows = element("div", { class: "row-names", "aria-hidden": "true" });
    this.columns = element("div", { class: "column-names", "aria-hidden": "true" });
    this.where = element("p", { class: "hint", "aria-live": "polite" });
    const press = (title, label, does) => element("button", { type: "button", class: "quiet", "aria-label": label, on: { click: () => this.act(does) } }, title);
    const buttons = [press("−", "Zoom out", () => this.zoom.closer(0.5)), press("+", "Zoom in", () => this.zoom.closer(2)), press("Whole", "Show the whole map", () => this.zoom.whole())];
    this.says = element("p", { class: "hint" });
    host.append(
      element("h2", { class: "pane-title" }, "Selected map"),
      this.says,
      element("div", { class: "named-map" }, this.columns, this.rows, this.frame),
      element("div", { class: "zoom" }, this.where, element("div", { role: "group", "aria-label": "Zoom", title: HINT }, ...buttons)),
    );
    store.on("select", () => this.change());
    store.on("point", () => this.mark());
    store.on("theme", () => this.repaint());
    this.listen();
    this.change();
  }

  /** Another head, map, view or inspection: what is shown of it stays the same where sizes allow. */
  change() {
    const { store } = this;
    const sheet = sheetOf(store);
    this.host.hidden = !sheet;
    if (!sheet) {
      this.tiles?.end();
      Object.assign(this, { tiles: null, sheet: null, shown: null });
      return;
    }
    if (String(sheet.id) === this.shown) return this.mark();
    this.shown = String(sheet.id);
    this.sheet = sheet;
    const place = [store.inspection.id, ...store.axes(), sheet.n, sheet.m].join(" ");
    if (place !== this.place) this.zoom = new Zoom(sheet.n, sheet.m);
    this.place = place;
    this.tiles?.end();
    this.tiles = new Tiles(sheet, sheet.ask, () => this.lay());
    const longest = (name, count) => Array.from({ length: count }, (_, k) => name(k).length).reduce((a, b) => Math.max(a, b), 1);
    this.longest = [longest(sheet.names[0], sheet.n), longest(sheet.names[1], sheet.m)];
    this.shape();
    this.says.textContent = sheet.says;
    this.frame.dataset.sheet = sheet.isGrid ? "grid" : "map";
    this.lay();
    this.fetch();
  }

  /** As high as its rows are to its columns, no higher than `MAX_HEIGHT`, and so high that a few rows have names. */
  shape() {
    const { n, m, isGrid } = this.sheet;
    const [high, wide] = isGrid ? [n, m] : [Math.max(n, m / 2), Math.max(m, n / 2)];
    const most = MAX_HEIGHT * window.innerHeight;
    const wholeWidth = this.frame.parentElement.clientWidth;
    const limits = [MAX_NAME_PIXELS[0] * wholeWidth, MAX_NAME_PIXELS[1]];
    const sizes = this.longest.map((letters, k) => Math.min(limits[k], 8 + LETTER * letters));
    for (const [k, box] of [this.rows, this.columns].entries()) box.style.setProperty("--name-size", `${sizes[k]}px`);
    const room = wholeWidth - sizes[0];
    const named = Math.min(most, n * MIN_LABEL_PIXELS);
    const ratio = room > 0 && n <= MAX_NAMED_ROWS ? Math.max(high / wide, named / room) : high / wide;
    this.frame.style.aspectRatio = `${1 / ratio}`;
    this.host.style.setProperty("--map-width", `${most / ratio}px`);
    this.room = [Math.min(most, room * ratio), Math.min(room, most / ratio)]; // pixels for rows and columns with names
  }

  act(does) {
    if (!this.sheet) return;
    does();
    this.host.dataset.drawn = "coarse";
    this.lay();
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.fetch(), REST);
  }

  /** Put everything where it is now: names, marks, and what is there of the map. */
  lay() {
    const { zoom } = this;
    const { n, m } = zoom;
    this.canvas.classList.toggle("zoomed", !zoom.isWhole);
    this.canvas.dataset.shown = [zoom.top, zoom.left, zoom.high, zoom.wide].join(" ");
    this.name();
    this.mark();
    this.draw();
    const span = (from, count, all) => `${Math.floor(from)} to ${Math.min(all, Math.ceil(from + count)) - 1} of ${all}`;
    const shown = `Rows ${span(zoom.top, zoom.high, n)}, columns ${span(zoom.left, zoom.wide, m)}.`;
    const { whole } = view(this.store.selection.view, this.store.map()); // through all layers: it may take seconds
    const most = this.tiles?.peak === undefined ? (whole ? "Computing…" : "") : this.largest();
    this.where.textContent = `${zoom.isWhole ? "" : shown} ${most}`;
  }

  /** The largest number that is shown, with its unit. */
  largest() {
    const { peak } = this.tiles;
    const { unit = "" } = view(this.store.selection.view, this.store.map());
    const { shares, patches } = this.sheet; // patches: so many keys, if they are such
    if (!shares || peak > 1.001) return `Largest: ${number(peak)}${unit && ` ${unit}`}.`;
    return `Largest: ${percent(peak)}${patches ? ` (${times(peak * patches)} uniform)` : ""}.`;
  }

  async fetch() {
    const { tiles } = this;
    const { width, height } = this.canvas;
    if (!tiles || !width) return;
    this.host.dataset.drawn = "coarse";
    try {
      if (await tiles.fetch(this.zoom, width, height)) this.host.dataset.drawn = "fine"; // for tests
    } catch (error) {
      if (tiles === this.tiles) this.store.fail(error);
    }
  }

  draw() {
    if (this.canvas.width && this.tiles) this.tiles.draw(this.canvas, this.zoom);
  }

  repaint() {
    this.tiles?.repaint();
    this.draw();
  }

  /** Names of tokens along the sides, where there is room. */
  name() {
    const { zoom, sheet } = this;
    const put = (box, word, from, count, all, room) => {
      const most = Math.floor(room / MIN_LABEL_PIXELS + 0.01);
      const first = Math.floor(from);
      const many = count <= most ? Math.min(all, Math.ceil(from + count)) - first : 0;
      box.hidden = !many;
      box.style.setProperty("--lines", Math.max(1, Math.floor(room / count / LINE)));
      box.replaceChildren(...Array.from({ length: many }, (_, k) => {
        const made = element("span", { dir: "auto", title: word(first + k), "data-index": first + k }, element("bdi", {}, word(first + k)));
        made.style.setProperty("--at", (100 * (first + k + 0.5 - from)) / count);
        return made;
      }));
    };
    put(this.rows, sheet.names[0], zoom.top, zoom.high, sheet.n, this.room[0]);
    put(this.columns, sheet.names[1], zoom.left, zoom.wide, sheet.m, this.room[1]);
  }

  /** Frame the row and the column that are pointed at. */
  mark() {
    if (!this.sheet) return;
    const at = this.sheet.at(this.store.at);
    const { top, left, high, wide } = this.zoom;
    strip(this.marks[0], at[0], top, high, "insetBlockStart", "blockSize");
    strip(this.marks[1], at[1], left, wide, "insetInlineStart", "inlineSize");
    for (const [k, box] of [this.rows, this.columns].entries())
      for (const name of box.children) name.classList.toggle("marked", Number(name.dataset.index) === at[k]);
  }

  listen() {
    const { store } = this;
    const under = (share) => {
      const { query, key } = this.zoom.cell(...share);
      return this.sheet.cell(query, key);
    };
    gestures(this.canvas, {
      zoom: () => this.zoom,
      changed: () => this.act(() => {}),
      point: (share) => this.sheet && store.point(share ? under(share) : {}),
      pick: (share) => Object.keys(under(share)).length && store.select(under(share)),
    });
    new ResizeObserver(() => {
      this.canvas.width = Math.round(this.frame.clientWidth * devicePixelRatio);
      this.canvas.height = Math.round(this.frame.clientHeight * devicePixelRatio);
      if (this.sheet) {
        this.shape();
        this.lay();
      }
      this.fetch();
    }).observe(this.frame);
  }
}

function strip(mark, index, from, count, where, length) {
  mark.hidden = index === null || index + 1 <= from || index >= from + count;
  if (mark.hidden) return;
  mark.style[where] = `${(100 * (index - from)) / count}%`;
  mark.style[length] = `${100 / count}%`;
}
