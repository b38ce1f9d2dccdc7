/**
 * The largest weights of a row or a column as a list with numbers.
 */

import { element, percent } from "./element.js";
import { word } from "./token_text.js";

const LISTED = 6;
const GAP = 0.005;

/** A heading "name verb" and the tokens with the largest weights, each with a bar; `whole`: they ought to sum to one. */
export function list(name, verb, weights, axis, which, format, whole = false) {
  const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, LISTED);
  const peak = weights[order[0]] || 1;
  const items = order.filter((k) => weights[k] > 0.0005 * peak).map((k) => {
    return barred(word(axis, k), weights[k] / peak, format(weights[k]), axis.special[k]);
  });
  const heading = element("h3", {}, element("b", { dir: "auto" }, name), ` ${verb}`);
  const nothing = items.length ? null : element("p", { class: "hint" }, "no weights above zero");
  const rest = whole && !weights.coarse ? missing(weights) : "";
  return element("div", { class: `list ${which}` }, heading, element("ol", {}, ...items), nothing, rest && element("p", { class: "hint" }, rest));
}

/** A note about a row that does not sum to one. */
function missing(weights) {
  const sum = weights.reduce((total, weight) => total + weight, 0);
  if (Math.abs(1 - sum) <= GAP) return "";
  return sum < 1 && sum >= 0 ? `the remaining ${percent(1 - sum)} is on none of these tokens` : `the row sums to ${sum.toFixed(2)}`;
}

/** A name, a bar of that fraction of the width, and a label. */
export function barred(name, share, label, special = false) {
  const fill = element("span", { class: "bar-fill" });
  fill.style.inlineSize = `${100 * Math.max(0.01, Math.min(1, share))}%`;
  const shown = element("span", { class: special ? "word special" : "word", dir: "auto", title: name }, name);
  return element("li", {}, shown, element("span", { class: "bar-track" }, fill), element("span", { class: "share" }, label));
}
