"""Edits: how many words have to be changed, added or dropped to make one text of another. Word error rate.

    d(i, j) = least of  d(i-1, j-1) + [said_i ≠ true_j]     a word in place of another (substitution), or the same
                        d(i-1, j) + 1                       a word too many            (insertion)
                        d(i, j-1) + 1                       a word missing             (deletion)

    error rate = (substitutions + insertions + deletions) / words that are true          it may exceed 1

Of ways that cost the same, a substitution goes before an insertion, and that before a deletion. O(N M) time, O(M) room.

Levenshtein: Binary codes capable of correcting deletions, insertions and reversals. 1966
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from regard.core.errors import BadInput


class EditCounts(NamedTuple):
    """How many edits of each kind, and how many words are true."""

    substitutions: int
    insertions: int
    deletions: int
    words: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.substitutions + self.insertions + self.deletions

    @property
    def rate(self) -> float:
        """Edits a true word; where nothing is true, 0 if nothing was said and 1 otherwise."""
        return self.total / self.words if self.words else float(self.total > 0)


def count_edits(hypothesis: Sequence[Hashable], reference: Sequence[Hashable]) -> EditCounts:
    """The fewest edits that make what is true of what was said."""
    row = [(j, 0, 0, j) for j in range(len(reference) + 1)]  # cost, substitutions, insertions, deletions
    for i, word in enumerate(hypothesis, 1):
        corner, row[0] = row[0], (i, 0, i, 0)
        for j, wanted in enumerate(reference, 1):
            (c, cs, ci, cd), (a, as_, ai, ad), (b, bs, bi, bd) = corner, row[j], row[j - 1]
            ways = (c + 1, cs + 1, ci, cd), (a + 1, as_, ai + 1, ad), (b + 1, bs, bi, bd + 1)
            corner, row[j] = row[j], corner if word == wanted else min(ways, key=_edit_cost)
    return EditCounts(*row[-1][1:], len(reference))


def _edit_cost(way: tuple[int, int, int, int]) -> int:
    return way[0]


def count_corpus_edits(hypothesis: Iterable[Sequence[Hashable]], reference: Iterable[Sequence[Hashable]]) -> EditCounts:
    """The edits of many texts, added up: their rate weighs every word alike."""
    found = [count_edits(a, b) for a, b in zip(hypothesis, reference, strict=True)]
    if not found:
        raise BadInput("there is nothing to score")
    return EditCounts(*(sum(column) for column in zip(*found, strict=True)))
