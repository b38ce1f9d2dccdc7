/**
 * Tokens as points in space: drag to turn the cloud, point at a point, click to pin it.
 *
 * Points with weight take colour and size, the others fade. The canvas is one stop of Tab: arrows turn the cloud, + and -
 * go to the next and the previous point, Enter pins it.
 */

import { colour, dark, strength } from "./colours.js";
import { element } from "./element.js";
import { word } from "./token_text.js";

export const SIZE = 640; // pixels of the canvas
const REACH = 12; // pixels within which a point is under the pointer
const TURN = 0.12; // radians of an arrow

/** The same functions as `Chips`. */
export class PointCloud {
  unit = ""; // before the name of a token, which says itself that it is a point
  radius = 2.5;
  opaque = false;
  turn = -0.9;
  lift = 0.4;

  constructor(axis, { label, which, point, pin }) {
    Object.assign(this, { axis, label, which, hooks: { point, pin }, weights: null, marked: null, drag: null });
    this.prepare();
    this.placed = axis.positions.map((position, k) => [this.place(position), k]).filter(([place]) => place);
    const middle = [0, 1, 2].map((d) => this.placed.reduce((sum, [place]) => sum + place[d], 0) / Math.max(1, this.placed.length));
    this.placed = this.placed.map(([place, index]) => [place.map((x, d) => x - middle[d]), index]);
    this.extent = Math.max(1e-9, ...this.placed.map(([place]) => Math.hypot(...place)));
    this.canvas = element("canvas", { class: "picture points", tabindex: "0", role: "img", "aria-label": label, width: SIZE, height: SIZE });
    this.canvas.style.touchAction = "none";
    this.element = element("div", { class: "shown" }, this.canvas);
    this.listen();
    this.draw();
  }

  prepare() {}

  /** Where a token is: three numbers, or nothing. */
  place(position) {
    return position.point;
  }

  /** Draw what is behind the points. */
  backdrop() {}

  light(weights, peak) {
    Object.assign(this, { weights, peak });
    this.draw();
  }

  mark(index) {
    this.marked = index;
    const name = index === null ? "" : `: ${this.unit}${word(this.axis, index)}`;
    this.canvas.setAttribute("aria-label", `${this.label}${name}. Arrows turn, plus and minus move, Enter pins.`);
    this.draw();
  }

  repaint() {
    this.draw();
  }

  /** Where every point is on the canvas, and how near; the farthest first. */
  project() {
    const [a, b] = [this.turn, this.lift];
    const scale = (0.46 * SIZE) / this.extent;
    const seen = this.placed.map(([[x, y, z], index]) => {
      const [across, away] = [x * Math.cos(a) - y * Math.sin(a), x * Math.sin(a) + y * Math.cos(a)];
      const [up, near] = [z * Math.cos(b) + away * Math.sin(b), z * Math.sin(b) - away * Math.cos(b)];
      return { index, x: SIZE / 2 + across * scale, y: SIZE / 2 - up * scale, near: near / this.extent };
    });
    return seen.sort((one, other) => one.near - other.near);
  }

  draw() {
    const pen = this.canvas.getContext("2d");
    pen.clearRect(0, 0, SIZE, SIZE);
    this.seen = this.project();
    this.backdrop(pen);
    for (const { index, x, y, near } of this.seen) {
      const amount = this.weights ? strength(this.weights[index], this.peak) : 0.35;
      const faded = this.weights && amount < 0.02;
      pen.globalAlpha = this.opaque ? 1 : faded ? 0.65 : 0.7 + 0.3 * near;
      pen.fillStyle = faded || !this.weights ? (dark() ? "#9aa3b5" : "#5b6372") : colour(amount, this.which);
      this.dot(pen, x, y, (this.radius + near) * (1 + (this.weights ? 1.4 * amount : 0)));
    }
    pen.globalAlpha = 1;
    const marked = this.seen.find(({ index }) => index === this.marked);
    if (!marked) return;
    pen.lineWidth = 3;
    pen.strokeStyle = colour(dark() ? 0.85 : 0.75, this.which === "look" ? "seen" : "look");
    pen.beginPath();
    pen.arc(marked.x, marked.y, this.radius + 6.5, 0, 2 * Math.PI);
    pen.stroke();
  }

  dot(pen, x, y, radius) {
    pen.beginPath();
    pen.arc(x, y, Math.max(1, radius), 0, 2 * Math.PI);
    pen.fill();
  }

  listen() {
    const { canvas } = this;
    const { point, pin } = this.hooks;
    canvas.addEventListener("pointerdown", (event) => {
      this.drag = { x: event.clientX, y: event.clientY, turn: this.turn, lift: this.lift, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.drag) return point(this.under(event));
      const [right, down] = [event.clientX - this.drag.x, event.clientY - this.drag.y];
      this.drag.moved ||= Math.hypot(right, down) > 4;
      if (this.drag.moved) this.view(this.drag.turn + right / 120, this.drag.lift + down / 120);
    });
    canvas.addEventListener("pointerup", (event) => {
      const index = this.drag?.moved ? null : this.under(event);
      this.drag = null;
      if (index !== null) pin(index);
    });
    canvas.addEventListener("pointercancel", () => (this.drag = null));
    canvas.addEventListener("pointerleave", () => this.drag || point(null));
    canvas.addEventListener("blur", () => point(null));
    canvas.addEventListener("keydown", (event) => {
      const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
      const step = { "+": 1, "-": -1 }[event.key];
      if (way) this.view(this.turn + TURN * way[0], this.lift + TURN * way[1]);
      else if (step && this.placed.length) point(this.after(step));
      else if ((event.key === "Enter" || event.key === " ") && this.marked !== null) pin(this.marked);
      else return;
      event.preventDefault();
    });
  }

  view(turn, lift) {
    this.turn = turn;
    this.lift = Math.max(-Math.PI / 2, Math.min(Math.PI / 2, lift));
    this.draw();
  }

  after(step) {
    const many = this.placed.length;
    const at = this.placed.findIndex(([, index]) => index === this.marked);
    return this.placed[at < 0 ? 0 : (at + step + many) % many][1];
  }

  /** The nearest point under the pointer, of several the one in front. */
  under(event) {
    const shown = this.canvas.getBoundingClientRect();
    const x = ((event.clientX - shown.left) / shown.width) * SIZE;
    const y = ((event.clientY - shown.top) / shown.height) * SIZE;
    let [best, least] = [null, REACH];
    for (const one of this.seen) {
      const far = Math.hypot(one.x - x, one.y - y) - one.near;
      if (far < least) [best, least] = [one.index, far];
    }
    return best;
  }
}
