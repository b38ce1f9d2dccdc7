/**
 * The inspection stored in an exported page, with the functions of remote.js: such a page has no server.
 *
 * The file holds a block of JSON. A weight is one byte, the root of its share of the head's peak:
 *
 *     w ≈ peak · s |s|        s = (byte − zero) / (255 − zero)        zero is 0, or 128 where weights may be negative
 *
 * `sums` are the row sums (1: all are one); decoded rows are rescaled to them. A large map is stored with fewer rows
 * (sampled) and columns (max-pooled); `cells` is its stored size.
 */

import { RequestError } from "./remote.js";

export { RequestError };

const BLOCK = "regard-inspection";
let block = null;
const codes = new WeakMap();
const restoredCells = new Map();
const REMEMBERED = 32; // heads

/** Whether this page is an exported file. */
export const isExported = () => document.getElementById(BLOCK) !== null;

/** The content of the file: {about, maps: {name: {view: {cells, zero, peaks, bytes}}}, rollout, relevance, picture}. */
export function content() {
  block ??= JSON.parse(document.getElementById(BLOCK).textContent);
  return block;
}

/** The model of the inspection; it is not in the file, so it has no examples. */
export async function models() {
  const { about } = content();
  const { model, task } = about;
  const inputs = Object.fromEntries(Object.keys(about.inputs ?? {}).map((name) => [name, ["image", "audio", "points", "graph"].includes(name) ? name : "text"]));
  return [{ name: model, task, inputs, output: about.output?.kind ?? "", options: {}, examples: [] }];
}

/** Running the model is not possible here. */
export async function read() {
  throw new RequestError("This file contains no model. Use regard explore for other inputs.", { type: "exported" });
}

/** Nor are other requests. */
export async function post() {
  return read();
}

/** Thumbnails of all heads: the row in the middle of each bin, the largest weight of each bin of columns. */
export async function sample(id, map, size) {
  const { n, m, heads } = found(map), bytes = new Uint8Array(heads * size * size), scale = [];
  for (let head = 0; head < heads; head++) {
    const weights = binned(map, head, [0, n], [0, m], size, size);
    scale.push(most(weights));
    bytes.set(weights.map((weight) => byte(weight, scale[head])), head * size * size);
  }
  return { bytes, scale };
}

/** Part of one head's map, at most `size` rows and columns: of several rows the middle one, of columns the largest. */
export async function tile(id, map, head, rows, columns, size, view = "raw") {
  const weights = binned(map, head, rows, columns, Math.min(size, rows[1] - rows[0]), Math.min(size, columns[1] - columns[0]), view);
  const peak = most(weights);
  return Object.assign(Uint8Array.from(weights, (weight) => byte(weight, peak)), { peak });
}

/** The row of one query. */
export async function row(id, map, head, query, view = "raw") {
  return Object.assign(rowOf(map, head, query, view), { coarse: stored(map, view).cells[1] < found(map).m });
}

/** The column of one key. */
export async function column(id, map, head, key, view = "raw") {
  const { n, m } = found(map), { values, rows, columns } = cells(map, head, view);
  const at = Math.floor((key * columns) / m);
  return Float32Array.from({ length: n }, (_, query) => values[Math.floor((query * rows) / n) * columns + at]);
}

/** Which input cells reach a token through all layers. */
export async function rollout(id, query) {
  const { rollout: all } = content();
  if (!all || !(query in all.peaks)) throw new RequestError("The rollout of this token is not in the file.", { type: "exported" });
  return summed(line(all, query), all, query);
}

/** The relevance of each input cell to an answer. */
export async function relevance(id, target) {
  const { relevance: all } = content();
  if (!all || !(target in all.peaks))
    throw new RequestError("The relevance of this answer is not in the file. Use regard explore to see it.", { type: "exported" });
  return line(all, target);
}

/** The cells of one token or answer, each line with a peak of its own. */
function line(all, number) {
  const bytes = decoded(all), width = bytes.length / all.peaks.length;
  return Float32Array.from(bytes.subarray(number * width, (number + 1) * width), (byte) => restored(byte, all, all.peaks[number]));
}

