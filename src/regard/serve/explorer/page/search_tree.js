/**
 * The tree of hypotheses: a column per step, with kept ones on top, then finished and pruned ones.
 *
 * Steps up to the shown one are drawn. Lines connect a token to its candidates; the path of the selected hypothesis is
 * strong, by default that of the best output at the last step. For independent outputs (greedy, sampling) only the newest
 * rejected tokens are drawn.
 */

import { element } from "./element.js";
import { SearchDetails } from "./search_details.js";
import { tokenFormatter } from "./search_tokens.js";

const [COLUMN, ROW, EDGE, WIDE, HIGH] = [128, 30, 14, 96, 24];
const LONGEST = 13; // letters of a word in a box

export class SearchTree {
  /** @param shown what /explore/search gave; `go(step)` is called when a step is asked for */
  constructor(shown, go) {
    this.shown = shown;
    this.go = go;
    this.length = shown.steps.length;
    this.independent = !["beam", "diverse"].includes(shown.search.method) || shown.search.beam_size === 1;
    this.nodes = new Map(shown.steps.flatMap((step, time) => step.nodes.map((node) => [node.id, { ...node, time }])));
    this.read = tokenFormatter(shown);
    this.selected = null;
    this.picked = false;
    this.svg = make("svg", { class: "tree", role: "group", "aria-label": "Tree of hypotheses" });
    this.scroll = element("div", { class: "tree-scroll" }, this.svg);
    this.rows = new SearchDetails(shown, this.nodes, this.read, (id) => this.select(id));
    this.key = legend(this.independent);
    this.element = element("div", { class: "stage" }, this.scroll, this.key, this.rows.element);
  }

  /** Draw everything up to a step; returns a sentence about the step. */
  show(at) {
    this.at = at;
    if (!this.picked || this.nodes.get(this.selected).time > at) this.selected = this.leading(at);
    this.draw();
    return this.say(at);
  }

  /** Choose the next or the previous hypothesis of this step. */
  choose(by) {
    const all = this.column(this.at).map((node) => node.id);
    const now = all.indexOf(this.selected);
    this.select(all[now < 0 ? 0 : (now + by + all.length) % all.length]);
  }

  /** Choose a hypothesis. */
  select(id) {
    this.selected = id;
    this.picked = true;
    this.draw();
  }

