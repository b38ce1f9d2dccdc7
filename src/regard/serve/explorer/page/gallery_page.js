/**
 * Entry point of a page that `regard see --mechanisms` writes: the gallery stored in the file.
 */

import { element } from "./element.js";
import { galleryOf } from "./gallery.js";
import { mountTheme } from "./theme.js";

const found = JSON.parse(document.getElementById("regard-gallery").textContent);
const matrices = [];
const host = document.getElementById("gallery");
const many = found.families.reduce((sum, { mechanisms }) => sum + mechanisms.length, 0);

mountTheme(document.getElementById("theme"), { tell: () => matrices.forEach((matrix) => matrix.paint()) });
host.append(
  element("h1", { class: "gallery-title" }, `${many} ways to attend`),
  element("p", { class: "gallery-lead" }, "The matrix that each mechanism applies to the values, mean of the heads: a row is a query, a column a key. Queries, keys and values are the tokens' own vectors, so that only the mechanism differs. Sizes are small, to show something on a few tokens. Point at a cell to read its weight."),
  subjects(),
  galleryOf(found, matrices),
);

function subjects() {
  const pictures = found.subjects.filter(({ picture }) => picture);
  return element("div", { class: "gallery-subjects" }, ...pictures.map(({ picture }) => element("figure", { class: "lab-figure" }, element("figcaption", {}, "the image, 8 x 8 patches"),
    element("img", { src: `data:image/png;base64,${picture}`, alt: "The image", width: 160 }))));
}
