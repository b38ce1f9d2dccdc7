"""N-gram language model over labels with Witten-Bell smoothing.

    p(w | h) = (c(h w) + d(h) p(w | h')) / (c(h) + d(h))

c counts, d(h) is the number of different labels that followed the history h, h' is h without its first label; below
the empty history the distribution is uniform. An unseen history backs off entirely to the shorter one.

Small enough to be built from the transcripts of a dataset in a moment, for the beam of decoding.ctc_search:

    scorer = NGramLM.of(text.encode(lines), labels=text.size, bos=text.bos, eos=text.eos)
    transcriber(["digits.wav"], beam_size=16, scorer=scorer, lm_weight=0.5, insertion_bonus=1.0, eos=text.eos)

Witten, Bell: The Zero-Frequency Problem. IEEE Transactions on Information Theory, 1991
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from regard.core.errors import BadInput


class NGramLM:
    """Log-probabilities of the next label, from counts of all histories of up to `order` - 1 labels."""

    def __init__(self, counts: Mapping[tuple[int, ...], Counter[int]], order: int, labels: int, bos: int) -> None:
        self.counts, self.order, self.labels, self.bos = counts, order, labels, bos

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]], labels: int, bos: int, eos: int, order: int = 3) -> NGramLM:
        """Count n-grams in rows of labels; bos and eos are added."""
        if order < 1:
            raise BadInput(f"order must be 1 or more, got {order}")
        counts: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for row in rows:
            padded = [*[bos] * (order - 1), *row, eos]
            for i in range(order - 1, len(padded)):
                for size in range(order):
                    counts[tuple(padded[i - size : i])][padded[i]] += 1
        if not counts:
            raise BadInput("there are no rows to count n-grams in")
        return cls(dict(counts), order, labels, bos)

    def __call__(self, prefix: tuple[int, ...]) -> list[float]:
        """Return the log-probability of every label after a prefix."""
        padded = (*[self.bos] * (self.order - 1), *prefix)
        p = [1 / self.labels] * self.labels
        for size in range(self.order):
            following = self.counts.get(padded[len(padded) - size :])
            if following:
                num_distinct, total = len(following), sum(following.values())
                p = [num_distinct * x / (total + num_distinct) for x in p]
                for label, count in following.items():
                    p[label] += count / (total + num_distinct)
        return [math.log(x) for x in p]
