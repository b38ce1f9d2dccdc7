/**
 * Tokens on the model's input image: patches of a photo, or frames of a spectrogram, which are boxes as high as it is.
 *
 * What is looked at stays clear and takes colour, everything else is veiled. Tokens that stand nowhere (a class token)
 * are words above the picture. The picture is one stop of Tab; arrows go to the nearest patch on that side.
 */

import { Chips } from "./chips.js";
import { colour, dark, strength } from "./colours.js";
import { element } from "./element.js";
import { word } from "./token_text.js";

const VEIL = 0.45;
const TINT = 0.72;
const MAX_TICKS = 8;
const WIDEST = 1400; // pixels of the canvas, however large the picture is

/** The same functions as `Chips`. `image` is a promise of a Blob, `seconds` the length of a recording. */
export class Picture {
  constructor(axis, { label, which, point, pin, image, seconds = null }) {
    this.which = which;
    this.axis = axis;
    this.seconds = seconds;
    this.hooks = { point, pin };
    const placed = axis.positions.map((position, k) => [position.box ?? position.time ?? position.pen, k]).filter(([box]) => box);
    this.placed = placed.map(([, index]) => index);
    const loose = axis.tokens.map((_, k) => k).filter((k) => !this.placed.includes(k));
    this.chips = loose.length ? new Chips(axis, { label: `${label}, without a position`, which, point, pin, indices: loose }) : null;
    this.canvas = element("canvas", { class: "picture", tabindex: "0", role: "img", "aria-label": label });
    this.label = label;
    const ticks = seconds === null ? null : timeAxis(seconds);
    this.element = element("div", { class: seconds === null ? "shown" : "shown audio" }, this.chips?.element, this.canvas, ticks);
    this.weights = null;
    this.marked = null;
    image.then((blob) => createImageBitmap(blob)).then((bitmap) => this.open(bitmap)).catch(() => this.open(null));
    this.listen();
  }

  light(weights, peak, shares = true) {
    this.weights = weights;
    this.peak = peak;
    this.chips?.light(weights, peak, shares);
    this.draw();
  }

  mark(index, pinned) {
    this.marked = index;
    this.pinned = pinned;
    this.chips?.mark(index, pinned);
    const name = index === null ? "" : `: ${word(this.axis, index)}`;
    this.canvas.setAttribute("aria-label", `${this.label}${name}. Arrows move, Enter pins.`);
    this.draw();
  }

  repaint() {
    this.chips?.repaint();
    this.draw();
  }

  /** Where the recording is being played, in seconds; null: it is not. */
  play(seconds) {
    this.playing = this.seconds === null ? null : seconds;
    this.draw();
  }

  /** The picture is there: make the canvas as sharp as it needs to be, and boxes in its pixels. */
  open(bitmap) {
    this.bitmap = bitmap;
    const [wide, high] = bitmap ? [bitmap.width, bitmap.height] : this.extent();
    const scale = this.seconds === null ? Math.max(1, Math.min(WIDEST / wide, Math.ceil(640 / Math.max(wide, high)))) : 1;
    const stretched = this.seconds === null ? [wide * scale, high * scale] : [Math.min(WIDEST, Math.max(900, wide)), 260];
    [this.canvas.width, this.canvas.height] = stretched.map(Math.round);
    const across = this.seconds === null ? this.canvas.width / wide : this.canvas.width / this.seconds;
    this.boxes = new Map(this.placed.map((index) => [index, this.box(this.axis.positions[index], across)]));
    this.draw();
  }

  box(position, across) {
    if (position.time) return [position.time[0] * across, 0, (position.time[1] - position.time[0]) * across, this.canvas.height];
    return position.box.map((value) => value * across);
  }

  extent() {
    const boxes = this.placed.map((index) => this.axis.positions[index].box ?? [0, 0, 900, 260]);
    return [Math.max(1, ...boxes.map(([x, , w]) => x + w)), Math.max(1, ...boxes.map(([, y, , h]) => y + h))];
  }