  draw() {
    const placed = new Map([[0, { x: EDGE, y: EDGE }]]);
    let deepest = 0;
    for (let time = 0; time <= this.at; time++) {
      this.column(time).forEach((node, row) => {
        placed.set(node.id, { x: EDGE + 60 + time * COLUMN, y: EDGE + row * ROW });
        deepest = Math.max(deepest, row);
      });
    }
    const strong = new Set(this.path(this.selected));
    const [width, height] = [EDGE * 2 + 60 + (this.at + 1) * COLUMN, EDGE * 2 + (deepest + 1) * ROW];
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) this.svg.setAttribute(name, value);
    const lines = [];
    const boxes = [root(placed.get(0))];
    for (const [id, place] of placed) {
      if (!id) continue;
      const node = this.nodes.get(id);
      lines.push(line(placed.get(node.parent), place, node, strong.has(id)));
      boxes.push(this.box(node, place, strong.has(id)));
    }
    this.svg.replaceChildren(...lines.sort((a, b) => a.classList.contains("strong") - b.classList.contains("strong")), ...boxes);
    this.scroll.scrollLeft = this.scroll.scrollWidth;
    this.rows.show(this.at, this.selected);
  }

  box(node, { x, y }, strong) {
    const lost = node.pruned_at >= 0 && node.pruned_at <= this.at;
    const names = ["node", node.status, lost && "lost", strong && "strong", node.id === this.selected && "chosen"].filter(Boolean);
    const label = `${this.read(node.piece)}, ${node.status}, score ${node.score.toFixed(2)}${node.reason ? `: ${node.reason}` : ""}`;
    const group = make("g", { class: names.join(" "), role: "button", tabindex: "-1", "aria-label": label, "data-id": node.id });
    group.addEventListener("click", () => this.select(node.id));
    const title = make("title");
    title.textContent = label;
    const word = make("text", { x: x + 8, y: y + 16, class: "word" });
    word.textContent = cut(this.read(node.piece));
    const score = make("text", { x: x + WIDE - 6, y: y + 16, class: "number" });
    score.textContent = this.independent ? percent(Math.exp(node.log_prob)) : node.score.toFixed(2);
    group.append(title, make("rect", { x, y, width: WIDE, height: HIGH, rx: 6 }), word, score);
    return group;
  }

  /** The nodes of a step as they stand in their column. */
  column(time) {
    const order = { kept: 0, finished: 1, pruned: 2 };
    const all = this.shown.steps[time].nodes.filter((node) => !this.independent || node.status !== "pruned" || this.isDrawn(node, time));
    return [...all].sort((a, b) => order[a.status] - order[b.status] || (a.status === "kept" ? a.beam - b.beam : 0));
  }

  /** Whether a rejected token is drawn: at the newest step, of the selected output. */
  isDrawn(node, time) {
    return time === this.at && node.beam === (this.nodes.get(this.selected)?.beam ?? 0);
  }

  /** The best kept hypothesis of a step, or the best output at the last step. */
  leading(at) {
    if (at === this.length - 1 && this.shown.hypotheses.length) return this.shown.hypotheses[0].node;
    const kept = this.shown.steps[at].nodes.filter((node) => node.status !== "pruned");
    const before = this.independent && this.selected !== null ? kept.filter((node) => node.beam === this.nodes.get(this.selected).beam) : kept;
    return ((before.length ? before : kept)[0] ?? this.shown.steps[at].nodes[0])?.id ?? this.selected;
  }

  path(id) {
    const path = [];
    for (let node = this.nodes.get(id); node; node = this.nodes.get(node.parent)) path.push(node.id);
    return path;
  }

  say(at) {
    const { nodes, outputs, stopped } = this.shown.steps[at];
    const count = (status) => nodes.filter((node) => node.status === status).length;
    const parts = [`Step ${at + 1} of ${this.length}: ${count("kept")} ${this.independent ? "chosen" : "kept"}, ${count("finished")} finished`];
    if (!this.independent) parts.push(`${count("pruned")} pruned`);
    const soFar = outputs.length ? `. Outputs so far: ${outputs.length}` : "";
    return `${parts.join(", ")}${soFar}${stopped ? `. Search ended: ${stopped}` : ""}.`;
  }
}

function legend(independent) {
  const entry = (name, text) => element("span", { class: `key ${name}` }, text);
  const kinds = independent ? [["kept", "chosen"], ["finished", "finished"], ["pruned", "not chosen"]] : [["kept", "kept"], ["finished", "finished"], ["lost", "kept, pruned later"], ["pruned", "pruned"]];
  const number = independent ? "numbers are token probabilities" : "numbers are scores: log-probability / length^penalty, in nats";
  return element("p", { class: "keys" }, ...kinds.map(([name, text]) => entry(name, text)), element("span", { class: "hint" }, number));
}

function line(from, to, node, strong) {
  const [x, y] = [from.x + (node.parent ? WIDE : 40), from.y + HIGH / 2];
  const [u, v] = [to.x, to.y + HIGH / 2];
  const middle = (x + u) / 2;
  const name = `edge ${node.status}${strong ? " strong" : ""}`;
  return make("path", { class: name, d: `M${x} ${y} C${middle} ${y} ${middle} ${v} ${u} ${v}` });
}

function root({ x, y }) {
  const group = make("g", { class: "node root" });
  const word = make("text", { x: x + 20, y: y + 16, class: "word", "text-anchor": "middle" });
  word.textContent = "start";
  group.append(make("rect", { x, y, width: 40, height: HIGH, rx: 6 }), word);
  return group;
}

const cut = (word) => (word.length > LONGEST ? `${word.slice(0, LONGEST - 1)}…` : word).slice(0, LONGEST);
const percent = (share) => (share >= 0.0995 ? `${Math.round(100 * share)}%` : `${(100 * share).toFixed(1)}%`);

function make(tag, attributes = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  return made;
}
