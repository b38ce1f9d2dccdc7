"""An n-gram language model over labels: how often what follows what, smoothed by how much is still new.

    p(w | h) = (c(h w) + d(h) p(w | h')) / (c(h) + d(h))        Witten-Bell

c counts, d(h) is how many different labels have followed the history h, h' is h without its first label; below the
empty history all labels are alike. A history that was never seen leaves all of it to the shorter one.

Small enough to be made from the transcripts of a data set in a moment, for the beam of decoding.ctc_search:

    judge = NGramLM.of(text.encode(lines), labels=text.size, bos=text.bos, eos=text.eos)
    transcriber(["digits.wav"], beams=16, scorer=judge, lm_weight=0.5, insertion_bonus=1.0, eos=text.eos)

Witten, Bell: The Zero-Frequency Problem. IEEE Transactions on Information Theory, 1991
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from regard.core.errors import BadInput


class NGramLM:
    """Log-probabilities of the label after a prefix, from counts of all histories up to `order` - 1 labels."""

    def __init__(self, counts: Mapping[tuple[int, ...], Counter[int]], order: int, labels: int, bos: int) -> None:
        self.counts, self.order, self.labels, self.bos = counts, order, labels, bos

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]], labels: int, bos: int, eos: int, order: int = 3) -> NGramLM:
        """The model of rows of labels, each of which begins and ends."""
        if order < 1:
            raise BadInput(f"an n-gram of order {order} knows nothing; give 1 or more")
        counts: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for row in rows:
            whole = [*[bos] * (order - 1), *row, eos]
            for at in range(order - 1, len(whole)):
                for size in range(order):
                    counts[tuple(whole[at - size : at])][whole[at]] += 1
        if not counts:
            raise BadInput("there are no rows to count")
        return cls(dict(counts), order, labels, bos)

    def __call__(self, prefix: tuple[int, ...]) -> list[float]:
        """The log-probability of every label after a prefix; that of the end is its own number's."""
        whole = (*[self.bos] * (self.order - 1), *prefix)
        p = [1 / self.labels] * self.labels
        for size in range(self.order):
            seen = self.counts.get(whole[len(whole) - size :])
            if seen:
                kinds, total = len(seen), sum(seen.values())
                p = [kinds * x / (total + kinds) for x in p]
                for label, count in seen.items():
                    p[label] += count / (total + kinds)
        return [math.log(x) for x in p]
