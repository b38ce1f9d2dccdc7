/**
 * The token that is pinned first: one whose weights tell something.
 *
 *     the label that the model gave, if a token stands for it
 *     a class token of a picture, else the patch in its middle
 *     a mask that is to be filled
 *     a pronoun after a word that it may stand for
 *     a content word past the middle, one that comes once if there is any
 *
 * Of a word in several pieces it is the longest piece, of equal ones the last, which has read the others.
 */

const BACKGROUND = 0.25; // of a picture, from which on a mask may be a background

const words = (text) => new Set(text.split(" "));

const PRONOUNS = words("it he she they him her them il elle ils elles lui er sie es ihn ihm");

const FUNCTION_WORDS = words(
  "a an the this that these those and or but nor so yet if because as of in on at to from by with for into over under about after before than then " +
  "is are was were be been being am do does did has have had having will would shall should can could may might must not no " +
  "i you we he she it they me him her us them my your his its our their who whom which what when where why how there here too very just also " +
  "der die das den dem des ein eine einen einem einer eines und oder aber denn weil dass wenn als wie ist sind war waren wird werden wurde hat haben hatte " +
  "nicht kein keine ich du er sie es wir ihr ihn ihm mich mir dich dir sich uns euch im in am an auf aus bei mit von vom zu zum zur für über unter nach vor um " +
  "le la les un une des du de d l et ou mais donc car si que qui quoi dont où est sont était ont a ai as avons avez être avoir ne pas je tu il elle nous vous ils elles " +
  "me te se ce cet cette ces mon ma mes ton ta tes son sa ses au aux dans sur sous par pour avec sans en y",
);

/** The label that an output is surest of, or null; of masks of pixels rather a thing than a background. */
export function likeliest({ label = null, boxes, kind, masks: given }) {
  const masks = kind === "masks" ? given : []; // the masks of a text are gaps
  const things = masks.filter((mask) => share(mask) < BACKGROUND);
  const found = boxes ?? (things.length ? things : masks);
  return label ?? [...found].sort((a, b) => b.score - a.score)[0]?.label ?? null;
}

/** The share of a picture that a mask covers; `counts` are runs of pixels, the first of them outside. */
function share({ counts }) {
  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
  return sum(counts.filter((_, k) => k % 2)) / sum(counts);
}

/** The index of that token on an axis {tokens, positions, special, text}, where the answer was `label`. */
export function firstToken(axis, label = null) {
  const { tokens, positions, special } = axis;
  const named = label === null || axis.text ? [] : [...tokens.keys()].filter((k) => positions[k].none && tokens[k].includes(label));
  if (named.length) return named.find((k) => tokens[k] === label) ?? named.find((k) => !special[k]) ?? named[0];
  if (positions.some((position) => position.box)) return special[0] ? 0 : middle(positions);
  const mask = tokens.findIndex((token, k) => special[k] && /mask/i.test(token));
  if (mask >= 0) return mask;
  const all = wordsOf(axis);
  const isContent = ({ text }) => /\p{L}{2}/u.test(text) && !FUNCTION_WORDS.has(text.toLowerCase());
  const content = all.filter(isContent);
  const first = content[0]?.at ?? Infinity;
  const pronoun = all.findLast(({ text, at }) => PRONOUNS.has(text.toLowerCase()) && at > first);
  const plain = [...tokens.keys()].filter((k) => !special[k]);
  const past = (found) => found.slice(Math.floor(0.6 * found.length));
  const once = ({ text }) => content.filter((other) => other.text === text).length === 1;
  return pronoun?.at ?? (past(content).find(once) ?? past(content)[0])?.at ?? past(plain)[0] ?? 0;
}

/** The words of an axis and the token of each: pieces that touch in the text, or tokens that are words themselves. */
function wordsOf({ tokens, positions, special, text }) {
  const letters = typeof text === "string" ? Array.from(text) : null;
  const found = [];
  let end = null;
  for (const [at, token] of tokens.entries()) {
    const place = letters ? positions[at].text : null;
    if (place && String(place) === String(positions[at - 1]?.text)) continue; // another byte of the same character
    const piece = place ? letters.slice(...place).join("") : letters ? "" : token;
    if (special[at] || !/[\p{L}\p{M}\p{N}'’-]/u.test(piece)) end = null;
    else if (end !== null && place?.[0] === end && !/^\s/.test(piece)) extend(found.at(-1), piece, at);
    else found.push({ text: piece.trim(), at, longest: piece.trim().length });
    if (place && found.at(-1) && /[\p{L}\p{M}\p{N}'’-]$/u.test(piece)) end = place[1];
    else end = null;
  }
  return found;
}

function extend(word, piece, at) {
  word.text += piece;
  if (piece.length >= word.longest) Object.assign(word, { at, longest: piece.length });
}

/** The box in the middle of all boxes. */
function middle(positions) {
  const boxes = positions.map((position, k) => [position.box, k]).filter(([box]) => box);
  const side = (axis) => Math.max(...boxes.map(([box]) => box[axis] + box[axis + 2]));
  const off = ([x, y, w, h]) => Math.hypot(x + w / 2 - side(0) / 2, y + h / 2 - side(1) / 2);
  return boxes.reduce((best, one) => (off(one[0]) < off(best[0]) - 1e-6 ? one : best))[1];
}
