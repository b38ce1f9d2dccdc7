/**
 * The state of the page: the models, the shown inspection, the selection and the pointer.
 *
 * Panes communicate through the store only:
 *
 *     models   the list of models has come          inspection    `store.inspection` is new, or null: there is none
 *     model    another model was chosen             select  `store.selection` has changed
 *     busy     reading began or ended               point   the pointer or the focus is on another token
 *     error    something could not be done          theme   light became dark or the other way round
 *     changes  `store.changes`, the interventions to compare with the model as it is
 *
 * A pane is a module with `mount(element, store)`. Numbers come from a *source* (see remote.js): the server, or the data
 * inside an exported file. They are cached, least recently used out first, up to `MAX_CACHE_BYTES` bytes.
 */

import { firstToken, likeliest } from "./first_token.js";
import { hasMean, isAttention } from "./token_text.js";

const MAX_CACHE_BYTES = 64 * 1024 * 1024;
const NOWHERE = { query: null, key: null };
const START = { map: null, head: -1, view: "raw", ...NOWHERE };
const ALL_LAYERS = ["rollout", "relevance"]; // views through all layers

/** Whether a view is available for a map of an inspection. */
export function offers(inspection, map, view) {
  if (view === "rollout") return Boolean(inspection.rollout_axis);
  if (view === "relevance") return Boolean(inspection.relevance_targets?.length);
  return map?.views?.includes(view) ?? true;
}

export class Store {
  /** @param source of inspections and their numbers: an object with the functions of remote.js */
  constructor(source) {
    this.source = source;
    this.models = [];
    this.model = null;
    this.inspection = null;
    this.inputs = null;
    this.interventions = []; // of the shown inspection
    this.changes = []; // to compare with it
    this.canChange = false; // set by the pane that compares
    this.selection = { ...START };
    this.pointed = { ...NOWHERE };
    this.busy = false;
    this.error = null;
    this.request = 0;
    this.painting = Promise.resolve(); // resolves when the small maps are drawn; expensive requests wait for it
    this.cache = new ByteCache(MAX_CACHE_BYTES);
    this.listeners = new Map();
  }

  /** Call `listener(store)` on every `event`; returns a function that removes it. */
  on(event, listener) {
    if (!this.listeners.has(event)) this.listeners.set(event, new Set());
    this.listeners.get(event).add(listener);
    return () => this.listeners.get(event).delete(listener);
  }

  /** Notify all listeners of an event. */
  tell(event) {
    for (const listener of this.listeners.get(event) ?? []) listener(this);
  }

  /** Fetch the list of models and choose one: `preferred`, or the first. */
  async open(preferred = null) {
    try {
      this.models = await this.source.models();
    } catch (error) {
      return this.fail(error);
    }
    this.tell("models");
    const first = this.models.find((model) => model.name === preferred) ?? this.models[0];
    if (first) this.choose(first.name);
  }

  /** Choose a model; nothing of the last one stays: no answer, no selection, no interventions. */
  choose(name) {
    this.request++; // what the last model still reads is not shown
    this.model = this.models.find((model) => model.name === name) ?? null;
    this.changes = [];
    this.selection = { ...START };
    this.clear();
    this.tell("model");
  }

  /** Show no inspection: the last answer does not belong to what was asked. */
  clear() {
    this.inspection = null;
    this.interventions = [];
    this.pointed = { ...NOWHERE };
    Object.assign(this.selection, NOWHERE);
    this.tell("inspection");
    this.tell("select");
  }

  /** Compare the model with these interventions. */
  change(changes) {
    this.changes = changes;
    this.tell("changes");
  }

  /** Switch a head off (-1: all heads of its map), or on again. */
  toggle(name, head) {
    if (!this.canChange || !isAttention(this.map(name))) return;
    const all = [...Array(this.map(name).heads).keys()];
    const was = this.changes.find((change) => change.do === "off" && change.map === name);
    const off = was ? (was.heads ?? all) : [];
    const heads = head < 0 ? (off.length < all.length ? all : []) : off.includes(head) ? off.filter((one) => one !== head) : [...off, head].sort((a, b) => a - b);
    const now = { do: "off", map: name, ...(heads.length < all.length ? { heads } : {}) };
    const rest = this.changes.filter((change) => change !== was);
    this.change(heads.length ? [...rest, now] : rest);
  }

  /** Whether a head is switched off by one of the changes; their maps may be patterns. */
  isOff(name, head) {
    const fits = (pattern) => new RegExp(`^${pattern.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&")).join(".*")}$`).test(name);
    return this.changes.some((change) => change.do === "off" && fits(change.map) && (!change.heads || change.heads.includes(head)));
  }

