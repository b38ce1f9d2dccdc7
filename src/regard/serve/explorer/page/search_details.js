/**
 * Below the tree: the attention of each beam, the candidates of the step, and the outputs so far.
 *
 * With cross-attention a row is a hypothesis and a column a source token; with self-attention the tokens of the selected
 * hypothesis are coloured.
 */

import { colour, lightInk, strength } from "./colours.js";
import { element, percent } from "./element.js";

export class SearchDetails {
  /** @param nodes all nodes by id, with their `time`; `read(piece)` is how a token is shown; `select(id)` chooses one */
  constructor(shown, nodes, read, select) {
    this.shown = shown;
    this.read = read;
    this.nodes = nodes;
    this.select = select;
    this.map = -1;
    this.attention = element("section", { class: "card attention" });
    this.chosen = element("section", { class: "card offered" });
    this.outputs = element("section", { class: "card outputs" });
    this.element = element("div", { class: "stage-cards" }, this.attention, this.chosen, this.outputs);
  }

  /** Everything beneath, for a step and the hypothesis that is chosen. */
  show(at, id) {
    [this.at, this.id] = [at, id];
    this.showAttention();
    this.showCandidates();
    this.showOutputs();
  }

  // -- attention of the beams ------------------------------------------------------------------------------------------

  showAttention() {
    const { maps, attention_kind: kind } = this.shown;
    this.attention.hidden = !maps.length;
    if (!maps.length) return;
    const pick = element("select", { "aria-label": "Layer" }, element("option", { value: -1 }, "mean of all layers"));
    maps.forEach((name, k) => pick.append(element("option", { value: k }, name)));
    pick.value = String(this.map);
    pick.addEventListener("change", () => {
      this.map = Number(pick.value);
      this.showAttention();
    });
    const title = kind === "self" ? "Attention to earlier tokens" : "Attention of each beam";
    const body = kind === "self" ? this.back() : this.table();
    this.attention.replaceChildren(element("div", { class: "card-head" }, element("h3", {}, title), pick), body);
  }

  /** The weights with which the word of a node was written: those of the beam that it continues. */
  weights(node) {
    const { attention } = this.shown.steps[node.time];
    const parent = this.nodes.get(node.parent);
    const beam = attention[0].length > 1 && parent ? parent.beam : 0;
    const rows = this.map < 0 ? attention.map((map) => map[beam]) : [attention[this.map][beam]];
    return rows[0].map((_, k) => rows.reduce((sum, row) => sum + row[k], 0) / rows.length);
  }

  table() {
    const going = this.shown.steps[this.at].nodes.filter((node) => node.status !== "pruned" || node.id === this.id);
    const all = going.some((node) => node.id === this.id) || !this.nodes.has(this.id) ? going : [...going, this.nodes.get(this.id)];
    const head = element("tr", {}, element("td"), ...this.shown.source.map((word) => element("th", { scope: "col" }, element("span", { dir: "auto" }, this.read(word)))));
    const table = element("table", { class: "heat" }, element("thead", {}, head));
    const body = element("tbody");
    for (const { id } of all) {
      const node = this.nodes.get(id);
      const weights = this.weights(node);
      const peak = Math.max(...weights);
      const line = element("tr", { class: `${node.status}${id === this.id ? " chosen" : ""}`, on: { click: () => this.select(id) } });
      line.append(element("th", { scope: "row", dir: "auto", title: node.text ?? node.piece }, this.read(node.piece)));
      weights.forEach((weight, k) => line.append(cell(weight, peak, `${this.read(this.shown.source[k])}: ${percent(weight)}`)));
      line.append(element("td", { class: "so-far", dir: "auto" }, ending(this.text(node))));
      body.append(line);
    }
    table.append(body);
    const hint = element("p", { class: "hint" }, "A row is a hypothesis with its newest token, a column a source token; numbers are percent.");
    return element("div", { class: "heat-scroll" }, table, hint);
  }

  back() {
    const node = this.nodes.get(this.id);
    if (!node) return element("p");
    const own = [];
    for (let one = this.nodes.get(node.parent); one; one = this.nodes.get(one.parent)) own.unshift(one.piece);
    const words = [...this.shown.source, ...own];
    const weights = this.weights(node);
    const peak = Math.max(...weights);
    const chips = words.map((word, k) => {
      const chip = element("span", { class: "own-word", dir: "auto", title: percent(weights[k] ?? 0) }, this.read(word));
      paint(chip, weights[k] ?? 0, peak);
      return chip;
    });
    const next = element("span", { class: "own-word next", dir: "auto" }, this.read(node.piece));
    return element("p", { class: "own-words" }, ...chips, next);
  }

  // -- candidates ------------------------------------------------------------------------------------------------------

