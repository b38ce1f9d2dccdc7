/**
 * The panels of the lab: tokens and settings on the left, the resulting matrices on the right.
 */

import { strongest } from "./colours.js";
import { element, formulaLines, number } from "./element.js";
import { galleryOf } from "./gallery.js";
import { Matrix } from "./matrix.js";

const TEXT = "the animal did not cross the street because it was tired";
const WRITTEN = "das Tier war müde";
const PAUSE = 250; // ms after the last key before a request

/** Base of the panels: fields that trigger a new request when they change, and figures. */
class LabPanel {
  constructor(lab) {
    Object.assign(this, { lab, turn: 0, matrices: [] });
    this.form = element("form", { class: "lab-form", on: { submit: (event) => event.preventDefault(), input: () => this.soon() } });
    this.board = element("div", { class: "lab-board" });
    this.element = element("div", { class: "lab-panel-layout" }, this.form, this.board);
    this.fields();
    this.change();
  }

  soon() {
    clearTimeout(this.timer);
    this.turn++; // cancels the running request
    this.board.setAttribute("aria-busy", "true");
    this.timer = setTimeout(() => this.change(), PAUSE);
  }

  async change() {
    const turn = ++this.turn;
    this.board.setAttribute("aria-busy", "true");
    const found = await this.ask();
    if (turn !== this.turn) return;
    this.board.setAttribute("aria-busy", "false");
    if (!found) return;
    this.matrices = [];
    this.board.replaceChildren(...this.shown(found));
  }

  /** Weights in the colours of the explorer: uniform ones are pale. */
  weights(rows, columns, values, options, allowed = null) {
    const peak = values.flat().reduce((a, b) => Math.max(a, b), 0);
    return this.matrix(rows, columns, values, options, allowed, strongest(peak, columns.length));
  }

  matrix(rows, columns, values, options, allowed = null, peak = null) {
    const made = new Matrix(rows, columns, options);
    made.show(values, allowed, peak);
    this.matrices.push(made);
    return made.element;
  }

  repaint() {
    for (const matrix of this.matrices) if (matrix.values) matrix.paint();
  }
}

/** Any mechanism under any mask with any positions. */
export class Mechanisms extends LabPanel {
  fields() {
    const { mechanisms, positions, masks } = this.lab.contents;
    this.text = textbox("Tokens, separated by spaces", TEXT, "lab-tokens");
    this.mechanism = spec("Mechanism", mechanisms, "softmax", "lab-mechanism");
    this.mask = spec("Mask", masks.map((mask) => ({ ...mask, name: mask.example })), "none", "lab-mask");
    this.positions = spec("Positions", positions, "none", "lab-positions");
    this.sharpness = range("Sharpness: score of a token with itself", 2, 0.25, 12);
    const says = element("dl", { class: "mask-says" }, ...masks.flatMap(({ name, what }) => [element("dt", {}, name), element("dd", {}, what)]));
    this.form.append(...[this.text, this.mechanism, this.mask].map((one) => one.element), details("All masks", says), this.positions.element, this.sharpness.element);
  }

  ask() {
    return this.lab.ask({ what: "mechanism", tokens: split(this.text.get()), mechanism: this.mechanism.get(), mask: this.mask.get() || "none", positions: this.positions.get(), sharpness: Number(this.sharpness.get()) });
  }

  shown(found) {
    const { tokens, weights, scores, mask } = found;
    const mean = average(weights);
    const heads = weights.map((values, k) => figure(`head ${k}`, this.weights(tokens, tokens, values, { label: `Weights of head ${k}`, small: true, cell: small(tokens.length) }, mask.allowed)));
    return [
      formula(found.mechanism, found.positions.name === "none" ? null : found.positions),
      element("div", { class: "figures" },
        figure("Mask", this.matrix(tokens, tokens, mask.allowed, { label: "The mask", says: (allowed) => (allowed ? "may attend" : "masked"), idle: "Crossed cells are masked.", cell: large(tokens.length) }, mask.allowed, 3)),
        figure("Scores, mean of heads", this.matrix(tokens, tokens, average(scores), { label: "Scores", what: "score", cell: large(tokens.length) }, mask.allowed)),
        figure("Weights, mean of heads", this.weights(tokens, tokens, mean, { label: "Weights", cell: large(tokens.length) }, mask.allowed)),
      ),
      element("div", { class: "figures smalls" }, ...heads),
      origin(found),
    ];
  }
}

