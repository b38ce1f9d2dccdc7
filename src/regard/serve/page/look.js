/**
 * The tokens where they are. Above: who looks (the rows of the chosen map). Below: what is looked at (its columns).
 *
 * Point at a token, or move to it with the keyboard: what it looks at lights up below in blue, who looks at it lights up
 * above in orange; a click keeps it. Numbers are exact rows and columns, asked for when they are wanted; of requests
 * that come faster than answers only the latest is waited for.
 */

import { Chips } from "./chips.js";
import { choice, element, percent, press, visible } from "./element.js";
import { Picture } from "./picture.js";
import { OF_A_HEAD, VIEWS, view } from "./views.js";

const LISTED = 8;

/** Build the pane of tokens. */
export function mount(host, store) {
  new Tokens(host, store);
}

class Tokens {
  constructor(host, store) {
    this.store = store;
    this.shown = "";
    this.turn = 0;
    this.compare = false;
    this.heading = element("h2", { class: "pane-title" });
    this.views = choice("Kind of weights", VIEWS.map((v) => ({ ...v, hint: v.says })), (value) => store.select({ view: value }));
    this.views.classList.add("views");
    const toggle = { type: "button", class: "quiet toggle", "aria-pressed": "false", id: "compare" };
    this.beside = element("button", { ...toggle, on: { click: () => this.sideBySide() } }, "Side by side");
    this.says = element("p", { class: "says" });
    this.board = element("div", { class: "board" });
    this.told = element("div", { class: "told", "aria-live": "polite" });
    this.hides = element("p");
    this.note = element("aside", { class: "hides", "aria-label": "What this does not show" }, element("h3", {}, "What this does not show"), this.hides);
    this.body = element("div", {}, element("div", { class: "bar" }, this.views, this.beside), this.says, this.board, this.told, this.note);
    host.append(this.heading, this.body);
    store.on("look", () => this.change(true));
    store.on("select", () => this.change());
    store.on("point", () => this.light());
    store.on("theme", () => this.panels?.forEach((panel) => panel.strip.repaint()));
    this.change();
  }

  sideBySide() {
    this.compare = !this.compare;
    this.beside.setAttribute("aria-pressed", String(this.compare));
    if (this.compare && view(this.store.selection.view).whole) this.store.select({ view: "raw" });
    this.change(true);
  }

  /** Build what has to be new, then light it. */
  change(fresh = false) {
    const { store } = this;
    const map = store.map();
    this.body.hidden = !map;
    if (!map) return this.heading.replaceChildren("Nothing read yet");
    const { view: chosen, head } = store.selection;
    const compare = this.compare && !view(chosen).whole;
    this.heading.replaceChildren(...titled(map, head, view(chosen)));
    press(this.views, chosen);
    this.says.textContent = compare ? "Three readings of the same row." : view(chosen).says;
    this.hides.textContent = view(chosen).hides;
    const wanted = JSON.stringify([store.look.id, map.rows, map.columns, compare, Boolean(view(chosen).whole)]);
    if (fresh || wanted !== this.shown) this.build(map, compare, view(chosen));
    this.shown = wanted;
    this.light();
  }

  build(map, compare, chosen) {
    const { store } = this;
    const own = map.rows === map.columns;
    const input = chosen.whole ? inputSide(store, map) : map.columns;
    const ask = (key) => ({ point: (index) => store.point(this.meant(index, key, own)), pin: (index) => this.pin(index, key, own) });
    const above = this.panel(map.rows, "seen", own ? "Who looks" : `Who looks: ${named(map.rows)}`, ask("query"));
    const kinds = compare ? OF_A_HEAD : [chosen];
    const below = kinds.map((kind) => {
      const title = compare ? kind.title : own && !chosen.whole ? "What is looked at" : `What is looked at: ${named(input)}`;
      return { ...this.panel(input, "look", title, ask(chosen.whole ? "none" : "key")), kind: kind.value };
    });
    this.panels = [above, ...below];
    this.above = above;
    this.below = below;
    const pictured = this.panels.every((panel) => panel.strip instanceof Picture && !panel.sound);
    this.board.className = `board${pictured ? " pictured" : ""}${compare ? " compared" : ""}`;
    this.board.replaceChildren(above.element, element("div", { class: "below" }, ...below.map((panel) => panel.element)));
  }

  panel(name, which, title, hooks) {
    const { store } = this;
    const side = store.side(name);
    const placed = side.places.some((place) => place.box || place.time);
    const sound = side.places.some((place) => place.time);
    const options = { which, label: title, ...hooks, image: placed ? store.picture() : null, seconds: sound ? store.look.sound?.seconds : null };
    const strip = placed ? new Picture(side, options) : new Chips(side, options);
    const made = element("section", { class: `panel ${which}`, "aria-label": title }, element("h3", {}, title), strip.element);
    return { element: made, strip, name, sound };
  }