  showCandidates() {
    const node = this.nodes.get(this.id);
    if (!node) return this.chosen.replaceChildren();
    const parts = [element("h3", {}, "Selected hypothesis"), element("p", { class: "text-so-far", dir: "auto" }, this.text(node)), facts(node)];
    if (node.reason) parts.push(element("p", { class: "why" }, node.reason));
    const drawn = this.shown.steps[node.time].draws.find((draw) => draw.parent === node.parent && draw.beam === node.beam);
    if (drawn) parts.push(...this.draw(drawn));
    const others = this.shown.steps[node.time].nodes.filter((one) => one.parent === node.parent && (one.share === undefined || one.beam === node.beam));
    parts.push(element("h3", {}, "Candidates after the same prefix"), this.offers(others));
    this.chosen.replaceChildren(...parts);
  }

  text(node) {
    if (node.text !== undefined) return node.text;
    const parent = this.nodes.get(node.parent);
    return `${parent?.text ?? ""} … ${this.read(node.piece)}`;
  }

  /** The line of all shares, with the random number on it. */
  draw({ uniform, low, high, num_left, num_allowed }) {
    const strip = element("div", { class: "strip", role: "img", "aria-label": `The number ${uniform.toFixed(3)} falls between ${low.toFixed(3)} and ${high.toFixed(3)}` });
    const part = element("span", { class: "strip-part" });
    part.style.insetInlineStart = `${100 * low}%`;
    part.style.inlineSize = `${100 * (high - low)}%`;
    const mark = element("span", { class: "strip-mark" });
    mark.style.insetInlineStart = `${100 * uniform}%`;
    strip.append(part, mark);
    const caption = `Sampled from ${num_left.toLocaleString("en")} of ${num_allowed.toLocaleString("en")} tokens; the random number ${uniform.toFixed(3)} falls into the interval of the sampled one.`;
    return [strip, element("p", { class: "hint" }, caption)];
  }

  offers(nodes) {
    const list = element("ol", { class: "offers" });
    for (const one of nodes) {
      const [p, share] = [Math.exp(one.log_prob), one.share];
      const room = element("span", { class: "bar-track" });
      const full = element("span", { class: "bar-fill model" });
      full.style.inlineSize = `${100 * p}%`;
      room.append(full);
      if (share !== undefined) {
        const after = element("span", { class: "bar-fill share" });
        after.style.inlineSize = `${100 * share}%`;
        room.append(after);
      }
      const word = element("button", { type: "button", class: "word", dir: "auto", on: { click: () => this.select(one.id) } }, this.read(one.piece));
      const number = share === undefined ? percent(p) : `${percent(p)} → ${percent(share)}`;
      const line = element("li", { class: `${one.status}${one.id === this.id ? " chosen" : ""}` }, word, room, element("span", { class: "share" }, number));
      line.append(element("span", { class: "why" }, one.reason || { kept: "kept", finished: "finished" }[one.status]));
      list.append(line);
    }
    return list;
  }

  // -- outputs ---------------------------------------------------------------------------------------------------------

  showOutputs() {
    const { outputs } = this.shown.steps[this.at];
    const over = this.at === this.shown.steps.length - 1;
    const list = element("ol", { class: "found" });
    const all = over ? this.shown.hypotheses : outputs;
    for (const { node, score, finished } of all) {
      const button = element("button", { type: "button", dir: "auto", on: { click: () => this.select(node) } }, this.nodes.get(node).text || "(empty)");
      const cut = finished ? null : element("span", { class: "hint" }, "cut at the length limit");
      list.append(element("li", { class: node === this.id ? "chosen" : "" }, element("span", { class: "share" }, score.toFixed(3)), button, cut ?? ""));
    }
    const title = over ? "Outputs, best first" : "Outputs so far";
    const none = element("p", { class: "hint" }, all.length ? "Numbers are scores: log-probability / length^penalty, in nats." : "No output yet.");
    this.outputs.replaceChildren(element("h3", {}, title), ...(all.length ? [list] : []), none);
  }
}

function facts(node) {
  const rows = { "log-probability of the token": node.log_prob, "total log-probability": node.total_log_prob, score: node.score };
  if (node.rank !== undefined) rows["score after the diversity penalty"] = node.rank;
  return element("dl", { class: "facts" }, ...Object.entries(rows).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, `${value.toFixed(3)} nats`)]));
}

/** The last words of a text. */
const ending = (text) => (text.length > 40 ? `…${text.slice(-39)}` : text);

function cell(weight, peak, title) {
  const made = element("td", { title });
  paint(made, weight, peak);
  if (weight >= 0.1) made.textContent = String(Math.round(100 * weight));
  return made;
}

function paint(made, weight, peak) {
  const amount = strength(weight, peak);
  made.style.backgroundColor = colour(amount);
  made.classList.toggle("light-ink", lightInk(amount));
}
