/**
 * The answer of the model: a text, labels with probabilities, or other outputs of the task.
 */

import { element, number, percent } from "./element.js";
import { barred } from "./list.js";
import { isDrawn, overlay } from "./overlay.js";

const SVG = "http://www.w3.org/2000/svg";
const SHOWN = 5;
const MADE = 224; // pixels of the longer side of a generated image
const SCORES = { // what the score of a task is, and its unit
  extractive_qa: ["score of the span", "sum of two logits"],
  ctc_speech_recognition: ["log-probability", "nats"],
  speech_recognition: ["log-probability", "nats"],
  default: ["log-probability", "nats/token"],
};
const ENDS = { length: "at the length limit", end: "by the model", inputs: "by the given text" }; // why a text ended
const HIDDEN_FIELDS = ["kind", "log_probabilities", "prompt", "width", "height", "begin", "end"];

/** Show `inspection.output` in an element; whether there was anything to show. `image()` is a promise of its picture. */
export function answer(host, inspection, image) {
  const output = inspection.output ?? {};
  const drawn = isDrawn(output.kind) && inspection.picture;
  const parts = drawn ? [overlay(output, inspection.region, image())] : output.kind === "generated_image" ? made(output) : output.kind === "strokes" ? written(output) : output.kind === "neighbors" ? nearest(output) : listed(output, inspection.task);
  if (!parts.length && output.kind) parts.push(raw(output));
  if (inspection.warning) parts.push(element("p", { class: "hint note warning", role: "note" }, inspection.warning));
  if (inspection.note) parts.push(element("p", { class: "hint note" }, inspection.note));
  host.replaceChildren(...parts);
  return parts.length > 0;
}

/** A picture that the model made, enlarged without smoothing, and what it had drawn after each step. */
function made({ png, frames = [], width, height }) {
  const shown = (data, alt, side) => element("img", { class: "made", alt, src: `data:image/png;base64,${data}`, width: Math.round((side * width) / Math.max(width, height)) });
  const parts = [shown(png, `generated image, ${width} by ${height} pixels`, MADE)];
  if (frames.length > 1) parts.push(element("div", { class: "made-steps" }, ...frames.map((data, k) => shown(data, `after step ${k + 1} of ${frames.length}`, MADE / 4))));
  return parts;
}

/** A line that the model wrote by hand. */
function written({ text, points, finished }) {
  let [x, y] = [0, 0];
  let down = false;
  const places = points.map(([right, below, lifted]) => {
    [x, y] = [x + right, y + below];
    const sign = down ? "L" : "M";
    down = !lifted;
    return { sign, x, y };
  });
  const [left, top] = ["x", "y"].map((axis) => places.reduce((least, place) => Math.min(least, place[axis]), Infinity) - 0.2);
  const [right, bottom] = ["x", "y"].map((axis) => places.reduce((most, place) => Math.max(most, place[axis]), -Infinity) + 0.2);
  const drawing = document.createElementNS(SVG, "svg");
  for (const [name, value] of Object.entries({ class: "written", viewBox: `${left} ${top} ${right - left} ${bottom - top}`, role: "img", "aria-label": `handwriting: ${text}` })) drawing.setAttribute(name, value);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", places.map((place) => `${place.sign}${place.x} ${place.y}`).join(""));
  drawing.append(path);
  return [drawing, fact("pen", `${points.length} points`), finished ? null : element("p", { class: "hint" }, "cut off: the line was not finished")].filter(Boolean);
}

