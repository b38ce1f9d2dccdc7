/**
 * What the large map draws: a sheet of numbers with names along its sides.
 *
 *     one head            a row for each query, a column for each key, in the chosen view
 *     one query           where the keys are patches of a picture: the grid of patches, as they lie in it
 *     through all layers  a row for each token or answer, made of the rows that the view has; of many only the chosen one
 */

import { offers } from "./store.js";
import { isAttention, word } from "./token_text.js";
import { sides, view } from "./views.js";

const MAX_LINES = 48; // rows of a view through all layers that are asked for at once
const AT_ONCE = 2; // requests under way

/**
 * The sheet of what is chosen in the store, or null: {id, n, m, shares, says, names: [of rows, of columns], ask, cell, at}.
 * `ask(rows, columns, size)` is a promise of bytes with their `peak`; `cell(row, column)` is what is pointed at there,
 * `at(selection)` where a selection is: [row, column], each a number or null.
 */
export function sheetOf(store) {
  const map = store.map();
  if (!map) return null;
  const { head, query } = store.selection;
  const chosen = view(offers(store.inspection, map, store.selection.view) ? store.selection.view : "raw", map);
  const [rows, columns] = store.axes();
  const axis = store.axis(columns);
  const shares = chosen.shares;
  const id = [store.inspection.id, map.name, head, chosen.value];
  const grid = patchGrid(axis);
  const [who, what] = sides(chosen, map);
  if (chosen.whole) {
    const { querySide } = store;
    const { inspection } = store;
    const line = async (index) => {
      if (store.inspection !== inspection) throw new Error("Another input is shown."); // lines under way end here
      return lineOf(store, chosen.value, index, axis);
    };
    const own = rows === columns;
    if (grid && query !== null) return patches({ id: [...id, query], axis, grid, shares, line: () => line(query), cell: () => ({}), at: () => null });
    const few = querySide.tokens.length <= MAX_LINES;
    const queries = few ? [...querySide.tokens.keys()] : query === null ? [] : [query];
    if (!queries.length) return null;
    const first = query ?? queries[0];
    return {
      id: [store.inspection.id, chosen.value, ...(few ? [] : [query])], shares, n: queries.length, m: axis.tokens.length,
      names: [(k) => word(querySide, queries[k]), (k) => word(axis, k)],
      says: `A row per ${rows === null ? "answer" : "token"}, a column per token of the input.`,
      ask: asked(() => lines(queries, first, line)),
      cell: (row) => ({ query: queries[row], key: own ? queries[row] : null }),
      at: (selection) => [selection.query === null ? null : queries.indexOf(selection.query), null],
    };
  }
  const one = map.n === 1 ? 0 : isAttention(map) ? null : query; // the only query, or a label of which cells are asked for
  if (one !== null && grid) {
    const line = () => store.row({ map: map.name, head, query: one, view: chosen.value });
    return patches({ id: [...id, one], axis, grid, shares, line, cell: (key) => ({ query: one, key }), at: ({ key }) => key });
  }
  return {
    id, shares, n: map.n, m: map.m, patches: grid ? map.m : 0,
    says: `Rows: ${who}. Columns: ${what}.`,
    names: [(k) => word(store.axis(map.rows), k), (k) => word(axis, k)],
    ask: (top, left, size) => store.tile(map.name, head, top, left, size, chosen.value),
    cell: (row, column) => ({ query: row, key: column }),
    at: (selection) => [selection.query, selection.key],
  };
}

/** A line of weights as the grid of patches. */
function patches({ id, axis, grid, shares, line, cell, at }) {
  const place = new Map(grid.cells.map((index, k) => [index, k]));
  const where = (index) => [Math.floor(place.get(index) / grid.columns), place.get(index) % grid.columns];
  return {
    id, shares, n: grid.rows, m: grid.columns, isGrid: true,
    names: [(k) => String(k + 1), (k) => String(k + 1)],
    ask: asked(async () => {
      const weights = await line();
      return { values: Float32Array.from(grid.cells, (index) => weights[index]), wide: grid.columns };
    }),
    cell: (row, column) => cell(grid.cells[row * grid.columns + column]),
    at: (selection) => (place.has(at(selection)) ? where(at(selection)) : [null, null]),
    says: "The cells as they lie in the picture.",
    keys: axis.tokens.length,
    patches: axis.tokens.length,
  };
}

/** Rows and columns of an axis whose tokens are all patches of one grid, row by row, but for tokens without a place; or null. */
export function patchGrid(axis) {
  const cells = [...axis.tokens.keys()].filter((k) => axis.positions[k].box);
  if (!cells.length || axis.positions.some((position) => !position.box && !position.none)) return null;
  const across = cells.map((k) => axis.positions[k].box[0]);
  const columns = new Set(across).size;
  const rows = cells.length / columns;
  const regular = Number.isInteger(rows) && across.every((x, k) => x === across[k % columns]) && cells.every((index, k) => axis.positions[index].box[1] === axis.positions[cells[k - (k % columns)]].box[1]);
  return regular && rows > 1 && columns > 1 ? { rows, columns, cells } : null;
}

/** The row of a view through all layers on the tokens of an axis; relevance, which has no unit, as shares of its sum. */
export async function lineOf(store, name, index, axis) {
  if (name === "rollout") return spread(await store.rollout(index), axis);
  const found = spread(await store.relevance(index), axis);
  const sum = found.reduce((total, value) => total + value, 0);
  return sum > 0 ? found.map((value) => value / sum) : found;
}

/** Numbers of input cells on the tokens of an axis; a token without a place has no cell. */
function spread(cells, axis) {
  if (cells.length === axis.tokens.length) return cells;
  const out = new Float32Array(axis.tokens.length);
  const placed = [...axis.tokens.keys()].filter((k) => !axis.positions[k].none);
  placed.forEach((index, k) => (out[index] = cells[k] ?? 0));
  return out;
}

/** The lines of some queries below one another, the first one asked for first. */
async function lines(queries, first, line) {
  const found = new Map();
  const left = [first, ...queries.filter((query) => query !== first)];
  found.set(first, await line(left.shift()));
  await Promise.all(Array.from({ length: AT_ONCE }, async () => {
    while (left.length) {
      const query = left.shift();
      found.set(query, await line(query));
    }
  }));
  const wide = found.get(first).length;
  const values = new Float32Array(queries.length * wide);
  queries.forEach((query, k) => values.set(found.get(query), k * wide));
  return { values, wide };
}

/** Tiles of numbers that are asked for once, as the server would send them: the middle row and the largest column of a bin. */
function asked(numbers) {
  let made = null;
  return async ([top, bottom], [left, right], size) => {
    const { values, wide } = await (made ??= numbers());
    const [high, across] = [Math.min(size, bottom - top), Math.min(size, right - left)];
    const out = new Float32Array(high * across);
    for (let i = 0; i < high; i++) {
      const row = top + Math.floor(((i + 0.5) * (bottom - top)) / high);
      for (let j = 0; j < across; j++) {
        const [from, to] = [j, j + 1].map((bin) => left + Math.floor((bin * (right - left)) / across));
        out[i * across + j] = values.subarray(row * wide + from, row * wide + Math.max(from + 1, to)).reduce((a, b) => Math.max(a, b), 0);
      }
    }
    const peak = out.reduce((a, b) => Math.max(a, b), 0);
    return Object.assign(Uint8Array.from(out, (value) => (peak > 0 ? Math.round((255 * value) / peak) : 0)), { peak });
  };
}
