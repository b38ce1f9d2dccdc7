/**
 * A token as people read it: the piece of text it stands for where it has a place there, else its own name. And what
 * a head is called.
 */

const letters = new WeakMap(); // of each side: places count whole characters, a string counts halves of some

/** The text a token stands for, spaces and line ends as signs. */
export function word(side, index) {
  return visible(piece(side, index) || side.tokens[index]);
}

/** The piece of text at a token's place, as it is; "" where it has none. */
export function piece(side, index) {
  const place = side.places[index]?.text;
  if (!place || typeof side.text !== "string") return "";
  if (!letters.has(side)) letters.set(side, Array.from(side.text));
  return letters.get(side).slice(...place).join("");
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
