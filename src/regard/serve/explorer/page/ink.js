/**
 * Tokens as the points of a pen: the line that was written, and under it the attention window, a row per character of the
 * text, a column per point.
 *
 * Points with weight take colour, the others fade. The line is one stop of Tab: arrows go along it, Enter pins a point.
 */

import { colour, dark, painted, strength } from "./colours.js";
import { element } from "./element.js";
import { Picture } from "./picture.js";
import { word } from "./token_text.js";

const [WIDE, HIGH] = [1100, 300]; // pixels of the canvas, at most
const EDGE = 20; // pixels around the ink
const LINE = [1.2, 2.6, 0.06]; // width of the ink: pixels of the screen, at least and at most; character heights
const REACH = 60; // pixels within which a point is under the pointer
const [ROW, MOST, NAMED] = [16, 320, 11]; // pixels: a row of the window, all of them, the least with a name

/** The same functions as `Chips`, and `follow`. `keys` are the tokens of the text. */
export class Ink extends Picture {
  constructor(axis, { keys, ...options }) {
    super(axis, { ...options, image: Promise.resolve(null) });
    this.rows = keys.tokens.length;
    const high = Math.min(ROW, MOST / this.rows);
    this.window = element("canvas", { "aria-hidden": "true" });
    this.stripe = element("i", { class: "row-mark", hidden: true });
    const names = high < NAMED ? [] : keys.tokens.map((_, k) => element("span", {}, word(keys, k)));
    const sheet = element("div", { class: "ink-sheet" }, this.window, this.stripe);
    sheet.style.height = `${high * this.rows}px`;
    const says = element("p", { class: "hint" }, "The window: a row per character, a column per pen point.");
    this.element.append(element("div", { class: "ink-window" }, element("div", { class: "ink-names", "aria-hidden": "true" }, ...names), sheet, says));
    const across = (event) => {
      const { left, width } = sheet.getBoundingClientRect();
      return Math.max(0, Math.min(axis.tokens.length - 1, Math.floor(((event.clientX - left) / width) * axis.tokens.length)));
    };
    sheet.addEventListener("pointermove", (event) => options.point(across(event)));
    sheet.addEventListener("pointerleave", () => options.point(null));
    sheet.addEventListener("click", (event) => options.pin(across(event)));
  }

  /** Show a window once it is there: bytes, a row per point, as `Store.tile` promises them. */
  async follow(tile) {
    this.tile = tile;
    const bytes = await tile.catch(() => null);
    if (this.tile !== tile || !bytes) return;
    this.bytes = bytes;
    this.unroll();
  }

  /** Draw the window: points across. */
  unroll() {
    if (!this.bytes) return;
    const { bytes, rows } = this;
    const columns = bytes.length / rows;
    const turned = Uint8Array.from(bytes, (_, k) => bytes[(k % columns) * rows + Math.floor(k / columns)]);
    [this.window.width, this.window.height] = [columns, rows];
    this.window.getContext("2d").putImageData(painted(turned, columns, rows), 0, 0);
  }

  mark(index, pinned) {
    super.mark(index, pinned);
    const many = this.axis.tokens.length;
    this.stripe.hidden = index === null;
    Object.assign(this.stripe.style, { left: `${(100 * index) / many}%`, width: `${100 / many}%` });
  }

  repaint() {
    super.repaint();
    this.unroll();
  }

  /** Make the canvas as large as the line needs; `boxes` are places on it. */
  open() {
    const places = this.placed.map((index) => this.axis.positions[index].pen);
    const [left, top, right, low] = [Math.min, Math.max].flatMap((end) => [0, 1].map((axis) => places.reduce((found, place) => end(found, place[axis]), places[0][axis])));
    const scale = (this.scale = Math.min((WIDE - 2 * EDGE) / Math.max(right - left, 1e-6), (HIGH - 2 * EDGE) / Math.max(low - top, 1e-6)));
    this.canvas.width = WIDE;
    this.canvas.height = Math.round((low - top) * scale) + 2 * EDGE;
    const start = (WIDE - (right - left) * scale) / 2;
    this.boxes = new Map(this.placed.map((index, k) => [index, [start + (places[k][0] - left) * scale, EDGE + (places[k][1] - top) * scale]]));
    this.draw();
  }

  draw() {
    if (!this.boxes) return;
    const pen = this.canvas.getContext("2d");
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    pen.lineCap = "round";
    const plain = this.weights ? (dark() ? "#3d4350" : "#d3d6dc") : dark() ? "#e9e8e4" : "#1c1f26";
    const pixel = this.canvas.width / (this.canvas.clientWidth || WIDE); // of the screen
    const wide = Math.max(LINE[0] * pixel, Math.min(LINE[1] * pixel, LINE[2] * this.scale));
    for (const index of this.placed) this.stroke(pen, index, plain, wide);
    for (const index of this.weights ? this.placed : []) {
      const amount = strength(this.weights[index], this.peak);
      if (amount > 0.05) this.stroke(pen, index, colour(Math.max(0.2, amount), this.which), wide * (1 + amount));
    }
    const place = this.boxes.get(this.marked);
    if (!place) return;
    pen.lineWidth = 1.8 * pixel;
    pen.strokeStyle = colour(dark() ? 0.85 : 0.75, "look");
    pen.beginPath();
    pen.arc(...place, 6 * pixel, 0, 2 * Math.PI);
    pen.stroke();
  }

  /** The line that leads to a point, or the point itself. */
  stroke(pen, index, ink, wide) {
    pen.strokeStyle = ink;
    pen.lineWidth = wide;
    pen.beginPath();
    pen.moveTo(...this.boxes.get(this.axis.positions[index].drawn ? index - 1 : index));
    pen.lineTo(...this.boxes.get(index));
    pen.stroke();
  }

  /** The nearest point under the pointer. */
  under(event) {
    const shown = this.canvas.getBoundingClientRect();
    const [x, y] = [((event.clientX - shown.left) / shown.width) * this.canvas.width, ((event.clientY - shown.top) / shown.height) * this.canvas.height];
    let [best, least] = [null, REACH];
    for (const [index, [u, v]] of this.boxes ?? []) {
      const far = Math.hypot(u - x, v - y);
      if (far < least) [best, least] = [index, far];
    }
    return best;
  }

  /** The next point of the line, or the one before. */
  nearest(from, [right, down]) {
    return Math.max(this.placed[0], Math.min(this.placed.at(-1), from + right + down));
  }
}
