"""Draws the pictures of docs/gallery.md and the README into docs/assets/.

    python docs/make_gallery.py            all of them
    python docs/make_gallery.py --masks    those that need no trained model

The attention pictures need the translator "en-de" (regard list zoo). Pictures hold no date: the same model draws the
same file.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from regard import see
from regard.attention.mask import Causal, Global, Keys, Window

ASSETS = Path(__file__).resolve().parent / "assets"
SENTENCE = "Two dogs are playing in the snow."
IT = {
    "it-tired": "The animal didn't cross the street because it was too tired.",
    "it-wide": "The animal didn't cross the street because it was too wide.",
}


def masks(folder: Path) -> list[Path]:
    """Who may look at whom."""
    every = {
        "mask-causal": (Causal(), "Causal()"),
        "mask-padding": (Keys(torch.tensor([5])), "Keys([5])"),
        "mask-window": (Causal() & (Window(3) | Global([0])), "Causal() & (Window(3) | Global([0]))"),
    }
    return [
        see.save(see.mask(mask.dense(1, 8, 8), title=title), folder / f"{name}.png")
        for name, (mask, title) in every.items()
    ]


def attention(folder: Path, model: str = "en-de") -> list[Path]:
    """What the shipped translator looks at."""
    import regard
    from regard.cli.see import View, draw, picked

    translator = regard.load(model)
    written = translator([SENTENCE])[0]
    traces, title = translator.attention(SENTENCE), f"{SENTENCE}  →  {written}"
    views = {"attention": View.cross, "heads": View.heads, "layers": View.layers, "rollout": View.rollout}
    made = []
    for name, view in views.items():
        made += draw(traces, picked(traces, view, None), view, None, title, [folder / f"{name}.png"])
    for name, sentence in IT.items():
        seen = translator.attention(sentence)
        made += draw(seen, picked(seen, View.encoder, None), View.encoder, None, sentence, [folder / f"{name}.png"])
    return made


def main(words: Sequence[str]) -> int:
    """Draw, and say what was drawn."""
    ASSETS.mkdir(exist_ok=True)
    made = masks(ASSETS)
    if "--masks" not in words:
        made += attention(ASSETS)
    print(*(path.relative_to(ASSETS.parents[1]) for path in made), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
