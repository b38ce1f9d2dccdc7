"""Word error rate: edits that turn a hypothesis into its reference (Levenshtein distance).

    d(i, j) = min of  d(i-1, j-1) + [hypothesis_i ≠ reference_j]     substitution, or a match
                      d(i-1, j) + 1                                  insertion
                      d(i, j-1) + 1                                  deletion

    error rate = (substitutions + insertions + deletions) / words of the reference          may exceed 1

Ties prefer a substitution over an insertion over a deletion. O(N M) time, O(M) memory.

Levenshtein: Binary codes capable of correcting deletions, insertions and reversals. 1966
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from regard.core.errors import BadInput


class EditCounts(NamedTuple):
    """Number of edits of each kind, and of words in the reference."""

    substitutions: int
    insertions: int
    deletions: int
    words: int

    @property
    def total(self) -> int:
        return self.substitutions + self.insertions + self.deletions

    @property
    def rate(self) -> float:
        """Return edits per reference word; for an empty reference, 0 if the hypothesis is empty too, else 1."""
        return self.total / self.words if self.words else float(self.total > 0)


def count_edits(hypothesis: Sequence[Hashable], reference: Sequence[Hashable]) -> EditCounts:
    """Return the fewest edits that turn the hypothesis into the reference."""
    row = [(j, 0, 0, j) for j in range(len(reference) + 1)]  # cost, substitutions, insertions, deletions
    for i, word in enumerate(hypothesis, 1):
        corner, row[0] = row[0], (i, 0, i, 0)
        for j, target in enumerate(reference, 1):
            (c, cs, ci, cd), (a, as_, ai, ad), (b, bs, bi, bd) = corner, row[j], row[j - 1]
            ways = (c + 1, cs + 1, ci, cd), (a + 1, as_, ai + 1, ad), (b + 1, bs, bi, bd + 1)
            corner, row[j] = row[j], corner if word == target else min(ways, key=_edit_cost)
    return EditCounts(*row[-1][1:], len(reference))


def _edit_cost(way: tuple[int, int, int, int]) -> int:
    return way[0]


def count_corpus_edits(hypothesis: Iterable[Sequence[Hashable]], reference: Iterable[Sequence[Hashable]]) -> EditCounts:
    """Return the summed edits of many texts; their rate weighs every word equally."""
    found = [count_edits(a, b) for a, b in zip(hypothesis, reference, strict=True)]
    if not found:
        raise BadInput("there is nothing to score")
    return EditCounts(*(sum(column) for column in zip(*found, strict=True)))
