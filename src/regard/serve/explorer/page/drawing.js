/**
 * One map as a drawing to keep: the same rectangles and words on a canvas (PNG) or in a tree of SVG.
 *
 * Words are set as text in either, so that a file with a map of `<script>` is a file with those eight letters.
 */

import { colour, strength } from "./colours.js";

const NAMESPACE = "http://www.w3.org/2000/svg";
const FONT = "12px system-ui, sans-serif";
const MARGIN = 12;
const LONGEST = 18;

/**
 * Draw a map with a pen.
 * @param map {values: weights over their peak, rows and columns: how many, left and top: the words beside them (or none), title}
 */
export function draw(map, pen) {
  const cell = Math.max(2, Math.min(28, Math.floor(900 / Math.max(map.rows, map.columns))));
  const left = map.left.length ? MARGIN + 8 * Math.max(...map.left.map((word) => short(word).length)) : MARGIN;
  const top = 28 + (map.top.length ? 8 * Math.max(...map.top.map((word) => short(word).length)) : 0) + MARGIN;
  const width = Math.max(left + cell * map.columns + MARGIN, 8 * map.title.length);
  pen.begin(width, top + cell * map.rows + MARGIN);
  pen.text(map.title, MARGIN, 20, 0, "start");
  for (let i = 0; i < map.rows; i++) {
    for (let j = 0; j < map.columns; j++) {
      const fill = colour(strength(map.values[i * map.columns + j], 1));
      pen.rectangle(left + j * cell, top + i * cell, cell, cell, fill);
    }
  }
  map.left.forEach((word, i) => pen.text(short(word), left - 6, top + (i + 0.5) * cell + 4, 0, "end"));
  map.top.forEach((word, j) => pen.text(short(word), left + (j + 0.5) * cell + 4, top - 6, -90, "start"));
  return pen.end();
}

/** A pen on a canvas: ends with the promise of a PNG, twice as fine as it is large. */
export function canvasPen(ink, paper) {
  const canvas = document.createElement("canvas"), context = canvas.getContext("2d");
  return {
    begin(width, height) {
      [canvas.width, canvas.height] = [2 * width, 2 * height];
      context.scale(2, 2);
      this.rectangle(0, 0, width, height, paper);
      context.font = FONT;
    },
    rectangle(x, y, width, height, fill) {
      context.fillStyle = fill;
      context.fillRect(x, y, width, height);
    },
    text(words, x, y, turn, anchor) {
      context.save();
      context.translate(x, y);
      context.rotate((turn * Math.PI) / 180);
      context.textAlign = anchor;
      context.fillStyle = ink;
      context.fillText(words, 0, 0);
      context.restore();
    },
    end: () => new Promise((done) => canvas.toBlob(done, "image/png")),
  };
}

/** A pen in a tree of SVG: ends with the promise of the file. */
export function svgPen(ink, paper) {
  const root = document.createElementNS(NAMESPACE, "svg");
  const add = (tag, attributes, words = "") => {
    const made = document.createElementNS(NAMESPACE, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
    made.textContent = words;
    root.append(made);
  };
  return {
    begin(width, height) {
      const box = { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "system-ui, sans-serif", "font-size": 12 };
      for (const [name, value] of Object.entries(box)) root.setAttribute(name, String(value));
      this.rectangle(0, 0, width, height, paper);
    },
    rectangle: (x, y, width, height, fill) => add("rect", { x, y, width, height, fill }),
    text: (words, x, y, turn, anchor) =>
      add("text", { transform: `translate(${x} ${y}) rotate(${turn})`, "text-anchor": anchor, fill: ink }, words),
    end: async () => new Blob([new XMLSerializer().serializeToString(root)], { type: "image/svg+xml" }),
  };
}

/** A word that has an end; what no file of XML may hold is spelled out. */
function short(word) {
  const shown = word.replace(/[\u0000-\u001f\u007f-\u009f\ufffe\uffff]/g, (c) => `\\x${c.charCodeAt(0).toString(16)}`);
  const letters = [...shown.toWellFormed()];
  return letters.length > LONGEST ? `${letters.slice(0, LONGEST - 1).join("")}…` : letters.join("");
}
