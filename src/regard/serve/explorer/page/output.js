/**
 * What the model answered: a text, labels with their shares, or whatever else the task gives, said plainly.
 */

import { element, percent } from "./element.js";
import { barred } from "./list.js";

const SHOWN = 5;
const UNSAID = ["log_probabilities", "prompt", "width", "height", "begin", "end"]; // numbers for machines

/** Show `inspection.output` in an element; whether there was anything to show. */
export function answer(host, output) {
  const { text, ...rest } = output;
  const parts = text === undefined ? [] : [element("p", { class: "answer", dir: "auto" }, text)];
  for (const [name, value] of told(rest)) {
    const shares = ranked(value);
    if (name === "tags") parts.push(tagged(value));
    else if (shares) parts.push(bars(name, shares));
    else if (["string", "number", "boolean"].includes(typeof value)) parts.push(fact(name, value));
    else if (Array.isArray(value) && value.every((one) => typeof one === "string")) parts.push(fact(name, value.join("  ")));
  }
  host.replaceChildren(...parts);
  return parts.length > 0;
}

/** What there is to say, one after another; several masks have guesses each. */
function* told(output) {
  for (const [name, value] of Object.entries(output)) {
    if (UNSAID.includes(name)) continue;
    const guessed = Array.isArray(value) && value.every((one) => Array.isArray(one?.guesses));
    if (guessed) for (const [k, one] of value.entries()) yield [value.length > 1 ? `blank ${k + 1}` : "blank", one.guesses];
    else yield [name, value];
  }
}

/** Names with numbers, the largest first; null where the value is something else. */
function ranked(value) {
  let pairs = null;
  if (Array.isArray(value) && value.length && value.every((one) => one && typeof one === "object")) {
    pairs = value.map((one) => [one.label ?? one.token ?? one.text ?? one.word, one.probability ?? one.share ?? one.score]);
  } else if (value && typeof value === "object" && !Array.isArray(value)) pairs = Object.entries(value);
  const whole = pairs?.length && pairs.every(([name, share]) => name !== undefined && typeof share === "number");
  return whole ? pairs.sort((a, b) => b[1] - a[1]).slice(0, SHOWN) : null;
}

/** Words with their tags above them; how sure the model is of one is told on pointing at it. */
function tagged(tags) {
  const words = tags.flatMap(({ word, tag, probability }) => [element("ruby", { title: percent(probability) }, word, element("rt", {}, tag)), " "]);
  return element("p", { class: "answer tagged", dir: "auto" }, ...words);
}

function bars(name, shares) {
  const items = shares.map(([label, share]) => barred(String(label), share, percent(share)));
  return element("div", { class: "list look" }, element("h3", {}, name.replaceAll("_", " ")), element("ol", {}, ...items));
}

function fact(name, value) {
  const shown = typeof value === "number" ? Number(value.toPrecision(4)).toString() : String(value);
  return element("p", { class: "fact" }, element("span", {}, name.replaceAll("_", " ")), element("b", { dir: "auto" }, shown));
}
