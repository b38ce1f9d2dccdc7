/**
 * An output over the picture it belongs to: boxes, masks, depth.
 *
 * The picture is the part of the given one that the model saw (`region`, in pixels of the given picture); outputs are in
 * pixels of the given picture. Labels have the same colours as in the files of `regard see`.
 */

import { element, percent } from "./element.js";
import { barred } from "./list.js";

const COLOURS = [ // as in see/outputs.py
  "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#9ACD32",
  "#B39DDB", "#00CED1", "#FF8A80", "#A1887F", "#FF4FC3", "#90A4AE", "#FFCC80", "#2ECC40",
  "#8E7CFF", "#C0CA33", "#F06292", "#80DEEA", "#D4A017", "#B2DFDB", "#E1BEE7", "#FF7043",
];
const MAGMA = ["#fcfdbf", "#fe9f6d", "#de4968", "#8c2981", "#3b0f70", "#000004"]; // near to far
const WIDEST = 900; // pixels of the canvas

/** The kinds of output that are drawn over a picture: how, and what is listed beneath. */
const DRAWINGS = {
  boxes: { draw: drawBoxes, items: ({ boxes }) => boxes },
  masks: { draw: drawMasks, items: ({ masks }) => masks },
  depth: { draw: drawDepth, items: () => [] },
};

/** Whether an output of that kind is drawn over a picture. */
export const isDrawn = (kind) => kind in DRAWINGS;

/** The picture with the output over it, and a list of what was found. `image` is a promise of a Blob. */
export function overlay(output, region, image) {
  const { draw, items } = DRAWINGS[output.kind];
  const found = items(output);
  const colours = labelColours(found);
  const names = found.map(({ label, score }) => `${label} ${percent(score)}`);
  const says = names.length ? names.join(", ") : found.length === 0 && output.kind !== "depth" ? "nothing found" : output.kind;
  const canvas = element("canvas", { class: "overlay", role: "img", "aria-label": `${output.kind}: ${says}`, "data-kind": output.kind });
  const [left, top, right, bottom] = region;
  image.then((blob) => createImageBitmap(blob)).then((bitmap) => {
    const scale = Math.min(WIDEST / bitmap.width, Math.max(1, Math.ceil(560 / Math.max(bitmap.width, bitmap.height))));
    [canvas.width, canvas.height] = [bitmap.width * scale, bitmap.height * scale].map(Math.round);
    const pen = canvas.getContext("2d");
    pen.imageSmoothingEnabled = bitmap.width > 96;
    pen.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    const place = (x, y) => [((x - left) / (right - left)) * canvas.width, ((y - top) / (bottom - top)) * canvas.height];
    draw(pen, output, place, colours);
    canvas.classList.add("drawn");
  }).catch(() => canvas.classList.add("failed"));
  const listed = found.map(({ label, score }) => {
    const item = barred(label, score, percent(score));
    item.querySelector(".bar-fill").style.backgroundColor = colours.get(label);
    return item;
  });
  const below = output.kind === "depth" ? depthScale(output) : element("ol", {}, ...listed);
  const nothing = output.kind !== "depth" && !found.length ? element("p", { class: "hint" }, "nothing found") : null;
  return element("div", { class: "list look drawn-output" }, canvas, below, nothing);
}

function drawBoxes(pen, { boxes }, place, colours) {
  const ordered = [...boxes].reverse(); // the most certain on top
  for (const { left, top, right, bottom, label } of ordered) {
    const [[x, y], [to, low]] = [place(left, top), place(right, bottom)];
    pen.strokeStyle = colours.get(label);
    pen.lineWidth = Math.max(2, pen.canvas.width / 180);
    pen.strokeRect(x, y, to - x, low - y);
  }
  for (const { left, top, label, score } of ordered) write(pen, ...place(left, top), `${label} ${percent(score)}`, colours.get(label));
}

