/**
 * Tokens at their positions: queries above (rows of the selected map), keys below (its columns).
 *
 * Point at a token, or move to it with the keyboard: the keys it attends to light up below in blue, the queries that
 * attend to it above in orange; a click pins it. Rows and columns are exact and fetched on demand; one that arrives after
 * the pointer has moved on is cached but not shown.
 */

import { Chips } from "./chips.js";
import { strongest } from "./colours.js";
import { choice, element, press } from "./element.js";
import { Lines } from "./lines.js";
import { list } from "./list.js";
import { LONG, LongText } from "./long_text.js";
import { Picture } from "./picture.js";
import { PointCloud } from "./point_cloud.js";
import { offers } from "./store.js";
import { OF_A_HEAD, VIEWS, view } from "./views.js";
import { headName, word } from "./token_text.js";

const REST = 200; // milliseconds

/** Build the pane of tokens. */
export function mount(host, store) {
  new TokenView(host, store);
}

class TokenView {
  constructor(host, store) {
    this.store = store;
    this.turn = 0;
    this.compare = false;
    this.heading = element("h2", { class: "pane-title" });
    const toggle = { type: "button", class: "quiet", "aria-pressed": "false", id: "compare" };
    this.compareButton = element("button", { ...toggle, on: { click: () => this.sideBySide() } }, "Side by side");
    this.views = choice("Kind of weights", VIEWS.map((each) => ({ ...each, hint: each.says })), (value) => store.select({ view: value }));
    this.views.classList.add("views-choice");
    this.says = element("p", { class: "says" });
    this.board = element("div", { class: "board" });
    this.lines = new Lines(this.board);
    this.lines.button.hidden = true;
    this.lists = element("div", { class: "weight-lists", "aria-live": "polite" });
    this.note = element("aside", { class: "hides" });
    this.body = element("div", {}, this.views, this.says, this.board, this.lists, this.note);
    host.append(element("div", { class: "bar" }, this.heading, element("div", { class: "ways" }, this.lines.button, this.compareButton)), this.body);
    store.on("inspection", () => (this.shown = null));
    store.on("select", () => this.change());
    store.on("point", () => this.light());
    store.on("theme", () => this.panels?.forEach((panel) => panel.strip.repaint()));
    this.change();
  }

  sideBySide() {
    this.compare = !this.compare;
    this.compareButton.setAttribute("aria-pressed", String(this.compare));
    const whole = view(this.store.selection.view).whole;
    this.store.select(this.compare && whole ? { view: "raw" } : {});
  }

  /** Build what has to be new, then light it. */
  change() {
    const { store } = this;
    const map = store.map();
    this.body.hidden = this.compareButton.hidden = !map;
    if (!map) return this.heading.replaceChildren(store.inspection ? "This model has no attention maps" : "No input yet");
    const chosen = view(store.selection.view, map);
    const offered = OF_A_HEAD.filter(({ value }) => offers(store.inspection, map, value));
    this.compareButton.hidden = offered.length < 2;
    const kinds = this.compare && !chosen.whole ? offered : [chosen];
    this.heading.replaceChildren(...titled(map, store.selection.head, chosen));
    press(this.views, chosen.value);
    for (const one of this.views.children) one.disabled = !offers(store.inspection, map, one.dataset.value);
    this.says.textContent = kinds.length > 1 ? "The same row in several views." : chosen.says;
    this.note.replaceChildren(element("h3", {}, "Limits of this view"), ...kinds.map((kind) => hidden(kind, kinds.length > 1)));
    const wanted = JSON.stringify([store.inspection.id, ...store.axes(), kinds.map(({ value }) => (kinds.length > 1 ? value : ""))]);
    if (wanted !== this.shown) this.build(kinds);
    if (kinds.length === 1) this.below[0].kind = chosen;
    this.shown = wanted;
    this.light();
  }

  build(kinds) {
    const { store } = this;
    const [rows, columns] = store.axes();
    const own = rows === columns;
    const several = Object.keys(store.inspection.axes).length > 1;
    const title = (what, axis) => (several || !own ? `${what}: ${axis.replaceAll("_", " ")}` : what);
    const who = rows === null ? "Answer" : title(kinds[0].who ?? "Queries", rows);
    this.above = this.panel(store.querySide, "seen", who, "query", own);
    this.below = kinds.map((kind) => {
      const what = kinds.length > 1 ? kind.title : title(kind.what ?? "Keys", columns);
      return { ...this.panel(store.axis(columns), "look", what, kind.whole && !own ? null : "key", own), kind };
    });
    this.panels = [this.above, ...this.below];
    const pictured = this.panels.every(({ strip }) => strip instanceof PointCloud || (strip instanceof Picture && strip.seconds === null));
    this.board.className = `board${pictured ? " pictured" : ""}${kinds.length > 1 ? " compared" : ""}`;
    this.lines.button.hidden = kinds.length > 1 || this.panels.some(({ strip }) => !(strip instanceof Chips)); // between words
    this.lines.show([]);
    this.board.replaceChildren(this.above.element, element("div", { class: "below" }, ...this.below.map((panel) => panel.element)));
  }

  /** One axis with a title. `as`: what a token of it is when it is pointed at, query or key; null: nothing. */
  panel(axis, which, title, as, own) {
    const { store } = this;
    const meant = (index) => (own ? { query: index, key: index } : { query: null, key: null, [as]: index });
    const hooks = {
      point: (index) => store.point(index === null || as === null ? {} : meant(index)),
      pin: (index) => as !== null && this.pin(meant(index)),
    };
    const timed = axis.positions.some((position) => position.time);
    const placed = timed || axis.positions.some((position) => position.box);
    const options = { which, label: title, ...hooks };
    const inSpace = axis.positions.some((position) => position.point);
    const strip = inSpace
      ? new PointCloud(axis, options)
      : placed
      ? new Picture(axis, { ...options, image: store.picture(), seconds: timed ? store.inspection.audio.seconds : null })
      : new (axis.tokens.length < LONG ? Chips : LongText)(axis, options);
    const made = element("section", { class: `panel ${which}`, "aria-label": title }, element("h3", {}, title), strip.element);
    return { element: made, strip, axis };
  }

