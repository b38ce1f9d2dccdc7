/**
 * A token as people read it: the piece of text it stands for where it has a position in the text, else its own name. And what
 * a head is called.
 */

const PATCH = /^(\d+),(\d+)(?: \/ (\d+))?$/; // row, column, and the side of the patch where there are several sizes
const FRAME = /^\d+\.\d\d$/; // the second it begins at
const INVISIBLE = /^(?![\n\t])[\p{C}\p{Default_Ignorable_Code_Point}]+$/u; // joiners, marks of direction
const letters = new WeakMap(); // of each axis: positions count whole characters, a string counts halves of some

/** The text a token stands for, spaces and line ends as signs; a patch or a frame is told by its place, with units. */
export function word(axis, index) {
  const token = axis.tokens[index];
  const { box, time } = axis.positions[index] ?? {};
  const patch = box ? PATCH.exec(token) : null;
  if (patch) return `row ${patch[1]}, col ${patch[2]}${patch[3] ? ` (${patch[3]} px)` : ""}`;
  if (time && FRAME.test(token)) return `${token} s`;
  if (axis.positions[index]?.point || axis.positions[index]?.pen) return `point ${token}`;
  return visible(piece(axis, index) || token) + part(axis, index);
}

/** Whether the tokens are frames of a recording, and not words that are heard in it. */
export const isOfFrames = (axis) => axis.positions.some(({ time }, k) => time && FRAME.test(axis.tokens[k]));

/** Whether two tokens are parts of one character, as bytes of it are. */
export function sharesCharacter(axis, index, other) {
  const [own, theirs] = [axis.positions[index]?.text, axis.positions[other]?.text];
  return Boolean(own && theirs && own[1] - own[0] === 1 && own[0] === theirs[0] && own[1] === theirs[1]);
}

/** The number of a token that is only a part of a character, small; else nothing. */
function part(axis, index) {
  let first = index;
  while (sharesCharacter(axis, index, first - 1)) first--;
  return first < index || sharesCharacter(axis, index, index + 1) ? "₁₂₃₄₅₆₇₈₉"[index - first] ?? "" : "";
}

/** The piece of text at a token's position, as it is; "" where it has none. */
export function piece(axis, index) {
  const position = axis.positions[index]?.text;
  if (!position || typeof axis.text !== "string") return "";
  if (!letters.has(axis)) letters.set(axis, Array.from(axis.text));
  return letters.get(axis).slice(...position).join("");
}

/** What a head of a map is called; -1 is the mean of all. A rollout has ways to fuse heads where others have heads. */
export function headName(map, head) {
  if (head < 0) return "mean of heads";
  const name = map.named?.[head] ?? head;
  return map.kind === "rollout" ? `${name} of heads` : `head ${name}`;
}

const KINDS = { self: "self-attention", cross: "cross-attention", align: "alignment", hop: "memory hop" };

/** What a map is, in words: "decoder self-attention". */
export function kindName({ name, kind }) {
  const side = kind === "self" ? ["encoder", "decoder"].find((one) => name.split(".")[0] === one) : null;
  return [side, KINDS[kind] ?? kind].filter(Boolean).join(" ");
}

/** Whether heads make a map: not a rollout over them, nor what a search or a gradient found. */
export const isAttention = (map) => !["rollout", "lattice", "labels", "gradcam", "layercam"].includes(map?.kind);

/** Whether the mean of a map's heads means something. */
export const hasMean = (map) => map.heads > 1 && map.kind !== "rollout";

/** Text in which nothing is invisible. */
export function visible(text) {
  if (text === "") return "∅";
  if (INVISIBLE.test(text)) return Array.from(text, (letter) => `U+${letter.codePointAt().toString(16).toUpperCase().padStart(4, "0")}`).join(" ");
  return text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/^ +$/, (spaces) => "␣".repeat(spaces.length));
}