/** Every mechanism on the same tokens, with formula and cost; a click on a name opens it by itself. */
export class Gallery extends LabPanel {
  fields() {
    this.text = textbox("Tokens, separated by spaces", TEXT, "gallery-tokens");
    this.form.append(this.text.element, element("p", { class: "hint" }, "Each mechanism has small settings here, so that it shows something on a few tokens."));
  }

  ask() {
    return this.lab.ask({ what: "gallery", tokens: split(this.text.get()).slice(0, 24) });
  }

  shown(found) {
    return [galleryOf(found, this.matrices, (spec) => this.lab.openMechanism(spec))];
  }
}

/** The score functions and all other aligners, each on the same tokens; one of them large. */
export class Aligners extends LabPanel {
  fields() {
    this.read = textbox("Source tokens", TEXT, "lab-read");
    this.written = textbox("Target tokens", WRITTEN, "lab-written");
    this.aligner = spec("Aligner", this.lab.contents.aligners, "additive", "lab-aligner");
    this.seed = range("Seed of the random weights", 0, 0, 20, 1);
    this.form.append(...[this.read, this.written, this.aligner, this.seed].map((one) => one.element));
  }

  body(aligner) {
    return { what: "aligner", tokens: split(this.read.get()), written: split(this.written.get()), aligner, seed: Number(this.seed.get()) };
  }

  ask() {
    return this.lab.ask(this.body(this.aligner.get()));
  }

  shown(found) {
    const { rows, columns } = found;
    const cell = large(Math.max(rows.length, columns.length));
    const scores = found.scores ? figure("Scores", this.matrix(rows, columns, found.scores[0], { label: "Scores", what: "score", cell })) : null;
    this.gallery = element("div", { class: "figures smalls", "aria-label": "All aligners" });
    this.all(this.turn);
    return [
      formula(found.aligner),
      element("div", { class: "figures" }, scores ?? "", figure("Weights: a row per output step", this.weights(rows, columns, found.weights[0], { label: "Weights", cell }))),
      element("h3", { class: "lab-title" }, "All aligners on these tokens", element("span", { class: "aside" }, "those with a dot are the score functions of the lectures")), this.gallery, origin(found),
    ];
  }

  /** Small pictures of every aligner of the table, one after another. */
  async all(turn) {
    for (const entry of this.lab.contents.aligners) {
      const found = await this.lab.ask(this.body(entry.example));
      if (turn !== this.turn) return;
      if (!found) continue;
      const picture = this.weights(found.rows, found.columns, found.weights[0], { label: `Weights of ${entry.name}`, small: true, cell: small(found.columns.length) });
      const choose = () => {
        this.aligner.set(entry.example);
        this.change();
      };
      this.gallery.append(element("button", { type: "button", class: "lab-pick", title: entry.what, on: { click: choose } }, picture, element("span", {}, entry.name + (entry.score ? " ·" : ""))));
    }
    this.gallery.dataset.done = "yes";
  }
}

/** Every kind of positions for every pair of positions. */
export class Positions extends LabPanel {
  fields() {
    this.board.classList.add("lab-two");
    this.count = range("Positions", 16, 2, 64, 1);
    this.form.append(this.count.element, element("p", { class: "hint" }, "Added positions: similarity of the vectors of two positions. Query-key transforms: the score of two equal vectors. Biases: the number added to the score of a pair, per head."));
  }

  async ask() {
    const tokens = Array.from({ length: Number(this.count.get()) }, (_, k) => String(k));
    const found = [];
    for (const { example } of this.lab.contents.positions) {
      const one = await this.lab.ask({ what: "positions", positions: example, tokens });
      if (!one) return null;
      found.push(one);
    }
    return { tokens, found };
  }

