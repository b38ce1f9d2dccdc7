/**
 * The search of a CTC model, frame by frame.
 *
 * Three pictures share one time axis: the spectrogram; the probability of every label; the lattice, coloured by the
 * posterior of each state (blanks and labels in turn), with the most likely path. Below: the prefixes that the search
 * kept and pruned at the marked frame.
 */

import { colour } from "./colours.js";
import { element } from "./element.js";
import { visible } from "./token_text.js";

const [LEFT, RIGHT, SPECTRUM, ROW, GAP] = [74, 14, 90, 16, 24];
const MIN_PROBABILITY = 0.02; // labels that never reach it are not drawn
const NEVER = -39;

export class SearchLattice {
  /** @param shown what /explore/search gave; `go(frame)` is called when a frame is asked for */
  constructor(shown, go) {
    this.shown = shown;
    this.go = go;
    this.length = shown.steps.length;
    this.labels = shown.labels.map((_, k) => k).filter((k) => shown.probabilities.some((row) => row[k] >= MIN_PROBABILITY));
    this.canvas = element("canvas", { class: "lattice", role: "img", "aria-label": `The lattice of “${shown.hypotheses[0].text}”` });
    this.canvas.addEventListener("click", (event) => go(this.frame(event)));
    this.container = element("div", { class: "lattice-container" }, this.canvas);
    this.card = element("section", { class: "card" });
    this.words = element("section", { class: "card" }, element("h3", {}, "Transcript"), this.timed());
    this.element = element("div", { class: "stage" }, this.container, element("div", { class: "stage-cards" }, this.card, this.words));
    this.at = 0;
    new ResizeObserver(() => this.draw()).observe(this.container);
  }

  /** Put the mark on a frame; returns a sentence about the frame. */
  show(at) {
    this.at = at;
    this.draw();
    const step = this.shown.steps[at];
    this.card.replaceChildren(...(step.kept ? this.prefixes(step) : this.label(step)));
    const row = this.shown.probabilities[at];
    const best = row.indexOf(Math.max(...row));
    const name = this.shown.labels[best] === "-" ? "blank" : `“${this.shown.labels[best]}”`;
    return `${(at * this.shown.seconds).toFixed(2)} s: most likely is ${name}, ${Math.round(100 * row[best])} %.`;
  }

  /** Go to the start of the next or the previous word. */
  choose(by) {
    const starts = this.shown.hypotheses[0].words.map(({ start }) => Math.round(start / this.shown.seconds));
    const [later, earlier] = [starts.filter((at) => at > this.at), starts.filter((at) => at < this.at)];
    const at = by > 0 ? later[0] : earlier[earlier.length - 1];
    if (at !== undefined) this.go(at);
  }

  prefixes({ kept, pruned, of }) {
    const line = (one, status) => {
      const ends = one.label > NEVER || one.blank > NEVER ? (one.blank > one.label ? "ends in a blank" : "ends in its last label") : "";
      return element("li", { class: status }, element("span", { class: "share" }, one.score.toFixed(2)), element("span", { class: "prefix", dir: "auto" }, one.text.map(visible).join(" ") || "(empty)"), element("span", { class: "why" }, status === "kept" ? ends : `pruned: below the best ${kept.length}`));
    };
    const list = element("ol", { class: "prefixes" }, ...kept.map((one) => line(one, "kept")), ...pruned.map((one) => line(one, "pruned")));
    const title = element("h3", {}, `Prefixes after this frame: ${kept.length} kept of ${of}`);
    return [title, list, element("p", { class: "hint" }, "Numbers are log-probabilities of the prefix over all alignments up to this frame, in nats.")];
  }

  label({ label, reason, text }) {
    const effect = reason === "written" ? "It is added to the output." : `It is ${reason}, so nothing is added to the output.`;
    return [element("h3", {}, "Most likely label of this frame"), element("p", { class: "text-so-far" }, visible(label)), element("p", { class: "why" }, effect), element("p", { dir: "auto" }, text.map(visible).join(" ") || "(empty)")];
  }

