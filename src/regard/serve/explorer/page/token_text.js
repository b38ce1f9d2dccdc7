/**
 * A token as people read it: the piece of text it stands for where it has a position in the text, else its own name. And what
 * a head is called.
 */

const PATCH = /^(\d+),(\d+)(?: \/ (\d+))?$/; // row, column, and the side of the patch where there are several sizes
const letters = new WeakMap(); // of each axis: positions count whole characters, a string counts halves of some

/** The text a token stands for, spaces and line ends as signs; a patch or a frame is told by its place, with units. */
export function word(axis, index) {
  const token = axis.tokens[index];
  const { box, time } = axis.positions[index] ?? {};
  const patch = box ? PATCH.exec(token) : null;
  if (patch) return `row ${patch[1]}, col ${patch[2]}${patch[3] ? ` (${patch[3]} px)` : ""}`;
  if (time && /^\d+(\.\d+)?$/.test(token)) return `${token} s`;
  return visible(piece(axis, index) || token);
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

/** Whether heads make a map: not a rollout over them, nor what a search or a gradient found. */
export const isAttention = (map) => !["rollout", "lattice", "labels", "gradcam", "layercam"].includes(map?.kind);

/** Whether the mean of a map's heads means something. */
export const hasMean = (map) => map.heads > 1 && map.kind !== "rollout";

/** Text in which nothing is invisible. */
export function visible(text) {
  if (text === "") return "∅";
  return text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/^ +$/, (spaces) => "␣".repeat(spaces.length));
}
