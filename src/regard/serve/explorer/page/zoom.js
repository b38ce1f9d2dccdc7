/**
 * The part of a map that is shown: from which row and column on, and how many of each. Parts of cells count.
 *
 * Both sides grow by the same factor, about the place under the pointer, and neither leaves the map.
 */

const LEAST = 6; // cells to a side, at the closest

export class Zoom {
  /** The whole of a map with so many rows and columns. */
  constructor(n, m) {
    Object.assign(this, { n, m });
    this.whole();
  }

  /** Everything. */
  whole() {
    Object.assign(this, { top: 0, left: 0, high: this.n, wide: this.m });
  }

  /** Whether everything is shown. */
  get isWhole() {
    return this.high >= this.n && this.wide >= this.m;
  }

  /** How many times larger than the whole. */
  get times() {
    return Math.max(this.n / this.high, this.m / this.wide);
  }

  /** So many times closer, about a place given in shares of what is shown. */
  closer(factor, across = 0.5, down = 0.5) {
    const most = Math.max(1, Math.max(this.n, this.m) / LEAST);
    const times = Math.max(1, Math.min(most, this.times * factor));
    const [high, wide] = [Math.max(Math.min(this.n, LEAST), this.n / times), Math.max(Math.min(this.m, LEAST), this.m / times)];
    const [row, column] = [this.top + down * this.high, this.left + across * this.wide];
    Object.assign(this, { high, wide });
    this.to(row - down * high, column - across * wide);
  }

  /** Move by shares of what is shown. */
  move(across, down) {
    this.to(this.top + down * this.high, this.left + across * this.wide);
  }

  /** Begin at that row and column, or as near as the map goes. */
  to(top, left) {
    this.top = Math.max(0, Math.min(this.n - this.high, top));
    this.left = Math.max(0, Math.min(this.m - this.wide, left));
  }

  /** The cell at a place given in shares of what is shown. */
  cell(across, down) {
    const within = (place, count) => Math.max(0, Math.min(count - 1, Math.floor(place)));
    return { query: within(this.top + down * this.high, this.n), key: within(this.left + across * this.wide, this.m) };
  }
}