function drawMasks(pen, { masks, width, height }, place, colours) {
  const names = []; // over all masks
  for (const { counts, label } of [...masks].reverse()) {
    const pixels = new ImageData(width, height);
    const [red, green, blue] = rgb(colours.get(label));
    let [at, sumX, sumY, many] = [0, 0, 0, 0];
    counts.forEach((count, k) => { // runs down the columns, the first of them outside
      for (let end = at + count; at < end; at++) {
        if (k % 2 === 0) continue;
        const [column, row] = [Math.floor(at / height), at % height];
        pixels.data.set([red, green, blue, 128], 4 * (row * width + column));
        [sumX, sumY, many] = [sumX + column, sumY + row, many + 1];
      }
    });
    stamp(pen, pixels, place);
    if (many) names.push([...place(sumX / many, sumY / many), label, colours.get(label)]);
  }
  for (const name of names) write(pen, ...name);
}

function drawDepth(pen, output, place) {
  const { values, low, high } = depths(output);
  const pixels = new ImageData(output.width, output.height);
  const stops = MAGMA.map(rgb);
  values.forEach((value, k) => {
    if (!Number.isFinite(value)) return;
    const at = (high > low ? (value - low) / (high - low) : 0) * (stops.length - 1);
    const from = Math.min(Math.floor(at), stops.length - 2);
    const mixed = stops[from].map((each, c) => each + (at - from) * (stops[from + 1][c] - each));
    pixels.data.set([...mixed, 235], 4 * k);
  });
  stamp(pen, pixels, place);
}

/** Pixels of the size of the given picture, laid where the picture is. */
function stamp(pen, pixels, place) {
  const sheet = new OffscreenCanvas(pixels.width, pixels.height);
  sheet.getContext("2d").putImageData(pixels, 0, 0);
  const [[x, y], [to, low]] = [place(0, 0), place(pixels.width, pixels.height)];
  pen.drawImage(sheet, x, y, to - x, low - y);
}

/** The depths of an output, row by row, and the smallest and largest of them. */
function depths({ float32 }) {
  const bytes = Uint8Array.from(atob(float32), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const values = Array.from({ length: bytes.length / 4 }, (_, k) => view.getFloat32(4 * k, true));
  const known = values.filter(Number.isFinite);
  return { values, low: known.reduce((a, b) => Math.min(a, b), Infinity), high: known.reduce((a, b) => Math.max(a, b), -Infinity) };
}

function depthScale(output) {
  const { low, high } = depths(output);
  const unit = output.metric ? " m" : "";
  const bar = element("span", { class: "depth-scale" });
  bar.style.background = `linear-gradient(to right, ${MAGMA.join(", ")})`;
  const ends = Number.isFinite(low) ? [low, high].map((value) => `${Number(value.toPrecision(3))}${unit}`) : ["unknown", ""];
  return element("p", { class: "fact depth-range" }, element("span", {}, `near ${ends[0]}`), bar, element("span", {}, `far ${ends[1]}`));
}

/** A label on its colour, within the canvas. */
function write(pen, x, y, text, colour) {
  const size = Math.max(12, Math.round(pen.canvas.width / 28));
  pen.font = `600 ${size}px system-ui, sans-serif`;
  const wide = pen.measureText(text).width + size / 2;
  const [left, top] = [Math.max(0, Math.min(x, pen.canvas.width - wide)), Math.max(0, Math.min(y, pen.canvas.height - 1.4 * size))];
  pen.fillStyle = colour;
  pen.fillRect(left, top, wide, 1.4 * size);
  pen.fillStyle = "#000000";
  pen.textBaseline = "middle";
  pen.fillText(text, left + size / 4, top + 0.7 * size);
}

const rgb = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));

/** A colour for every label, in alphabetical order of the labels, as in see/outputs.py. */
export function labelColours(items) {
  const labels = [...new Set(items.map(({ label }) => label))].sort();
  return new Map(labels.map((label, k) => [label, COLOURS[k % COLOURS.length]]));
}
