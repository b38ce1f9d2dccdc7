/**
 * Lines between words: from the token that is pointed at to what it looks at, the stronger the more, and to it from
 * whoever looks at it. Only where both sides are words, and only where it is asked for: the colours say the same.
 */

import { strength } from "./colours.js";
import { element } from "./element.js";

const SVG = "http://www.w3.org/2000/svg";
const WORTH = 0.15; // of the strongest; weaker lines would only cover the words
const THICK = 4; // pixels

/** The lines over a board, and the button that switches them on. */
export class Lines {
  constructor(board) {
    this.board = board;
    this.bundles = [];
    this.on = false;
    const attributes = { type: "button", class: "quiet", id: "lines", "aria-pressed": "false" };
    this.button = element("button", { ...attributes, on: { click: () => this.toggle() } }, "Lines");
    new ResizeObserver(() => this.draw()).observe(board);
    board.addEventListener("scroll", () => this.draw(), true);
  }

  toggle() {
    this.on = !this.on;
    this.button.setAttribute("aria-pressed", String(this.on));
    this.draw();
  }

  /** Draw other ones: [{strip, index, to, weights, peak, which}], from a token of a strip to tokens of another. */
  show(bundles) {
    this.bundles = bundles.filter(({ strip, to, weights }) => weights && words(strip) && words(to));
    this.draw();
  }

  draw() {
    this.drawn?.remove();
    if (!this.on || !this.bundles.length) return;
    this.drawn = document.createElementNS(SVG, "svg");
    this.drawn.setAttribute("class", "lines");
    this.drawn.setAttribute("aria-hidden", "true");
    for (const bundle of this.bundles) this.drawn.append(...this.bundle(bundle));
    this.board.append(this.drawn);
  }

  *bundle({ strip, index, to, weights, peak, which }) {
    const from = this.middle(strip, strip.chips.get(index));
    if (!from) return;
    for (const [key, chip] of to.chips) {
      const strong = strength(weights[key], peak);
      const at = strong >= WORTH ? this.middle(to, chip) : null;
      if (at) yield line(...(from.y < at.y ? [from.below, at.above] : [from.above, at.below]), strong, which);
    }
  }

  /** Where a chip is on the board; null where its strip has scrolled it out of sight. */
  middle(strip, chip) {
    if (!chip) return null;
    const [box, seen, board] = [chip, strip.element, this.board].map((each) => each.getBoundingClientRect());
    const y = (box.top + box.bottom) / 2;
    if (y < seen.top || y > seen.bottom) return null;
    const x = (box.left + box.right) / 2 - board.left;
    return { y, above: [x, box.top - board.top], below: [x, box.bottom - board.top] };
  }
}

const words = (strip) => strip.chips instanceof Map;

function line([x0, y0], [x1, y1], strong, which) {
  const made = document.createElementNS(SVG, "path");
  const bend = (y1 - y0) / 2;
  made.setAttribute("d", `M${x0} ${y0}C${x0} ${y0 + bend} ${x1} ${y1 - bend} ${x1} ${y1}`);
  made.setAttribute("class", which);
  made.setAttribute("stroke-width", String(THICK * strong));
  made.setAttribute("stroke-opacity", String(0.25 + 0.6 * strong));
  return made;
}