  shown({ tokens, found }) {
    return found.map(({ positions, matrix, drawn }) => {
      const heads = matrix.slice(0, 4).map((values, k) => figure(matrix.length > 1 ? `head ${k}` : positions.where.replaceAll("_", " "), this.matrix(tokens, tokens, values, { label: `${positions.name}, head ${k}`, what: "number", spread: true, small: matrix.length > 1, cell: Math.max(3, Math.floor((matrix.length > 1 ? 84 : 200) / tokens.length)) })));
      const shown = matrix.flat(2).some((value) => value !== 0) ? element("div", { class: "figures" }, ...heads) : element("p", { class: "hint" }, "Nothing is added, so there is no map.");
      return element("section", { class: "lab-position", "aria-label": positions.name }, formula(positions), shown, drawn.length ? element("p", { class: "hint" }, "Learned in a model; random here.") : "");
    });
  }
}

// -- small parts ------------------------------------------------------------------------------------------------------

/** The summary of a part and its formula. */
function formula(...parts) {
  return element("div", { class: "lab-formulas" }, ...parts.filter(Boolean).map(({ name, what, formula: lines, paper }) => element("section", { "aria-label": name },
    element("p", {}, what, paper ? element("span", { class: "aside" }, `arXiv:${paper}`) : ""), lines ? formulaLines(lines) : "")));
}

/** Where the vectors and weights come from. */
function origin({ learned, drawn }) {
  const known = learned?.filter(Boolean).length ?? 0;
  const mixed = `${known} of ${learned?.length} tokens have vectors of the word model, the others random vectors seeded by their spelling`;
  const vectors = known === learned?.length ? "Token vectors come from the word model" : known ? mixed : "Token vectors are random, seeded by their spelling";
  const parts = drawn.length ? ` The learned weights of the ${drawn.join(" and the ")} are random: the map shows how it works, not what a trained model does.` : " Queries, keys and values are these vectors themselves.";
  return element("p", { class: "hint" }, `${vectors}.${parts}`);
}

const split = (text) => text.trim().split(/\s+/).filter(Boolean).slice(0, 64);
const large = (count) => Math.max(5, Math.min(30, Math.floor(225 / count)));
const small = (count) => Math.max(2, Math.min(12, Math.floor(120 / count)));

function average(heads) {
  return heads[0].map((row, n) => row.map((_, m) => heads.reduce((sum, head) => sum + head[n][m], 0) / heads.length));
}

function figure(title, picture) {
  return element("figure", { class: "lab-figure" }, element("figcaption", {}, title), picture);
}

function details(title, ...children) {
  return element("details", { class: "options" }, element("summary", {}, title), ...children);
}

function labelled(title, control, ...more) {
  return { element: element("label", { class: "field" }, element("span", { class: "label" }, title), control, ...more), get: () => control.value, set: (value) => (control.value = value) };
}

function textbox(title, value, id) {
  const control = element("textarea", { rows: 2, id, spellcheck: "false", dir: "auto" });
  control.value = value;
  return labelled(title, control);
}

/** A spec to type or to choose from a list. */
function spec(title, entries, value, id) {
  const control = element("input", { type: "text", id, list: `${id}-list`, spellcheck: "false", autocomplete: "off" });
  control.value = value;
  const known = element("datalist", { id: `${id}-list` }, ...entries.map((entry) => element("option", { value: entry.example ?? entry.name }, entry.what)));
  const picks = element("span", { class: "picks" }, ...entries.map((entry) => {
    const pick = (event) => {
      event.preventDefault();
      control.value = entry.example ?? entry.name;
      control.dispatchEvent(new Event("input", { bubbles: true }));
    };
    return element("button", { type: "button", class: "example", title: entry.what, on: { click: pick } }, entry.name);
  }));
  return { ...labelled(title, control), element: element("div", { class: "field" }, element("label", { class: "label", for: id }, title), control, known, picks) };
}

function range(title, value, least, most, step = 0.25) {
  const shown = element("output", {}, number(value));
  const control = element("input", { type: "range", min: least, max: most, step, value, on: { input: () => (shown.textContent = number(Number(control.value))) } });
  return labelled(title, control, shown);
}
