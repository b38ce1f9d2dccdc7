/**
 * Lines between words: from the token that is pointed at to what it attends to, the stronger the more, and to it from
 * what attends to it; or to what it attends to in every head, each in a colour of its own. Only where both sides are
 * words, and only where it is asked for: the colours of the words say the same of one head.
 */

import { dark, strength } from "./colours.js";
import { element } from "./element.js";

const SVG = "http://www.w3.org/2000/svg";
const WORTH = 0.15; // of the strongest; weaker lines would only cover the words
const WORTH_OF_MANY = 0.4; // where every head has lines
const THICK = 4; // pixels
const APART = 1.6; // pixels between the lines of two heads

/** The lines over a board, the buttons that switch them on, and what the colours mean. `changed` is told of the buttons. */
export class Lines {
  constructor(board, changed) {
    Object.assign(this, { board, changed, bundles: [], on: false, every: false, heads: 0 });
    const button = (id, title, act) => element("button", { type: "button", class: "quiet", id, "aria-pressed": "false", hidden: true, on: { click: act } }, title);
    this.button = button("lines", "Lines", () => this.toggle("on", this.button));
    this.allButton = button("all-heads", "All heads", () => this.toggle("every", this.allButton));
    this.legend = element("p", { class: "head-colours hint", hidden: true });
    new ResizeObserver(() => this.draw()).observe(board);
    board.addEventListener("scroll", () => this.draw(), true);
  }

  /** Whether lines are of every head. */
  get all() {
    return this.on && this.every && this.heads > 1 && !this.button.hidden;
  }

  /** Whether there may be lines at all. */
  offer(possible) {
    this.button.hidden = !possible;
  }

  toggle(what, button) {
    this[what] = !this[what];
    button.setAttribute("aria-pressed", String(this[what]));
    this.draw();
    this.changed();
  }

  /** Draw other ones: [{strip, index, to, weights, peak, which, head}], from a token of a strip to tokens of another. */
  show(bundles) {
    this.bundles = bundles.filter(({ strip, to, weights }) => weights && words(strip) && words(to));
    this.draw();
  }

  draw() {
    this.drawn?.remove();
    this.allButton.hidden = !this.on || this.button.hidden || this.heads < 2;
    const coloured = this.on ? this.bundles.filter(({ head }) => head !== undefined) : [];
    this.legend.hidden = !coloured.length;
    this.legend.replaceChildren(...coloured.map(({ head }) => {
      const one = element("span", {}, `head ${head}`);
      one.style.setProperty("--colour", headColour(head, coloured.length));
      return one;
    }));
    if (!this.on || !this.bundles.length) return;
    this.drawn = document.createElementNS(SVG, "svg");
    this.drawn.setAttribute("class", "lines");
    this.drawn.setAttribute("aria-hidden", "true");
    for (const bundle of this.bundles) this.drawn.append(...this.bundle(bundle));
    this.board.append(this.drawn);
  }

  *bundle({ strip, index, to, weights, peak, which, head }) {
    const from = this.middle(strip, strip.chips.get(index));
    if (!from) return;
    const one = head !== undefined;
    const aside = ([x, y]) => [one ? x + APART * (head - (this.bundles.length - 1) / 2) : x, y];
    for (const [key, chip] of to.chips) {
      const strong = strength(weights[key], peak);
      const at = strong >= (one ? WORTH_OF_MANY : WORTH) ? this.middle(to, chip) : null;
      if (!at) continue;
      const made = line(...(from.y < at.y ? [from.below, at.above] : [from.above, at.below]).map(aside), strong, which);
      if (one) {
        made.style.stroke = headColour(head, this.bundles.length);
        made.setAttribute("stroke-width", String(2.5 * strong));
        made.dataset.head = head;
      }
      yield made;
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

/** A colour for a head out of so many: even steps of hue at one lightness. */
export const headColour = (head, many) => `oklch(${dark() ? 0.78 : 0.56} 0.16 ${Math.round((360 * head) / many + 20)})`;

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
