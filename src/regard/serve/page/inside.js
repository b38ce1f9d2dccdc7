/**
 * The look inside this very file as a source, with the functions of remote.js: an exported page has no server to ask.
 *
 * The file holds a block of JSON. A weight is one byte, the root of its share of the head's peak:
 *
 *     w ≈ peak · s |s|        s = (byte − zero) / (255 − zero)        zero is 0, or 128 where weights may be negative
 *
 * `sums` are those of the rows (1: of all of them), and rows are brought to them. A map that would make the file too
 * large is kept with fewer rows and columns, and `cells` says how many there are: of
 * several rows one stands for all, of several columns the largest.
 */

import { Refused } from "./remote.js";

export { Refused };

const BLOCK = "regard-look";
let block = null;
const numbersOf = new WeakMap();

/** Whether this page is such a file. */
export const here = () => document.getElementById(BLOCK) !== null;

/** All that the file holds: {about, maps: {name: {view: {cells, zero, peaks, bytes}}}, rollout, picture, sound}. */
export function held() {
  block ??= JSON.parse(document.getElementById(BLOCK).textContent);
  return block;
}

/** The one model whose look this is; it is not here, so there is nothing to try. */
export async function models() {
  const { model, task, given } = held().about;
  const input = given?.image !== undefined ? "image" : given?.sound !== undefined ? "sound" : "text";
  return [{ name: model, task, input, examples: [], needs: {}, options: {} }];
}

/** Reading needs the model. */
export async function read() {
  throw new Refused("This file holds one look and no model. Run regard explore to have other inputs read.", { type: "exported" });
}

/** Everything else that needs the model. */
export async function post() {
  return read();
}

/** Thumbnails of all heads: the row in the middle of each bin, the largest weight of each bin of columns. */
export async function sample(id, map, size) {
  const { n, m, heads } = found(map), bytes = new Uint8Array(heads * size * size), scale = [];
  for (let head = 0; head < heads; head++) {
    const middle = (i) => Math.floor(((i + 0.5) * n) / size);
    const lines = Array.from({ length: size }, (_, i) => largest(rowOf(map, head, middle(i), "raw"), 0, m, size));
    scale.push(Math.max(...lines.map((line) => Math.max(...line))));
    lines.forEach((line, i) => bytes.set(line.map((weight) => byte(weight, scale[head])), (head * size + i) * size));
  }
  return { bytes, scale };
}

/** Part of one head's map, at most `size` rows and columns: of several rows the middle one, of columns the largest. */
export async function tile(id, map, head, rows, columns, size) {
  const high = Math.min(size, rows[1] - rows[0]), wide = Math.min(size, columns[1] - columns[0]);
  const lines = Array.from({ length: high }, (_, i) => {
    const query = rows[0] + Math.floor(((i + 0.5) * (rows[1] - rows[0])) / high);
    return largest(rowOf(map, head, query, "raw"), ...columns, wide);
  });
  const peak = Math.max(...lines.map((line) => Math.max(...line)));
  return Uint8Array.from(lines.flatMap((line) => [...line]), (weight) => byte(weight, peak));
}

/** What one query looks at. */
export async function row(id, map, head, query, view = "raw") {
  return Object.assign(rowOf(map, head, query, view), { coarse: kept(map, view).cells[1] < found(map).m });
}

/** Who looks at one key. */
export async function column(id, map, head, key, view = "raw") {
  const { n } = found(map);
  return Float32Array.from({ length: n }, (_, query) => weight(map, head, query, key, view));
}

/** Which input cells reach a token through all layers. */
export async function rollout(id, query) {
  const { rollout: all } = held();
  if (!all || !(query in all.peaks)) throw new Refused("The rollout of this token is not in the file.", { type: "exported" });
  const weights = restored(all), width = weights.length / all.peaks.length;
  return weights.slice(query * width, (query + 1) * width);
}

/** Gradients need the model. */
export async function relevance() {
  throw new Refused("Relevance needs the model. Run regard explore to see it.", { type: "exported" });
}

/** The picture that was read. */
export async function picture() {
  const { picture: text } = held();
  if (!text) throw new Refused("There is no picture in this file.", { type: "exported" });
  return new Blob([unpacked(text)], { type: "image/png" });
}

/** A map's weights of all heads as nested lists, for those who want numbers. */
export function numbers(map) {
  const { n, heads } = found(map);
  return Array.from({ length: heads }, (_, head) =>
    Array.from({ length: n }, (_, query) => Array.from(rowOf(map, head, query, "raw"), (w) => Number(w.toFixed(5)))));
}

function found(map) {
  const about = held().about.maps.find((each) => each.name === map);
  if (!about) throw new Refused(`There is no map ${map} in this file.`, { type: "unknown" });
  return about;
}

function kept(map, view) {
  const part = held().maps[map]?.[view];
  if (!part) throw new Refused("This view is not in the file. Run regard explore to see it.", { type: "exported" });
  return part;
}

function rowOf(map, head, query, view) {
  const { m } = found(map);
  return Float32Array.from({ length: m }, (_, key) => weight(map, head, query, key, view));
}

function weight(map, head, query, key, view) {
  const { n, m } = found(map), part = kept(map, view), weights = restored(part), [rows, columns] = part.cells;
  const at = Math.floor((query * rows) / n) * columns + Math.floor((key * columns) / m);
  const one = (h) => weights[h * rows * columns + at];
  return head < 0 ? part.peaks.reduce((sum, _, h) => sum + one(h), 0) / part.peaks.length : one(head);
}

/** All weights of a part, read from its bytes once. */
function restored(part) {
  if (!numbersOf.has(part)) {
    const { zero, peaks, sums, cells } = part, bytes = unpacked(part.bytes), area = bytes.length / peaks.length;
    const weights = Float32Array.from(bytes, (byte, k) => {
      const root = (byte - zero) / (255 - zero);
      return peaks[Math.floor(k / area)] * root * Math.abs(root);
    });
    if (sums) for (let line = 0; line < weights.length / cells[1]; line++) {
      const row = weights.subarray(line * cells[1], (line + 1) * cells[1]), sum = row.reduce((total, w) => total + w, 0);
      const wanted = sums === 1 ? 1 : sums[Math.floor(line / cells[0])][line % cells[0]];
      if (Math.abs(sum - wanted) < 0.1 * Math.abs(sum)) row.forEach((w, k) => (row[k] = (w * wanted) / sum));
    }
    numbersOf.set(part, weights);
  }
  return numbersOf.get(part);
}

function unpacked(text) {
  const plain = atob(text);
  return Uint8Array.from({ length: plain.length }, (_, k) => plain.charCodeAt(k));
}

/** `size` bins of the weights from one place to another, of each the largest; where there are fewer they are stretched. */
function largest(weights, from, to, size) {
  return Float32Array.from({ length: size }, (_, j) => {
    const first = from + Math.floor((j * (to - from)) / size), past = from + Math.floor(((j + 1) * (to - from)) / size);
    let most = weights[first];
    for (let k = first + 1; k < past; k++) most = Math.max(most, weights[k]);
    return most;
  });
}

const byte = (weight, peak) => (peak > 0 ? Math.max(0, Math.min(255, Math.round((255 * weight) / peak))) : 0);
