/**
 * Colours for weights: even steps for the eye, legible without red and green, in light and in dark.
 *
 * Each map runs through a few stops in OKLab, where equal distances look equal, with lightness going one way only: it
 * reads the same in grey and for every kind of colour blindness. Zero is the colour of the card beneath, so that empty
 * cells are no ink. Blue: the keys a query attends to; orange: the queries that attend to a key.
 *
 * Bjorn Ottosson: A perceptual color space for image processing. 2020.
 */

const STOPS = {
  light: {
    look: ["#ffffff", "#cfe0f5", "#7fb0e6", "#2f6fc4", "#0d2f6e"],
    seen: ["#ffffff", "#fbe2c4", "#f3b06a", "#cf6f14", "#6d3205"],
  },
  dark: {
    look: ["#171a21", "#15375f", "#1f6fa8", "#6db6d9", "#f3f8d8"],
    seen: ["#171a21", "#4a2a10", "#96560f", "#e39a3b", "#fff1cf"],
  },
};
const STEPS = 256;
const EVEN = 6; // so many equal shares
const tables = new Map();

/** Whether the page is dark now. */
export function dark() {
  return document.documentElement.dataset.theme === "dark";
}

/**
 * 256 colours from nothing to the largest weight, as a Uint8Array of r g b.
 * @param {"look" | "seen"} which weights of keys, or of queries
 */
export function table(which = "look") {
  const name = `${dark() ? "dark" : "light"} ${which}`;
  if (!tables.has(name)) tables.set(name, ramp(STOPS[dark() ? "dark" : "light"][which]));
  return tables.get(name);
}

/** How strongly a weight is shown, 0 to 1: the root of its share of the peak, so that small ones are told apart. */
export function strength(weight, peak) {
  return peak > 0 ? Math.sqrt(Math.min(1, Math.abs(weight) / peak)) : 0;
}

/**
 * The weight that gets the strongest colour: the largest, but at least a few times a uniform share, so that a head with
 * uniform attention stays pale.
 */
export function strongest(peak, keys) {
  return Math.max(peak, Math.min(0.5, EVEN / keys));
}

/** A CSS colour for a strength. */
export function colour(amount, which = "look") {
  const at = 3 * Math.round(amount * (STEPS - 1));
  const all = table(which);
  return `rgb(${all[at]} ${all[at + 1]} ${all[at + 2]})`;
}

/** Whether light ink is wanted on that colour. */
export function lightInk(amount) {
  return dark() ? amount < 0.6 : amount > 0.55;
}

/** Bytes painted as an image of `width` x `height` pixels; 255 is so strong, and what would be stronger than 1 is 1. */
export function painted(bytes, width, height, strong = 1, which = "look") {
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const inks = opaque(table(which));
  const levels = Uint32Array.from({ length: 256 }, (_, byte) => inks[Math.min(255, Math.round(255 * strong * Math.sqrt(byte / 255)))]);
  for (let k = 0; k < pixels.length; k++) pixels[k] = levels[bytes[k]];
  return image;
}

/** Colours as whole pixels, in the order of bytes of this machine. */
function opaque(colours) {
  const bytes = new Uint8ClampedArray(4 * STEPS).fill(255);
  for (let k = 0; k < STEPS; k++) bytes.set(colours.subarray(3 * k, 3 * k + 3), 4 * k);
  return new Uint32Array(bytes.buffer);
}

function ramp(stops) {
  const points = stops.map((hex) => toLab(hex));
  const out = new Uint8Array(3 * STEPS);
  for (let k = 0; k < STEPS; k++) {
    const along = (k / (STEPS - 1)) * (points.length - 1);
    const left = Math.min(points.length - 2, Math.floor(along));
    const between = points[left].map((a, axis) => a + (along - left) * (points[left + 1][axis] - a));
    out.set(toBytes(between), 3 * k);
  }
  return out;
}

function toLab(hex) {
  const [r, g, b] = [1, 3, 5].map((at) => linear(parseInt(hex.slice(at, at + 2), 16) / 255));
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function toBytes([lightness, a, b]) {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map((value) => Math.round(255 * Math.min(1, Math.max(0, gamma(value)))));
}

const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
const gamma = (value) => (value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055);
