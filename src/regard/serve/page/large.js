/**
 * The map of one head, large: rows look, columns are looked at. The row and the column of the token that is pointed at
 * are framed, and pointing into the map points at both.
 */

import { painted, strength, strongest } from "./colours.js";
import { element } from "./element.js";
import { view } from "./views.js";
import { word } from "./words.js";

const MOST = 256; // cells to a side that are asked for; longer maps are sampled
const NAMED = 28; // so many tokens to a side still have room for names

/** Build the large map. */
export function mount(host, store) {
  new Large(host, store);
}

class Large {
  constructor(host, store) {
    this.store = store;
    this.turn = 0;
    this.canvas = element("canvas", { class: "large-map", role: "img", "aria-label": "The map of the chosen head" });
    this.rows = element("div", { class: "row-names", "aria-hidden": "true" });
    this.columns = element("div", { class: "column-names", "aria-hidden": "true" });
    this.frame = element("div", { class: "frame" }, this.canvas, (this.rowMark = element("i", { class: "row-mark" })), (this.columnMark = element("i", { class: "column-mark" })));
    this.host = host;
    host.append(element("div", { class: "named-map" }, this.columns, this.rows, this.frame));
    store.on("select", () => this.change());
    store.on("point", () => this.mark());
    store.on("theme", () => this.paint());
    this.listen();
    this.change();
  }

  async change() {
    const map = this.store.map();
    this.host.hidden = !map;
    if (!map) return;
    this.mark();
    const { head } = this.store.selection;
    const wanted = `${this.store.look.id} ${map.name} ${head}`;
    if (wanted === this.shown) return;
    this.shown = wanted;
    this.name(map);
    const turn = ++this.turn;
    try {
      const size = Math.min(MOST, Math.max(map.n, map.m));
      const bytes = await this.store.tile(map.name, head, [0, map.n], [0, map.m], size);
      if (turn !== this.turn) return;
      this.bytes = bytes;
      this.strong = strength(bytes.peak ?? 1, strongest(bytes.peak ?? 1, map.m));
      this.wide = Math.min(size, map.m);
      this.paint();
    } catch (error) {
      if (turn === this.turn) this.store.fail(error);
    }
  }

  /** Names of tokens along the sides, where there is room. */
  name(map) {
    const put = (box, side, count) => {
      const named = count <= NAMED ? [...Array(count).keys()] : [];
      box.replaceChildren(...named.map((index) => element("span", { dir: "auto" }, word(this.store.side(side), index))));
    };
    put(this.rows, map.rows, map.n);
    put(this.columns, map.columns, map.m);
    this.frame.style.aspectRatio = `${Math.max(map.m, map.n / 2)} / ${Math.max(map.n, map.m / 2)}`;
  }

  paint() {
    if (!this.bytes) return;
    this.canvas.width = this.wide;
    this.canvas.height = this.bytes.length / this.wide;
    this.canvas.getContext("2d").putImageData(painted(this.bytes, this.canvas.width, this.canvas.height, this.strong), 0, 0);
  }

  mark() {
    const map = this.store.map();
    if (!map) return;
    const { query, key, view: chosen } = this.store.at;
    if (view(chosen).whole) return this.hideMarks();
    strip(this.rowMark, query, map.n, "insetBlockStart", "blockSize");
    strip(this.columnMark, key, map.m, "insetInlineStart", "inlineSize");
    [...this.rows.children].forEach((name, k) => name.classList.toggle("marked", k === query));
    [...this.columns.children].forEach((name, k) => name.classList.toggle("marked", k === key));
  }

  hideMarks() {
    for (const mark of [this.rowMark, this.columnMark]) mark.hidden = true;
    for (const name of [...this.rows.children, ...this.columns.children]) name.classList.remove("marked");
  }

  listen() {
    const under = (event) => {
      const { n, m } = this.store.map();
      const box = this.canvas.getBoundingClientRect();
      const place = (share, count) => Math.max(0, Math.min(count - 1, Math.floor(share * count)));
      return { query: place((event.clientY - box.top) / box.height, n), key: place((event.clientX - box.left) / box.width, m) };
    };
    const single = () => !view(this.store.selection.view).whole;
    this.canvas.addEventListener("pointermove", (event) => single() && this.store.point(under(event)));
    this.canvas.addEventListener("pointerleave", () => this.store.point({}));
    this.canvas.addEventListener("click", (event) => this.store.select({ ...under(event), map: this.store.selection.map }));
  }
}

function strip(mark, index, count, where, length) {
  mark.hidden = index === null;
  if (index === null) return;
  mark.style[where] = `${(100 * index) / count}%`;
  mark.style[length] = `${100 / count}%`;
}