/** Texts, labels with probabilities, single numbers and words; nothing where an output is of another shape. */
function listed({ text, candidates, ...rest }, task) {
  const [scored, unit] = SCORES[task] ?? SCORES.default;
  const chosen = Boolean(rest.label !== undefined && ranked(rest.probabilities));
  const says = chosen ? rest.label : text;
  const parts = says === undefined ? [] : [element("p", { class: "answer", dir: "auto" }, says)];
  if (chosen) for (const name of ["label", "probability"]) delete rest[name]; // it stands among the others
  for (const [name, value] of entries(rest)) {
    const shares = ranked(value);
    if (name === "score" && typeof value === "number") parts.push(fact(scored, value, unit));
    else if (name === "reason") parts.push(fact("ended", ENDS[value] ?? value));
    else if (name === "tags") parts.push(tagged(value));
    else if (shares) parts.push(bars(name, shares));
    else if (["string", "number", "boolean"].includes(typeof value)) parts.push(fact(name, value));
    else if (Array.isArray(value) && value.every((one) => typeof one === "string")) parts.push(fact(name, value.join("  ")));
    else if (name === "vector" && !rest.kind) parts.push(fact(name, `${value.length} numbers`));
    else if (rest.kind && value !== null) return [raw({ text, candidates, ...rest })];
  }
  for (const one of candidates ?? []) parts.push(element("p", { class: "fact" }, element("span", { dir: "auto" }, one.text), element("b", {}, `${number(one.score)} ${unit}`)));
  return parts;
}

/** An output that has no drawing, as JSON; long lists of numbers are cut. */
function raw(output) {
  const short = (key, value) => (Array.isArray(value) && value.length > 24 && value.every((one) => typeof one === "number") ? `${value.length} numbers` : value);
  return element("pre", { class: "json" }, JSON.stringify(output, short, 1));
}

/** Name and value of each output; masks give their guesses one by one. */
function* entries(output) {
  for (const [name, value] of Object.entries(output)) {
    if (HIDDEN_FIELDS.includes(name)) continue;
    const guessed = Array.isArray(value) && value.every((one) => Array.isArray(one?.guesses));
    if (guessed) for (const [k, one] of value.entries()) yield [value.length > 1 ? `mask ${k + 1}` : "mask", one.guesses];
    else yield [name, value];
  }
}

/** Names with numbers, the largest first; null if the value is something else. */
function ranked(value) {
  let pairs = null;
  if (Array.isArray(value) && value.length && value.every((one) => one && typeof one === "object")) {
    pairs = value.map((one) => [one.label ?? one.token ?? one.text ?? one.word, one.probability ?? one.share ?? one.score]);
  } else if (value && typeof value === "object" && !Array.isArray(value)) pairs = Object.entries(value);
  const whole = pairs?.length && pairs.every(([name, share]) => name !== undefined && typeof share === "number");
  return whole ? pairs.sort((a, b) => b[1] - a[1]).slice(0, SHOWN) : null;
}

/** Words with their tags above them; the tooltip is the probability. */
function tagged(tags) {
  const words = tags.flatMap(({ word, tag, probability }) => [element("ruby", { title: percent(probability) }, word, element("rt", {}, tag)), " "]);
  return element("p", { class: "answer tagged", dir: "auto" }, ...words);
}

function bars(name, shares, format = percent) {
  const items = shares.map(([label, share]) => barred(String(label), share, format(share)));
  return element("div", { class: "list look" }, element("h3", {}, name.replaceAll("_", " ")), element("ol", {}, ...items));
}

/** The words nearest to a word, or to a sum of words, which are told apart. */
function nearest({ word, neighbors, given = [] }) {
  const cosines = (words) => words.map((each) => [each.word, each.cosine]);
  const three = (cosine) => cosine.toFixed(3);
  const parts = [bars(`nearest to ${word}, cosine`, cosines(neighbors), three)];
  if (given.length) parts.push(bars("words of the sum, left out above", cosines(given), three));
  return parts;
}

function fact(name, value, unit = "") {
  const shown = typeof value === "number" ? `${Number(value.toPrecision(3))} ${unit}`.trim() : String(value);
  return element("p", { class: "fact" }, element("span", {}, name.replaceAll("_", " ")), element("b", { dir: "auto" }, shown));
}
