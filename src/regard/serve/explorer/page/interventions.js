/**
 * Interventions on the model: switch heads off, replace their attention, draw a mask, use other positions.
 *
 * A change goes to the store; comparison.js runs it and shows both answers.
 */

import { element } from "./element.js";
import { Matrix } from "./matrix.js";
import { loadStylesheet } from "./stylesheet.js";
import { isAttention, kindName, word } from "./token_text.js";

const DO = [
  ["off", "switch off"],
  ["uniform", "attend uniformly"],
  ["identity", "attend to itself"],
  ["previous", "attend to the previous token"],
  ["mask", "mask drawn pairs"],
  ["mechanism", "use another mechanism"],
  ["positions", "other positions (whole model)"],
];
const POSITIONS = ["none", "sinusoidal", "rotary", "alibi"];
const MAX_DRAWN = 64; // tokens per side on which a mask can be drawn

/** Build the pane. */
export function mount(host, store) {
  loadStylesheet("lab.css");
  new Changes(host, store);
}

class Changes {
  constructor(host, store) {
    Object.assign(this, { host, store, pairs: new Map() });
    this.where = element("select", { id: "change-where" });
    this.heads = element("div", { class: "heads", role: "group", "aria-label": "Heads" });
    this.do = element("select", { id: "change-do", on: { change: () => this.kind() } }, ...DO.map(([value, title]) => element("option", { value }, title)));
    this.more = element("div", { class: "change-more" });
    this.add = element("button", { type: "button", class: "primary", id: "change-add", on: { click: () => this.put() } }, "Apply");
    this.error = element("p", { class: "refused", role: "alert", hidden: true });
    host.append(
      field("Where", this.where), field("Change", this.do), this.more,
      element("div", { class: "field" }, element("span", { class: "label" }, "Heads"), this.heads),
      this.add, this.error, element("p", { class: "hint" }, "Or right-click a head in the grid, or press X on it, to switch it off."),
    );
    store.on("inspection", () => this.open());
    store.on("select", () => this.choose());
    store.on("theme", () => this.drawing?.paint());
    this.open();
    this.kind();
  }

  /** A new inspection: its maps can be changed. */
  open() {
    const { inspection } = this.store;
    this.add.disabled = !inspection?.maps.length;
    this.host.parentElement.classList.toggle("nothing-to-change", Boolean(inspection) && !inspection.maps.some(isAttention));
    this.pairs.clear();
    this.error.hidden = true;
    this.choose();
  }

  /** Another map or head was chosen in the grid: offer that one. */
  choose() {
    const map = this.store.map();
    if (!map) return;
    const { head } = this.store.selection;
    const chosen = `${this.store.inspection.id} ${map.name} ${head}`;
    if (chosen === this.chosen) return; // only a token was pinned
    this.chosen = chosen;
    const group = map.name.replace(/\d+/, "*");
    const targets = [[map.name, `layer ${map.layer}, ${kindName(map)}`], [group, "all layers of this kind"], ["*", "all attention layers"]];
    const index = this.where.selectedIndex;
    this.where.replaceChildren(...targets.filter(([value], k) => targets.findIndex(([other]) => other === value) === k).map(([value, title]) => element("option", { value }, title)));
    this.where.selectedIndex = index >= 0 && index < this.where.options.length ? index : 0;
    this.heads.replaceChildren(...Array.from({ length: map.heads }, (_, k) => this.head(k, head < 0 || k === head)));
    if (this.do.value === "mask") this.kind();
  }

  head(number, pressed) {
    const flip = (event) => event.currentTarget.setAttribute("aria-pressed", String(event.currentTarget.getAttribute("aria-pressed") !== "true"));
    return element("button", { type: "button", class: "quiet head", "data-head": number, "aria-pressed": String(pressed), on: { click: flip } }, String(number));
  }

  /** Show the further fields of a kind of change: a spec, or a mask to draw. */
  kind() {
    const kind = this.do.value;
    this.drawing = null;
    this.heads.parentElement.hidden = kind === "positions";
    if (kind === "mechanism") {
      this.spec = element("input", { type: "text", id: "change-spec", value: "softmax(scale=1.0)", spellcheck: "false" });
      this.more.replaceChildren(field("Mechanism", this.spec));
    } else if (kind === "positions") {
      this.spec = element("select", { id: "change-spec" }, ...POSITIONS.map((value) => element("option", { value }, value)));
      this.more.replaceChildren(field("Positions", this.spec));
    } else if (kind === "mask") this.more.replaceChildren(this.draw());
    else this.more.replaceChildren();
  }

