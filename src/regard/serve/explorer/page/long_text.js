/**
 * A long text: a ribbon of all its tokens, and a window of some of them as words, which the ribbon moves.
 *
 * The ribbon is one canvas, whatever the length; of tokens that share a pixel the strongest is drawn. It is a slider for
 * the keyboard. The same functions as `Chips`.
 */

import { Chips } from "./chips.js";
import { painted } from "./colours.js";
import { element } from "./element.js";

export const LONG = 600; // from so many tokens on
const WINDOW = 240;
const [WIDE, HIGH] = [800, 26];

export class LongText {
  constructor(axis, options) {
    Object.assign(this, { axis, options, weights: null, peak: 1, marked: null });
    const slider = { role: "slider", tabindex: "0", "aria-label": `${options.label}: which tokens are shown` };
    const range = { "aria-valuemin": 0, "aria-valuemax": axis.tokens.length - 1 };
    this.ribbon = element("canvas", { class: "ribbon", width: WIDE, height: HIGH, ...slider, ...range });
    this.where = element("p", { class: "hint" });
    this.room = element("div");
    this.element = element("div", { class: "long" }, this.ribbon, this.where, this.room);
    this.listen();
    this.move(0);
  }

  light(weights, peak, shares = true) {
    Object.assign(this, { weights, peak, shares });
    this.chips.light(weights, peak, shares);
    this.draw();
  }

  mark(index, pinned) {
    Object.assign(this, { marked: index, pinned });
    const outside = index !== null && (index < this.start || index >= this.start + WINDOW);
    if (outside && pinned) this.move(index - WINDOW / 2);
    this.chips.mark(index, pinned);
    const made = pinned ? this.chips.chips.get(index) : null;
    if (made) this.chips.element.scrollTop = made.offsetTop - this.chips.element.offsetTop - 60;
    this.draw();
  }

  repaint() {
    this.chips.repaint();
    this.draw();
  }

  /** Show the tokens from there on. */
  move(start) {
    const many = this.axis.tokens.length;
    this.start = Math.round(Math.max(0, Math.min(many - WINDOW, start)));
    const indices = Array.from({ length: Math.min(WINDOW, many) }, (_, k) => this.start + k);
    this.chips = new Chips(this.axis, { ...this.options, indices });
    this.chips.light(this.weights, this.peak, this.shares);
    this.chips.mark(this.marked, this.pinned);
    this.room.replaceChildren(this.chips.element);
    this.where.textContent = `Tokens ${this.start} to ${this.start + indices.length - 1} of ${many}`;
    this.ribbon.setAttribute("aria-valuenow", String(this.start));
    this.ribbon.setAttribute("aria-valuetext", this.where.textContent);
    this.draw();
  }

  draw() {
    const pen = this.ribbon.getContext("2d");
    const scale = WIDE / this.axis.tokens.length;
    const most = new Float32Array(WIDE);
    this.weights?.forEach((weight, index) => {
      const end = Math.max(Math.floor(index * scale) + 1, Math.floor((index + 1) * scale));
      for (let x = Math.floor(index * scale); x < end; x++) most[x] = Math.max(most[x], Math.abs(weight));
    });
    const line = Uint8Array.from(most, (weight) => Math.min(255, Math.round((255 * weight) / this.peak)));
    pen.putImageData(painted(line, WIDE, 1, 1, this.options.which), 0, 0);
    pen.drawImage(this.ribbon, 0, 0, WIDE, 1, 0, 0, WIDE, HIGH);
    pen.strokeStyle = pen.fillStyle = getComputedStyle(this.ribbon).color;
    pen.lineWidth = 2;
    pen.strokeRect(this.start * scale + 1, 1, WINDOW * scale - 2, HIGH - 2);
    if (this.marked !== null) pen.fillRect(this.marked * scale - 1, 0, 2, HIGH);
  }

  listen() {
    const under = (event) => {
      const box = this.ribbon.getBoundingClientRect();
      const share = Math.max(0, Math.min(0.9999, (event.clientX - box.left) / box.width));
      return Math.floor(share * this.axis.tokens.length);
    };
    this.ribbon.addEventListener("pointermove", (event) => this.options.point(under(event)));
    this.ribbon.addEventListener("pointerleave", () => this.options.point(null));
    this.ribbon.addEventListener("click", (event) => this.move(under(event) - WINDOW / 2));
    this.ribbon.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.move(this.start + (step * WINDOW) / 2);
    });
  }
}