  /** Pin a token, or unpin it. */
  pin(meant) {
    const { selection } = this.store;
    const again = selection.query === meant.query && selection.key === meant.key;
    this.store.select(again ? { query: null, key: null } : meant);
  }

  /** Ask for the numbers of what is pointed at and show them, unless the pointer has moved on. */
  async light() {
    const { store, above, below } = this;
    if (!above || !store.map()) return;
    const turn = ++this.turn;
    const { at } = store;
    const pinned = at === store.selection;
    const whole = view(at.view).whole;
    above.strip.mark(at.query, pinned);
    for (const { strip } of below) strip.mark(whole ? null : at.key, pinned);
    if (this.asking) return; // the running request will see that `turn` has changed
    if (at.query === null && at.key === null) return this.dim("Point at a token to see what it attends to; click to pin it.");
    this.asking = true;
    let looks = null;
    try {
      looks = await Promise.all(at.query === null ? [] : below.map(({ kind }) => this.row({ ...at, view: kind.value })));
      if (turn === this.turn) this.show(at, looks, null);
    } catch (error) {
      if (turn === this.turn) this.dim(error.message, "refused");
    } finally {
      this.asking = false;
    }
    if (turn !== this.turn) this.light();
    else if (looks && at.key !== null && !whole) this.column(at, looks, turn);
  }

  /** The column too; it costs more than a row, so for a long text only once the pointer rests and the maps are there. */
  async column(at, looks, turn) {
    const { store } = this;
    if (store.map().n >= LONG) await Promise.all([store.painting, new Promise((go) => setTimeout(go, REST))]);
    if (turn !== this.turn) return;
    try {
      this.show(at, looks, await store.column(at), turn);
    } catch (error) {
      if (turn === this.turn) this.dim(error.message, "refused");
    }
  }

  /** Light a row and, when it is there, a column; nothing where the pointer has moved on since `turn`. */
  show(at, looks, seen, turn = this.turn) {
    if (turn !== this.turn) return;
    const { above, below, store } = this;
    below.forEach(({ strip, kind }, k) => strip.light(looks[k] ?? null, peak(looks[k], kind), kind.shares));
    above.strip.light(seen, peak(seen, view(at.view), store.map().m), view(at.view).shares);
    const [{ strip, kind }] = below;
    const look = { strip: above.strip, index: at.query, to: strip, weights: looks[0], peak: peak(looks[0], kind), which: "look" };
    const back = { strip, index: at.key, to: above.strip, weights: seen, peak: peak(seen, view(at.view), store.map().m), which: "seen" };
    this.lines.show(below.length > 1 ? [] : [look, back]);
    this.tell(at, looks, seen);
  }

  async row(at) {
    if (!view(at.view).whole) return this.store.row(at);
    const cells = await (at.view === "rollout" ? this.store.rollout(at.query) : this.store.relevance(at.query));
    return spread(cells, this.below[0].axis);
  }

  dim(sentence, kind = "hint") {
    for (const { strip } of this.panels) strip.light(null, 1);
    this.lines.show([]);
    this.lists.replaceChildren(element("p", { class: kind }, sentence));
  }

  /** List the largest weights. */
  tell(at, looks, seen) {
    const { above, below } = this;
    const lists = looks.map((weights, k) => {
      const { kind, axis } = below[k];
      const verb = looks.length > 1 ? kind.title.toLowerCase() : kind.verb;
      return list(word(above.axis, at.query), verb, weights, axis, "look", kind.shares, kind.sums ?? kind.shares);
    });
    const by = below[0].kind.seen ?? "is attended to by";
    if (seen && looks.length < 2) lists.push(list(word(below[0].axis, at.key), by, seen, above.axis, "seen", view(at.view).shares));
    this.lists.replaceChildren(element("div", { class: "lists" }, ...lists));
  }
}

function titled(map, head, chosen) {
  if (chosen.whole) return [chosen.title, element("span", { class: "aside" }, "through all layers")];
  const which = map.heads < 2 ? "" : `, ${headName(map, head)}`;
  if (map.kind === "rollout") return [`${chosen.title} ${map.layer}${which}`, element("span", { class: "aside" }, map.part)];
  if (chosen.other) return [chosen.title];
  const kind = map.exact === false ? `${map.kind}, approximate` : map.kind;
  return [`Layer ${map.layer}${which}`, element("span", { class: "aside" }, kind)];
}

/** The limits of a view, under its name if there are several. */
function hidden(kind, several) {
  return element("p", {}, several ? element("b", {}, `${kind.title}. `) : null, kind.hides);
}

/** Assign numbers of input cells to tokens; a token without a position has no cell. */
function spread(cells, axis) {
  if (cells.length === axis.tokens.length) return cells;
  const out = new Float32Array(axis.tokens.length);
  const placed = [...axis.tokens.keys()].filter((k) => !axis.positions[k].none);
  placed.forEach((index, k) => (out[index] = cells[k] ?? 0));
  return out;
}

/** The weight that gets the strongest colour. */
function peak(weights, { shares }, keys = weights?.length) {
  const most = weights ? weights.reduce((least, weight) => Math.max(least, Math.abs(weight)), 0) : 1;
  return shares ? strongest(most, keys) : most;
}