  /**
   * Run the chosen model on an input: `{text}`, `{texts}`, `{image: File}`, `{audio: File}` with the task's options.
   * The resulting inspection is shown, unless another was requested in the meantime.
   */
  async read(inputs, interventions = this.interventions) {
    const turn = ++this.request;
    this.inputs = inputs;
    this.busy = true;
    this.error = null;
    this.tell("busy");
    this.tell("error");
    try {
      const inspection = await this.source.read(this.model.name, inputs, interventions);
      if (turn !== this.request) return this.inspection;
      this.error = null; // nor what was asked of the last inspection meanwhile
      this.tell("error");
      this.show(inspection, interventions);
    } catch (error) {
      if (turn === this.request) this.refuse(error);
    } finally {
      if (turn === this.request) {
        this.busy = false;
        this.tell("busy");
      }
    }
    return this.inspection;
  }

  /** Show an inspection; map and head stay selected if the new inspection has them. */
  show(inspection, interventions = []) {
    this.inspection = inspection;
    this.interventions = interventions;
    if (interventions.length) this.changes = interventions;
    this.pointed = { ...NOWHERE };
    const same = inspection.maps.find((map) => map.name === this.selection.map);
    const maps = inspection.maps.filter((each) => each.kind !== "rollout");
    const seen = maps.every((each) => each.uniform) ? maps : maps.filter((each) => !each.uniform); // those that tell something
    const crossing = seen.filter((each) => each.kind !== "self");
    const inSpace = seen.find((each) => inspection.axes[each.rows].positions.some((position) => position.point)); // all points are in the first layer
    const map = same ?? inSpace ?? crossing.at(-2) ?? crossing.at(-1) ?? seen.at(-1) ?? null;
    const head = map ? headIn(map, this.selection.head) : 0;
    const view = offers(inspection, map, this.selection.view) ? this.selection.view : "raw";
    this.selection = { map: map ? map.name : null, head, view, ...NOWHERE };
    if (map) Object.assign(this.selection, this.initialToken());
    this.tell("inspection");
    this.tell("select");
  }

  /**
   * Change what is chosen: any of map, head (-1: the mean of all), query, key, view. Another map or head is a wish to see
   * that head, so a view of all layers gives way; a pinned token stays where there is one of that name to stay on.
   */
  select(change) {
    const before = this.axes();
    const next = { ...this.selection, ...change };
    const moved = change.map !== undefined || change.head !== undefined;
    if (moved && change.view === undefined && ALL_LAYERS.includes(next.view)) next.view = "raw";
    const map = this.map(next.map);
    if (map) next.head = headIn(map, next.head);
    if (map && !offers(this.inspection, map, next.view)) next.view = "raw";
    this.selection = next;
    const after = this.axes();
    if (change.query === undefined && change.key === undefined && String(before) !== String(after)) {
      const keep = next.query !== null && before[0] === after[0];
      Object.assign(next, keep ? { key: after[0] === after[1] ? next.query : null } : this.initialToken());
    }
    this.tell("select");
  }

  /** The names of the shown axes: queries and keys; null for the answers of relevance. */
  axes() {
    const { inspection } = this;
    const map = this.map();
    if (!map) return [null, null];
    if (this.selection.view === "rollout") return [inspection.rollout_axis, inspection.input_axis];
    if (this.selection.view === "relevance") return [null, inspection.input_axis];
    return [map.rows, map.columns];
  }

  /** The query axis: tokens, or the answers of relevance. */
  get querySide() {
    const name = this.axes()[0];
    if (name !== null) return this.axis(name);
    const tokens = this.inspection.relevance_targets;
    const same = Object.values(this.inspection.axes).find((axis) => String(axis.tokens) === String(tokens));
    return same ?? { name: "answers", tokens, positions: tokens.map(() => ({ none: true })), special: tokens.map(() => false) };
  }

  /** The token that is pinned first: of relevance the answer that was given, else one that is worth a look. */
  initialToken() {
    const [rows, columns] = this.axes();
    const given = Math.max(0, this.querySide.tokens.indexOf(this.inspection.output.label));
    const isAnswer = rows === null && this.querySide.name === "answers";
    const { output } = this.inspection;
    const label = this.map().kind === "labels" ? this.querySide.tokens.findLast((token) => token.trim() && output.text?.includes(token)) : likeliest(output);
    const query = isAnswer ? given : firstToken(this.querySide, label);
    return { query, key: rows === columns ? query : null };
  }