  timed() {
    const [{ words, text, score }] = this.shown.hypotheses;
    const list = words.map(({ word, start, end }) => element("li", {}, element("span", { class: "share" }, `${start.toFixed(2)}–${end.toFixed(2)} s`), element("span", { dir: "auto" }, visible(word))));
    return element("div", {}, element("p", { class: "text-so-far", dir: "auto" }, text || "(empty)"), element("p", { class: "hint" }, `log-probability ${score.toFixed(3)} nats`), element("ol", { class: "prefixes" }, ...list));
  }

  // -- drawing ---------------------------------------------------------------------------------------------------------

  get height() {
    return SPECTRUM + GAP + this.labels.length * ROW + GAP + this.shown.states.length * ROW + GAP;
  }

  draw() {
    const wide = this.container.clientWidth;
    if (!wide) return;
    const scale = window.devicePixelRatio || 1;
    [this.canvas.width, this.canvas.height] = [wide * scale, this.height * scale];
    this.canvas.style.height = `${this.height}px`;
    const pen = this.canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    const style = getComputedStyle(this.canvas);
    const ink = (name) => style.getPropertyValue(name).trim();
    const { spectrum, probabilities, share, states, labels, path, seconds } = this.shown;
    const frames = share.length;
    const each = (wide - LEFT - RIGHT) / frames;
    const own = Math.ceil(spectrum.length / frames);
    heat(pen, spectrum.map((row) => row.map((byte) => byte / 255)), 0, SPECTRUM, each / own, true);
    const middle = SPECTRUM + GAP;
    heat(pen, probabilities.map((row) => this.labels.map((k) => row[k])), middle, this.labels.length * ROW, each);
    const low = middle + this.labels.length * ROW + GAP;
    heat(pen, share, low, states.length * ROW, each);
    pen.font = "12px sans-serif";
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    pen.fillStyle = ink("--soft");
    this.labels.forEach((k, row) => pen.fillText(visible(labels[k]), LEFT - 8, middle + (row + 0.5) * ROW));
    states.forEach((name, row) => pen.fillText(visible(name), LEFT - 8, low + (row + 0.5) * ROW));
    pen.textAlign = "left";
    pen.fillText("spectrogram", LEFT, SPECTRUM + GAP / 2 - 2);
    pen.fillText("label probabilities", LEFT, low - GAP / 2 - 2);
    pen.fillText("state posteriors and most likely path", LEFT, low + states.length * ROW + GAP / 2 - 2);
    pen.strokeStyle = ink("--seen");
    pen.lineWidth = 2;
    pen.beginPath();
    path.forEach((state, n) => state >= 0 && pen.lineTo(LEFT + (n + 0.5) * each, low + (state + 0.5) * ROW));
    pen.stroke();
    pen.strokeStyle = ink("--ink");
    pen.lineWidth = 1;
    pen.strokeRect(LEFT + this.at * each, 0.5, each, this.height - GAP);
    pen.textAlign = "right";
    pen.fillText(`${(frames * seconds).toFixed(1)} s`, wide - RIGHT, SPECTRUM + GAP / 2 - 2);
  }

  frame(event) {
    const box = this.canvas.getBoundingClientRect();
    return Math.floor(((event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)) * this.shown.share.length);
  }
}

/** Columns of shares from 0 to 1 as a picture of `height`, `each` pixels a column; `up`: the first row is the lowest. */
function heat(pen, columns, top, height, each, up = false) {
  const rows = columns[0].length;
  const high = height / rows;
  columns.forEach((column, n) => {
    column.forEach((value, row) => {
      if (value < 0.004) return;
      pen.fillStyle = colour(up ? value : Math.sqrt(value));
      pen.fillRect(LEFT + n * each, top + (up ? rows - 1 - row : row) * high, each + 0.5, high + 0.5);
    });
  });
}
