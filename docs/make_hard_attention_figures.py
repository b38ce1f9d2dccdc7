"""Draw the alignment of a model with hard attention, for docs/how/hard-attention.md, into docs/assets/.

    python docs/make_hard_attention_figures.py runs/sounds-online/model elephant online-elephant.png
    python docs/make_hard_attention_figures.py runs/sounds-hard/model elephant hard-elephant.png

For hard attention both the choice and its probabilities are drawn. The plot of the gradient
study is made by benchmarks/reinforce.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import regard
from regard import see

ASSETS = Path(__file__).resolve().parent / "assets"


def main(folder: str, word: str, name: str) -> Path:
    """Draw one figure."""
    traces = regard.load(folder).attention(word)
    if len(traces) == 1:
        return see.save(see.alignment(traces[0], title=f"{word}: where each phoneme is written"), ASSETS / name)
    parts = {"choice": traces[-1], "probabilities": traces[0]}
    return see.save(see.compare_alignments(parts, title=f"{word}: one letter for each phoneme"), ASSETS / name)


if __name__ == "__main__":
    print(main(*sys.argv[1:4]))
