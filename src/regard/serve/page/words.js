/**
 * A token as people read it: the piece of text it stands for where it has a place there, else its own name.
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

/** Text in which nothing is invisible. */
export function visible(text) {
  if (text === "") return "∅";
  return text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/^ +$/, (spaces) => "␣".repeat(spaces.length));
}
