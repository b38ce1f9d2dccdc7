/**
 * Tokens as words, where they stand in the text: pieces of a word touch, words have a space between them.
 *
 * One element a token, lit by a background. Only tokens whose colour changes are touched, so that thousands stay fluid.
 * One of them is reached by Tab; arrows move, Enter or Space pins.
 */

import { colour, lightInk, strength } from "./colours.js";
import { element } from "./element.js";
import { piece, sharesCharacter, word } from "./token_text.js";

const LEVELS = 64;
const NUMBERED = 6; // so many of the largest get their number beneath
const WORTH = 0.02;
const [PADDING, GAP] = [4, 2]; // pixels: of the box, between words

/** Tokens of an axis, or those of them that `indices` names. `point(index | null)` and `pin(index)` are called. */
export class Chips {
  constructor(axis, { label, which, point, pin, seconds = null, indices = axis.tokens.map((_, k) => k) }) {
    this.which = which;
    this.indices = indices;
    this.chips = new Map(indices.map((index) => [index, chip(axis, index)]));
    this.levels = new Uint8Array(axis.tokens.length);
    this.numbered = [];
    this.marked = null;
    this.element = element("div", { class: axis.notes ? "chips noted" : "chips", role: "listbox", "aria-label": label });
    this.element.append(...flowing(axis, indices, this.chips));
    this.reach(indices[0]);
    this.listen(point, pin);
    if (seconds !== null) new ResizeObserver(() => this.align(axis, seconds)).observe(this.element);
  }

  /** Words of a recording, if one line has room for all of them: each above its place in the spectrogram, or next to it. */
  align(axis, seconds) {
    const room = this.element.clientWidth - 2 * PADDING;
    const all = [...this.chips].map(([index, made]) => {
      made.style.left = "";
      const [from, to] = axis.positions[index].time ?? [0, 0];
      return { made, wide: made.offsetWidth, left: made.offsetLeft - this.element.offsetLeft - PADDING, middle: ((from + to) / 2 / seconds) * room };
    });
    if (all.at(-1).made.offsetTop > all[0].made.offsetTop) return;
    let end = 0;
    for (const one of all) end = (one.at = Math.max(end, one.middle - one.wide / 2)) + one.wide + GAP;
    let start = room;
    for (const one of all.reverse()) start = (one.at = Math.min(one.at, start - one.wide)) - GAP;
    for (const { made, at, left } of all) made.style.left = `${at - left}px`;
  }

  /** Colour every token by its weight, the largest (`peak`) strongest; null: none. `shares`: with percentages. */
  light(weights, peak, shares = true) {
    for (const [index, made] of this.chips) {
      const level = weights ? Math.round(LEVELS * strength(weights[index], peak)) : 0;
      if (level !== this.levels[index]) this.paint(made, index, level);
    }
    this.number(shares ? weights : null);
  }

  /** Frame the token that is pointed at or pinned. */
  mark(index, pinned) {
    const before = this.chips.get(this.marked);
    before?.classList.remove("marked", "pinned");
    before?.setAttribute("aria-selected", "false");
    this.marked = index;
    const now = this.chips.get(index);
    now?.classList.add("marked");
    now?.classList.toggle("pinned", pinned);
    now?.setAttribute("aria-selected", "true");
    if (now && pinned && !this.element.contains(document.activeElement)) this.reach(index); // Tab comes to what is pinned
  }

  /** Paint again: light has become dark, or the other way round. */
  repaint() {
    for (const [index, made] of this.chips) if (this.levels[index]) this.paint(made, index, this.levels[index]);
  }

  paint(made, index, level) {
    this.levels[index] = level;
    made.style.backgroundColor = level ? colour(level / LEVELS, this.which) : "";
    made.classList.toggle("lit", level > 0);
    made.classList.toggle("light-ink", level > 0 && lightInk(level / LEVELS));
  }

  /** Percentages beneath the largest. */
  number(weights) {
    for (const made of this.numbered) made.removeAttribute("data-share");
    this.numbered = [];
    if (!weights) return;
    const worth = this.indices.filter((index) => weights[index] >= WORTH);
    for (const index of worth.sort((a, b) => weights[b] - weights[a]).slice(0, NUMBERED)) {
      const made = this.chips.get(index);
      made.dataset.share = Math.round(100 * weights[index]);
      this.numbered.push(made);
    }
  }

  listen(point, pin) {
    const of = (event) => {
      const made = event.target.closest(".chip");
      return made ? Number(made.dataset.index) : null;
    };
    this.element.addEventListener("pointerover", (event) => of(event) !== null && point(of(event)));
    this.element.addEventListener("pointerleave", () => point(null));
    this.element.addEventListener("focusin", (event) => event.target.matches(":focus-visible") && point(of(event)));
    this.element.addEventListener("focusout", () => point(null));
    this.element.addEventListener("click", (event) => of(event) !== null && pin(of(event)));
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") pin(of(event));
      else if (!this.move(of(event), event.key)) return;
      event.preventDefault();
    });
  }

  /** Move the focus; true where the key was one that moves. */
  move(index, key) {
    const at = this.indices.indexOf(index);
    const last = this.indices.length - 1;
    const steps = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last };
    let next = steps[key] ?? null;
    if (key === "ArrowDown" || key === "ArrowUp") next = this.beside(at, key === "ArrowDown" ? 1 : -1);
    if (next === null) return false;
    const found = this.indices[Math.max(0, Math.min(last, next))];
    this.reach(found);
    this.chips.get(found).focus();
    return true;
  }

  /** The nearest token on the line above or below, as a place in `indices`. */
  beside(at, step) {
    const boxes = this.indices.map((index) => this.chips.get(index).getBoundingClientRect());
    const middle = (box) => box.left + box.width / 2;
    let [best, line] = [at, null];
    for (let k = at + step; k >= 0 && k < boxes.length; k += step) {
      const away = Math.abs(boxes[k].top - boxes[at].top) > 4;
      if (!away) continue;
      line ??= boxes[k].top;
      if (Math.abs(boxes[k].top - line) > 4) break;
      const nearer = Math.abs(middle(boxes[k]) - middle(boxes[at])) < Math.abs(middle(boxes[best]) - middle(boxes[at]));
      if (best === at || nearer) best = k;
    }
    return best;
  }

  reach(index) {
    this.chips.get(this.reached)?.setAttribute("tabindex", "-1");
    this.reached = index;
    this.chips.get(index)?.setAttribute("tabindex", "0");
  }
}

function chip(axis, index) {
  const special = axis.special[index] ? " special" : "";
  const note = axis.notes?.[index];
  const attributes = { class: `chip${special}`, role: "option", "aria-selected": "false", tabindex: "-1" };
  const title = note ? `${axis.tokens[index]}: ${note}` : axis.tokens[index];
  const made = element("span", { ...attributes, "data-index": index, title, dir: "auto" }, word(axis, index));
  if (note) made.dataset.note = note;
  return made;
}

/** The tokens with the gaps between them: none where one begins at the character where the last one ended. */
function* flowing(axis, indices, chips) {
  let end = null;
  for (const index of indices) {
    const position = axis.positions[index]?.text;
    if (end !== null && !(position && position[0] === end) && !sharesCharacter(axis, index, index - 1)) yield " ";
    yield chips.get(index);
    if (piece(axis, index).includes("\n")) yield element("br");
    end = position ? position[1] : -1;
  }
}
