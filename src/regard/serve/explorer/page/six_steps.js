/**
 * Self-attention in six steps, as the lecture walks through "Thinking Machines": 112 -> 14 -> 0.88. Every number that
 * is put in can be changed, and every product can be followed.
 */

import { colour, lightInk } from "./colours.js";
import { choice, element, press } from "./element.js";
import { visible } from "./token_text.js";

const MOST = 6; // tokens, at most
const PAUSE = 150;
const FOLLOWED = 8; // terms of a product that are shown

export class SixSteps {
  constructor(lab) {
    Object.assign(this, { lab, turn: 0, query: 0, mask: "none" });
    this.element = element("div", { class: "six" });
    this.reset();
  }

  /** Back to the lecture's example. */
  reset() {
    this.inputs = structuredClone(this.lab.contents.six_steps);
    this.query = 0;
    this.build();
  }

  /** Build the inputs (tokens, vectors, the three matrices) and the results below. */
  build() {
    const { inputs } = this;
    const buttons = element("div", { class: "change-buttons" },
      button("Add a token", () => this.grow(1), inputs.tokens.length >= MOST, "six-add"), button("Remove the last", () => this.grow(-1), inputs.tokens.length < 2), button("Thinking Machines", () => this.reset(), false, "six-reset"));
    const width = field("d_k, the width of a key", element("input", { type: "number", min: 1, max: 1e6, step: "any", value: inputs.d_k, id: "six-dk", on: { input: (event) => this.edit(() => (inputs.d_k = Number(event.target.value)), event) } }));
    this.masks = choice("Mask", [{ value: "none", title: "no mask" }, { value: "causal", title: "causal mask" }], (value) => this.edit(() => press(this.masks, (this.mask = value))));
    press(this.masks, this.mask);
    const x = editable("X: a row for each token", inputs.x, (n, c, value, event) => this.edit(() => (inputs.x[n][c] = value), event), inputs.tokens, (n, value) => this.edit(() => (inputs.tokens[n] = value || "?")));
    const matrices = ["w_q", "w_k", "w_v"].map((name) => editable(`W${name.slice(1)}`, inputs[name], (n, c, value, event) => this.edit(() => (inputs[name][n][c] = value), event), null, null, name));
    this.follows = element("div", { class: "six-follows" });
    this.element.replaceChildren(
      element("section", { class: "six-inputs", "aria-label": "Inputs" }, element("p", { class: "hint" }, "Change any number; everything below is recomputed. Three numbers of each query, key and value are shown, the rest of the d_k are zero."), element("div", { class: "six-matrices" }, x, ...matrices), element("div", { class: "six-options" }, width, this.masks, buttons)),
      this.follows,
    );
    this.change();
  }

  grow(by) {
    const { inputs } = this;
    if (by > 0) {
      inputs.tokens.push("token");
      inputs.x.push(inputs.x[0].map((_, k) => Number(k === inputs.tokens.length % inputs.x[0].length)));
    } else {
      inputs.tokens.pop();
      inputs.x.pop();
      this.query = Math.min(this.query, inputs.tokens.length - 1);
    }
    this.build();
  }

