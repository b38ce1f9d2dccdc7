/**
 * A matrix of numbers with names along its sides: drawn, and read out cell by cell.
 *
 * Weights are blue from nothing to the largest; where numbers have signs, below zero is orange. A cell that a mask rules
 * out is crossed. The pointer or the arrow keys choose a cell, and the line beneath says its numbers.
 */

import { colour, dark, strength } from "./colours.js";
import { element, number } from "./element.js";
import { visible } from "./token_text.js";

const NAMED = 24; // names per side, at most
const LEGIBLE = 11; // pixels to a cell, below which names would run into one another
const SHARP = 2; // canvas pixels to one of the page

export class Matrix {
  /**
   * @param {string[]} rows @param {string[]} columns names along the sides
   * @param {object} options `label` for those who do not see it; `what` names the number, or `says(allowed)` says what a
   * cell means; `idle` is said where none is chosen; `pick(row, column)` is told of a click or of Enter; `cell`: pixels;
   * `small`: no names and no line beneath; `spread`: the smallest number is white, the largest darkest
   */
  constructor(rows, columns, options) {
    Object.assign(this, { rows, columns, options, at: null, values: null, allowed: null });
    const { label, small = false } = options;
    this.cell = options.cell ?? Math.max(5, Math.min(34, Math.floor(420 / Math.max(rows.length, columns.length))));
    this.named = Math.max(rows.length, columns.length) <= NAMED && this.cell >= LEGIBLE;
    this.canvas = element("canvas", { class: "matrix-canvas", role: "img", "aria-label": label, tabindex: small ? "-1" : "0" });
    this.canvas.width = SHARP * this.cell * columns.length;
    this.canvas.height = SHARP * this.cell * rows.length;
    this.canvas.style.width = `${this.cell * columns.length}px`;
    this.said = element("p", { class: "hint matrix-status", "aria-live": "polite" });
    const name = (token) => element("span", { dir: "auto", title: token }, visible(token));
    const across = element("div", { class: "matrix-columns" }, ...(this.named && !small ? columns.map(name) : []));
    const down = element("div", { class: "matrix-rows" }, ...(this.named && !small ? rows.map(name) : []));
    across.style.width = this.canvas.style.width;
    this.element = element("div", { class: small ? "matrix small" : "matrix" }, across, down, this.canvas, small ? null : this.said);
    if (!small) this.listen();
  }

  /** Draw values (rows of numbers); `allowed` crosses out what may not be looked at; `peak` is the darkest. */
  show(values, allowed = null, peak = null) {
    const every = values.flat();
    this.largest = Math.max(...every.map(Math.abs));
    Object.assign(this, { values, allowed, peak: peak ?? Math.max(1e-12, this.largest) });
    this.least = this.options.spread ? Math.min(...every) : null;
    this.paint();
    this.say();
  }

  paint() {
    const pen = this.canvas.getContext("2d");
    const size = SHARP * this.cell;
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.values.forEach((row, n) => row.forEach((value, m) => {
      pen.fillStyle = this.least > 0 ? colour((value - this.least) / Math.max(1e-12, this.peak - this.least)) : colour(strength(value, this.peak), value < 0 ? "seen" : "look");
      pen.fillRect(m * size, n * size, size, size);
      if (this.allowed && !this.allowed[n][m]) cross(pen, m * size, n * size, size);
    }));
    if (this.at) {
      pen.strokeStyle = dark() ? "#ffffff" : "#1c1f26";
      pen.lineWidth = 2 * SHARP;
      pen.strokeRect(this.at[1] * size + SHARP, this.at[0] * size + SHARP, size - 2 * SHARP, size - 2 * SHARP);
    }
  }

  say() {
    const { at, options } = this;
    const reach = this.least > 0 ? `From ${number(this.least)} (white) to ${number(this.peak)}.` : `The largest ${options.what ?? "weight"} is ${number(this.largest)}.`;
    if (!at || !this.values) return this.said.replaceChildren(options.idle ?? `${reach} Point at a cell.`);
    const [n, m] = at;
    const masked = this.allowed && !this.allowed[n][m];
    const value = Number(this.values[n][m].toPrecision(4));
    const text = options.says?.(!masked) ?? `${options.what ?? "weight"} ${value}${masked ? ", masked" : ""}`;
    this.said.replaceChildren(
      element("b", { dir: "auto" }, visible(this.rows[n])), " → ", element("b", { dir: "auto" }, visible(this.columns[m])),
      `: ${text}`,
    );
  }

  choose(at) {
    if (String(at) === String(this.at)) return;
    this.at = at;
    if (this.values) this.paint();
    this.say();
  }

  listen() {
    const under = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const place = (share, count) => Math.max(0, Math.min(count - 1, Math.floor(share * count)));
      return [place((event.clientY - box.top) / box.height, this.rows.length), place((event.clientX - box.left) / box.width, this.columns.length)];
    };
    this.canvas.addEventListener("pointermove", (event) => this.choose(under(event)));
    this.canvas.addEventListener("click", (event) => {
      this.choose(under(event));
      this.options.pick?.(...this.at);
    });
    this.canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      const picks = event.key === "Enter" || event.key === " ";
      if (!step && !picks) return;
      event.preventDefault();
      const [n, m] = this.at ?? [0, 0];
      if (step) this.choose([clamp(n + step[0], this.rows.length), clamp(m + step[1], this.columns.length)]);
      else this.options.pick?.(n, m);
    });
  }
}

const clamp = (index, count) => Math.max(0, Math.min(count - 1, index));

function cross(pen, x, y, size) {
  pen.strokeStyle = dark() ? "#4a505c" : "#c9c4ba";
  pen.lineWidth = SHARP;
  pen.beginPath();
  pen.moveTo(x + 0.25 * size, y + 0.25 * size);
  pen.lineTo(x + 0.75 * size, y + 0.75 * size);
  pen.moveTo(x + 0.75 * size, y + 0.25 * size);
  pen.lineTo(x + 0.25 * size, y + 0.75 * size);
  pen.stroke();
}
