/**
 * The views of a map, and the limits of each.
 */

/** Views of single heads first, then those through all layers. */
export const VIEWS = [
  {
    value: "raw",
    shares: true,
    verb: "attends to",
    title: "Raw",
    says: "The attention weights of this head.",
    hides:
      "A large weight shows where a head reads, not that the answer depends on it: the value read there may be close to " +
      "zero, and the residual connection and the feed-forward layers are not shown.",
  },
  {
    value: "without_sink",
    shares: true,
    verb: "attends to",
    title: "Without sink",
    says: "The weights without attention sinks, rescaled to the same row sum.",
    hides:
      "A sink (a first token, a full stop, an end token) collects the weight of heads that find nothing to attend to. " +
      "Removing it enlarges the rest; a row that was nearly all sink is mostly noise now.",
  },
  {
    value: "value",
    shares: false, // norms do not sum to one
    unit: "norm",
    verb: "takes from",
    title: "Value-weighted",
    says: "Each weight times the norm of its value vector after the output projection: a length in the model's own units.",
    hides:
      "Norms are not directions: two long vectors can cancel each other, and what later layers do with the sum is not " +
      "shown.",
  },
  {
    value: "rollout",
    shares: true,
    verb: "is reached by",
    title: "Rollout",
    whole: true,
    says: "All layers multiplied, each half attention and half residual: which parts of the input reach this token.",
    hides:
      "Rollout averages the heads and ignores values and feed-forward layers. It shows possible paths, not what was " +
      "passed along them.",
  },
  {
    value: "relevance",
    shares: true, // of the sum
    verb: "depends on",
    title: "Relevance",
    whole: true,
    says: "Weights times their gradients, through all layers: which parts of the input this answer depends on, as shares of their sum.",
    hides:
      "A gradient describes small changes near this input. It may miss saturated effects, and it explains one answer at " +
      "a time.",
  },
];

// Maps other than attention, and their texts.
const OTHER = {
  rollout: {
    title: "Rollout up to layer",
    verb: "is made of",
    seen: "is part of",
    says: "Layers multiplied, each half attention and half residual: which tokens reach this one after so many layers.",
    hides:
      "Rollout ignores values and feed-forward layers. It shows possible paths, not what was passed along them; heads " +
      "are fused by their mean, maximum or minimum.",
  },
  lattice: {
    title: "Lattice",
    who: "States",
    what: "Time",
    sums: false, // the frames of a state do not sum to one
    verb: "occurs at",
    seen: "belongs to",
    says: "The probability that a frame belongs to each part of the answer, over all alignments; - is the blank.",
    square: "The square is all of it: a row per part of the answer, a column per frame.",
    hides: "This is about the answer that was given. Alternatives are under Labels.",
  },
  labels: {
    title: "Labels",
    who: "Labels",
    what: "Time",
    sums: false,
    verb: "is likely at",
    seen: "sounds like",
    says: "The probability of each label in every frame, before decoding.",
    square: "The square is all of it: a row per label, a column per frame.",
    hides: "Most frames are blank; the labels are in the few that are not.",
  },
  gradcam: {
    title: "Grad-CAM",
    who: "Labels",
    what: "Picture",
    verb: "is supported by",
    seen: "supports",
    square: "The square is all of it: a row per label, a column per cell of the picture.",
    says: "The channels of the last convolutions, weighted by their gradient for a label: shares of their sum.",
    hides:
      "A cell stands for all pixels that its convolutions read, which are more than it covers. What speaks against the label " +
      "is not shown, nor what the network would say without these pixels.",
  },
  layercam: {
    title: "LayerCAM",
    who: "Labels",
    what: "Picture",
    verb: "is supported by",
    seen: "supports",
    square: "The square is all of it: a row per label, a column per cell of the picture.",
    says: "Activations of all stages times their positive gradients for a label: shares of their sum, in finer cells.",
    hides:
      "Fine grids follow edges and texture, whatever the label. What speaks against it is not shown, nor what the network would " +
      "say without these pixels.",
  },
};

/** Views of single heads; these can be shown side by side. */
export const OF_A_HEAD = VIEWS.filter((view) => !view.whole);

/** The view of that name, with other texts for maps other than attention, and without shares where weights are none. */
export function view(name, map = null) {
  const found = VIEWS.find((each) => each.value === name) ?? VIEWS[0];
  const other = found.whole ? null : OTHER[map?.kind];
  if (other) return { ...found, ...other, other: true };
  const isWindow = !found.whole && map?.kind === "align" && map.normalised === false; // its weights may exceed one
  return isWindow ? { ...found, shares: false, says: "The weights of this window: plain numbers that need not sum to one." } : found;
}

/** What the rows and the columns of a map are: "queries (target)". */
export function sides(chosen, map) {
  const side = (what, axis) => (map.rows === map.columns || axis === what.toLowerCase() ? what : `${what} (${axis.replaceAll("_", " ")})`).toLowerCase();
  return [side(chosen.who ?? "Queries", map.rows), side(chosen.what ?? "Keys", map.columns)];
}
