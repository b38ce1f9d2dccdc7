"""Draw the figures of docs/variants.md: time by length of every mechanism, and the gallery of their matrices.

    python docs/make_variants_figures.py        docs/assets/variants-speed-cpu.png (and -cuda), variants-gallery.png

The first comes from benchmarks/results/variants (nothing is drawn where nothing was measured), the second from the
mechanisms themselves on one sentence.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from variants_tables import every

from regard.cost.measurements import DENSE, MODES, read_speeds, total_times
from regard.interpret.mechanism_gallery import FAMILIES, mechanism_gallery, sentence_subject

ASSETS = Path(__file__).resolve().parent / "assets"
SENTENCE = ["The", "animal", "did", "not", "cross", "the", "street", "because", "it", "was", "tired"]


def draw_speed(device: str) -> list[Path]:
    """Draw a line for each mechanism beside dense attention, one panel for each family and mode."""
    import matplotlib.pyplot as plt

    record, traits = read_speeds(device), every()
    if record is None:
        return []
    families = [
        f for f in FAMILIES if any(traits[n].family == f for n in record["cases"] if n in traits and n != DENSE)
    ]
    figure, axes = plt.subplots(
        len(families),
        2,
        figsize=(11, 2.9 * len(families)),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for row, family in enumerate(families):
        for column, mode in enumerate(MODES):
            axis = axes[row][column]
            for name in record["cases"]:
                times = total_times(record, name, mode)
                if not times or (name != DENSE and (name not in traits or traits[name].family != family)):
                    continue
                style: dict[str, Any] = {"color": "black", "linewidth": 2.2} if name == DENSE else {"linewidth": 1.3}
                label = "dense softmax" if name == DENSE else name
                axis.loglog(list(times), [1000 * t for t in times.values()], marker=".", label=label, **style)
            axis.set_title(f"{family}, {mode}", fontsize=10)
            axis.set_xscale("log", base=2)
            axis.grid(alpha=0.25)
            axis.legend(fontsize=7, frameon=False)
            if column == 0:
                axis.set_ylabel("ms, forward + backward")
    for axis in axes[-1]:
        axis.set_xlabel("tokens")
    file = ASSETS / f"variants-speed-{device}.png"
    figure.savefig(file, dpi=110)
    plt.close(figure)
    return [file]


def draw_gallery() -> list[Path]:
    """Draw the matrix of every mechanism on one sentence."""
    import matplotlib.pyplot as plt

    from regard.serve.explorer.lab import word_vectors

    found = mechanism_gallery([sentence_subject(SENTENCE, word_vectors())])
    entries = [each for family in found["families"] for each in family["mechanisms"]]
    columns = 6
    rows = -(-len(entries) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(12, 2.25 * rows), squeeze=False, layout="constrained")
    for axis, entry in zip(axes.flat, entries, strict=False):
        (made,) = entry["maps"]
        axis.set_title(entry["spec"] if len(entry["spec"]) < 26 else entry["name"], fontsize=7.5)
        if "weights" in made:
            weights = np.sqrt(np.abs(made["weights"]))
            axis.imshow(weights, cmap="Blues", vmin=0, vmax=max(weights.max(), 0.7))
        else:
            axis.text(0.5, 0.5, "refuses a sentence\n(see its page)", ha="center", va="center", fontsize=7)
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    for axis in axes.flat[len(entries) :]:
        axis.axis("off")
    file = ASSETS / "variants-gallery.png"
    figure.savefig(file, dpi=110)
    plt.close(figure)
    return [file]


def main() -> int:
    """Draw, and say what was drawn."""
    import matplotlib as mpl

    mpl.use("Agg")
    for file in [*draw_speed("cpu"), *draw_speed("cuda"), *draw_gallery()]:
        print(file.relative_to(ASSETS.parents[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