  draw() {
    if (!this.boxes) return;
    const pen = this.canvas.getContext("2d");
    const { width, height } = this.canvas;
    pen.clearRect(0, 0, width, height);
    pen.imageSmoothingEnabled = this.bitmap ? this.bitmap.width > 96 : true;
    pen.filter = this.weights ? "grayscale(1)" : "none"; // so that colour means weight, and nothing else
    if (this.bitmap) pen.drawImage(this.bitmap, 0, 0, width, height);
    pen.filter = "none";
    if (this.weights) for (const [index, box] of this.boxes) this.cover(pen, box, strength(this.weights[index], this.peak));
    const box = this.boxes.get(this.marked);
    if (box) this.frame(pen, box);
    if (this.playing === null || this.playing === undefined) return;
    pen.fillStyle = dark() ? "#ffffff" : "#1c1f26";
    pen.fillRect((this.playing / this.seconds) * width - 1, 0, 3, height);
  }

  cover(pen, [x, y, w, h], amount) {
    pen.globalAlpha = VEIL * (1 - amount);
    pen.fillStyle = dark() ? "#0e1014" : "#fbfaf8";
    pen.fillRect(x, y, w, h);
    pen.globalAlpha = TINT * amount;
    pen.fillStyle = colour(dark() ? 0.7 : 0.72, this.which);
    pen.fillRect(x, y, w, h);
    pen.globalAlpha = 1;
  }

  frame(pen, [x, y, w, h]) {
    const line = Math.max(2, this.canvas.width / 220);
    pen.lineWidth = line * 2;
    pen.strokeStyle = dark() ? "#0e1014" : "#ffffff";
    pen.strokeRect(x, y, w, h);
    pen.lineWidth = line;
    pen.strokeStyle = colour(dark() ? 0.85 : 0.75, this.which === "look" ? "seen" : "look");
    pen.strokeRect(x, y, w, h);
  }

  listen() {
    const { point, pin } = this.hooks;
    this.canvas.addEventListener("pointermove", (event) => point(this.under(event)));
    this.canvas.addEventListener("pointerleave", () => point(null));
    this.canvas.addEventListener("click", (event) => this.under(event) !== null && pin(this.under(event)));
    this.canvas.addEventListener("focus", () => {
      if (this.canvas.matches(":focus-visible")) point(this.marked ?? this.placed[0]);
    });
    this.canvas.addEventListener("blur", () => point(null));
    this.canvas.addEventListener("keydown", (event) => {
      const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
      if (way) point(this.nearest(this.boxes.has(this.marked) ? this.marked : this.placed[0], way));
      else if ((event.key === "Enter" || event.key === " ") && this.marked !== null) pin(this.marked);
      else return;
      event.preventDefault();
    });
  }

  under(event) {
    const shown = this.canvas.getBoundingClientRect();
    const x = ((event.clientX - shown.left) / shown.width) * this.canvas.width;
    const y = ((event.clientY - shown.top) / shown.height) * this.canvas.height;
    for (const [index, [left, top, w, h]] of this.boxes ?? []) {
      if (x >= left && x < left + w && y >= top && y < top + h) return index;
    }
    return null;
  }

  /** The nearest box in a direction: steps along it cost one, steps aside cost three. */
  nearest(from, [right, down]) {
    const middle = (box) => [box[0] + box[2] / 2, box[1] + box[3] / 2];
    const [x, y] = middle(this.boxes.get(from));
    let [best, least] = [from, Infinity];
    for (const [index, box] of this.boxes) {
      const [u, v] = middle(box);
      const along = (u - x) * right + (v - y) * down;
      const aside = Math.abs((u - x) * down) + Math.abs((v - y) * right);
      if (along > 0.5 && along + 3 * aside < least) [best, least] = [index, along + 3 * aside];
    }
    return best;
  }
}

/** The seconds of a recording beneath it, in round steps. */
function timeAxis(seconds) {
  const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60].find((each) => seconds / each <= MAX_TICKS) ?? 60 * Math.ceil(seconds / 60 / MAX_TICKS);
  const marks = Array.from({ length: Math.floor(seconds / step + 1e-6) + 1 }, (_, k) => {
    const mark = element("span", {}, `${Number((k * step).toFixed(1))} s`);
    mark.style.insetInlineStart = `${(100 * k * step) / seconds}%`;
    return mark;
  });
  return element("div", { class: "time-axis", "aria-hidden": "true" }, ...marks);
}