  /** The pointer or the focus is on a token (or on none): {query, key}, each a number or null. */
  point(at) {
    const next = { ...NOWHERE, ...at };
    if (next.query === this.pointed.query && next.key === this.pointed.key) return;
    this.pointed = next;
    this.tell("point");
  }

  /** What to light up: what is pointed at, or else what is pinned. */
  get at() {
    const { query, key } = this.pointed;
    return query === null && key === null ? this.selection : { ...this.selection, query, key };
  }

  /** The map of that name, or the chosen one: {name, kind, layer, heads, rows, columns, n, m, exact}. */
  map(name = this.selection.map) {
    return this.inspection?.maps.find((map) => map.name === name) ?? null;
  }

  /** An axis of the inspection by name: {name, tokens, positions, special}. */
  axis(name) {
    return this.inspection?.axes[name] ?? null;
  }

  /** Thumbnails of all heads of a map: {bytes, scale}. */
  sample(map, size) {
    return this.get(["sample", map, size], () => this.source.sample(this.inspection.id, map, size));
  }

  /** A part of one head's map in a view of single heads, as bytes; rows and columns are [from, to]. */
  tile(map, head, rows, columns, size, view = "raw") {
    const ask = () => this.source.tile(this.inspection.id, map, head, rows, columns, size, view);
    return this.get(["tile", map, head, ...rows, ...columns, size, view], ask);
  }

  /** The exact row of one query: m float32 numbers. */
  row({ map, head, query, view }) {
    return this.get(["row", map, head, query, view], () => this.source.row(this.inspection.id, map, head, query, view));
  }

  /** The exact column of one key: n float32 numbers. */
  column({ map, head, key, view }) {
    return this.get(["column", map, head, key, view], () => this.source.column(this.inspection.id, map, head, key, view));
  }

  /** Which input cells reach a token through all layers. */
  rollout(query) {
    return this.get(["rollout", query], () => this.source.rollout(this.inspection.id, query));
  }

  /** The relevance of each input cell to an answer. */
  relevance(target) {
    return this.get(["relevance", target], () => this.source.relevance(this.inspection.id, target));
  }

  /** The picture the model saw, or the spectrogram it heard, as a Blob. */
  picture() {
    return this.get(["picture"], () => this.source.picture(this.inspection.id, this.inspection.audio ? "spectrogram" : "picture"));
  }

  /** Post JSON to a route and get JSON back: for panes with a route of their own. */
  post(path, body) {
    return this.source.post(path, body);
  }

  /** Return a cached promise, or request and cache it. */
  get(parts, ask) {
    const { inspection } = this;
    const key = JSON.stringify([inspection.id, ...parts]);
    const failed = (error) => {
      if (error.status === 404 && parts[0] !== "picture" && inspection === this.inspection) this.readAgain(); // one may have no picture
      throw error;
    };
    return this.cache.get(key) ?? this.cache.put(key, ask().catch(failed));
  }

  /** The server keeps only the last inspections of all pages: run an input again whose inspection it no longer has. */
  async readAgain() {
    if (this.busy || !this.inputs) return;
    const { query, key } = this.selection;
    const { id } = this.inspection;
    await this.read(this.inputs);
    if (this.inspection && this.inspection.id !== id) this.select({ query, key });
  }

  /** Show an error. */
  fail(error) {
    this.error = error;
    this.tell("error");
  }

  /** Show why an input was not read; the answer to the last one goes. */
  refuse(error) {
    this.error = error;
    this.clear();
    this.tell("error");
  }
}

/** The same head where a map has it: the first where there are too few, and the mean of one head is that head. */
function headIn(map, head) {
  return head >= map.heads || (head < 0 && !hasMean(map)) ? 0 : head;
}

/** LRU cache of promised arrays, limited in bytes; failed promises are dropped. */
class ByteCache {
  constructor(capacity) {
    this.capacity = capacity;
    this.used = 0;
    this.entries = new Map();
  }

  get(key) {
    const entry = this.entries.get(key);
    if (!entry) return undefined;
    this.entries.delete(key);
    this.entries.set(key, entry);
    return entry.promise;
  }

  put(key, promise) {
    const entry = { promise, bytes: 0 };
    this.entries.set(key, entry);
    promise.then((value) => this.count(key, entry, value), () => this.entries.delete(key));
    return promise;
  }

  count(key, entry, value) {
    if (this.entries.get(key) !== entry) return;
    entry.bytes = value?.byteLength ?? value?.bytes?.byteLength ?? value?.size ?? 0;
    this.used += entry.bytes;
    for (const [oldest, { bytes }] of this.entries) {
      if (this.used <= this.capacity || oldest === key) break;
      this.entries.delete(oldest);
      this.used -= bytes;
    }
  }
}
