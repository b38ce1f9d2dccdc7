"""Draws the lecture's figure, ViT against ResNet on ever more of the images, into docs/assets/shares.png.

    python docs/run_owed.py 'share-*' vit-cifar10 resnet-cifar10      makes the runs of it that are not there yet
    python docs/make_shares.py                                        draws

From docs/results/: share-vit-5, -20, -50 and vit-cifar10, the same of resnet, the mean where there are seeds. What is
held equal, and why, stands in docs/results_images.py. What is not measured is not drawn; the picture holds no date, so
the same files draw the same picture. Then: python docs/make_results.py, which shows what was drawn.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from statistics import mean
from typing import Any

from results_images import MODELS, PICTURE, SHARES, TRAINED, points, right
from results_parts import read

from regard import see

HERE = Path(__file__).resolve().parent
RUNS = HERE / "results"


def shares(runs: Sequence[Mapping[str, Any]], file: Path) -> list[Path]:
    """A line for each model, over the shares in their order; nothing, where no line has two points."""
    found = {what: points(runs, model) for model, what in MODELS.items()}
    found = {what: measured for what, measured in found.items() if len(measured) > 1}
    if not found:
        return []
    there = [share for share in SHARES if any(share in measured for measured in found.values())]
    lines = {
        what: {f"{share} %": mean(map(right, measured[share])) if share in measured else nan for share in there}
        for what, measured in found.items()
    }
    counts = {f"{share} %": TRAINED * share // 100 for share in there}
    title = "CIFAR-10 from scratch, as many updates on fewer images"
    see.lengths(lines, file, title, "test images right, %", "of the training images", counts=counts)
    return [file]


def main() -> int:
    """Draw, and say what was drawn."""
    runs = [read(file) for file in sorted(RUNS.glob("*.json"))]
    PICTURE.parent.mkdir(exist_ok=True)
    made = shares(runs, PICTURE)
    print(*(path.relative_to(HERE.parent) for path in made) if made else ["nothing is measured yet"], sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
