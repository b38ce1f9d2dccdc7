/**
 * Readable tokens of a search.
 *
 * A vocabulary that writes spaces into its pieces ("▁dog", "s") is read the other way round: a piece that begins a word
 * stands bare, one that goes on with a word gets a dot before it ("·s"). The token that ends a text is "(end)".
 */

import { visible } from "./token_text.js";

const SPACE = "▁";
const ENDS = new Set(["</s>", "<|endoftext|>", "[SEP]", "<eos>"]);

/** Return a function that formats a token of this search. */
export function tokenFormatter(shown) {
  const pieces = [...(shown.source ?? []), ...shown.steps.flatMap((step) => (step.nodes ?? []).map((node) => node.piece))];
  const spaced = pieces.some((piece) => piece.length > 1 && piece.startsWith(SPACE));
  return (piece) => {
    if (ENDS.has(piece)) return "(end)";
    if (piece === SPACE) return "␣";
    if (piece.startsWith(SPACE)) return visible(piece.slice(1));
    return spaced && /^[\p{L}\p{N}]/u.test(piece) ? `·${visible(piece)}` : visible(piece);
  };
}
