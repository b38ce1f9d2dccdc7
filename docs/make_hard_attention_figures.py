"""Draws where a model that chooses has looked, for docs/how/hard-attention.md, into docs/assets/.

    python docs/make_hard_attention_figures.py runs/sounds-online/model elephant online-elephant.png
    python docs/make_hard_attention_figures.py runs/sounds-hard/model elephant hard-elephant.png

Of a model with hard attention both are drawn: the choice, and the chances it is taken from. The plot of the gradient
study is made by benchmarks/reinforce.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import regard
from regard import see

ASSETS = Path(__file__).resolve().parent / "assets"


def main(folder: str, word: str, name: str) -> Path:
    """One picture."""
    traces = regard.load(folder).attention(word)
    if len(traces) == 1:
        return see.save(see.alignment(traces[0], title=f"{word}: where each sound is written"), ASSETS / name)
    said = {"the choice": traces[-1], "what it is taken from": traces[0]}
    return see.save(see.compare_alignments(said, title=f"{word}: one letter for each sound"), ASSETS / name)


if __name__ == "__main__":
    print(main(*sys.argv[1:4]))