/** The picture that was read. */
export async function picture() {
  const { picture: text } = content();
  if (!text) throw new RequestError("There is no picture in this file.", { type: "exported" });
  return new Blob([unpacked(text)], { type: "image/png" });
}

/** A map's weights of all heads as nested lists, for the JSON export. */
export function numbers(map) {
  const { n, heads } = found(map);
  return Array.from({ length: heads }, (_, head) =>
    Array.from({ length: n }, (_, query) => Array.from(rowOf(map, head, query, "raw"), (w) => Number(w.toFixed(5)))));
}

function found(map) {
  const about = content().about.maps.find((each) => each.name === map);
  if (!about) throw new RequestError(`There is no map ${map} in this file.`, { type: "unknown" });
  return about;
}

function stored(map, view) {
  const part = content().maps[map]?.[view];
  if (!part) throw new RequestError("This view is not in the file. Use regard explore to see it.", { type: "exported" });
  return part;
}

function rowOf(map, head, query, view) {
  const { n, m } = found(map), { values, rows, columns } = cells(map, head, view);
  const line = Math.floor((query * rows) / n) * columns;
  return Float32Array.from({ length: m }, (_, key) => values[line + Math.floor((key * columns) / m)]);
}

/** `high` x `wide` bins of a part of a map; where there are fewer cells than bins they are stretched. */
function binned(map, head, [top, bottom], [left, right], high, wide, view = "raw") {
  const { n, m } = found(map), { values, rows, columns } = cells(map, head, view);
  const start = (j) => left + Math.floor((j * (right - left)) / wide);
  const binOf = (key) => Math.floor((key * columns) / m);
  const bins = Array.from({ length: wide }, (_, j) => [binOf(start(j)), binOf(Math.max(start(j), start(j + 1) - 1))]);
  const out = new Float32Array(high * wide);
  for (let i = 0; i < high; i++) {
    const query = top + Math.floor(((i + 0.5) * (bottom - top)) / high);
    const line = Math.floor((query * rows) / n) * columns;
    bins.forEach(([first, last], j) => (out[i * wide + j] = most(values.subarray(line + first, line + last + 1))));
  }
  return out;
}

/** The weights of one head that the file holds, or the mean of all heads; the last few are remembered. */
function cells(map, head, view) {
  const part = stored(map, view), [rows, columns] = part.cells, area = rows * columns, name = [map, head, view].join(" ");
  if (!restoredCells.has(name)) {
    const bytes = decoded(part), heads = head < 0 ? [...part.peaks.keys()] : [head], values = new Float32Array(area);
    for (const h of heads) {
      const one = Float32Array.from(bytes.subarray(h * area, (h + 1) * area), (byte) => restored(byte, part, part.peaks[h]));
      summed(one, part, h).forEach((weight, k) => (values[k] += weight / heads.length));
    }
    if (restoredCells.size >= REMEMBERED) restoredCells.delete(restoredCells.keys().next().value);
    restoredCells.set(name, values);
  }
  return { values: restoredCells.get(name), rows, columns };
}

function restored(byte, { zero }, peak) {
  const root = (byte - zero) / (255 - zero);
  return peak * root * Math.abs(root);
}

/** Bring the rows of one head, as bytes gave them back, to the sums that they had. */
function summed(values, { sums, cells: [rows, columns] }, head) {
  if (!sums) return values;
  for (let line = 0; line < rows; line++) {
    const row = values.subarray(line * columns, (line + 1) * columns), sum = row.reduce((total, w) => total + w, 0);
    const wanted = sums === 1 ? 1 : sums[head][line];
    if (Math.abs(sum - wanted) < 0.1 * Math.abs(sum)) row.forEach((w, k) => (row[k] = (w * wanted) / sum));
  }
  return values;
}

function decoded(part) {
  if (!codes.has(part)) codes.set(part, unpacked(part.bytes));
  return codes.get(part);
}

function unpacked(text) {
  const plain = atob(text);
  return Uint8Array.from({ length: plain.length }, (_, k) => plain.charCodeAt(k));
}

const most = (weights) => weights.reduce((largest, weight) => Math.max(largest, weight), -Infinity);

const byte = (weight, peak) => (peak > 0 ? Math.max(0, Math.min(255, Math.round((255 * weight) / peak))) : 0);
