/**
 * The original and the changed answer side by side, and the loss of the original answer under both models.
 */

import { colour, lightInk } from "./colours.js";
import { element, number, percent } from "./element.js";
import { visible } from "./token_text.js";

const WORST = 5; // nats; the loss of a token that is drawn darkest
const LABELS = 5;

/** Elements for the result of interpret/compare.py. */
export function compareAnswers(found) {
  const { original, changed, loss, target, same } = found;
  const before = words(original.text ?? "");
  const pair = element("div", { class: "pair" },
    element("section", { "aria-label": "Original" }, element("h3", {}, "Original"), marked(before, words(changed.text ?? ""), "gone"), shares(original)),
    element("section", { "aria-label": "Changed" }, element("h3", {}, same ? "Changed: same answer" : "Changed"), marked(words(changed.text ?? ""), before, "new"), shares(changed)),
  );
  return [pair, losses(loss), tokens(target)];
}

/** A text with the words marked that the other one lacks. */
function marked(own, other, mark) {
  const shared = common(own, other);
  return element("p", { class: "answer", dir: "auto" }, ...own.map((word, k) => (shared.has(k) || !word.trim() ? word : element("mark", { class: mark }, word))));
}

const words = (text) => text.split(/(\s+)/).filter((word) => word !== "");

/** The indices of the longest common subsequence of words. */
function common(own, other) {
  const most = Array.from({ length: own.length + 1 }, () => new Uint16Array(other.length + 1));
  for (let i = own.length - 1; i >= 0; i--)
    for (let j = other.length - 1; j >= 0; j--) most[i][j] = own[i] === other[j] ? most[i + 1][j + 1] + 1 : Math.max(most[i + 1][j], most[i][j + 1]);
  const kept = new Set();
  for (let i = 0, j = 0; i < own.length && j < other.length; ) {
    if (own[i] === other[j]) kept.add((j++, i++));
    else if (most[i + 1][j] >= most[i][j + 1]) i++;
    else j++;
  }
  return kept;
}

/** Labels or guesses with their probabilities, where the answer has some. */
function shares(answer) {
  const guesses = (answer.guesses ?? []).flat().map(({ word, probability }) => [word, probability]);
  const labels = Object.entries(answer.probabilities ?? {}).sort((a, b) => b[1] - a[1]);
  const shown = [...labels, ...guesses].slice(0, LABELS);
  if (!shown.length) return null;
  return element("ol", { class: "shares" }, ...shown.map(([name, share]) => element("li", {}, element("span", { dir: "auto" }, visible(name)), element("span", {}, percent(share)))));
}

function losses(loss) {
  if (loss.original === null) return element("p", { class: "hint" }, "There is no loss to compare for this output.");
  const change = loss.changed - loss.original;
  const line = element("p", { class: "loss" },
    "Loss of the original answer: ", element("b", { class: "loss-before" }, number(loss.original)), " → ", element("b", { class: "loss-after" }, number(loss.changed)),
    ` nats per token (${change >= 0 ? "+" : "−"}${number(Math.abs(change))})`);
  return element("div", {}, line, element("p", { class: "hint" }, change > 0.5 ? "The answer depends on this." : change > 0.02 ? "The answer depends on this a little." : change < -0.02 ? "The answer is more likely without this." : "The answer hardly depends on this."));
}

/** The tokens of the original answer, darker the more their probability fell. */
function tokens({ tokens: pieces, original, changed }) {
  const chips = pieces.map((raw, k) => {
    const piece = raw.replaceAll("▁", " ").trim() || raw; // the mark of a space before a word
    const lost = Math.max(0, original[k] - changed[k]);
    const amount = Math.sqrt(Math.min(1, lost / WORST));
    const tooltip = `${visible(piece)}: ${percent(Math.exp(original[k]))} → ${percent(Math.exp(changed[k]))}`;
    const chip = element("span", { class: `fallen${lightInk(amount) ? " light-ink" : ""}`, title: tooltip, dir: "auto" }, visible(piece));
    chip.style.backgroundColor = colour(amount, "seen");
    return chip;
  });
  return element("div", { class: "fallen-tokens", role: "group", "aria-label": "How much less likely each token of the original became" }, ...chips);
}
