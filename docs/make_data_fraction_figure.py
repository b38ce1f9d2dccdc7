"""Draw the lecture's figure, accuracy of ViT and ResNet over the number of images: docs/assets/data-fractions.png.

    regard train vit_cifar10 data.train_fraction=0.05 --out runs/fraction-vit-5      trains one point
    python docs/make_data_fraction_figure.py                                         draws

Reads fraction-vit-5, -20, -50 and vit-cifar10 from docs/results/ (mean over seeds), and the same of resnet; those on
the JPEG copy of the images end with -jpeg. What is held equal is explained in docs/results_images.py. Points without a
result are left out. Then run docs/make_results.py.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from statistics import mean
from typing import Any

from results_images import FIGURE, PERCENTAGES, TRAIN_IMAGES, runs_by_fraction, test_accuracy
from results_tables import read_json

from regard import see

HERE = Path(__file__).resolve().parent
RUNS = HERE / "results"


def plot_fractions(runs: Sequence[Mapping[str, Any]], file: Path) -> list[Path]:
    """A line for each model, over the shares in their order; nothing, where no line has two points."""
    found = {what: measured for what, measured in runs_by_fraction(runs).items() if len(measured) > 1}
    if not found:
        return []
    there = [share for share in PERCENTAGES if any(share in measured for measured in found.values())]
    lines = {
        what: {f"{share} %": mean(map(test_accuracy, measured[share])) if share in measured else nan for share in there}
        for what, measured in found.items()
    }
    counts = {f"{share} %": TRAIN_IMAGES * share // 100 for share in there}
    title = "CIFAR-10 from scratch, as many updates on fewer images"
    see.score_by_length(lines, file, title, "test accuracy %", "of the training images", counts=counts)
    return [file]


def main() -> int:
    """Draw, and say what was drawn."""
    runs = [read_json(file) for file in sorted(RUNS.glob("*.json"))]
    FIGURE.parent.mkdir(exist_ok=True)
    made = plot_fractions(runs, FIGURE)
    print(*(path.relative_to(HERE.parent) for path in made) if made else ["nothing is measured yet"], sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
