/**
 * A token as people read it: the piece of text it stands for where it has a position in the text, else its own name. And what
 * a head is called.
 */

const letters = new WeakMap(); // of each axis: positions count whole characters, a string counts halves of some

/** The text a token stands for, spaces and line ends as signs. */
export function word(axis, index) {
  return visible(piece(axis, index) || axis.tokens[index]);
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

/** Whether the mean of a map's heads means something. */
export const hasMean = (map) => map.heads > 1 && map.kind !== "rollout";

/** Text in which nothing is invisible. */
export function visible(text) {
  if (text === "") return "∅";
  return text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/^ +$/, (spaces) => "␣".repeat(spaces.length));
}