  /** A number was typed: take it where it is one, then ask again, soon. */
  edit(put, event) {
    if (event && !event.target.checkValidity()) return;
    put();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.change(), PAUSE);
  }

  async change() {
    const turn = ++this.turn;
    const found = await this.lab.ask({ what: "six_steps", ...this.inputs, mask: this.mask });
    if (turn !== this.turn || !found) return;
    this.found = found;
    this.show();
  }

  repaint() {
    if (this.found) this.show();
  }

  show() {
    const { found, query } = this;
    const pick = (k) => {
      this.query = k;
      this.show();
      this.follows.querySelector(`[data-query="${k}"]`)?.focus();
    };
    const who = element("div", { class: "six-who", role: "group", "aria-label": "Query token" }, "Query", ...found.tokens.map((token, k) => element("button", { type: "button", class: "quiet", dir: "auto", "data-query": k, "aria-pressed": String(k === query), on: { click: () => pick(k) } }, visible(token))));
    this.follows.replaceChildren(
      step(1, "A query, a key and a value of every token", "q = x W_q    k = x W_k    v = x W_v", element("div", { class: "six-matrices" }, ...["q", "k", "v"].map((name) => matrix(name, found[name], found.tokens, name === "q" ? query : null)))),
      who, ...this.row(query), whole(found),
    );
  }

  /** Steps 2 to 6 of one token, in the lecture's columns: one for each token that is looked at. */
  row(n) {
    const { tokens, q, k, v, scores, scaled, root, weights, weighted, z, allowed } = this.found;
    const each = (make) => tokens.map((token, m) => element("td", {}, allowed[n][m] ? make(m) : element("span", { class: "ruled" }, "masked")));
    const line = (number_, title, formula, cells) => element("tr", { "data-step": number_ }, element("th", { scope: "row" }, element("b", {}, `${number_}`), title, element("code", {}, formula)), ...cells);
    const product = (m) => q[n].slice(0, FOLLOWED).map((a, c) => `${brief(a)}·${brief(k[m][c])}`).join(" + ");
    const head = element("tr", {}, element("td", {}), ...tokens.map((token) => element("th", { scope: "col", dir: "auto" }, visible(token))));
    const table = element("table", { class: "six-table" }, element("thead", {}, head), element("tbody", {},
      line(2, "Score", `q · k`, each((m) => two(product(m), brief(scores[n][m])))),
      line(3, `Divide by ${brief(root)}`, "/ √d_k", each((m) => two(`${brief(scores[n][m])} / ${brief(root)}`, brief(scaled[n][m])))),
      line(4, "Softmax", "e^s / Σ e^s", each((m) => shaded(weights[n][m]))),
      line(5, "Softmax × value", "w v", each((m) => two(`${weights[n][m].toFixed(2)} · (${v[m].map(brief).join(", ")})`, `(${weighted[n][m].map(brief).join(", ")})`))),
    ), element("tfoot", {}, line(6, "Sum", "z = Σ w v", [element("td", { colspan: tokens.length }, element("b", { class: "six-z" }, `z = (${z[n].map(brief).join(", ")})`))])));
    return [element("div", { class: "six-scroll", tabindex: "0", role: "region", "aria-label": `Steps 2 to 6 for ${tokens[n]}` }, table)];
  }
}

/** All rows at once: softmax(Q Kᵀ / √d_k) V = Z. */
function whole({ tokens, weights, z }) {
  const square = matrix("softmax(Q Kᵀ / √d_k)", weights, tokens, null, tokens, true);
  return step("", "All tokens at once", "Z = softmax(Q Kᵀ / √d_k) V", element("div", { class: "six-matrices" }, square, matrix("Z", z, tokens)));
}

function step(number, title, formula, body) {
  return element("section", { class: "six-step" }, element("h3", {}, number === "" ? "" : element("b", {}, String(number)), title, element("code", {}, formula)), body);
}

/** Numbers to read. */
function matrix(name, values, rows, marked = null, columns = null, shade = false) {
  const head = columns ? element("tr", {}, element("td", {}), ...columns.map((token) => element("th", { scope: "col", dir: "auto" }, visible(token)))) : "";
  const lines = values.map((row, n) => element("tr", { class: n === marked ? "marked" : null }, element("th", { scope: "row", dir: "auto" }, visible(rows[n])), ...row.map((value) => element("td", {}, shade ? shaded(value) : brief(value)))));
  return element("table", { class: "numbers" }, element("caption", {}, name), element("tbody", {}, head, ...lines));
}

/** Numbers to change; rows have names that may be changed too. */
function editable(title, values, put, names = null, rename = null, id = "x") {
  const cell = (value, n, c) => element("td", {}, element("input", { type: "number", step: "any", required: true, min: -1e6, max: 1e6, value, "aria-label": `${title}, row ${n + 1}, column ${c + 1}`, "data-cell": `${id}-${n}-${c}`, on: { input: (event) => put(n, c, Number(event.target.value), event) } }));
  const label = (n) => element("th", { scope: "row" }, element("input", { type: "text", value: names[n], maxlength: 40, "aria-label": `Token ${n + 1}`, "data-token": n, on: { input: (event) => rename(n, event.target.value.trim()) } }));
  const lines = values.map((row, n) => element("tr", {}, names ? label(n) : "", ...row.map((value, c) => cell(value, n, c))));
  return element("table", { class: "numbers editable" }, element("caption", {}, title), element("tbody", {}, ...lines));
}

const two = (how, what) => element("span", { class: "two" }, element("small", {}, how), element("b", {}, what));

function shaded(weight) {
  const amount = 0.9 * Math.sqrt(Math.min(1, Math.max(0, weight)));
  const made = element("b", { class: `six-weight${lightInk(amount) ? " light-ink" : ""}` }, weight.toFixed(2));
  made.style.backgroundColor = colour(amount, "look");
  return made;
}

/** A number as one would write it: whole where it is whole, else two digits. */
function brief(value) {
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) >= 1e5 ? value.toExponential(1) : String(Number(value.toFixed(2)));
}

function button(title, click, disabled = false, id = null) {
  return element("button", { type: "button", class: "quiet", disabled, id, on: { click } }, title);
}

function field(title, control) {
  return element("label", { class: "field" }, element("span", { class: "label" }, title), control);
}
