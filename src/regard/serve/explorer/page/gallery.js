/**
 * The gallery of mechanisms: a card for each, by family, with its matrices, formula and cost. Used by the lab and, as a
 * page of its own, by `regard see --mechanisms`.
 */

import { strongest } from "./colours.js";
import { element, formulaLines } from "./element.js";
import { Matrix } from "./matrix.js";

const PIXELS = 176; // of a matrix, about

/**
 * Build the gallery.
 * @param {object} found `subjects` and `families`, as interpret.mechanism_gallery returns them
 * @param {Matrix[]} matrices gets every matrix that is made, to be painted again when the theme changes
 * @param {(spec: string) => void} [pick] is told of a click on a name
 */
export function galleryOf(found, matrices, pick = null) {
  const contents = element("nav", { class: "gallery-contents", "aria-label": "Families" }, ...found.families.map(({ name, mechanisms }) =>
    element("p", {}, element("b", {}, name), ...mechanisms.map((one) => element("a", { href: `#mechanism-${one.name}`, on: { click: (event) => reveal(event, one.name) } }, one.name)))));
  const families = found.families.map(({ name, mechanisms }) => element("section", { class: "gallery-family", "aria-label": name },
    element("h2", { class: "lab-title" }, name), element("div", { class: "gallery-cards" }, ...mechanisms.map((one) => card(one, found.subjects, matrices, pick)))));
  return element("div", { class: "gallery" }, contents, ...families);
}

function card(one, subjects, matrices, pick) {
  const name = pick ? element("button", { type: "button", class: "gallery-name", title: "Open in the lab", on: { click: () => pick(one.spec) } }, one.spec) : element("code", { class: "gallery-name" }, one.spec);
  const facts = [["cost", `O(${one.cost})`], ["causality", one.causality], ["softmax attention", one.exact ? "exactly" : "no, something in its place"], ["paper", one.paper ? `arXiv:${one.paper}` : null]];
  return element("article", { class: "gallery-card", id: `mechanism-${one.name}` },
    element("h3", {}, name), element("p", {}, one.what),
    element("div", { class: "gallery-body" },
      element("div", { class: "gallery-maps" }, ...one.maps.map((map, k) => picture(one, map, subjects[k], matrices))),
      element("div", { class: "gallery-says" },
        one.formula ? formulaLines(one.formula) : null,
        element("dl", {}, ...facts.filter(([, value]) => value).flatMap(([key, value]) => [element("dt", {}, key), element("dd", {}, value)])),
        one.maps.some((map) => map.drawn) ? element("p", { class: "hint" }, "It has learned parameters, which are random here.") : null)));
}

function picture(one, map, subject, matrices) {
  const title = element("figcaption", {}, subject.name);
  if (map.refused) return element("figure", { class: "lab-figure" }, title, element("p", { class: "gallery-refused hint" }, map.refused));
  const { tokens } = subject;
  const made = new Matrix(tokens, tokens, { label: `Weights of ${one.name} on the ${subject.name}`, cell: Math.max(2, Math.floor(PIXELS / tokens.length)), idle: "\u00a0" });
  made.show(map.weights, null, strongest(Math.max(...map.weights.flat().map(Math.abs)), tokens.length)); // even weights stay pale
  matrices.push(made);
  return element("figure", { class: "lab-figure" }, title, made.element);
}

/** Scroll to a card; the address stays, since the lab's panes are chosen by it. */
function reveal(event, name) {
  event.preventDefault();
  document.getElementById(`mechanism-${name}`)?.scrollIntoView({ behavior: "smooth", block: "start" });
}