  /** A token of a self-attention map is a query and a key at once. */
  meant(index, key, own) {
    if (index === null || key === "none") return {};
    return own ? { query: index, key: index } : { [key]: index };
  }

  pin(index, key, own) {
    if (key === "none") return;
    const { store } = this;
    const meant = { query: null, key: null, ...this.meant(index, key, own) };
    const again = store.selection.query === meant.query && store.selection.key === meant.key;
    store.select(again ? { query: null, key: null } : meant);
  }

  /** Ask for the numbers of what is pointed at and show them, unless the pointer has moved on. */
  async light() {
    const { store, above, below } = this;
    if (!above || !store.look) return;
    const turn = ++this.turn;
    const { at, selection } = store;
    const pinned = store.pointed.query === null && store.pointed.key === null;
    above.strip.mark(at.query, pinned);
    for (const panel of below) panel.strip.mark(view(at.view).whole ? null : at.key, pinned);
    if (at.query === null && at.key === null) return this.dim();
    try {
      const rows = at.query === null ? [] : below.map((panel) => this.row({ ...at, view: panel.kind }));
      const column = at.key === null || view(at.view).whole ? null : store.column(at);
      const [columned, ...lit] = await Promise.all([column, ...rows]);
      if (turn !== this.turn || selection.map !== store.selection.map) return;
      below.forEach((panel, k) => panel.strip.light(lit[k] ?? null, top(lit[k])));
      above.strip.light(columned, top(columned));
      this.tell(at, lit, columned);
    } catch (error) {
      if (turn === this.turn) this.refuse(error);
    }
  }

  row(at) {
    if (at.view === "rollout") return this.store.rollout(at.query).then((cells) => this.spread(cells));
    if (at.view === "relevance") return this.store.relevance(at.query).then((cells) => this.spread(cells));
    return this.store.row(at);
  }

  /** Numbers of input cells put where the tokens are: a class token in front is no cell. */
  spread(cells) {
    const side = this.store.side(this.below[0].name);
    if (cells.length === side.tokens.length) return cells;
    const placed = side.places.map((place, k) => [place, k]).filter(([place]) => !place.none).map(([, k]) => k);
    const out = new Float32Array(side.tokens.length);
    placed.forEach((index, k) => (out[index] = cells[k] ?? 0));
    return out;
  }

  dim() {
    for (const { strip } of this.panels) strip.light(null, 1);
    this.told.replaceChildren(element("p", { class: "hint" }, "Point at a token to see what it looks at; click to keep it."));
  }

  refuse(error) {
    for (const { strip } of this.panels) strip.light(null, 1);
    this.told.replaceChildren(element("p", { class: "refused" }, error.message));
  }

  /** The largest numbers, in words. */
  tell(at, lit, columned) {
    const { store, above, below } = this;
    const rows = store.side(above.name);
    const columns = store.side(below[0].name);
    const parts = [];
    lit.forEach((weights, k) => {
      const kind = view(below[k].kind);
      const verb = kind.whole ? "is made of" : "looks at";
      parts.push(list(rows.tokens[at.query], lit.length > 1 ? kind.title : verb, weights, columns, "look"));
    });
    if (columned) parts.push(list(columns.tokens[at.key], "is looked at by", columned, rows, "seen"));
    this.told.replaceChildren(element("div", { class: "lists" }, ...parts));
  }
}

function list(token, verb, weights, side, which) {
  const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, LISTED);
  const peak = top(weights);
  const items = order.filter((k) => weights[k] > 0.0005 * peak).map((k) => {
    const bar = element("span", { class: "bar-fill" });
    bar.style.inlineSize = `${Math.max(1, (100 * weights[k]) / (peak || 1))}%`;
    const name = element("span", { class: side.special[k] ? "word special" : "word", dir: "auto" }, visible(side.tokens[k]));
    return element("li", {}, name, element("span", { class: "bar-room" }, bar), element("span", { class: "share" }, percent(weights[k])));
  });
  const heading = element("h3", {}, element("b", { dir: "auto" }, visible(token)), ` ${verb}`);
  return element("div", { class: `list ${which}` }, heading, element("ol", {}, ...items));
}

function titled(map, head, chosen) {
  if (chosen.whole) return [chosen.title, element("span", { class: "aside" }, "through all layers")];
  const which = head < 0 ? "mean of heads" : `head ${head + 1}`;
  return [`Layer ${map.layer + 1}, ${which}`, element("span", { class: "aside" }, map.exact === false ? `${map.kind}, approximate` : map.kind)];
}

/** The side that whole-model views are about: the one the model read. */
function inputSide(store, map) {
  const first = Object.keys(store.look.sides)[0];
  return store.look.maps.find((each) => each.columns === first) ? first : map.columns;
}

const named = (side) => side.replaceAll("_", " ");
const top = (weights) => (weights ? weights.reduce((a, b) => Math.max(a, Math.abs(b)), 0) : 1);
