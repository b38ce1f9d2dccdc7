/**
 * The large map of one head: rows are queries, columns are keys. The row and the column of the token under the pointer
 * are framed, and pointing into the map points at both.
 *
 * It zooms and moves (gestures.js), in tiles of the resolution that is shown (tiles.js). Where cells are large enough
 * their tokens stand beside them. Another head is shown at the same place, so that heads can be compared.
 */

import { element, percent } from "./element.js";
import { gestures } from "./gestures.js";
import { Tiles } from "./tiles.js";
import { view } from "./views.js";
import { word } from "./token_text.js";
import { Zoom } from "./zoom.js";

const MIN_LABEL_PIXELS = 12; // pixels to a cell, from which on a name fits beside it
const MAX_NAME_PIXELS = 76; // width of the names next to the map, at most
const LETTER = 6.4; // pixels
const REST = 80; // milliseconds of rest before finer tiles are asked for
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
    host.append(
      element("div", { class: "named-map" }, this.columns, this.rows, this.frame),
      element("div", { class: "zoom" }, this.where, element("div", { role: "group", "aria-label": "Zoom", title: HINT }, ...buttons)),
    );
    store.on("select", () => this.change());
    store.on("point", () => this.mark());
    store.on("theme", () => this.repaint());
    this.listen();
    this.change();
  }

  /** Another head, another map, another inspection: what is shown of it stays the same where sizes allow. */
  change() {
    const { store } = this;
    const map = store.map();
    this.host.hidden = !map;
    if (!map) return;
    const { head } = store.selection;
    const wanted = `${store.inspection.id} ${map.name} ${head}`;
    if (wanted === this.shown) return this.mark();
    this.shown = wanted;
    const place = [store.inspection.id, map.rows, map.columns, map.n, map.m].join(" ");
    if (place !== this.place) this.zoom = new Zoom(map.n, map.m);
    this.place = place;
    this.tiles?.end();
    this.tiles = new Tiles(map, (rows, columns, size) => store.tile(map.name, head, rows, columns, size), () => this.lay());
    for (const [box, axis] of [[this.rows, map.rows], [this.columns, map.columns]]) box.style.setProperty("--name-size", `${nameWidth(store.axis(axis))}px`);
    this.frame.style.aspectRatio = `${Math.max(map.m, map.n / 2)} / ${Math.max(map.n, map.m / 2)}`;
    this.lay();
    this.fetch();
  }

  act(does) {
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
    const most = this.tiles?.peak === undefined ? "" : `Largest: ${percent(this.tiles.peak)}.`;
    this.where.textContent = `${zoom.isWhole ? "" : shown} ${most}`;
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
    const { zoom, store } = this;
    const map = store.map();
    const most = Math.floor((this.host.clientWidth - MAX_NAME_PIXELS) / MIN_LABEL_PIXELS);
    const put = (box, axis, from, count, all) => {
      const first = Math.floor(from);
      const many = count <= most ? Math.min(all, Math.ceil(from + count)) - first : 0;
      box.hidden = !many;
      box.replaceChildren(...Array.from({ length: many }, (_, k) => {
        const made = element("span", { dir: "auto", "data-index": first + k }, element("bdi", {}, word(store.axis(axis), first + k)));
        made.style.setProperty("--at", (100 * (first + k + 0.5 - from)) / count);
        return made;
      }));
    };
    put(this.rows, map.rows, zoom.top, zoom.high, map.n);
    put(this.columns, map.columns, zoom.left, zoom.wide, map.m);
  }

  /** Frame the row and the column that are pointed at. */
  mark() {
    const { query, key, view: chosen } = this.store.at;
    const { top, left, high, wide } = this.zoom;
    const single = !view(chosen).whole;
    strip(this.marks[0], single ? query : null, top, high, "insetBlockStart", "blockSize");
    strip(this.marks[1], single ? key : null, left, wide, "insetInlineStart", "inlineSize");
    for (const [box, index] of [[this.rows, query], [this.columns, key]])
      for (const name of box.children) name.classList.toggle("marked", single && Number(name.dataset.index) === index);
  }

  listen() {
    const { store } = this;
    const single = () => !view(store.selection.view).whole;
    gestures(this.canvas, {
      zoom: () => this.zoom,
      changed: () => this.act(() => {}),
      point: (share) => (share ? single() && store.point(this.zoom.cell(...share)) : store.point({})),
      pick: (share) => store.select({ ...this.zoom.cell(...share), map: store.selection.map }),
    });
    new ResizeObserver(() => {
      this.canvas.width = Math.round(this.frame.clientWidth * devicePixelRatio);
      this.canvas.height = Math.round(this.frame.clientHeight * devicePixelRatio);
      if (this.store.map()) this.lay();
      this.fetch();
    }).observe(this.frame);
  }
}

/** Pixels that the names of an axis take up, at most `MAX_NAME_PIXELS`. */
function nameWidth(axis) {
  const longest = axis.tokens.reduce((most, _, k) => Math.max(most, word(axis, k).length), 1);
  return Math.min(MAX_NAME_PIXELS, 8 + LETTER * longest);
}

function strip(mark, index, from, count, where, length) {
  mark.hidden = index === null || index + 1 <= from || index >= from + count;
  if (mark.hidden) return;
  mark.style[where] = `${(100 * (index - from)) / count}%`;
  mark.style[length] = `${100 / count}%`;
}
