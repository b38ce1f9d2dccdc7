"""Scores per bucket of input length: a decline with length shows here and not in the mean.

    words     sentences   bleu            letters   words   wer
    1-5       37          ...             1-4       1893    ...
    6-10      402         ...             5-6       3371    ...

Empty buckets are left out. Each row has its number of inputs, since a score of few inputs means little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

SENTENCE_BUCKETS = (5, 10, 15, 20, 25, 30)  # upper ends in words; the last bucket is open
SPELLING_BUCKETS = (4, 6, 8, 10, 12)  # in letters


def score_by_length(
    lengths: Sequence[int], ends: Sequence[int], measure: Callable[[list[int]], Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return one row per bucket: from, to (None: open), count, and the scores that `measure` returns for its inputs."""
    found = []
    for low, high in zip([1, *(end + 1 for end in ends)], [*ends, None], strict=True):
        inside = [i for i, n in enumerate(lengths) if max(n, 1) >= low and (high is None or n <= high)]
        if inside:
            found.append({"from": low, "to": high, "count": len(inside), **measure(inside)})
    return found


def bucket_label(row: Mapping[str, Any]) -> str:
    """Return the label of a bucket: 6-10, or 31+."""
    return f"{row['from']}+" if row["to"] is None else f"{row['from']}-{row['to']}"
