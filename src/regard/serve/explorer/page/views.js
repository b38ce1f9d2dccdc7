/**
 * The ways to read a weight, and what each of them does not show.
 */

/** Views of single heads first, then those that go through all layers. */
export const VIEWS = [
  {
    value: "raw",
    shares: true,
    verb: "looks at",
    title: "Raw",
    says: "The weights as this head applied them.",
    hides:
      "A large weight says where a head reads, not that the answer depends on it: what is read there may be close to " +
      "nothing, and the path around attention and the feed-forward layers are not in this picture.",
  },
  {
    value: "without_sink",
    shares: true,
    verb: "looks at",
    title: "Without sink",
    says: "The same, without the tokens on which a head rests when it has nothing to look for.",
    hides:
      "Heads that have nothing to say look at a sink: a first token, a full stop, an end sign. Leaving it out shows " +
      "the rest larger than it is; a row that was nearly all sink is nearly all noise now.",
  },
  {
    value: "value",
    shares: false, // lengths and scores do not sum to one
    verb: "takes from",
    title: "Value-weighted",
    says: "Each weight times the length of what is carried along: the value, after the output projection.",
    hides:
      "Lengths are not directions. Two long vectors can cancel each other, and what later layers do with the sum is " +
      "not in this picture.",
  },
  {
    value: "rollout",
    shares: true,
    verb: "is reached by",
    title: "Rollout",
    whole: true,
    says: "All layers multiplied, half of each going around attention: which parts of the input reach this token.",
    hides:
      "Rollout takes the mean of the heads and knows neither values nor feed-forward layers. It shows ways that are " +
      "open, not what went along them.",
  },
  {
    value: "relevance",
    shares: false, // lengths and scores do not sum to one
    verb: "leans on",
    title: "Relevance",
    whole: true,
    says: "Weights times their gradients, through all layers: which parts of the input this answer leans on.",
    hides:
      "A gradient is about small changes near this input. It may miss what saturates, and it explains one answer at a " +
      "time, the one that is pointed at.",
  },
];

// Maps that are no attention, and what is to be said about them instead.
const OTHER = {
  rollout: {
    title: "Rollout up to layer",
    verb: "is made of",
    seen: "is part of",
    says: "Layers multiplied, half of each going around attention: which tokens reach this one after so many layers.",
    hides:
      "Rollout knows neither values nor feed-forward layers. It shows ways that are open, not what went along them; the " +
      "largest or the smallest of the heads may stand for all of them instead of their mean.",
  },
  lattice: {
    title: "Lattice",
    who: "What is said",
    what: "When",
    sums: false, // the frames of a part are not shares of it
    verb: "is said at",
    seen: "belongs to",
    says: "How likely a frame is to belong to each part of the answer, over all ways to say it.",
    hides: "This is about the answer that was given. What the model would have heard otherwise is under Labels.",
  },
  labels: {
    title: "Labels",
    who: "What may be said",
    what: "When",
    sums: false,
    verb: "is heard at",
    seen: "sounds like",
    says: "How likely each label is in every frame, before the answer is put together.",
    hides: "Most frames say nothing (a blank); what is heard stands in the few that do not.",
  },
};

/** Those that can stand side by side: the ones of a single head. */
export const OF_A_HEAD = VIEWS.filter((view) => !view.whole);

/** The view of that name; of a map that is no attention it says other things. */
export function view(name, map = null) {
  const found = VIEWS.find((each) => each.value === name) ?? VIEWS[0];
  const other = found.whole ? null : OTHER[map?.kind];
  return other ? { ...found, ...other, other: true } : found;
}
