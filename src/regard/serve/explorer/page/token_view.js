/**
 * Tokens at their positions: queries above (rows of the selected map), keys below (its columns).
 *
 * Point at a token, or move to it with the keyboard: the keys it attends to light up below in blue, the queries that
 * attend to it above in orange; a click pins it. Rows and columns are exact and fetched on demand; one that arrives after
 * the pointer has moved on is cached but not shown.
 */

import { Chips } from "./chips.js";
import { colour, dark, strongest } from "./colours.js";
import { choice, element, number, percent, press, times } from "./element.js";
import { Graph } from "./graph.js";
import { Ink } from "./ink.js";
import { Lines } from "./lines.js";
import { list } from "./list.js";
import { LONG, LongText } from "./long_text.js";
import { Picture } from "./picture.js";
import { PointCloud } from "./point_cloud.js";
import { lineOf } from "./sheets.js";
import { Sound } from "./sound.js";
import { offers } from "./store.js";
import { OF_A_HEAD, VIEWS, view } from "./views.js";
import { headName, isOfFrames, kindName, word } from "./token_text.js";

const REST = 25; // milliseconds
const INK_POINTS = 1024; // of a handwritten line whose window is drawn, at most
const SCALES = [
  { value: "times", title: "Relative to uniform", hint: "How many times the weight of uniform attention; colour begins above 1 ×" },
  { value: "share", title: "Percent", hint: "The weights themselves" },
];

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
    this.scale = "times";
    this.scales = choice("Scale", SCALES, (value) => this.rescale(value));
    this.scales.classList.add("scales");
    this.legend = element("p", { class: "legend hint" });
    this.board = element("div", { class: "board" });
    this.lines = new Lines(this.board, () => this.light());
    this.sound = new Sound((seconds) => this.panels?.forEach(({ strip }) => strip.play?.(seconds)));
    this.lists = element("div", { class: "weight-lists", "aria-live": "polite" });
    this.note = element("aside", { class: "hides" });
    const tools = element("div", { class: "tools" }, this.sound.element, this.scales, this.legend);
    this.body = element("div", {}, this.views, this.says, this.board, this.lines.legend, tools, this.lists, this.note);
    const ways = element("div", { class: "ways" }, this.lines.allButton, this.lines.button, this.compareButton);
    host.append(element("div", { class: "bar" }, this.heading, ways), this.body);
    store.on("inspection", () => (this.shown = null));
    store.on("busy", () => this.change());
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
    if (!map) return this.empty();
    const chosen = view(store.selection.view, map);
    const offered = OF_A_HEAD.filter(({ value }) => offers(store.inspection, map, value));
    this.compareButton.hidden = offered.length < 2;
    const kinds = this.compare && !chosen.whole ? offered : [chosen];
    this.heading.replaceChildren(...titled(map, store.selection.head, chosen));
    press(this.views, chosen.value);
    this.views.hidden = VIEWS.filter(({ value }) => offers(store.inspection, map, value)).length < 2;
    for (const one of this.views.children) {
      one.disabled = !offers(store.inspection, map, one.dataset.value);
      one.title = one.disabled ? "This map does not have it" : view(one.dataset.value, map).says;
    }
    this.says.textContent = kinds.length > 1 ? "The same row in several views." : chosen.says;
    this.note.replaceChildren(element("h3", {}, "Limits of this view"), ...kinds.map((kind) => hidden(kind, kinds.length > 1)));
    const wanted = JSON.stringify([store.inspection.id, ...store.axes(), kinds.map(({ value }) => (kinds.length > 1 ? value : ""))]);
    if (wanted !== this.shown) this.build(kinds);
    if (kinds.length === 1) this.below[0].kind = chosen;
    this.shown = wanted;
    this.above.strip.follow?.(store.tile(map.name, store.selection.head, [0, map.n], [0, map.m], INK_POINTS, chosen.whole ? "raw" : chosen.value));
    const onPicture = this.below.some(({ strip }) => strip instanceof Picture && strip.seconds === null);
    this.scales.hidden = !onPicture || !kinds.every((kind) => kind.shares);
    press(this.scales, this.scale);
    this.light();
  }

  /** There is no map to show: nothing that is still asked for may come either. */
  empty() {
    const { store } = this;
    this.turn++;
    this.lines.offer(false);
    this.sound.open(null);
    const why = store.inspection ? "This model has no attention maps" : store.busy ? "Running…" : store.error ? "No answer" : "No input yet";
    this.heading.replaceChildren(why);
  }

  rescale(value) {
    this.scale = value;
    press(this.scales, value);
    this.light();
  }

  /** Whether weights are told relative to uniform attention: on pictures, if that is chosen, where they are shares. */
  get relative() {
    return this.scale === "times" && !this.scales.hidden;
  }

  build(kinds) {
    const { store } = this;
    const [rows, columns] = store.axes();
    const own = rows === columns;
    const several = Object.keys(store.inspection.axes).length > 1;
    const title = (what, axis) => (axis !== what.toLowerCase() && (several || !own) ? `${what}: ${axis.replaceAll("_", " ")}` : what);
    const who = rows === null ? "Answer" : title(kinds[0].who ?? "Queries", rows);
    this.above = this.panel(store.querySide, "seen", who, "query", own);
    this.below = kinds.map((kind) => {
      const what = kinds.length > 1 ? kind.title : title(kind.what ?? "Keys", columns);
      return { ...this.panel(store.axis(columns), "look", what, kind.whole && !own ? null : "key", own), kind };
    });
    this.panels = [this.above, ...this.below];
    const pictured = this.panels.every(({ strip }) => strip instanceof PointCloud || (strip instanceof Picture && strip.seconds === null));
    this.board.className = `board${pictured ? " pictured" : ""}${kinds.length > 1 ? " compared" : ""}`;
    this.lines.offer(kinds.length < 2 && this.panels.every(({ strip }) => strip instanceof Chips)); // between words
    this.lines.show([]);
    const timed = this.panels.some(({ strip }) => strip instanceof Picture && strip.seconds !== null);
    this.sound.open(timed ? Object.values(store.inputs ?? {}).find((input) => input instanceof Blob) : null);
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
    const has = (what) => axis.positions.some((position) => position[what]);
    const seconds = has("time") ? store.inspection.audio.seconds : null;
    const options = { which, label: title, seconds, ...hooks };
    const strip = has("point")
      ? new PointCloud(axis, options)
      : has("place")
      ? new Graph(axis, options)
      : has("pen")
      ? new Ink(axis, { ...options, keys: store.axis(store.axes()[1]) })
      : has("box") || isOfFrames(axis)
      ? new Picture(axis, { ...options, image: store.picture() })
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
    const rested = new Promise((go) => setTimeout(go, REST));
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
    else if (looks && at.key !== null && !whole) this.column(at, looks, turn, rested);
  }

  /** The column too, one at a time: of a long text once the pointer rests and the maps are there, since it costs more. */
  async column(at, looks, turn, rested) {
    const { store } = this;
    if (store.map().n >= LONG) await Promise.all([store.painting, rested]);
    if (turn !== this.turn || this.askingColumn) return; // the running request will see that `turn` has changed
    this.askingColumn = true;
    try {
      this.show(at, looks, await store.column(at), turn);
    } catch (error) {
      if (turn === this.turn) this.dim(error.message, "refused");
    } finally {
      this.askingColumn = false;
      if (turn !== this.turn) this.light();
    }
  }

  /** Light a row and, when it is there, a column; nothing where the pointer has moved on since `turn`. */
  show(at, looks, seen, turn = this.turn) {
    if (turn !== this.turn) return;
    const { above, below, store } = this;
    below.forEach(({ strip, kind }, k) => strip.light(...this.tones(looks[k] ?? null, kind)));
    const own = view(at.view, store.map());
    above.strip.light(...this.tones(seen, own, store.map().m));
    for (const { element: made, strip } of this.panels) made.classList.toggle("in-percent", Boolean(strip.numbered?.length));
    const [{ kind }] = below;
    this.explain(looks[0], kind);
    this.connect(at, looks, seen, turn);
    this.tell(at, looks, seen);
  }

  /** What a strip is lit by: numbers, the one with the strongest colour, and whether they are shown as percentages. */
  tones(weights, kind, keys = weights?.length) {
    if (!weights || !this.relative) return [weights, peak(weights, kind, keys), kind.shares];
    const above = weights.map((weight) => Math.max(0, Math.log2(weight * keys)) ** 2); // strips take the root
    return [above, above.reduce((a, b) => Math.max(a, b), 4), false];
  }

  /** The scale of colours under pictures. */
  explain(weights, kind) {
    const onPicture = this.below.every(({ strip }) => strip instanceof Picture && strip.seconds === null);
    this.legend.hidden = !onPicture || !weights;
    if (this.legend.hidden) return;
    const most = weights.reduce((a, b) => Math.max(a, b), 0);
    const bar = element("span", { class: "scale-bar" });
    bar.style.background = `linear-gradient(to right, transparent, ${colour(dark() ? 0.7 : 0.72)})`;
    const top = this.relative ? Math.max(4, most * weights.length) : peak(weights, kind);
    const ends = this.relative ? ["1 ×", `${times(top)} uniform`] : kind.shares ? ["0 %", percent(top)] : ["0", `${number(top)} ${kind.unit ?? ""}`];
    this.legend.replaceChildren(ends[0], bar, ends[1]);
  }

  /** Lines between words: of the chosen head, or of every head in a colour of its own. */
  async connect(at, looks, seen, turn) {
    const { above, below, store } = this;
    const [{ strip, kind }] = below;
    const map = store.map();
    const single = below.length === 1 && !kind.whole;
    this.lines.heads = single ? map.heads : 0;
    if (this.lines.all && looks[0]) {
      const weights = await Promise.all(Array.from({ length: map.heads }, (_, head) => store.row({ ...at, head, view: kind.value }))).catch(() => null);
      if (turn !== this.turn || !weights) return;
      const most = Math.max(...weights.map((row) => peak(row, kind)));
      return this.lines.show(weights.map((row, head) => ({ strip: above.strip, index: at.query, to: strip, weights: row, peak: most, which: "look", head })));
    }
    const look = { strip: above.strip, index: at.query, to: strip, weights: looks[0], peak: peak(looks[0], kind), which: "look" };
    const back = { strip, index: at.key, to: above.strip, weights: seen, peak: peak(seen, view(at.view, map), map.m), which: "seen" };
    this.lines.show(below.length > 1 ? [] : [look, back]);
  }

  row(at) {
    return view(at.view).whole ? lineOf(this.store, at.view, at.query, this.below[0].axis) : this.store.row(at);
  }

  dim(sentence, kind = "hint") {
    for (const { strip } of this.panels) strip.light(null, 1);
    this.lines.show([]);
    this.lists.replaceChildren(element("p", { class: kind }, sentence));
  }

  /** List the largest weights. */
  tell(at, looks, seen) {
    const { above, below, store } = this;
    const isShare = store.map().normalised ?? true;
    const lists = looks.map((weights, k) => {
      const { kind, axis } = below[k];
      const verb = looks.length > 1 ? kind.title.toLowerCase() : kind.verb;
      return list(word(above.axis, at.query), verb, weights, axis, "look", this.format(kind, weights.length), isShare && (kind.sums ?? kind.shares));
    });
    const by = below[0].kind.seen ?? "is attended to by";
    if (seen && looks.length < 2) lists.push(list(word(below[0].axis, at.key), by, seen, above.axis, "seen", this.format(view(at.view, store.map()), store.map().m)));
    this.lists.replaceChildren(element("div", { class: "lists" }, ...lists));
  }

  /** How a weight is written: with its unit. */
  format(kind, keys) {
    if (this.relative) return (weight) => times(weight * keys);
    return kind.shares ? percent : (weight) => `${Number(weight.toPrecision(2))} ${kind.unit ?? ""}`.trim();
  }
}

function titled(map, head, chosen) {
  if (chosen.whole) return [chosen.title, element("span", { class: "aside" }, "through all layers")];
  const which = map.heads < 2 ? "" : `, ${headName(map, head)}`;
  if (map.kind === "rollout") return [`${chosen.title} ${map.layer}${which}`, element("span", { class: "aside" }, map.part)];
  if (chosen.other) return [chosen.title];
  const kind = map.exact === false ? `${kindName(map)}, approximate` : kindName(map);
  return [`Layer ${map.layer}${which}`, element("span", { class: "aside" }, kind)];
}

/** The limits of a view, under its name if there are several. */
function hidden(kind, several) {
  return element("p", {}, several ? element("b", {}, `${kind.title}. `) : null, kind.hides);
}

/** The weight that gets the strongest colour. */
function peak(weights, { shares }, keys = weights?.length) {
  const most = weights ? weights.reduce((least, weight) => Math.max(least, Math.abs(weight)), 0) : 1;
  return shares ? strongest(most, keys) : most;
}
