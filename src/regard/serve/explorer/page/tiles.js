/**
 * A map in tiles, at the resolution at which it is shown.
 *
 *     step      1, 2, 4, ... rows (or columns) of the map to one of a tile, about a pixel of the screen
 *     tile      SIDE x SIDE of those; with a step of 1 they are the exact weights
 *
 * The tile of the whole map comes first; what is shown is then refined, from the middle outwards. Until a tile has come
 * the coarser one beneath it is seen. What has gone by is kept for a while. The largest weight that is shown is strongest
 * (a part of a long map would be blank beside the first rows, whose weights are shared by few).
 */

import { painted, strongest } from "./colours.js";
import { element } from "./element.js";

const SIDE = 256;
const AT_ONCE = 2; // requests under way
const KEPT = 64; // tiles

export class Tiles {
  /**
   * @param map {n, m, shares}: rows, columns, and whether its numbers are shares of one
   * @param ask (rows, columns, size) -> the promise of bytes with their `peak` @param changed called when one has come
   */
  constructor(map, ask, changed) {
    Object.assign(this, { map, ask, changed, tiles: new Map(), wanted: [], ended: false });
    this.whole = this.place(0, 0, power(map.n / SIDE), power(map.m / SIDE));
  }

  /** Nothing more is wanted of this map. */
  end() {
    this.ended = true;
  }

  /** See to it that what `zoom` shows on so many pixels is there; false where something else was wanted meanwhile. */
  async fetch(zoom, width, height) {
    if (!this.whole.bytes) await this.load(this.whole);
    const [down, across] = [nearest(zoom.high / height), nearest(zoom.wide / width)];
    const needed = this.within(zoom, down, across).filter(({ key }) => !this.tiles.has(key));
    this.wanted = needed;
    await Promise.all(Array.from({ length: AT_ONCE }, async () => {
      while (this.wanted === needed && needed.length && !this.ended) await this.load(needed.shift());
    }));
    const still = this.wanted === needed && !this.ended;
    if (still) this.scale(zoom, this.within(zoom, down, across));
    return still;
  }

  /** Colour by the largest weight that is shown of these tiles. */
  scale(zoom, tiles) {
    const peak = Math.max(...tiles.map(({ key }) => shown(this.tiles.get(key), zoom)));
    if (peak === this.peak) return;
    this.peak = peak;
    this.repaint();
    this.changed();
  }

  /** The tiles of such steps under what is shown, from the middle outwards. */
  within({ top, left, high, wide }, down, across) {
    const found = [];
    for (let i = Math.floor(top / (SIDE * down)); i * SIDE * down < top + high; i++)
      for (let j = Math.floor(left / (SIDE * across)); j * SIDE * across < left + wide; j++) found.push(this.place(i, j, down, across));
    const off = ({ rows, columns }) => Math.hypot((rows[0] + rows[1]) / 2 - top - high / 2, (columns[0] + columns[1]) / 2 - left - wide / 2);
    return found.sort((a, b) => off(a) - off(b));
  }

  place(i, j, down, across) {
    const { n, m } = this.map;
    const rows = [i * SIDE * down, Math.min(n, (i + 1) * SIDE * down)];
    const columns = [j * SIDE * across, Math.min(m, (j + 1) * SIDE * across)];
    return { key: [rows, columns].join(" "), rows, columns, step: down * across };
  }

  async load(tile) {
    tile.bytes = await this.ask(tile.rows, tile.columns, SIDE);
    tile.wide = Math.min(SIDE, tile.columns[1] - tile.columns[0]);
    tile.high = tile.bytes.length / tile.wide;
    tile.canvas = element("canvas", { width: tile.wide, height: tile.high });
    this.peak ??= tile.bytes.peak;
    this.paint(tile);
    this.tiles.set(tile.key, tile);
    const oldest = [...this.tiles.keys()].filter((key) => key !== this.whole.key);
    if (oldest.length > KEPT) this.tiles.delete(oldest[0]);
    if (!this.ended) this.changed();
  }

  /** The same weight has the same colour in every tile. */
  paint({ bytes, wide, high, canvas }) {
    const { shares, keys, m } = this.map;
    const most = shares ? strongest(this.peak, keys ?? m) : this.peak;
    const strong = most > 0 ? Math.sqrt(bytes.peak / most) : 0;
    canvas.getContext("2d").putImageData(painted(bytes, wide, high, strong), 0, 0);
  }

  /** Paint all again: light has become dark, or the other way round. */
  repaint() {
    for (const tile of this.tiles.values()) this.paint(tile);
  }

  /** Draw what is there of what `zoom` shows, the coarser beneath. */
  draw(canvas, zoom) {
    const pen = canvas.getContext("2d");
    const [x, y] = [canvas.width / zoom.wide, canvas.height / zoom.high];
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.imageSmoothingEnabled = false;
    for (const { rows, columns, canvas: from } of [...this.tiles.values()].sort((a, b) => b.step - a.step)) {
      const [left, right] = columns.map((column) => Math.round((column - zoom.left) * x));
      const [top, bottom] = rows.map((row) => Math.round((row - zoom.top) * y));
      if (right > 0 && bottom > 0 && left < canvas.width && top < canvas.height) pen.drawImage(from, left, top, right - left, bottom - top);
    }
  }
}

/** The largest weight of the part of a tile that is shown. */
function shown({ bytes, rows, columns, wide, high }, zoom) {
  const inside = (from, count, [first, past], pixels) => {
    const place = (cell) => ((cell - first) * pixels) / (past - first);
    return [Math.max(0, Math.floor(place(from))), Math.min(pixels, Math.ceil(place(from + count)))];
  };
  const [top, bottom] = inside(zoom.top, zoom.high, rows, high);
  const [left, right] = inside(zoom.left, zoom.wide, columns, wide);
  let most = 0;
  for (let i = top; i < bottom; i++) for (let j = left; j < right; j++) most = Math.max(most, bytes[i * wide + j]);
  return (most / 255) * bytes.peak;
}

/** The smallest power of two that is no less. */
const power = (ratio) => 2 ** Math.max(0, Math.ceil(Math.log2(ratio)));

/** The power of two that is nearest, at least one. */
const nearest = (ratio) => 2 ** Math.max(0, Math.round(Math.log2(ratio)));