  /** A matrix to draw the mask on: a click (or Enter) masks or unmasks a pair. */
  draw() {
    const map = this.store.map();
    if (!map) return element("p", { class: "hint" }, "Run the model on an input first.");
    if (Math.max(map.n, map.m) > MAX_DRAWN) return element("p", { class: "hint" }, `Masks can be drawn on up to ${MAX_DRAWN} tokens.`);
    const names = (axis, count) => Array.from({ length: count }, (_, k) => word(this.store.axis(axis), k));
    const [rows, columns] = [names(map.rows, map.n), names(map.columns, map.m)];
    const cell = Math.max(6, Math.min(20, Math.floor(150 / Math.max(rows.length, columns.length))));
    this.drawing = new Matrix(rows, columns, { label: "Draw a mask: click a cell to mask it", says: (free) => (free ? "not masked; click to mask" : "masked"), idle: "Crossed pairs are masked.", cell, pick: (n, m) => this.flip(n, m) });
    this.drawn();
    const all = element("button", { type: "button", class: "quiet", on: { click: () => this.maskColumn() } }, "Mask the column");
    return element("div", { class: "field" }, element("span", { class: "label" }, "Click pairs to mask them"), this.drawing.element, all);
  }

  flip(query, key) {
    const name = `${query} ${key}`;
    if (!this.pairs.delete(name)) this.pairs.set(name, [query, key]);
    this.drawn();
  }

  maskColumn() {
    const column = this.drawing.at?.[1];
    if (column === undefined) return;
    this.drawing.rows.forEach((_, query) => this.pairs.set(`${query} ${column}`, [query, column]));
    this.drawn();
  }

  drawn() {
    const { rows, columns } = this.drawing;
    const free = rows.map((_, n) => columns.map((_, m) => (this.pairs.has(`${n} ${m}`) ? 0 : 1)));
    this.drawing.show(free.map((row) => row.map((one) => 0.02 * one)), free, 1);
  }

  put() {
    const change = { do: this.do.value, map: this.where.value };
    const heads = [...this.heads.children].filter((one) => one.getAttribute("aria-pressed") === "true").map((one) => Number(one.dataset.head));
    if (change.do === "positions") change.map = "*";
    else if (heads.length < this.heads.children.length) change.heads = heads;
    if (["mechanism", "positions"].includes(change.do)) change.spec = this.spec.value;
    if (change.do === "mask") change.mask = [...this.pairs.values()];
    if (change.heads?.length === 0) return this.fail("Choose at least one head.");
    if (change.mask?.length === 0) return this.fail("Draw at least one pair first.");
    this.error.hidden = true;
    this.store.change([...this.store.changes, change]);
  }

  fail(sentence) {
    this.error.textContent = sentence;
    this.error.hidden = false;
  }
}

/** A change in words; `maps` are those of the inspection. */
export function changeInWords(change, maps = []) {
  const title = DO.find(([value]) => value === change.do)[1];
  if (change.do === "positions") return `positions: ${change.spec}`;
  const heads = change.heads ? `head${change.heads.length > 1 ? "s" : ""} ${change.heads.join(", ")}` : "all heads";
  const more = change.spec ? `: ${change.spec}` : change.mask ? ` (${change.mask.length})` : "";
  return `${placeInWords(change.map, maps)}, ${heads}: ${title}${more}`;
}

/** The layers that a name or a pattern of names stands for. */
function placeInWords(pattern, maps) {
  if (pattern === "*") return "all attention layers";
  const map = maps.find(({ name }) => name === pattern || name.replace(/\d+/, "*") === pattern);
  if (!map) return pattern;
  return map.name === pattern ? `layer ${map.layer}, ${kindName(map)}` : `all layers, ${kindName(map)}`;
}

function field(title, control) {
  return element("label", { class: "field" }, element("span", { class: "label" }, title), control);
}
